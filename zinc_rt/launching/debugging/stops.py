"""Stops of a debugged launch, and what the user watches."""

from __future__ import annotations

from dataclasses import dataclass, field

from zinc_rt.launching.debugging.expressions import WatchPlace
from zinc_rt.launching.finding_groups import FindingGroup
from zinc_rt.sim.shader.checks.finding_text import WaveFinding
from zinc_rt.sim.shader.run.debugger import WaveView


@dataclass(slots=True)
class Watchpoint:
    """A watched value. `text`: its expression."""

    number: int
    text: str
    place: WatchPlace

    def __str__(self) -> str:
        return f"watch {self.number}: {self.text}"


@dataclass(frozen=True, slots=True)
class WatchChange:
    """A change of a watched value; `pc` is that of the storing instruction, if known."""

    watch: str
    before: str
    now: str
    pc: int | None


@dataclass(frozen=True, slots=True)
class DebugStop:
    """The position of the launch. `reason`: description of why it stopped. `wave`: None after the end. `findings`:
    the findings of the stop, or all of them after the end.
    """

    reason: str
    step: int
    wave: WaveView | None
    change: WatchChange | None = None
    findings: tuple[FindingGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class StopReason:
    """The reason why a wave stops, "" if it does not. `after`: the previous instruction caused the findings."""

    text: str = ""
    change: WatchChange | None = None
    findings: list[WaveFinding] = field(default_factory=list)
    after: bool = False
