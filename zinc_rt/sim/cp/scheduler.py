"""Selection of the next queue: hardware slots round robin, fuel by priority, without starvation.

Hardware has a fixed number of queue slots; more queues with work than slots are time-sliced (userq.md §3,
probe P46). A queue yields its slot after its quantum, at a packet boundary and only if it can be
preempted.
"""

from __future__ import annotations

from collections.abc import Iterable

from zinc_rt.sim.cp.channel import Channel
from zinc_rt.sim.interfaces import QueueState

SLICE_PACKETS = 64  # at priority 7, KFD's normal one
QUANTUM_SLICES = 8  # a queue yields its slot after this many rounds if others wait


class QueueScheduler:
    """Round robin over the slots; the next waiting queue is chosen by waiting time plus priority."""

    def __init__(self, slots: int) -> None:
        if slots < 1:
            raise ValueError(f"{slots} hardware queues: expected at least one")
        self.slots = slots
        self._mapped: dict[Channel, int] = {}  # channel -> turns it had since it got its slot
        self._waiting: dict[Channel, int] = {}  # channel -> rounds it has waited

    def add(self, channel: Channel) -> None:
        self._waiting[channel] = 0

    def remove(self, channel: Channel) -> None:
        self._mapped.pop(channel, None)
        self._waiting.pop(channel, None)

    def run_turn(self) -> list[tuple[Channel, int, bool]]:
        """Return (channel, packets that it may run, whether it was just assigned its slot) for one round, highest
        priority first.
        """
        fresh = self._map_waiting()
        order = sorted(self._mapped, key=lambda channel: -channel.queue.priority)
        return [(channel, _compute_fuel(channel), channel in fresh) for channel in order if channel.has_work()]

    def used(self, channel: Channel) -> None:
        """Record that the channel has had a turn."""
        if channel in self._mapped:
            self._mapped[channel] += 1

    def _map_waiting(self) -> set[Channel]:
        """Assign slots to waiting queues with work; return those that were assigned a slot."""
        wanting = [channel for channel in self._waiting if channel.has_work()]
        if not wanting:
            return set()
        free = self.slots - len(self._mapped)
        for channel in self._choose_channels_to_unmap(len(wanting) - free):
            del self._mapped[channel]
            self._waiting[channel] = 0
            free += 1
        wanting.sort(key=lambda channel: -(self._waiting[channel] + channel.queue.priority))
        chosen = wanting[:free]
        for channel in chosen:
            del self._waiting[channel]
            self._mapped[channel] = 0
        for channel in wanting[free:]:
            self._waiting[channel] += 1
        return set(chosen)

    def _choose_channels_to_unmap(self, count: int) -> Iterable[Channel]:
        """Return up to `count` queues to unmap: idle and dead ones first, then those whose quantum is
        over."""
        if count <= 0:
            return []
        idle = [channel for channel in self._mapped if not channel.has_work()]
        channels = [
            channel
            for channel, turns in self._mapped.items()
            if turns >= QUANTUM_SLICES
            and channel.has_work()
            and channel.queue.state is QueueState.ACTIVE
            and channel.is_preemptible()
        ]
        channels.sort(key=lambda channel: -self._mapped[channel])
        return (idle + channels)[:count]


def _compute_fuel(channel: Channel) -> int:
    """Return the fuel of one slice: priority 0 receives an eighth of the fuel of priority 7, and 15 twice as
    much.
    """
    return max(1, SLICE_PACKETS * (channel.queue.priority + 1) // 8)
