"""AQL queues of KFD: 64-byte packets in the ring, pointers and doorbell in packets, completion by signals.

A dispatch is converted to the registers that PM4 would set and then handled as DISPATCH_DIRECT; fences are
handled as ACQUIRE_MEM and RELEASE_MEM; a vendor packet calls an indirect buffer of PM4 packets.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from zinc_rt.isa.wave_rules import RULES
from zinc_rt.pm4.generation import Generation
from zinc_rt.sim.cp.aql_dispatch import AqlRejected, NoScratch, find_queue_va, make_dispatch_registers
from zinc_rt.sim.cp.clocks import WorkKind
from zinc_rt.sim.cp.compute import ComputeChannel
from zinc_rt.sim.cp.device_state import DeviceState
from zinc_rt.sim.cp.execute import control, dispatch, sync
from zinc_rt.sim.cp.fetch import FetchFrame
from zinc_rt.sim.cp.interruptions import IllegalPacket, QueueWait
from zinc_rt.sim.cp.work import LaunchedWork, delay_end
from zinc_rt.sim.interfaces import Fault, HardwareQueue
from zinc_rt.sim.tables import aql, caches
from zinc_rt.sim.tables.aql import PACKET_DW, AqlFault, AqlType, AqlVendor, DispatchPacket
from zinc_rt.sim.tables.packets import BOTTOM_OF_PIPE_TS, END_OF_PIPE, EVERYTHING_256B


@dataclass(frozen=True, slots=True)
class CacheFence:
    """The fields of ACQUIRE_MEM and RELEASE_MEM that correspond to a packet header's scopes."""

    gcr_cntl: int
    base_256b: int = 0
    size_256b: int = EVERYTHING_256B
    event_type: int = BOTTOM_OF_PIPE_TS
    event_index: int = END_OF_PIPE
    data_sel: int = 0
    int_sel: int = 0
    dst_sel: int = 0
    glk_inv: int = 0
    address: int = 0
    name: str = "fence"


