"""The report of `zinc-rt replay`, with what each replay and bisection returned."""

from __future__ import annotations

from dataclasses import dataclass, field

from zinc_rt.cli.report import Report
from zinc_rt.replay.bisect_result import BisectResult
from zinc_rt.replay.run import ReplayOutcome


@dataclass(slots=True)
class ReplayReport(Report):
    """A report of one log, one result per tier."""

    outcomes: list[ReplayOutcome] = field(default_factory=list)
    bisections: list[BisectResult] = field(default_factory=list)
