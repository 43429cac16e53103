"""The report of `zinc-rt validate`, with the objects that its tables are made from."""

from __future__ import annotations

from dataclasses import dataclass, field

from zinc_rt.cli.report import Report
from zinc_rt.validate.check_result import CheckResult
from zinc_rt.validate.histograms.matrix import LogitMatrix


@dataclass(slots=True)
class ValidationReport(Report):
    """A report of one or more models, one result per check."""

    checks: list[CheckResult] = field(default_factory=list)  # in the order of `results`
    matrices: list[LogitMatrix] = field(default_factory=list)  # differences of logits, one per model
    models: int = 0
