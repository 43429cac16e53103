"""The report of `zinc-rt golden check` and `golden diff`."""

from __future__ import annotations

from dataclasses import dataclass, field

from zinc_rt.cli.report import Report
from zinc_rt.validate.check_result import CheckResult


@dataclass(slots=True)
class GoldenReport(Report):
    """A report of goldens, one result per check."""

    checks: list[CheckResult] = field(default_factory=list)  # in the order of `results`
