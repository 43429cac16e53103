"""Start and end times of each dispatch of a replay, for a graph that was lowered `timed`.

In a timed graph dispatches do not overlap. Clocks differ between tiers, so each reading names its clock; only
differences within one reading are meaningful.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from zinc_rt.ir.graph import Node

HOST_CLOCK = "the host's monotonic clock"


@dataclass(frozen=True, slots=True)
class TimedDispatch:
    """One dispatch: `began_ns` is right before its launch, `ended_ns` after its completion. `node` is None for
    dispatches that the plan added."""

    node: Node | None
    kernel: str
    began_ns: int
    ended_ns: int

    @property
    def nanoseconds(self) -> int:
        return self.ended_ns - self.began_ns


@dataclass(frozen=True, slots=True)
class Times:
    """One replay's dispatches in order. `clock` is a description; `simulated`: the times do not apply to hardware;
    `host_time`: readings are also times of the host's monotonic clock.
    """

    clock: str
    simulated: bool
    dispatches: tuple[TimedDispatch, ...]
    host_time: bool = False

    @property
    def span_ns(self) -> int:
        """Return the time from the start of the first dispatch to the end of the last."""
        return self.dispatches[-1].ended_ns - self.dispatches[0].began_ns if self.dispatches else 0

    def wrong(self) -> Iterator[str]:
        """Return sentences about implausible readings, which do not increase or which decrease."""
        before = None
        for number, dispatch in enumerate(self.dispatches):
            if dispatch.ended_ns < dispatch.began_ns or (before is not None and dispatch.began_ns < before):
                yield (
                    f"{self.clock}: dispatch {number}, {dispatch.kernel}, ends before it begins or begins before "
                    "the previous dispatch ends"
                )
                return
            before = dispatch.ended_ns
        if self.dispatches and not self.span_ns:
            yield f"{self.clock} does not advance: {len(self.dispatches)} dispatches took no time at all"
