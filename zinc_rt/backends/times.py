"""When each dispatch of a replay began and ended, as a graph that was lowered `timed` notes it.

In a timed graph every dispatch runs alone: what another step would run beside it waits. Clocks differ from tier
to tier, so a reading says whose it is; only differences within one reading mean anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from zinc_rt.ir.graph import Node

HOST_CLOCK = "the host's monotonic clock"


@dataclass(frozen=True, slots=True)
class Timed:
    """One dispatch: `began_ns` right before it was launched, `ended_ns` when all of it had ended. `node` is None
    for what the plan added."""

    node: Node | None
    kernel: str
    began_ns: int
    ended_ns: int

    @property
    def nanoseconds(self) -> int:
        return self.ended_ns - self.began_ns


@dataclass(frozen=True, slots=True)
class Times:
    """One replay's dispatches in order. `clock` in words; `simulated`: it says nothing about hardware;
    `host_time`: readings are times of the host's monotonic clock too."""

    clock: str
    simulated: bool
    dispatches: tuple[Timed, ...]
    host_time: bool = False

    @property
    def span_ns(self) -> int:
        """From the first's beginning to the last's end."""
        return self.dispatches[-1].ended_ns - self.dispatches[0].began_ns if self.dispatches else 0

    def wrong(self) -> Iterator[str]:
        """Sentences about readings that no clock gives: one that does not rise, or goes backwards."""
        before = None
        for number, each in enumerate(self.dispatches):
            if each.ended_ns < each.began_ns or (before is not None and each.began_ns < before):
                yield f"{self.clock}: dispatch {number}, {each.kernel}, ends before it begins or begins too early"
                return
            before = each.ended_ns
        if self.dispatches and not self.span_ns:
            yield f"{self.clock} does not advance: {len(self.dispatches)} dispatches took no time at all"
