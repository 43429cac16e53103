"""Packets by which the CP itself moves data. They run in packet order and do not wait for earlier dispatches.

Layouts: PAL gfx12_merged_f32_mec_pm4_packets.h, gfx9_plus_merged_f32_mec_pm4_packets.h.
"""

from __future__ import annotations

from collections.abc import Iterator

from zinc_rt.pm4.codec import packet
from zinc_rt.pm4.fields import CACHE, CACHE_LABELS, FUNCTIONS, address, bits, pair, payload, word
from zinc_rt.pm4.generation import GFX12
from zinc_rt.pm4.lint_rules import Complaint, StreamContext
from zinc_rt.pm4.packet import Access, Packet

SRC_LABELS = ("src_cache_policy", "src_temporal")
DST_LABELS = ("dst_cache_policy", "dst_temporal")

WRITE_DESTINATIONS = {0: "register", 2: "l2", 5: "memory", 6: "adc_persistent_state"}


@packet(0x37, dwords=5, group=1)
class WriteData(Packet):
    """Write dwords to memory (by default) or to registers; `address` is then a register's dword address."""

    address: int = address(2)
    data: tuple[int, ...] = payload(4)
    dst_sel: int = bits(1, 11, 8, default=5, values=(WRITE_DESTINATIONS | {3: "gds"}, WRITE_DESTINATIONS))
    wr_confirm: int = bits(1, 20, default=0)
    same_address: int = bits(1, 16, default=0)
    cache_policy: int = bits(1, 26, 25, default=0, values=CACHE, labels=CACHE_LABELS)
    mode: int = bits(1, 21, default=0, on=GFX12)
    aid_id: int = bits(1, 24, 23, default=0, on=GFX12)  # at another offset in nvd.h: leave 0

    def accesses(self) -> Iterator[Access]:
        if self.dst_sel in (2, 5):
            size_bytes = 4 if self.same_address else 4 * len(self.data)
            yield Access(self.address, size_bytes, "write", 4, 2)


COPY_SOURCES = {
    0: "register",
    1: "l2_obsolete",
    2: "l2",
    4: "perf_counter",
    5: "immediate",
    6: "atomic_return",
    9: "gpu_clock",
    10: "system_clock",
}
COPY_SOURCES_GFX11 = COPY_SOURCES | {3: "gds", 7: "gds_atomic_return_0", 8: "gds_atomic_return_1"}
COPY_DESTINATIONS = {0: "register", 2: "l2", 4: "perf_counter", 5: "l2_obsolete", 6: "register_dc"}


@packet(0x40, dwords=6)
class CopyData(Packet):
    """Copy 32 or 64 bits. `src` and `dst` are VAs, register dword addresses or an immediate, as selected."""

    src: int = address(2)
    dst: int = address(4)
    src_sel: int = bits(1, 3, 0, default=2, values=(COPY_SOURCES_GFX11, COPY_SOURCES))
    dst_sel: int = bits(1, 11, 8, default=2, values=(COPY_DESTINATIONS | {3: "gds"}, COPY_DESTINATIONS))
    count_sel: int = bits(1, 16, default=0, values={0: "32_bits", 1: "64_bits"})
    wr_confirm: int = bits(1, 20, default=0)
    src_cache_policy: int = bits(1, 14, 13, default=0, values=CACHE, labels=SRC_LABELS)
    dst_cache_policy: int = bits(1, 26, 25, default=0, values=CACHE, labels=DST_LABELS)
    pq_exe_status: int = bits(1, 29, default=0)
    mode: int = bits(1, 21, default=0, on=GFX12)
    aid_id: int = bits(1, 24, 23, default=0, on=GFX12)

    def accesses(self) -> Iterator[Access]:
        size_bytes = 8 if self.count_sel else 4
        if self.src_sel in (1, 2):
            yield Access(self.src, size_bytes, "read", size_bytes, 2)
        if self.dst_sel in (2, 5):
            yield Access(self.dst, size_bytes, "write", size_bytes, 4)


DMA_SOURCES = {0: "address", 2: "data", 3: "address_l2"}
DMA_DESTINATIONS = {0: "address", 2: "nowhere", 3: "address_l2"}


@packet(0x50, dwords=7)
class DmaData(Packet):
    """Copy `byte_count` bytes without a shader, or fill them with the lower dword of `src`.

    `cp_sync`: the CP continues after this and all earlier DMA complete. `raw_wait`: this DMA starts after they
    complete.
    """

    src: int = address(2)
    dst: int = address(4)
    byte_count: int = bits(6, 25, 0)
    src_sel: int = bits(1, 30, 29, default=3, values=(DMA_SOURCES | {1: "gds"}, DMA_SOURCES))
    dst_sel: int = bits(1, 21, 20, default=3, values=(DMA_DESTINATIONS | {1: "gds"}, DMA_DESTINATIONS))
    src_cache_policy: int = bits(1, 14, 13, default=0, values=CACHE, labels=SRC_LABELS)
    dst_cache_policy: int = bits(1, 26, 25, default=0, values=CACHE, labels=DST_LABELS)
    cp_sync: int = bits(1, 31, default=0)
    raw_wait: int = bits(6, 30, default=0)
    disable_write_confirm: int = bits(6, 31, default=0)
    src_space: int = bits(6, 26, default=0, values={0: "memory"})
    dst_space: int = bits(6, 27, default=0, values={0: "memory"})
    src_fixed: int = bits(6, 28, default=0)
    dst_fixed: int = bits(6, 29, default=0)

    def accesses(self) -> Iterator[Access]:
        if self.src_sel in (0, 3):
            yield Access(self.src, 4 if self.src_fixed else self.byte_count, "read", 1, 2)
        if self.dst_sel in (0, 3):
            yield Access(self.dst, 4 if self.dst_fixed else self.byte_count, "write", 1, 4)

    def lint(self, context: StreamContext) -> Iterator[Complaint]:
        if self.byte_count == 0 and not self.cp_sync:
            yield 6, "empty", "DMA_DATA of 0 bytes", "remove it"


