"""amd_signal_t as the packet processor uses it: completion, the client's mailbox and event, time stamps."""

from __future__ import annotations

import struct
from collections.abc import Callable

from zinc_rt.sim.cp.aql_dispatch import queue_va
from zinc_rt.sim.cp.compute import ComputeChannel
from zinc_rt.sim.cp.interruptions import Illegal
from zinc_rt.sim.cp.work import Work
from zinc_rt.sim.tables import aql


def started_at(channel: ComputeChannel) -> bool:
    """Whether the queue takes time stamps of its dispatches."""
    va = queue_va(channel.space, channel.queue)
    if not va:
        return False
    properties = int.from_bytes(channel.space.read(va + aql.QUEUE_PROPERTIES, 4), "little")
    return bool(properties & aql.PROPERTY_PROFILING)


def complete(channel: ComputeChannel, va: int, begun: int) -> None:
    """At the end of everything before: time stamps, the value less one, the mailbox, the interrupt."""
    if va % aql.SIGNAL_BYTES:
        raise Illegal(f"completion signal 0x{va:x}: not aligned to {aql.SIGNAL_BYTES} bytes")
    channel.space.read(va, aql.SIGNAL_BYTES)  # faults at the packet that names it
    clock = channel.launched_clock()

    def at_end() -> bool:
        if begun:
            stamps = struct.pack("<QQ", begun, channel.device.kmd.gpu_counter())
            channel.space.write(va + aql.SIGNAL_START_TS, stamps)
        if not channel.device.kmd.injected("fence-never-written"):
            _decrement(channel, va)
        channel.space.write_back()
        channel.device.flags.wrote(channel.space, va + aql.SIGNAL_VALUE, clock)
        channel.device.stored(channel.space, va + aql.SIGNAL_VALUE, clock)
        _mail(channel, va)
        return True

    channel.pending.launch(Work(None, channel.label(), at_end, at=channel.at))


def _decrement(channel: ComputeChannel, va: int) -> None:
    held = int.from_bytes(channel.space.read(va + aql.SIGNAL_VALUE, 8), "little")
    channel.space.write(va + aql.SIGNAL_VALUE, ((held - 1) & (1 << 64) - 1).to_bytes(8, "little"))


def _mail(channel: ComputeChannel, va: int) -> None:
    """event_id goes to the mailbox (a slot of KFD's event page), then the interrupt that names it."""
    _, _, mailbox, event_id, *_ = aql.SIGNAL.unpack(channel.space.read(va, aql.SIGNAL_BYTES))
    if mailbox:
        channel.space.write(mailbox, struct.pack("<Q", event_id))
        channel.space.write_back()
        channel.messages.interrupt(channel.queue, event_id)


def tell_inactive(channel: ComputeChannel, queue: int) -> Callable[[], bool] | None:
    """Ask the client for scratch through queue_inactive_signal; ready once it has set that back to 0. None: the
    queue has no such signal."""
    va = int.from_bytes(channel.space.read(queue + aql.QUEUE_INACTIVE_SIGNAL, 8), "little")
    if not va:
        return None
    channel.space.write(va + aql.SIGNAL_VALUE, struct.pack("<q", aql.INACTIVE_SCRATCH))
    channel.space.write_back()
    _mail(channel, va)
    return lambda: not any(channel.space.read(va + aql.SIGNAL_VALUE, 8))
