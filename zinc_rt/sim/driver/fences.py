"""Kernel fences, the syncobjs that contain them, and waits for either. Source: drm_syncobj.c."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable


class DmaFence:
    """A fence that completes once; `error` is a positive errno, ECANCELED after a reset."""

    __slots__ = ("_calls", "done", "error", "owner", "queue_va", "value")

    def __init__(
        self, *, done: bool = False, queue_va: int = 0, value: int = 0, owner: object | None = None
    ) -> None:
        self.done, self.error = done, 0
        self.queue_va, self.value = queue_va, value  # of a user queue: where the position appears, and which
        self.owner = owner  # of a job: its render file's rings, which do not wait for each other implicitly
        self._calls: list[Callable[[], None]] = []

    def is_done(self) -> bool:
        return self.done

    def call_when_done(self, function: Callable[[], None]) -> None:
        """Call the function once, with the machine's `changed` held, when this unfinished fence completes."""
        self._calls.append(function)

    def complete(self, error: int = 0) -> None:
        """Complete the fence. Called with the machine's `changed` held."""
        self.done, self.error = True, error
        calls, self._calls = self._calls, []
        for function in calls:
            function()


class SyncobjState:
    """A binary syncobj's `fence`, or a timeline's points. Guarded by the machine's `changed`."""

    __slots__ = ("fence", "point", "points")

    def __init__(self, *, signaled: bool = False) -> None:
        self.fence: DmaFence | None = DmaFence(done=True) if signaled else None
        self.points: list[tuple[int, DmaFence]] = []  # ascending
        self.point = 0  # the last one reached

    def attach(self, fence: DmaFence, point: int = 0) -> None:
        """Attach the fence at a point of the timeline; point 0 replaces the binary syncobj's fence."""
        if not point:
            self.replace(fence)
            return
        self.points.append((point, fence))
        self.points.sort(key=lambda point: point[0])
        self.fence = fence

    def replace(self, fence: DmaFence | None) -> None:
        self.fence = fence
        self.points.clear()

    def reached(self) -> int:
        while self.points and self.points[0][1].done:
            self.point = max(self.point, self.points.pop(0)[0])
        return self.point

    def list_fences(self, point: int) -> list[DmaFence]:
        """Return the unfinished fences before and at the point; [] if it is reached. Raises OSError(EINVAL) if no
        fence was submitted for it."""
        if not self.submitted(point):
            raise OSError(errno.EINVAL, f"no fence at point {point}")
        if not point:
            return [self.fence] if self.fence is not None and not self.fence.done else []
        if self.reached() >= point:
            return []
        last = next(item for item, _ in self.points if item >= point)
        return [fence for item, fence in self.points if item <= last and not fence.done]

    def submitted(self, point: int) -> bool:
        if point == 0:
            return self.fence is not None
        return self.reached() >= point or any(item >= point for item, _ in self.points)

    def is_signaled(self, point: int) -> bool:
        if point == 0:
            return self.fence is not None and self.fence.done
        return self.reached() >= point


def wait_until(
    changed: threading.Condition, ready: Callable[[], int | None], deadline_nsec: int | None
) -> int | None:
    """Return the result of `ready` once it is not None; None at the absolute deadline of CLOCK_MONOTONIC."""
    with changed:
        while True:
            value = ready()
            if value is not None:
                return value
            left = None if deadline_nsec is None else (deadline_nsec - time.monotonic_ns()) / 1e9
            if left is not None and left <= 0:
                return None
            changed.wait(3600 if left is None else min(left, 3600))
