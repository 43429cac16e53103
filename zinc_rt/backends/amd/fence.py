"""A queue's 64-bit timeline in shared memory: RELEASE_MEM writes the value, the host polls it.

A slot is one cache line. Its first 8 bytes are the timeline, 0 until the GPU writes it; the rest holds
POISON, which must never change. A value that was never submitted, a decreasing value, or changed poison means
that something else writes this memory; it is reported as an error, not as a reached fence.
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
    """Poll until `reached` is true: first busily, then with growing pauses, at most `timeout_seconds`.

    Return whether it became true in time. It is called at least once, and once more after the deadline.
    `pause` sleeps for at most about the given seconds.
    """
    start = time.monotonic()
    seconds = FIRST_PAUSE_SECONDS
    while not reached():
        now = time.monotonic()
        left = start + timeout_seconds - now
        if left <= 0:
            return reached()
        if now - start < SPIN_SECONDS:
            time.sleep(0)  # lets other threads of this process run
            continue
        pause(min(seconds, left))
        seconds = min(2 * seconds, LONGEST_PAUSE_SECONDS)
    return True


class FenceCorrupt(ZincError):
    """Raised if the fence's memory holds a value that no submission wrote."""

    exit_code = 1


class Timeline:
    """Values 1, 2, 3, … of one queue. `submitted` is the last allocated value, `seen` is the last value read from
    memory.
    """

    def __init__(self, name: str, address: int, gpu_va: int, wait: Callable[[TimelineFence, float], None]) -> None:
        """Create a timeline. `address` and `gpu_va` are the host and GPU addresses of one slot. `wait` blocks
        until a fence is reached."""
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
        """Return the value in memory. An invalid value marks the timeline as lost: see `error`."""
        value = self._word.value
        if value != self.seen and self.error is None:
            if self.seen < value <= self.submitted:
                self.seen = value
            else:
                self.lose(
                    FenceCorrupt(
                        f"{self.name}: fence memory {self.gpu_va:#x} holds {self._describe_wrong_value(value)}"
                    )
                )
        return self.seen

    def is_reached(self, value: int) -> Callable[[], bool]:
        """Return a predicate that is true when `value` is reached, or the timeline is lost."""
        return lambda: value <= self.poll()

    def read_guard(self) -> str | None:
        """Return a description of damage to the poison around the fence, or None if it is intact."""
        changed = [index for index, word in enumerate(self._guards) if word != POISON]
        if not changed:
            return None
        shown = ", ".join(f"{self.gpu_va + 8 + 8 * i:#x} holds {self._guards[i]:#x}" for i in changed)
        return f"{self.name}: poison beside the fence was overwritten: {shown}"

    def lose(self, error: BaseException) -> None:
        """Mark the timeline as lost: every pending fence completes with `error`."""
        if self.error is None:
            self.last_good, self.seen, self.error = self.seen, _LOST, error

    def memory(self) -> int:
        """Return the raw word in memory."""
        return int(self._word.value)

    def forget(self) -> None:
        """Detach from the slot before its memory is freed."""
        if self.error is None:
            self.poll()
        if self.seen < self.submitted:
            self.lose(ZincError(f"{self.name} was closed before fence {self.submitted} was reached"))
        self._word = ctypes.c_uint64(self._word.value)
        self._guards = (ctypes.c_uint64 * _GUARDS)(*self._guards)

    def _describe_wrong_value(self, value: int) -> str:
        if value == POISON:
            return f"the poison {value:#x}: the line was filled anew"
        if value < self.seen:
            return f"{value}, after {self.seen}: it went backwards"
        return f"{value:#x}, but {self.submitted} is the last value submitted"


class TimelineFence:
    """An exec.Fence over a timeline."""

    __slots__ = ("timeline", "value")

    def __init__(self, timeline: Timeline, value: int) -> None:
        self.timeline = timeline
        self.value = value

    def __repr__(self) -> str:
        return f"TimelineFence({self.timeline.name!r}, {self.value})"

    def done(self) -> bool:
        return self.value <= self.timeline.seen or self.value <= self.timeline.poll()

    def reached(self) -> bool:
        """Return whether the fence completed without error."""
        return self.done() and (self.timeline.error is None or self.value <= self.timeline.last_good)

    def wait(self, timeout_seconds: float) -> None:
        """Wait. Raise Hang after the timeout, FenceCorrupt, or the error that lost the queue."""
        timeline = self.timeline
        if not self.done():
            timeline.wait(self, timeout_seconds)
        if timeline.error is not None and self.value > timeline.last_good:
            raise timeline.error
