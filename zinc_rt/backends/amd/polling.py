"""Poll with a deadline: first eagerly, then with growing pauses, and never for ever."""

from __future__ import annotations

import time
from collections.abc import Callable

SPIN_SECONDS = 100e-6  # decode steps are shorter than a sleep is late
FIRST_PAUSE_SECONDS = 20e-6
LONGEST_PAUSE_SECONDS = 1e-3


def wait_until(reached: Callable[[], bool], pause: Callable[[float], None], timeout_seconds: float) -> bool:
    """Whether `reached` came true in time. It is asked at least once, and once more after the deadline.

    `pause` sleeps about as long as told, or less.
    """
    began = time.monotonic()
    seconds = FIRST_PAUSE_SECONDS
    while not reached():
        now = time.monotonic()
        left = began + timeout_seconds - now
        if left <= 0:
            return reached()
        if now - began < SPIN_SECONDS:
            time.sleep(0)  # lets other threads of this process run
            continue
        pause(min(seconds, left))
        seconds = min(2 * seconds, LONGEST_PAUSE_SECONDS)
    return True
