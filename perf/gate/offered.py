"""The evidence given to a gate, and one report of it for one criterion: the data that rules can use."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from zinc_rt.host.machine import describe_host
from zinc_rt.host.version import digest_runtime
from zinc_rt.perf.gate.milestones import Criterion
from zinc_rt.perf.gate.report_files import ReportFile, Statement
from zinc_rt.perf.history.chain import History


@dataclass(frozen=True, slots=True)
class GateInput:
    """The evidence: reports, statements, the history in which they are recorded, its separately recorded head, and
    the expected models, as comma-separated digests or as files, whose shapes are stored by digest.
    """

    reports: Sequence[ReportFile] = ()
    statements: Sequence[Statement] = ()
    history: History | None = None
    model_digest: str = ""
    head: str = ""
    code: str = ""
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    host: Mapping[str, Any] = field(default_factory=describe_host)

    @property
    def code_version(self) -> str:
        return self.code or digest_runtime()


@dataclass(frozen=True, slots=True)
class SubmittedReport:
    """A report's `result`, submitted for a criterion, with all available evidence."""

    criterion: Criterion
    evidence: ReportFile
    result: Mapping[str, Any]
    given: GateInput

    @property
    def others(self) -> list[ReportFile]:
        return [report for report in self.given.reports if report is not self.evidence]

    def after_head(self, digest: str) -> str | None:
        """Return an objection if a report was recorded after the noted head, else None."""
        entries = self.given.history.entries if self.given.history is not None else ()
        noted = next((entry for entry in entries if entry.hash == self.given.head), None)
        entry = next((entry for entry in entries if entry.report == digest), None)
        if noted is None or entry is None or entry.sequence <= noted.sequence:
            return None
        return f"it is entry {entry.sequence}, recorded after the head {noted.hash[:12]} at entry {noted.sequence}"

    @property
    def pinned(self) -> tuple[str, ...]:
        """Return the accepted digests of the model; () if none is pinned."""
        texts = tuple(part.strip() for part in self.given.model_digest.split(",") if part.strip())
        own = self.criterion.model.digest if self.criterion.model is not None else None
        return texts or tuple(self.given.models) or ((own,) if own else ())


MIN_TOKENS = 128  # of a run; §25.3
AGREEMENT = 1e-3  # between a summary and its own samples
RefusalRule = Callable[[SubmittedReport], str | None]


def check_number(value: object, name: str) -> float:
    """Return a finite JSON number. Raise ValueError that names it; true, "1" and NaN are rejected."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} is {value!r}, expected a number")
    return float(value)


def parse_time(text: object, name: str) -> datetime:
    """Parse a time with its zone. Raise ValueError naming it."""
    try:
        time = datetime.fromisoformat(str(text))
    except ValueError:
        raise ValueError(f"{name} is {text!r}, expected a date and time") from None
    if time.tzinfo is None:
        raise ValueError(f"{name} is {text!r}, expected a time with a time zone")
    return time.astimezone(UTC)


def is_close(reported: float, computed: float) -> bool:
    """Return whether a summary agrees with its samples."""
    return abs(reported - computed) <= AGREEMENT * abs(computed)