class AqlChannel(ComputeChannel):
    """An AQL queue. Positions count dwords as in other channels; the client's pointers count packets."""

    def __init__(
        self,
        execute: Mapping[int, Callable[[ComputeChannel, Any], None]],
        queue: HardwareQueue,
        device: DeviceState,
        number: int,
    ) -> None:
        super().__init__(execute, queue, device, number)
        self._then: Callable[[], None] | None = None  # of a packet whose indirect buffer runs

    # --- pointers ---------------------------------------------------------------------------------------------

    def rung(self, value: int) -> None:
        """Handle a doorbell, which contains a packet's index; producers may ring out of order and faster
        than the device polls.

        The value only shows that packets up to the write index may be published; their headers are authoritative.
        """
        written = self._write_index()
        end = value + 1 if written is None else written
        if end * PACKET_DW > self.ring.position + self.ring.size_dw:
            self.at, self.ring_start = (self.ring, self.ring.position), self.ring.position
            self._stop(
                f"doorbell {value}, and the read index is {self.ring.position // PACKET_DW} in a ring "
                f"of {self.ring.size_dw // PACKET_DW} packets: some were overwritten"
            )
            return
        self._advance(end * PACKET_DW)

    def mapped(self, value: int) -> None:
        """Read the write index from memory. A packet that is reserved but not written yet has type
        INVALID."""
        if value * PACKET_DW <= self.ring.position + self.ring.size_dw:
            self._advance(value * PACKET_DW)

    def catch_up(self, doorbell: int) -> None:
        """Resume on the hardware: the write index in memory includes doorbells rung in the meantime."""
        if (written := self._write_index()) is not None:
            self.mapped(written)

    def _write_index(self) -> int | None:
        try:
            return int.from_bytes(self.space.read(self.queue.wptr_va, 8), "little")
        except Fault:
            return None

    def _write_rptr(self, position: int) -> None:
        if self.queue.rptr_va:
            self.space.write(self.queue.rptr_va, struct.pack("<Q", position // PACKET_DW))

    def packet_dwords(self, header: int) -> int:
        return PACKET_DW if self.at[0] is self.ring else super().packet_dwords(header)

    def _disassembled_as(self) -> Generation | None:
        return None if self.at[0] is self.ring else self.generation

    def label(self) -> str:
        index = self.ring_start // PACKET_DW
        place = self.queue.launched_at(self.ring.va(self.ring_start), index)
        return f"{super().label()}{place and f', launched at {place}'}"

    # --- packets ----------------------------------------------------------------------------------------------

    def _step(self) -> bool:
        if self._then is not None and all(frame.available() <= 0 for frame in self.frames[1:]):
            del self.frames[1:]
            then, self._then = self._then, None
            then()
            return True
        return super()._step()

    def _execute(self, frame: FetchFrame, index: int) -> bool:
        if frame is not self.ring:
            return super()._execute(frame, index)
        self._load(frame, 1)
        header = frame.words[0] & 0xFFFF
        if header & 0xFF == AqlType.INVALID:
            frame.words.clear()  # reserved, not published: looked at again
            return False
        self._load(frame, PACKET_DW)  # the body is published with the header: read it after
        packet = struct.pack(f"<{PACKET_DW}I", *frame.words)
        frame.words.clear()  # a packet is read once, when its turn comes
        if header & aql.BARRIER_BIT and self.pending.busy():
            self.wait_for(QueueWait(lambda: not self.pending.busy(), "the packets before it (barrier bit)"))
            return True
        if header & aql.BARRIER_BIT:
            self.mark_coverage(*WorkKind)
            self.pending.settle()
        kind = header & 0xFF
        self.space.stop_caching_coherent()
        run = _EXECUTE.get(kind)
        name = AqlType(kind).name if kind in set(AqlType) else f"packet of type {kind}"
        self.history.append((frame, frame.position, name))
        self.device.consulted.add_mark(f"aql {name}")
        if run is None:
            self.messages.queue_exception(self.queue, _find_fault(kind))
            raise IllegalPacket(
                f"{name}: the compute engine only executes dispatches, barriers and vendor packets"
            )
        self._acquire_scope(header >> aql.ACQUIRE_SHIFT & aql.SCOPE_MASK)
        try:
            run(self, header, packet)
        except AqlRejected as stop:
            self.messages.queue_exception(self.queue, stop.code)
            raise
        return True

    def on_call_done(self, then: Callable[[], None]) -> None:
        """Call `then` once the indirect buffer that was just called, and those nested in it, have been read
        completely.
        """
        self._then = then

    def release_packet(self) -> None:
        """Release the slot of the launched packet to the producer."""
        position = self.ring_start
        self.space.write(self.ring.va(position), struct.pack("<H", AqlType.INVALID))
        self.ring.position = position + PACKET_DW

    # --- fences and signals -----------------------------------------------------------------------------------

    def _acquire_scope(self, scope: int) -> None:
        if scope == 0:
            return
        if scope == aql.SCOPE_SYSTEM:
            self.space.flush_hdp()
        control = caches.ACQUIRE_GLK_INV | caches.ACQUIRE_GLV_INV
        if RULES[self.generation].has_array_caches:
            control |= caches.ACQUIRE_GL1_INV
        if scope == aql.SCOPE_SYSTEM:
            control |= caches.ACQUIRE_GL2_INV
        sync.acquire_mem(self, CacheFence(control))

    def finish(self, header: int, signal_va: int) -> None:
        """Complete a packet after all work launched before it: first the release fence, then the completion
        signal.
        """
        scope = header >> aql.RELEASE_SHIFT & aql.SCOPE_MASK
        if scope and self.queue.eop_va:
            sync.release_mem(self, CacheFence(caches.RELEASE_GL2_WB if scope == aql.SCOPE_SYSTEM else 0))
        if signal_va:
            complete(self, signal_va, self.device.kmd.gpu_counter() if is_profiled(self) else 0)


def _find_fault(kind: int) -> AqlFault:
    return AqlFault.PACKET_UNSUPPORTED if kind == AqlType.AGENT_DISPATCH else AqlFault.PACKET_RESERVED


def _run_dispatch(channel: AqlChannel, header: int, packet: bytes) -> None:
    wanted = DispatchPacket.read(packet)
    va = channel.ring.va(channel.ring_start)
    try:
        registers, initiator = make_dispatch_registers(
            channel.space, channel.queue, wanted, va, channel.generation
        )
    except NoScratch as lacking:
        queue_va, reason = lacking.queue_va, str(lacking)
        if not queue_va or not (ready := notify_inactive_signal(channel, queue_va)):
            raise AqlRejected(AqlFault.DIM_INVALID, reason) from None
        channel.wait_for(QueueWait(ready, f"scratch from the client: {reason}"))  # then the packet is read again
        return
    channel.registers.sh.update(registers)
    dispatch.launch(channel, wanted.grid_threads, initiator)
    channel.finish(header, wanted.signal_va)
    channel.release_packet()


def _run_barrier(channel: AqlChannel, header: int, packet: bytes) -> None:
    """Wait for the signals. AND: until every signal is 0. OR: until one is. Without signals: continue at
    once."""
    fields = aql.BARRIER.unpack(packet)
    values = [va + aql.SIGNAL_VALUE for va in fields[3:8] if va]
    item = all if header & 0xFF == AqlType.BARRIER_AND else any

    def is_ready() -> bool:
        return not values or item(not any(channel.space.read(va, 8)) for va in values)

    def finish_barrier() -> None:
        for va in values:
            channel.acquire_from(va)
        channel.finish(header, fields[9])
        channel.release_packet()

    names = ", ".join(f"0x{va:x}" for va in values)
    channel.wait_for(
        QueueWait(is_ready, f"{item.__name__} of the signals at {names} to be 0", then=finish_barrier)
    )


def _run_vendor_packet(channel: AqlChannel, header: int, packet: bytes) -> None:
    kind = packet[2]
    if kind == AqlVendor.BARRIER_VALUE:
        _run_barrier_value(channel, header, packet)
        return
    if kind != AqlVendor.PM4_IB:
        raise AqlRejected(
            AqlFault.VENDOR_UNSUPPORTED, f"vendor packet {kind}: PM4_IB (1) and BARRIER_VALUE (2) are"
        )
    fields = aql.PM4_IB.unpack(packet)
    command, size = fields[2], fields[5]
    if command >> 8 != 0xC0023F:
        raise AqlRejected(
            AqlFault.VENDOR_UNSUPPORTED, f"PM4_IB holds {command:#010x}, expected an INDIRECT_BUFFER"
        )
    form = channel.find_form(command)
    control.execute_indirect(channel, form.view(list(fields[2:6]), 0))
    signal_va = fields[-1]
    channel.release_packet()
    if size & 0xFFFFF:
        channel.on_call_done(lambda: channel.finish(header, signal_va))
    else:
        channel.finish(header, signal_va)


_CONDITIONS: tuple[Callable[[int, int], bool], ...] = (operator.eq, operator.ne, operator.lt, operator.ge)


def _run_barrier_value(channel: AqlChannel, header: int, packet: bytes) -> None:
    _, _, _, _, signal_va, value, mask, condition, completion = aql.BARRIER_VALUE.unpack(packet)
    if condition >= len(_CONDITIONS):
        raise AqlRejected(AqlFault.VENDOR_UNSUPPORTED, f"condition {condition}: ==, !=, < and >= are 0 to 3")
    compare, va = _CONDITIONS[condition], signal_va + aql.SIGNAL_VALUE

    def is_ready() -> bool:
        held = int.from_bytes(channel.space.read(va, 8), "little", signed=True)
        return not signal_va or compare(held & mask, value)

    def finish_barrier() -> None:
        if signal_va:
            channel.acquire_from(va)
        channel.finish(header, completion)
        channel.release_packet()

    channel.wait_for(
        QueueWait(is_ready, f"the signal at 0x{va:x} & {mask:#x} against {value}", then=finish_barrier)
    )


_EXECUTE: Mapping[int, Callable[[AqlChannel, int, bytes], None]] = {
    AqlType.VENDOR: _run_vendor_packet,
    AqlType.KERNEL_DISPATCH: _run_dispatch,
    AqlType.BARRIER_AND: _run_barrier,
    AqlType.BARRIER_OR: _run_barrier,
}


def is_profiled(channel: ComputeChannel) -> bool:
    """Return whether the queue records time stamps of its dispatches."""
    va = find_queue_va(channel.space, channel.queue)
    if not va:
        return False
    properties = int.from_bytes(channel.space.read(va + aql.QUEUE_PROPERTIES, 4), "little")
    return bool(properties & aql.PROPERTY_PROFILING)


def complete(channel: ComputeChannel, va: int, start: int) -> None:
    """Complete a signal after all earlier work: time stamps, decremented value, mailbox, interrupt."""
    if va % aql.SIGNAL_BYTES:
        raise IllegalPacket(f"completion signal 0x{va:x}: not aligned to {aql.SIGNAL_BYTES} bytes")
    channel.space.read(va, aql.SIGNAL_BYTES)  # faults at the packet that names it
    clock = channel.find_launched_clock()

    def at_end() -> bool:
        if start:
            stamps = struct.pack("<QQ", start, channel.device.kmd.gpu_counter())
            channel.space.write(va + aql.SIGNAL_START_TS, stamps)
        if not channel.device.kmd.injected("fence-never-written"):
            _decrement(channel, va)
        channel.space.write_back()
        channel.device.flags.record_write(channel.space, va + aql.SIGNAL_VALUE, clock)
        channel.device.record_store(channel.space, va + aql.SIGNAL_VALUE, clock)
        _send_mailbox_interrupt(channel, va)
        return True

    work = LaunchedWork(None, channel.label(), delay_end(at_end, channel.device.kmd), at=channel.at)
    channel.pending.launch(work)


def _decrement(channel: ComputeChannel, va: int) -> None:
    held = int.from_bytes(channel.space.read(va + aql.SIGNAL_VALUE, 8), "little")
    channel.space.write(va + aql.SIGNAL_VALUE, ((held - 1) & (1 << 64) - 1).to_bytes(8, "little"))


def _send_mailbox_interrupt(channel: ComputeChannel, va: int) -> None:
    """Write event_id to the mailbox (a slot of KFD's event page), then raise the interrupt with that id."""
    _, _, mailbox, event_id, *_ = aql.SIGNAL.unpack(channel.space.read(va, aql.SIGNAL_BYTES))
    if mailbox:
        channel.space.write(mailbox, struct.pack("<Q", event_id))
        channel.space.write_back()
        channel.messages.interrupt(channel.queue, event_id)


def notify_inactive_signal(channel: ComputeChannel, queue: int) -> Callable[[], bool] | None:
    """Request scratch from the client through queue_inactive_signal; ready when the client has reset it to
    0. Return None if the queue has no such signal."""
    va = int.from_bytes(channel.space.read(queue + aql.QUEUE_INACTIVE_SIGNAL, 8), "little")
    if not va:
        return None
    channel.space.write(va + aql.SIGNAL_VALUE, struct.pack("<q", aql.INACTIVE_SCRATCH))
    channel.space.write_back()
    _send_mailbox_interrupt(channel, va)
    return lambda: not any(channel.space.read(va + aql.SIGNAL_VALUE, 8))
