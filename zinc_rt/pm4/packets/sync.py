"""Packets that order work: cache operations, fences, waits, events.

Layouts: PAL gfx12_merged_f32_mec_pm4_packets.h, gfx9_plus_merged_f32_mec_pm4_packets.h.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Self

from zinc_rt.pm4 import gcr
from zinc_rt.pm4.bits import combine_masks
from zinc_rt.pm4.codec import packet
from zinc_rt.pm4.fields import CACHE, CACHE_LABELS, FUNCTIONS, address, bits, pair, word
from zinc_rt.pm4.generation import GFX11
from zinc_rt.pm4.lint_rules import Complaint, StreamContext
from zinc_rt.pm4.packet import Access, Packet

EVERYTHING_256B = (1 << 40) - 1

# Event types that shipped software sends to the compute engine: VGT_EVENT_TYPE in PAL's enum headers.
CS_PARTIAL_FLUSH = 0x07
CACHE_FLUSH_AND_INV_TS = 0x14
SAMPLE_PIPELINESTAT = 0x1E
CS_DONE = 0x2F
EVENTS = {
    0x07: "CS_PARTIAL_FLUSH",
    0x14: "CACHE_FLUSH_AND_INV_TS",
    0x17: "PERFCOUNTER_START",
    0x18: "PERFCOUNTER_STOP",
    0x19: "PIPELINESTAT_START",
    0x1A: "PIPELINESTAT_STOP",
    0x1B: "PERFCOUNTER_SAMPLE",
    0x1E: "SAMPLE_PIPELINESTAT",
    0x28: "BOTTOM_OF_PIPE_TS",
    0x2F: "CS_DONE",
    0x35: "THREAD_TRACE_MARKER",
    0x37: "THREAD_TRACE_FINISH",
}
EVENT_WRITE_INDEX = {CS_PARTIAL_FLUSH: 4, SAMPLE_PIPELINESTAT: 2}  # pm4.md §3.9; of all others 0
END_OF_PIPE_INDEX, SHADER_DONE_INDEX = 5, 6  # of RELEASE_MEM, pm4.md §3.5
EVENT_INDICES = {0: "other", 2: "sample_pipelinestat", 4: "cs_partial_flush"}
EVENT_INDICES_GFX11 = EVENT_INDICES | {index: f"sample_streamoutstats_{index - 8}" for index in (8, 9, 10, 11)}


@packet(0x58, dwords=8)
class AcquireMem(Packet):
    """Perform cache operations over a range, by default all of memory, before later packets.

    `gcr_cntl` has 19 bits as returned by `gcr.acquire`; base and size are in units of 256 bytes.
    """

    gcr_cntl: int = bits(7, 18, 0, inner=gcr.ACQUIRE)
    base_256b: int = pair(4, high_bits=24, default=0)
    size_256b: int = pair(2, high_bits=8, default=EVERYTHING_256B)
    poll_interval: int = bits(6, 15, 0, default=4)  # kfdtest's

    RESERVED_HINTS: ClassVar[Mapping[int, str]] = {
        1: "dword 1 was gfx9's COHER_CNTL: write 0, cache operations go in the last dword"
    }

    def lint(self, context: StreamContext) -> Iterator[Complaint]:
        extra = self.gcr_cntl & ~combine_masks(gcr.ACQUIRE[context.generation])
        if extra:
            text = f"GCR_CNTL {self.gcr_cntl:#x}: gfx12 has no bits {extra:#x} (GLM, GL1)"
            yield 7, "gcr-reserved", text, "tolerated; write 0"


DATA_SELECTS = {0: "none", 1: "32_bits", 2: "64_bits", 3: "gpu_clock", 4: "system_clock"}
DATA_SELECTS_GFX11 = DATA_SELECTS | {5: "gds", 7: "atomic_add"}
INTERRUPT_SELECTS = {
    0: "none",
    1: "interrupt",
    2: "interrupt_after_write_confirm",
    3: "write_confirm",
    4: "always_ctxid",
    5: "ctxid_if_32_bit_compare",
    6: "ctxid_if_64_bit_compare",
}


@packet(0x49, dwords=8)
class ReleaseMem(Packet):
    """At the end of all earlier work, perform cache operations, write `data` to `address`, and optionally
    interrupt.

    Requires an EOP buffer on the queue. `gcr_cntl` has 13 bits as returned by `gcr.release`.
    """

    address: int = address(3)
    data: int = pair(5)
    gcr_cntl: int = bits(1, 24, 12, default=0, inner=gcr.RELEASE)
    data_sel: int = bits(2, 31, 29, default=1, values=(DATA_SELECTS_GFX11, DATA_SELECTS))
    int_sel: int = bits(2, 26, 24, default=0, values=INTERRUPT_SELECTS)
    int_ctxid: int = word(7, default=0)
    event_type: int = bits(1, 5, 0, default=CACHE_FLUSH_AND_INV_TS, known=EVENTS)
    event_index: int = bits(1, 11, 8, default=5, values={5: "end_of_pipe", 6: "shader_done"})
    cache_policy: int = bits(1, 26, 25, default=0, values=CACHE, labels=CACHE_LABELS)
    dst_sel: int = bits(
        2,
        17,
        16,
        default=0,
        values={0: "memory", 1: "l2", 2: "queue_wptr_register", 3: "queue_wptr_poll_mask"},
    )
    wait_sync: int = bits(1, 7, default=0)
    pq_exe_status: int = bits(1, 28, default=0)
    glk_inv: int = bits(1, 30, default=0)
    mes_intr_pipe: int = bits(2, 21, 20, default=0)
    mes_action_id: int = bits(2, 23, 22, default=0)

    def accesses(self) -> Iterator[Access]:
        if self.data_sel and self.dst_sel < 2:
            size_bytes = 4 if self.data_sel == 1 else 8
            yield Access(self.address, size_bytes, "write", size_bytes, 3)

    def lint(self, context: StreamContext) -> Iterator[Complaint]:
        extra = self.gcr_cntl & ~combine_masks(gcr.RELEASE[context.generation])
        if extra:
            text = f"gcr_cntl {self.gcr_cntl:#x}: gfx12 has no bits {extra:#x} (GLM, GL1)"
            yield 1, "gcr-reserved", text, "tolerated; write 0"
        expected = SHADER_DONE_INDEX if self.event_type == CS_DONE else END_OF_PIPE_INDEX
        if self.event_index != expected:
            text = f"RELEASE_MEM of event {self.event_type:#x} with index {self.event_index}: expected {expected}"
            advice = "5 for end-of-pipe events such as CACHE_FLUSH_AND_INV_TS, 6 for shader-done ones"
            yield 1, "event", text, advice
        if self.data_sel == 0 and self.address:
            yield (
                2,
                "empty",
                "RELEASE_MEM with an address but data_sel 0, which writes nothing",
                "use data_sel 1 or 2",
            )


SPACES = {0: "register", 1: "memory"}
WAIT_OPERATIONS = {0: "wait", 1: "write_wait_write", 3: "wait_preemptable"}


@packet(0x3C, dwords=7)
class WaitRegMem(Packet):
    """Stall the queue until (value at `address` & mask) FUNCTION reference, unsigned. There is no timeout.

    In register space `address` is a register's dword address; for operation 1 its upper half is the register to
    poll, its lower half the register to write (`register_pair`).
    """

    address: int = address(2)
    reference: int = word(4)
    mask: int = word(5, default=0xFFFFFFFF)
    function: int = bits(1, 2, 0, default=3, values=FUNCTIONS)
    mem_space: int = bits(1, 5, 4, default=1, values=SPACES)
    operation: int = bits(1, 7, 6, default=0, values=WAIT_OPERATIONS)
    poll_interval: int = bits(6, 15, 0, default=4)
    optimize_ace_offload: int = bits(6, 31, default=0)
    cache_policy: int = bits(1, 26, 25, default=0, values=CACHE, labels=CACHE_LABELS)
    mes_intr_pipe: int = bits(1, 23, 22, default=0)
    mes_action: int = bits(1, 24, default=0)

    @classmethod
    def register_pair(cls, *, write: int, poll: int, value: int, mask: int) -> Self:
        """Build the form that writes `value` to one register, then polls another for it: tinygrad's HDP flush."""
        return cls(write | poll << 32, value, mask, mem_space=0, operation=1)

    def accesses(self) -> Iterator[Access]:
        if self.mem_space == 1 and self.operation != 1:
            yield Access(self.address, 4, "read", 4, 2)


