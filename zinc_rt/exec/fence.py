"""A point on a stream's 64-bit timeline, reached when everything submitted up to it has finished."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from zinc_rt.host.errors import ZincError


class DeadlineMissed(ZincError):
    """Raised if a fence was not reached in time. A tier with diagnostics raises a subclass with its hang
    report.
    """

    exit_code = 1
    node: object = None
    """The node of the graph at which a replay stopped, where the tier knows."""


class Fence(Protocol):
    @property
    def value(self) -> int:
        """Return the position on the stream's timeline: larger is later, unsigned 64 bits."""

    def done(self) -> bool:
        """Return whether the work has finished, successfully or not. Never blocks."""

    def wait(self, timeout_seconds: float) -> None:
        """Wait until finished. Raise DeadlineMissed after the timeout, or the error that the work ended with."""


class JoinedFence:
    """A fence for the ends of several streams. `value` is the largest of their values and defines no order."""

    def __init__(self, fences: Sequence[Fence]) -> None:
        self.fences = tuple(fences)
        self.value = max((fence.value for fence in self.fences), default=0)

    def done(self) -> bool:
        return all(fence.done() for fence in self.fences)

    def wait(self, timeout_seconds: float) -> None:
        deadline = time.monotonic() + timeout_seconds
        for fence in self.fences:
            fence.wait(max(0.0, deadline - time.monotonic()))


def split_fences(fences: Iterable[Fence]) -> Iterator[Fence]:
    """Yield the fences, with joined ones split into their parts."""
    for fence in fences:
        if isinstance(fence, JoinedFence):
            yield from split_fences(fence.fences)
        else:
            yield fence
