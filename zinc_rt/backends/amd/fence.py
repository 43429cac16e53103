"""A queue's 64-bit timeline in memory both sides see: RELEASE_MEM writes the value, the host polls it.

A slot is one cache line. Its first 8 bytes are the timeline, 0 until the GPU has written it; the rest holds
POISON, which nothing may ever change. A value that was never submitted, one that went backwards, or a changed
guard means that something else writes there, and is an error of its own rather than a fence reached.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

from zinc_rt.host.errors import ZincError

SLOT_BYTES = 64  # no two timelines in one line of the host's cache
POISON = 0xDEAD_FE2C_E0DD_BA11
_GUARDS = SLOT_BYTES // 8 - 1
_LOST = 1 << 64  # above every value: nothing is waited for any more
SPIN_SECONDS = 100e-6  # a decode step can be shorter than the delay of a sleep
FIRST_PAUSE_SECONDS = 20e-6
LONGEST_PAUSE_SECONDS = 1e-3


def wait_until(reached: Callable[[], bool], pause: Callable[[float], None], timeout_seconds: float) -> bool:
    """Poll until `reached` is true: first eagerly, then with growing pauses, at most `timeout_seconds`.

    Return whether it became true in time. It is called at least once, and once more after the deadline. `pause`
    sleeps for about the given seconds, or less.
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


class FenceCorrupt(ZincError):
    """The fence's memory holds what no submission wrote."""

    exit_code = 1


class Timeline:
    """Values 1, 2, 3, … of one queue. `submitted` is the last given out, `seen` the last found in memory."""

    def __init__(self, name: str, address: int, gpu_va: int, wait: Callable[[TimelineFence, float], None]) -> None:
        """`address` and `gpu_va` are the two sides of one slot. `wait` blocks until a fence is reached."""
        self.name = name
        self.address = address
        self.gpu_va = gpu_va
        self.submitted = 0
        self.seen = 0
        self.last_good = 0  # of `seen`, before the timeline was lost
        self.error: BaseException | None = None
        self.wait = wait
        self._word = ctypes.c_uint64.from_address(address)
        self._guards = (ctypes.c_uint64 * _GUARDS).from_address(address + 8)
        self._word.value = 0
        self._guards[:] = [POISON] * _GUARDS

    def poll(self) -> int:
        """The value in memory. One that cannot be right loses the timeline: see `error`."""
        value = self._word.value
        if value != self.seen and self.error is None:
            if self.seen < value <= self.submitted:
                self.seen = value
            else:
                self.lose(FenceCorrupt(f"{self.name}: fence memory {self.gpu_va:#x} holds {self._wrong(value)}"))
        return self.seen

    def reaches(self, value: int) -> Callable[[], bool]:
        """Return a function that tells whether `value` is reached, or the timeline is lost."""
        return lambda: value <= self.poll()

    def guard(self) -> str | None:
        """What is wrong around the fence; None while the poison is intact."""
        changed = [index for index, word in enumerate(self._guards) if word != POISON]
        if not changed:
            return None
        shown = ", ".join(f"{self.gpu_va + 8 + 8 * i:#x} holds {self._guards[i]:#x}" for i in changed)
        return f"{self.name}: poison beside the fence was overwritten: {shown}"

    def lose(self, error: BaseException) -> None:
        """Nothing more comes: every fence not reached yet is done, with `error`."""
        if self.error is None:
            self.last_good, self.seen, self.error = self.seen, _LOST, error

    def memory(self) -> int:
        """The bare word, whatever it holds."""
        return int(self._word.value)

    def forget(self) -> None:
        """Before the slot's memory goes."""
        if self.error is None:
            self.poll()
        if self.seen < self.submitted:
            self.lose(ZincError(f"{self.name} was closed before fence {self.submitted} was reached"))
        self._word = ctypes.c_uint64(self._word.value)
        self._guards = (ctypes.c_uint64 * _GUARDS)(*self._guards)

    def _wrong(self, value: int) -> str:
        if value == POISON:
            return f"the poison {value:#x}: the line was filled anew"
        if value < self.seen:
            return f"{value}, after {self.seen}: it went backwards"
        return f"{value:#x}, but {self.submitted} is the last value submitted"


class TimelineFence:
    """exec.Fence over a timeline."""

    __slots__ = ("timeline", "value")

    def __init__(self, timeline: Timeline, value: int) -> None:
        self.timeline = timeline
        self.value = value

    def __repr__(self) -> str:
        return f"TimelineFence({self.timeline.name!r}, {self.value})"

    def done(self) -> bool:
        return self.value <= self.timeline.seen or self.value <= self.timeline.poll()

    def reached(self) -> bool:
        """Finished well: done, and not because the timeline was lost."""
        return self.done() and (self.timeline.error is None or self.value <= self.timeline.last_good)

    def wait(self, timeout_seconds: float) -> None:
        """Raises Hang after the timeout, FenceCorrupt, or what the queue was lost by."""
        timeline = self.timeline
        if not self.done():
            timeline.wait(self, timeout_seconds)
        if timeline.error is not None and self.value > timeline.last_good:
            raise timeline.error