@packet(0x93, dwords=9)
class WaitRegMem64(Packet):
    """WAIT_REG_MEM over 64 bits, for waiting on a user-queue fence (va, value)."""

    address: int = address(2)
    reference: int = pair(4)
    mask: int = pair(6, default=0xFFFFFFFFFFFFFFFF)
    function: int = bits(1, 2, 0, default=5, values=FUNCTIONS)
    mem_space: int = bits(1, 5, 4, default=1, values=SPACES)
    operation: int = bits(1, 7, 6, default=0, values=WAIT_OPERATIONS)
    poll_interval: int = bits(8, 15, 0, default=4)
    optimize_ace_offload: int = bits(8, 31, default=0)
    cache_policy: int = bits(1, 26, 25, default=0, values=CACHE, labels=CACHE_LABELS)
    mes_intr_pipe: int = bits(1, 23, 22, default=0)
    mes_action: int = bits(1, 24, default=0)

    def accesses(self) -> Iterator[Access]:
        if self.mem_space == 1 and self.operation != 1:
            yield Access(self.address, 8, "read", 8, 2)


@packet(0x46, dwords=(2, 4))
class EventWrite(Packet):
    """Send an event down the pipe. Two dwords, or four with the destination address of a sample event."""

    event_type: int = bits(1, 5, 0, known=EVENTS)
    event_index: int = bits(1, 11, 8, default=0, values=(EVENT_INDICES_GFX11, EVENT_INDICES))
    sample_mode: int = bits(1, 30, 29, default=0)
    offload_enable: int = bits(1, 31, default=0)
    address: int | None = address(2, default=None, optional=True)

    @classmethod
    def cs_partial_flush(cls) -> Self:
        """Build an event that stalls the CP until all earlier compute waves of this queue end. No cache is
        flushed."""
        return cls(CS_PARTIAL_FLUSH, 4)

    def accesses(self) -> Iterator[Access]:
        if self.address is not None:
            yield Access(self.address, 8, "write", 8, 2)

    def lint(self, context: StreamContext) -> Iterator[Complaint]:
        expected = EVENT_WRITE_INDEX.get(self.event_type, 0)
        if self.event_type in EVENTS and self.event_index != expected:
            text = f"event {self.event_type:#x} with index {self.event_index}: expected {expected}"
            yield 1, "event", text, "CS_PARTIAL_FLUSH is 0x407"
        if (self.address is not None) != (self.event_type == SAMPLE_PIPELINESTAT):
            text = f"event {self.event_type:#x} in {2 if self.address is None else 4} dwords"
            yield 1, "event", text, "only sample events have an address"


@packet(0x95, dwords=2)
class HdpFlush(Packet):
    """Flush CPU writes through the BAR to VRAM."""

    dummy: int = word(1, default=0)


@packet(0x1D, dwords=11, on=GFX11)
class AtomicGds(Packet):
    """An atomic on the global data share, which gfx12 does not have."""

    atomic: int = bits(1, 7, 0)
    base: int = bits(3, 15, 0)
    size: int = bits(4, 15, 0)
    offset_0: int = bits(5, 7, 0, default=0)
    offset_1: int = bits(5, 23, 16, default=0)
    destination: int = word(6, default=0)
    source_0: int = pair(7, default=0)
    source_1: int = pair(9, default=0)
    compare_swap: int = bits(1, 16, default=0)
    complete: int = bits(1, 17, default=0)
    read_preop: int = bits(1, 18, default=0)
    read_control: int = bits(1, 20, 19, default=0)
    auto_increment_bytes: int = bits(2, 5, 0, default=0)
    dmode: int = bits(2, 8, default=0)
