"""Packets that only user queues accept (pm4.md §3.13, userq.md §5)."""

from __future__ import annotations

from zinc_rt.sim.cp.clocks import join
from zinc_rt.sim.cp.compute import ComputeChannel
from zinc_rt.sim.cp.interruptions import IllegalPacket, QueueWait
from zinc_rt.sim.cp.work import LaunchedWork
from zinc_rt.sim.tables.layout import View


def protected_fence_signal(channel: ComputeChannel, packet: View) -> None:
    """Report the position reached in the ring to the kernel, which owns the fence's memory.

    It is unverified whether the packet itself waits for earlier work; it does unless a facts file states
    otherwise. A RELEASE_MEM is therefore required before it, as in Mesa and IGT; after a RELEASE_MEM work
    may still be running.
    """
    if not channel.is_user:
        raise IllegalPacket(
            "PROTECTED_FENCE_SIGNAL on a queue without a protected fence, which only user queues have"
        )
    if channel.pending.has_unfinished():
        channel.report_unverified(
            "fence-order",
            "work is still running and no RELEASE_MEM stands behind it: whether PROTECTED_FENCE_SIGNAL waits for "
            "it is unverified",
        )
    position = channel.ring.position
    if len(channel.frames) > 1:
        channel.report_unverified(
            "fence-in-ib",
            ("PROTECTED_FENCE_SIGNAL in an indirect buffer: the fence value is the position in the ring"),
        )
        position = channel.ring_start

    def at_end() -> bool:
        channel.device.publish(join(channel.clock(), channel.released))
        channel.messages.fence_signal(channel.queue, position)
        return True

    if channel.device.behaviour.protected_fence == "at once":
        at_end()
    else:
        channel.pending.launch(LaunchedWork(None, channel.label(), at_end, at=channel.at))


def fence_wait_multi(channel: ComputeChannel, packet: View) -> None:
    """Wait until every fence has reached its value."""
    if not channel.is_user:
        raise IllegalPacket("FENCE_WAIT_MULTI is only allowed on user queues")
    channel.report_unverified("packet-unverified", "the layout of FENCE_WAIT_MULTI is unverified")
    left = [(channel.align(va, 8), value) for va, value in packet.fences]

    def is_ready() -> bool:
        while left:
            va, value = left[-1]
            if int.from_bytes(channel.space.read(va, 8), "little") < value:
                return False
            left.pop()
        return True

    def acquire_fences() -> None:
        for va, _ in packet.fences:
            channel.acquire_from(va & ~7)

    channel.wait_for(
        QueueWait(is_ready, f"FENCE_WAIT_MULTI of {len(packet.fences)}", preemptible=False, then=acquire_fences)
    )
