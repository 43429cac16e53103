"""Asynchronous work of packets: dispatches, DMA, and end-of-pipe events.

Without a seed it runs as soon as it is launched. With one (`--reorder`), it is delayed while the CP
continues, and runs in an order chosen by the seed, within the ordering rules of the stream.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from zinc_rt.sim.cp.clocks import WorkKind
from zinc_rt.sim.cp.fetch import FetchFrame
from zinc_rt.sim.cp.interruptions import MemoryFaultStop
from zinc_rt.sim.interfaces import Fault, Kmd

HELD_BACK = 16  # with a seed: more than this and some of it runs


@dataclass(slots=True, eq=False)
class LaunchedWork:
    """`advance()` performs some of the work and returns whether it is finished; it may raise Fault.

    `kind` None: an end-of-pipe event, which runs once all earlier work has finished. `after_dma`: waits
    for the earlier DMA. `at`: (frame, position) of the packet that launched it.
    """

    kind: WorkKind | None
    label: str
    advance: Callable[[], bool]
    after_dma: bool = False
    abandon: Callable[[], None] | None = None
    at: tuple[FetchFrame, int] | None = None


class PendingWork:
    """A queue's launched work, oldest first."""

    def __init__(self, seed: int | None) -> None:
        self._items: list[LaunchedWork] = []
        self._random = random.Random(seed) if seed is not None else None

    def __len__(self) -> int:
        return len(self._items)

    def launch(self, work: LaunchedWork) -> None:
        """Add the work; run it at once unless work is reordered. Raises FaultIn."""
        if self._random is None:
            if not self._items and _advance(work):
                return
            self._items.append(work)
            return
        self._items.append(work)
        if len(self._items) > HELD_BACK:
            self.run(self._random.randrange(1, HELD_BACK))

    def busy(self, kind: WorkKind | None = None) -> bool:
        """Return whether work of that kind, or any work, is unfinished."""
        return any(kind is None or work.kind is kind for work in self._items)

    def has_unfinished(self) -> bool:
        """Return the work that no later end-of-pipe event covers."""
        return bool(self._items) and self._items[-1].kind is not None

    def run(self, steps: int) -> int:
        """Perform at most that many steps of work; return the number used. Raises FaultIn."""
        used = 0
        while self._items and used < steps:
            work = self._choose()
            used += 1
            if _advance(work):
                self._items.remove(work)
            else:
                break  # out of fuel: the rest of the device is next
        return used

    def settle(self) -> None:
        """Run the end-of-pipe events whose earlier work is finished. Raises FaultIn."""
        while self._items and self._items[0].kind is None and _advance(self._items[0]):
            del self._items[0]

    def drop(self) -> None:
        """Drop all work of a destroyed queue."""
        for work in self._items:
            if work.abandon is not None:
                work.abandon()
        self._items.clear()

    def _choose(self) -> LaunchedWork:
        if self._random is None:
            return self._items[0]
        free: list[LaunchedWork] = []
        dma = False
        for index, work in enumerate(self._items):
            if work.kind is None:
                if index == 0:
                    free.append(work)
                continue
            if not (work.after_dma and dma):
                free.append(work)
            dma = dma or work.kind is WorkKind.DMA
        return self._random.choice(free)


def _advance(work: LaunchedWork) -> bool:
    try:
        return work.advance()
    except Fault as fault:
        raise MemoryFaultStop(fault, work.label, work.at) from fault


SLOW_FENCE_SECONDS = 0.5


def delay_end(at_end: Callable[[], bool], kmd: Kmd) -> Callable[[], bool]:
    """Return the end-of-pipe event; half a second later, if the fault slow-fence is injected now."""
    if not kmd.injected("slow-fence"):
        return at_end
    ready = time.monotonic() + SLOW_FENCE_SECONDS
    return lambda: time.monotonic() >= ready and at_end()
