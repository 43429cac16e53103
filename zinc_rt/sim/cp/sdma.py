"""SDMA queues: copy, fill, fence, poll, trap, timestamp.

Pointers count bytes in 64 bits and are reported unwrapped: so read them the kernel and tinygrad (sdma_v7_0.c,
ops_amd.py).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence

from zinc_rt.pm4.generation import Generation
from zinc_rt.sim.cp import bulk_moves
from zinc_rt.sim.cp.channel import Channel
from zinc_rt.sim.cp.clocks import WorkKind
from zinc_rt.sim.cp.execute.atomics import LOOP, find_operation
from zinc_rt.sim.cp.execute.compare import find_function
from zinc_rt.sim.cp.fetch import MAX_DEPTH, FetchFrame, IndirectFrame
from zinc_rt.sim.cp.interruptions import IllegalPacket, QueueWait
from zinc_rt.sim.shader_engine import Accesses
from zinc_rt.sim.tables import sdma_packets as packets

MEMORY_POLL, HDP_FLUSH = 1 << 31, 1 << 26
GCR_GLI_INV, GCR_GL2_WB = 0x3, 1 << 15


class SdmaChannel(Channel):
    """One queue of a DMA engine. Its packets run in order, each after the previous one has finished."""

    UNIT = 4

    def _execute(self, frame: FetchFrame, index: int) -> bool:
        header = frame.words[index]
        op, sub_op = header & 0xFF, header >> 8 & 0xFF
        row = packets.PACKETS.get((op, sub_op))
        if row is None:
            if op in packets.KERNEL_ONLY:
                raise IllegalPacket(
                    f"{packets.KERNEL_ONLY[op]} is privileged: it belongs to the kernel's own queues"
                )
            raise IllegalPacket(f"opcode {op:#04x} with sub-opcode {sub_op:#04x} is not a known SDMA packet")
        needed = row.dwords(frame.words[index:])
        if needed < 0 or needed > len(frame.words) - index:
            if not self.refill(frame, max(needed, packets.find_length(header))):
                return False
            index = 0
            needed = row.dwords(frame.words)
            if needed > len(frame.words) and not self.refill(frame, needed):
                return False
        words = frame.words[index : index + needed]
        self.history.append((frame, frame.position, row.name))
        frame.position += needed
        self.device.consulted.add_mark(f"sdma {row.name}")
        extra = header & ~(row.header_bits | 0xFFFF)
        if extra:
            self.finding(
                "reserved-bits",
                f"{self.label()}: header bits {extra:#x} are not simulated",
                once=(row.name, extra),
            )
        self.space.invalidate_gl2()  # the engine reads host memory itself, past GL2
        EXECUTE[op](self, words)
        return True

    def call(self, va: int, size_dw: int) -> None:
        if len(self.frames) >= MAX_DEPTH:
            raise IllegalPacket("indirect buffers within indirect buffers are not known to work")
        caller, position = self.at
        self.frames.append(IndirectFrame(self.space, va, size_dw, caller.place(position)))

    def start_copy(self, advance: Callable[[], bool], accesses: Accesses) -> None:
        """Start a copy; the next packet waits for it."""
        self.launch(WorkKind.DMA, lambda: accesses if advance() else None)
        over = QueueWait(
            lambda: not self.pending.busy(), "its own copy", then=lambda: self.mark_coverage(WorkKind.DMA)
        )
        self.wait_for(over)

    def packet_dwords(self, header: int) -> int:
        return packets.find_length(header)

    def _disassembled_as(self) -> Generation | None:
        return None

    def _write_rptr(self, position: int) -> None:
        if self.queue.rptr_va:
            self.space.write(self.queue.rptr_va, struct.pack("<Q", position * self.UNIT))


def _read_va(words: Sequence[int], index: int) -> int:
    return words[index] | words[index + 1] << 32


def _execute_nop(channel: SdmaChannel, words: Sequence[int]) -> None:
    return None


def _execute_copy(channel: SdmaChannel, words: Sequence[int]) -> None:
    if words[0] >> 8 & 0xFF == packets.SUB_WINDOW:
        _copy_window(channel, words)
    else:
        _copy_linear(channel, words)


def _copy_window(channel: SdmaChannel, words: Sequence[int]) -> None:
    """Copy a box of elements, row by row."""
    window = packets.read_window(words, channel.generation)
    reads, writes = (
        tuple(
            (side.va + z * side.slice_bytes + y * side.pitch_bytes, window.row_bytes)
            for z in range(window.slices)
            for y in range(window.rows)
        )
        for side in (window.source, window.destination)
    )

    def advance() -> bool:
        for (source, size), (destination, _) in zip(reads, writes, strict=True):
            copy = bulk_moves.copy(channel.space, destination, source, size)
            while not copy():
                pass
        return True

    channel.start_copy(advance, Accesses(reads=reads, writes=writes))


def _copy_linear(channel: SdmaChannel, words: Sequence[int]) -> None:
    size = (words[1] & 0x3FFFFFFF) + 1  # the field holds bytes - 1
    source, destination = _read_va(words, 3), _read_va(words, 5)
    if words[2]:
        channel.finding("reserved-bits", f"{channel.label()}: swaps {words[2]:#x} are not simulated")
    advance = bulk_moves.copy(channel.space, destination, source, size)
    channel.start_copy(advance, Accesses(reads=((source, size),), writes=((destination, size),)))


def _write_linear(channel: SdmaChannel, words: Sequence[int]) -> None:
    data = struct.pack(f"<{len(words) - 4}I", *words[4:])
    va = _read_va(words, 1) & ~3
    bulk_moves.write(channel.space, va, data)
    channel.record_accesses(writes=((va, len(data)),))


def _const_fill(channel: SdmaChannel, words: Sequence[int]) -> None:
    """Fill memory. Header bits [31:30]: 0 fills bytes, 1 words, 2 dwords; the pattern is the data's low
    part."""
    unit = 1 << (words[0] >> 30)
    if unit > 4:
        raise IllegalPacket("fill size 3 does not exist, expected bytes (0), words (1) or dwords (2)")
    size = (words[4] & 0x3FFFFFFF) + 1
    pattern = words[3].to_bytes(4, "little")[:unit]
    va = _read_va(words, 1)
    channel.start_copy(bulk_moves.fill(channel.space, va, pattern, size), Accesses(writes=((va, size),)))


def _execute_indirect(channel: SdmaChannel, words: Sequence[int]) -> None:
    va, size_dw = _read_va(words, 1), words[3] & 0xFFFFF
    if va & 0x1F:
        channel.finding(
            "ib-alignment", f"{channel.label()}: 0x{va:x} is not 32-byte aligned, the low bits are dropped"
        )
    if words[0] >> 16 & 0xF:
        channel.finding("reserved-bits", f"{channel.label()}: the kernel selects the VMID, set it to 0")
    if size_dw:
        channel.call(va & ~0x1F, size_dw)


def _execute_fence(channel: SdmaChannel, words: Sequence[int]) -> None:
    va = _read_va(words, 1)
    if va & 3:
        channel.finding(
            "alignment", f"{channel.label()}: 0x{va:x} is not 4-byte aligned, the low bits are dropped"
        )
    channel.space.write_back()  # copies do not stay in GL2, and the fence is uncached (sdma_v7_0.c's MTYPE 3)
    channel.space.write(va & ~3, struct.pack("<I", words[3]))
    channel.space.write_back()
    channel.device.flags.record_write(channel.space, va, channel.find_launched_clock())
    channel.device.record_store(channel.space, va & ~3, channel.find_launched_clock())


def _execute_trap(channel: SdmaChannel, words: Sequence[int]) -> None:
    channel.messages.interrupt(channel.queue, words[1] & 0x0FFFFFFF)


def _execute_poll_regmem(channel: SdmaChannel, words: Sequence[int]) -> None:
    header = words[0]
    if header & HDP_FLUSH or tuple(words) == packets.ROCR_HDP_FLUSH:
        channel.space.flush_hdp()
        return
    if not header & MEMORY_POLL:
        raise IllegalPacket("only the kernel may poll registers: set bit 31 to poll memory")
    compare = find_function(header >> 28 & 7)
    va, reference, mask = _read_va(words, 1) & ~3, words[3], words[4]

    def is_ready() -> bool:
        channel.space.invalidate_gl2((va, 4))
        return compare(int.from_bytes(channel.space.read(va, 4), "little") & mask, reference)

    text = f"memory 0x{va:x} ({channel.space.describe(va)}) & {mask:#x} against {reference:#x}"
    channel.wait_for(QueueWait(is_ready, text, then=lambda: channel.acquire_from(va)))


def _execute_cond_exe(channel: SdmaChannel, words: Sequence[int]) -> None:
    """Execute the next dwords only if the memory equals the reference."""
    va = _read_va(words, 1) & ~3
    value = int.from_bytes(channel.space.read(va, 4), "little")
    channel.record_accesses(reads=((va, 4),))
    if value != words[3]:
        channel.skip(words[4] & 0x3FFF)


def _execute_atomic(channel: SdmaChannel, words: Sequence[int]) -> None:
    make, bits = find_operation(words[0] >> 25)
    size, mask = bits // 8, (1 << bits) - 1
    va = _read_va(words, 1) & -size
    source, compare = _read_va(words, 3) & mask, _read_va(words, 5) & mask
    loop = bool(words[0] >> 16 & LOOP)

    def run_once() -> bool:
        old = int.from_bytes(channel.space.read(va, size), "little")
        channel.space.write(va, (make(old, source, compare, bits) & mask).to_bytes(size, "little"))
        return not loop or old == compare

    def finish() -> None:
        channel.record_accesses(atomics=((va, size),))

    channel.wait_for(QueueWait(run_once, f"an atomic until 0x{va:x} holds {compare:#x}", then=finish))


def _execute_timestamp(channel: SdmaChannel, words: Sequence[int]) -> None:
    va = _read_va(words, 1) & ~7
    channel.space.write(va, struct.pack("<Q", channel.device.kmd.gpu_counter() & (1 << 64) - 1))
    channel.record_accesses(writes=((va, 8),))


def _execute_gcr(channel: SdmaChannel, words: Sequence[int]) -> None:
    """Perform cache operations over all addresses; SDMA's own data is not in those caches."""
    control = words[2] >> 16 | (words[3] & 7) << 16
    if control & GCR_GLI_INV:
        channel.space.invalidate_icache()
    if control & GCR_GL2_WB:
        channel.space.write_back()


EXECUTE: Mapping[int, Callable[[SdmaChannel, Sequence[int]], None]] = {
    packets.NOP: _execute_nop,
    packets.COPY: _execute_copy,
    packets.WRITE: _write_linear,
    packets.INDIRECT: _execute_indirect,
    packets.FENCE: _execute_fence,
    packets.TRAP: _execute_trap,
    packets.POLL_REGMEM: _execute_poll_regmem,
    packets.COND_EXE: _execute_cond_exe,
    packets.ATOMIC: _execute_atomic,
    packets.CONST_FILL: _const_fill,
    packets.TIMESTAMP: _execute_timestamp,
    packets.GCR_REQ: _execute_gcr,
}
