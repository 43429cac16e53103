"""Vector clocks over the device's work streams: which work is known to have finished, and to which stream.

A stream is one queue's work of one kind: its waves, its DMA, or its CP's own accesses. The work of a
stream is numbered from 1. A clock maps each stream to the number up to which all work is known to have
finished.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum

from zinc_rt.sim.interfaces import AddressSpace


class WorkKind(Enum):
    """The engine that performs the work of a stream."""

    WAVES = "waves"
    DMA = "DMA"
    CP = "the CP"

    __hash__ = object.__hash__  # Enum's own is Python, and clocks are looked into all the time


WorkStream = tuple[int, WorkKind]
"""The queue's number in the device, and the kind of work."""

Clock = Mapping[WorkStream, int]
FLAGS_KEPT = 4096


def join(clock: Clock, other: Clock) -> Clock:
    """Return the later of both for each stream. Arguments are never modified: clocks are shared."""
    if not other or clock is other:
        return clock
    joined = dict(clock)
    for stream, number in other.items():
        if joined.get(stream, 0) < number:
            joined[stream] = number
    return joined


def drop_queues(clock: Clock, numbers: Collection[int]) -> Clock:
    """Return the clock without the streams of the queues with these numbers."""
    if all(stream[0] not in numbers for stream in clock):
        return clock
    return {stream: number for stream, number in clock.items() if stream[0] not in numbers}


class Flags:
    """The clock that each memory location carries: a queue that waits for the location acquires it."""

    def __init__(self) -> None:
        self._clocks: dict[tuple[int, int], Clock] = {}

    def record_write(self, space: AddressSpace, va: int, clock: Clock) -> None:
        key = (id(space), va & ~3)
        self._clocks.pop(key, None)
        self._clocks[key] = clock
        if len(self._clocks) > FLAGS_KEPT:
            del self._clocks[next(iter(self._clocks))]

    def read(self, space: AddressSpace, va: int) -> Clock | None:
        """Return the clock of that location; None if no queue wrote it, so the host did."""
        return self._clocks.get((id(space), va & ~3))

    def forget(self, space: AddressSpace) -> None:
        """Drop the locations of an address space that has no more queues."""
        self._clocks = {key: clock for key, clock in self._clocks.items() if key[0] != id(space)}

    def __len__(self) -> int:
        return len(self._clocks)
