"""Vector clocks over the device's work streams: who knows that whose work has finished.

A stream is one queue's work of one kind: its waves, its DMA, or what its CP does itself. The work of a stream is
numbered from 1. A clock says, per stream, up to which number everything has finished and is known to have.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from zinc_rt.sim.interfaces import AddressSpace


class WorkKind(Enum):
    """Who does the work of a stream."""

    WAVES = "waves"
    DMA = "DMA"
    CP = "the CP"

    __hash__ = object.__hash__  # Enum's own is Python, and clocks are looked into all the time


WorkStream = tuple[int, WorkKind]
"""The queue's number in the device, and the kind."""

Clock = Mapping[WorkStream, int]
FLAGS_KEPT = 4096


def join(one: Clock, other: Clock) -> Clock:
    """The later of both, per stream. Never changes an argument: clocks are shared."""
    if not other or one is other:
        return one
    joined = dict(one)
    for stream, number in other.items():
        if joined.get(stream, 0) < number:
            joined[stream] = number
    return joined


class Flags:
    """Which clock a memory location carries: whoever waits for what was written there learns it."""

    def __init__(self) -> None:
        self._clocks: dict[tuple[int, int], Clock] = {}

    def wrote(self, space: AddressSpace, va: int, clock: Clock) -> None:
        key = (id(space), va & ~3)
        self._clocks.pop(key, None)
        self._clocks[key] = clock
        if len(self._clocks) > FLAGS_KEPT:
            del self._clocks[next(iter(self._clocks))]

    def read(self, space: AddressSpace, va: int) -> Clock | None:
        """The clock of that location; None where no queue wrote: then the host did."""
        return self._clocks.get((id(space), va & ~3))