@packet(0x9A, dwords=7)
class DmaDataFillMulti(Packet):
    """Fill `dma_count` regions of `byte_count` bytes, `byte_stride` apart."""

    dst: int = address(4)
    byte_count: int = bits(6, 25, 0)
    byte_stride: int = word(2)
    dma_count: int = word(3)
    memlog_clear: int = bits(1, 10, default=0)
    src_sel: int = bits(1, 30, 29, default=2, values={2: "data"})
    dst_sel: int = bits(1, 21, 20, default=3, values={3: "address_l2"})
    dst_cache_policy: int = bits(1, 26, 25, default=0, values=CACHE, labels=DST_LABELS)

    def accesses(self) -> Iterator[Access]:
        if self.dma_count:
            size_bytes = (self.dma_count - 1) * self.byte_stride + self.byte_count
            yield Access(self.dst, size_bytes, "write", 1, 4)


_ATOMICS = {  # without the offsets below
    7: "swap",
    8: "cmpswap",
    15: "add",
    16: "sub",
    17: "smin",
    18: "umin",
    19: "smax",
    20: "umax",
    21: "and",
    22: "or",
    23: "xor",
    24: "inc",
    25: "dec",
}
RETURNING, QWORD = 0, 32
NO_RETURN = 64
ATOMICS = {
    op + width + kind: f"{name}{'_rtn' if kind == RETURNING else ''}_{64 if width else 32}"
    for op, name in _ATOMICS.items()
    for width in (0, QWORD)
    for kind in (RETURNING, NO_RETURN)
} | {0: "read", 26: "clamp_sub_rtn_32", 27: "cond_sub_rtn_32", 32: "write", 91: "nop_rtn0", 123: "nop_ack"}


@packet(0x1E, dwords=9)
class AtomicMem(Packet):
    """Execute one GL2 atomic, or repeat it until its compare succeeds. System memory requires PCIe atomics."""

    address: int = address(2)
    source: int = pair(4)
    atomic: int = bits(1, 6, 0, known=ATOMICS)
    compare: int = pair(6, default=0)
    command: int = bits(
        1,
        11,
        8,
        default=0,
        values={0: "single_pass", 1: "loop_until_satisfied", 2: "wait_for_write_confirm", 3: "send_and_continue"},
    )
    loop_interval: int = bits(8, 12, 0, default=0)
    cache_policy: int = bits(1, 26, 25, default=0, values=CACHE, labels=CACHE_LABELS)

    def accesses(self) -> Iterator[Access]:
        size_bytes = 8 if self.atomic & QWORD else 4
        yield Access(self.address, size_bytes, "write", size_bytes, 2)


@packet(0x45, dwords=9)
class CondWrite(Packet):
    """Write `data` if (value at `poll_address` & mask) FUNCTION reference."""

    poll_address: int = address(2)
    reference: int = word(4)
    mask: int = word(5)
    write_address: int = address(6)
    data: int = word(8)
    function: int = bits(1, 2, 0, default=3, values=FUNCTIONS)
    poll_space: int = bits(1, 4, default=1, values={0: "register", 1: "memory"})
    write_space: int = bits(1, 9, 8, default=1, values={0: "register", 1: "memory", 2: "scratch"})
    wr_confirm: int = bits(1, 20, default=0)

    def accesses(self) -> Iterator[Access]:
        if self.poll_space == 1:
            yield Access(self.poll_address, 4, "read", 4, 2)
        if self.write_space == 1:
            yield Access(self.write_address, 4, "write", 4, 6)


@packet(0xB2, dwords=6)
class Timestamp(Packet):
    """Write 64-bit timestamps: at the top of the pipe, at its bottom, or both."""

    bottom_address: int = address(2)
    top_address: int = address(4)
    enable_bottom: int = bits(1, 0, default=1)
    enable_top: int = bits(1, 1, default=0)
    clock_sel: int = bits(1, 2, default=0, values={0: "gfx_ip_clock", 1: "soc_clock"})

    def accesses(self) -> Iterator[Access]:
        if self.enable_bottom:
            yield Access(self.bottom_address, 8, "write", 8, 2)
        if self.enable_top:
            yield Access(self.top_address, 8, "write", 8, 4)
