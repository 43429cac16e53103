"""Cache operations, fences, waits, events (pm4.md §3.4 to §3.6, §3.9)."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from zinc_rt.sim.cp.clocks import WorkKind, join
from zinc_rt.sim.cp.compute import ComputeChannel
from zinc_rt.sim.cp.execute.compare import find_function
from zinc_rt.sim.cp.execute.data import REGISTER_MASK
from zinc_rt.sim.cp.hazards import NO_CACHE, Cache
from zinc_rt.sim.cp.interruptions import IllegalPacket, QueueWait
from zinc_rt.sim.cp.work import LaunchedWork, delay_end
from zinc_rt.sim.interfaces import AccessKind, Fault, QueueKind
from zinc_rt.sim.tables import caches as bits
from zinc_rt.sim.tables.layout import View
from zinc_rt.sim.tables.packets import (
    CS_PARTIAL_FLUSH,
    END_OF_PIPE,
    EVERYTHING_256B,
    PARTIAL_FLUSH,
    RELEASE_INDEX,
    SAMPLE_PIPELINESTAT,
    SHADER_DONE,
)


def acquire_mem(channel: ComputeChannel, packet: View) -> None:
    control = packet.gcr_cntl
    caches = _select_caches(control, _ACQUIRE)
    if control & bits.ACQUIRE_GL2_DISCARD:
        _report_discard(channel)
    if control & bits.ACQUIRE_GLI:
        caches |= Cache.GLI_INV
        channel.space.invalidate_icache()
    if caches & Cache.GL2_WB:
        channel.space.write_back()
    whole = packet.size_256b == EVERYTHING_256B
    inside = None if whole else (packet.base_256b << 8, packet.size_256b << 8)
    if control & bits.ACQUIRE_GLI and channel.queue.kind is QueueKind.KFD_AQL:
        channel.space.flush_hdp(inside)  # for ROCr, which reads code back through the BAR before this packet
    if caches & Cache.GL2_INV:
        channel.space.invalidate_gl2(inside)
    _invalidate_wave_caches(channel, caches, inside)
    channel.hazards.record_cache_operation(caches, channel.clock(), channel.device.number_packet(), inside)


def release_mem(channel: ComputeChannel, packet: View) -> None:
    """Perform cache operations, then write the data, then raise the interrupt, at the end of all earlier
    work. The CP does not wait."""
    if not channel.queue.eop_va:
        raise Fault(0, AccessKind.WRITE, "not present")  # the end-of-pipe buffer's address
    if packet.data_sel in (5, 7) or packet.data_sel not in _DATA:
        raise IllegalPacket(f"data_sel {packet.data_sel} does not exist on this device, expected 0 to 4")
    if packet.int_sel > 6:
        raise IllegalPacket(f"int_sel {packet.int_sel} does not exist, expected 0 to 6")
    if packet.event_index not in (END_OF_PIPE, SHADER_DONE):
        raise IllegalPacket(f"event_index {packet.event_index} is neither end of pipe (5) nor shader done (6)")
    wanted = RELEASE_INDEX.get(packet.event_type)
    if wanted is not None and packet.event_index != wanted:
        channel.finding(
            "event-index",
            f"{channel.label()}: event_index {packet.event_index} with event type {packet.event_type:#x}, "
            f"which goes with {wanted} (end of pipe 5, shader done 6)",
        )
    if packet.dst_sel > 1:
        raise IllegalPacket(f"dst_sel {packet.dst_sel} (the queue's own registers) is reserved for the firmware")
    _report_reserved(channel, packet.gcr_cntl & ~bits.RELEASE_BITS[channel.generation])
    size = _DATA[packet.data_sel]
    va = channel.align(packet.address, size) if size else 0
    caches = _select_caches(packet.gcr_cntl, _RELEASE)
    if packet.gcr_cntl & bits.RELEASE_GL2_DISCARD:
        _report_discard(channel)
    if packet.glk_inv:
        caches |= Cache.GLK_INV
    clock = channel.find_launched_clock()
    issue = channel.device.number_packet()

    def at_end() -> bool:
        if caches & Cache.GL2_WB:
            channel.space.write_back()
        if caches & Cache.GL2_INV:
            channel.space.invalidate_gl2()
        _invalidate_wave_caches(channel, caches)
        channel.hazards.record_cache_operation(caches, clock, issue)
        device = channel.device
        if size and not device.kmd.injected("fence-never-written"):
            channel.space.write(va, _pack_data(channel, packet))
            if caches & Cache.GL2_WB:
                channel.space.write_back()
            device.flags.record_write(channel.space, va, clock)
            device.record_store(channel.space, va, clock)
        channel.released = join(channel.released, clock)
        if _is_interrupting(channel, packet):
            device.publish(clock)
            channel.messages.interrupt(channel.queue, packet.int_ctxid)
        return True

    work = LaunchedWork(None, channel.label(), delay_end(at_end, channel.device.kmd), at=channel.at)
    channel.pending.launch(work)


def _invalidate_wave_caches(channel: ComputeChannel, caches: Cache, inside: tuple[int, int] | None = None) -> None:
    vector, scalar, array = (cache in caches for cache in (Cache.GLV_INV, Cache.GLK_INV, Cache.GL1_INV))
    channel.space.invalidate_wave_caches(vector=vector, scalar=scalar, array=array, inside=inside)


def _report_discard(channel: ComputeChannel) -> None:
    """Report the discard. The simulator does not drop lines; the finding states that hardware may, so a program
    that passes here can still be wrong.
    """
    channel.finding(
        "cache-discard",
        f"{channel.label()}: GL2_DISCARD drops lines without writing them back: stores since the last write-back "
        "are lost",
    )


_DATA = {0: 0, 1: 4, 2: 8, 3: 8, 4: 8}  # data_sel -> bytes written


def _pack_data(channel: ComputeChannel, packet: View) -> bytes:
    if packet.data_sel == 1:
        return struct.pack("<I", packet.data & 0xFFFFFFFF)
    if packet.data_sel == 2:
        return struct.pack("<Q", packet.data)
    return struct.pack("<Q", channel.device.kmd.gpu_counter() & (1 << 64) - 1)


_ACQUIRE = {
    bits.ACQUIRE_GLK_INV: Cache.GLK_INV,
    bits.ACQUIRE_GLV_INV: Cache.GLV_INV,
    bits.ACQUIRE_GL1_INV: Cache.GL1_INV,
    bits.ACQUIRE_GL2_INV: Cache.GL2_INV,
    bits.ACQUIRE_GL2_WB: Cache.GL2_WB,
}
_RELEASE = {
    bits.RELEASE_GLV_INV: Cache.GLV_INV,
    bits.RELEASE_GL1_INV: Cache.GL1_INV,
    bits.RELEASE_GL2_INV: Cache.GL2_INV,
    bits.RELEASE_GL2_WB: Cache.GL2_WB,
}


def _select_caches(control: int, names: Mapping[int, Cache]) -> Cache:
    selected = NO_CACHE
    for bit, cache in names.items():
        if control & bit:
            selected |= cache
    return selected


def _is_interrupting(channel: ComputeChannel, packet: View) -> bool:
    if packet.int_sel in (1, 2, 4):
        return True
    if packet.int_sel in (5, 6):
        size = 4 if packet.int_sel == 5 else 8
        held = int.from_bytes(channel.space.read(packet.address & -size, size), "little")
        return held == packet.data & (1 << 8 * size) - 1
    return False


def _report_reserved(channel: ComputeChannel, extra: int) -> None:
    if extra:
        channel.report_unverified("reserved-bits", f"cache operation bits {extra:#x} are reserved on this chip")


def event_write(channel: ComputeChannel, packet: View) -> None:
    if packet.event_type == SAMPLE_PIPELINESTAT:
        channel.report_unverified("not-simulated", "pipeline statistics are not counted here, nothing is written")
        return
    if packet.event_type != CS_PARTIAL_FLUSH:
        if packet.event_index == PARTIAL_FLUSH:
            raise IllegalPacket(
                f"event index 4 (CS partial flush) cannot be used with event type {packet.event_type:#x}"
            )
        return  # tracing, counters: no visible effect
    if packet.event_index != PARTIAL_FLUSH:
        channel.report_unverified(
            "value-unverified", f"CS_PARTIAL_FLUSH with event index {packet.event_index}, not 4"
        )

    def finish_flush() -> None:
        channel.mark_coverage(WorkKind.WAVES)
        channel.pending.settle()

    channel.wait_for(
        QueueWait(lambda: not channel.pending.busy(WorkKind.WAVES), "CS_PARTIAL_FLUSH", then=finish_flush)
    )


def hdp_flush(channel: ComputeChannel, packet: View) -> None:
    channel.space.flush_hdp()


def wait_reg_mem(channel: ComputeChannel, packet: View) -> None:
    compare = find_function(packet.function)
    if packet.operation == 1:  # write a register, poll another: known as an HDP flush only
        channel.report_unverified("register-pair", "a register pair is treated as an HDP flush, for any registers")
        channel.space.flush_hdp()
        return
    if packet.operation == 2:
        raise IllegalPacket(
            "operation 2 does not exist, expected wait (0), write-wait-write (1) or preemptible wait (3)"
        )
    if packet.mem_space == 0:
        address = packet.address & REGISTER_MASK
        channel.registers.read(address)

        def is_ready() -> bool:
            return compare(channel.registers.read(address) & packet.mask, packet.reference)

        channel.wait_for(QueueWait(is_ready, f"register {address:#x}", _is_preemptible(channel, packet)))
        return
    if packet.mem_space != 1:
        raise IllegalPacket(f"mem_space {packet.mem_space} is neither register (0) nor memory (1)")
    _wait_for_memory(channel, packet, 4)


def wait_reg_mem64(channel: ComputeChannel, packet: View) -> None:
    find_function(packet.function)
    if packet.mem_space != 1 or packet.operation not in (0, 3):
        raise IllegalPacket("64-bit waits are only supported on memory, as wait (0) or preemptible wait (3)")
    _wait_for_memory(channel, packet, 8)


def _is_preemptible(channel: ComputeChannel, packet: View) -> bool:
    return packet.operation == 3 or not channel.is_user


_SIGNS = ("always", "<", "<=", "==", "!=", ">=", ">")


def _wait_for_memory(channel: ComputeChannel, packet: View, size: int) -> None:
    compare, space = find_function(packet.function), channel.space
    va = channel.align(packet.address, size)
    mask, reference = packet.mask, packet.reference
    channel.wait_for(
        QueueWait(
            lambda: compare(int.from_bytes(space.read(va, size), "little") & mask, reference),
            f"memory 0x{va:x} ({space.describe(va)}) & {mask:#x} {_SIGNS[packet.function]} {reference:#x}",
            _is_preemptible(channel, packet),
            lambda: channel.acquire_from(va),
        )
    )
