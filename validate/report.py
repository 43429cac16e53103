"""The reports of `zinc-rt validate`, with the objects from which their tables are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zinc_rt.cli.report import Report
from zinc_rt.validate.check_result import CheckResult
from zinc_rt.validate.histograms.matrix import LogitMatrix

if TYPE_CHECKING:
    from zinc_rt.validate.isolation.verdict import MixVerdict


@dataclass(slots=True)
class ValidationReport(Report):
    """A report of one or more models, one result per check."""

    checks: list[CheckResult] = field(default_factory=list)  # in the order of `results`
    matrices: list[LogitMatrix] = field(default_factory=list)  # differences of logits, one per model
    models: int = 0


@dataclass(slots=True)
class IsolationReport(Report):
    """A report of `validate --isolation`: mixes of requests compared with solo runs."""

    verdicts: list[MixVerdict] = field(default_factory=list)  # one per model and tier
    models: int = 0
