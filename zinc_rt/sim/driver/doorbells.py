"""Doorbells: memory that clients write. The command processor's thread polls them between its turns."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from zinc_rt.sim.interfaces import HardwareQueue
from zinc_rt.sim.memory.buffers import SharedStore


@dataclass(slots=True, eq=False)
class WatchedDoorbell:
    """A queue's doorbell and its last observed value."""

    queue: HardwareQueue
    words: SharedStore
    index: int  # 64-bit slots
    last: int = 0


class Doorbells:
    """Calls `ring(queue, value)` for each changed doorbell, after calling `before` at every poll."""

    def __init__(self, ring: Callable[[HardwareQueue, int], None], before: Callable[[], None]) -> None:
        self._ring, self._before = ring, before
        self._watched: tuple[WatchedDoorbell, ...] = ()
        self._lock = threading.Lock()

    def watch(self, queue: HardwareQueue, words: SharedStore, index: int, unrung: int = 0) -> None:
        """Watch a doorbell. `unrung`: its value until the client's first store."""
        words.u64[index] = unrung
        with self._lock:
            self._watched = (*self._watched, WatchedDoorbell(queue, words, index, unrung))

    def unwatch(self, queue: HardwareQueue) -> None:
        with self._lock:
            self._watched = tuple(item for item in self._watched if item.queue is not queue)

    def look(self) -> bool:
        """Poll every doorbell once; return whether any was rung."""
        rung = []
        for item in self._watched:
            value = item.words.u64[item.index]
            if value != item.last:
                item.last = value
                rung.append((item.queue, value))
        self._before()  # after the loads above, so that a flush stored before a doorbell is visible here
        for queue, value in rung:
            self._ring(queue, value)
        return bool(rung)
