"""Doorbells: memory that clients write, watched by the device.

200 µs of spinning after activity, then sleeps of up to a millisecond; without a queue the thread waits for one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from zinc_rt.sim.interfaces import HardwareQueue
from zinc_rt.sim.memory import Shared

SPIN_SECONDS = 200e-6
SLEEP_SECONDS = 1e-3


@dataclass(slots=True, eq=False)
class Watched:
    queue: HardwareQueue
    words: Shared
    index: int  # 64-bit slots
    last: int = 0


class Doorbells:
    """`ring(queue)` is called from the watching thread with queue.doorbell set; `before` first, whenever a doorbell
    was seen to change, and at every look."""

    def __init__(self, ring: Callable[[HardwareQueue], None], before: Callable[[], None]) -> None:
        self._ring, self._before = ring, before
        self._watched: tuple[Watched, ...] = ()
        self._some = threading.Event()
        self._closing = False
        self._look_lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def watch(self, queue: HardwareQueue, words: Shared, index: int) -> None:
        words.u64[index] = 0
        self._watched = (*self._watched, Watched(queue, words, index))
        self._some.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="doorbells", daemon=True)
            self._thread.start()

    def unwatch(self, queue: HardwareQueue) -> None:
        self._watched = tuple(each for each in self._watched if each.queue is not queue)
        if not self._watched:
            self._some.clear()

    def watches(self, queue: HardwareQueue) -> bool:
        return any(each.queue is queue for each in self._watched)

    def look(self) -> bool:
        """One look at every doorbell; says whether any was rung."""
        with self._look_lock:
            rung = []
            for each in self._watched:
                value = each.words.u64[each.index]
                if value != each.last:
                    each.last = each.queue.doorbell = value
                    rung.append(each.queue)
            self._before()  # after the loads above: a flush stored before a doorbell is seen here
            for queue in rung:
                self._ring(queue)
            return bool(rung)

    def _run(self) -> None:
        active = time.monotonic()
        while not self._closing:
            if not self._watched:
                self._some.wait()
                continue
            if self.look():
                active = time.monotonic()
            idle = time.monotonic() - active
            time.sleep(0 if idle < SPIN_SECONDS else min(SLEEP_SECONDS, idle / 2))

    def close(self) -> None:
        self._closing = True
        self._some.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=5)
