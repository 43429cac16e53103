"""One report put forward for one criterion, and what else a rule may look at."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from zinc_rt.perf.gate.milestones import Criterion
from zinc_rt.perf.gate.report_files import ReportFile
from zinc_rt.perf.history.chain import History


@dataclass(frozen=True, slots=True)
class OfferedReport:
    """`model_digest`: digests pinned on the command line, with commas; `head`: of the history, noted elsewhere;
    `models`: what the files of those digests are, read from the files; `host`: this machine."""

    criterion: Criterion
    evidence: ReportFile
    result: Mapping[str, Any]
    others: Sequence[ReportFile]
    code: str
    history: History | None = None
    model_digest: str = ""
    head: str = ""
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    host: Mapping[str, Any] = field(default_factory=dict)

    @property
    def pinned(self) -> tuple[str, ...]:
        """Digests that the model may have; () where nobody pinned one."""
        given = tuple(part.strip() for part in self.model_digest.split(",") if part.strip())
        own = self.criterion.model.digest if self.criterion.model is not None else None
        return given or tuple(self.models) or ((own,) if own else ())


RefusalRule = Callable[[OfferedReport], str | None]


def number(value: object, name: str) -> float:
    """A finite number that JSON wrote as one. Raises ValueError naming it: true, "1" and NaN are none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} is {value!r}, wanted a number")
    return float(value)


def moment(text: object, name: str) -> datetime:
    """A time with its zone. Raises ValueError naming it."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        raise ValueError(f"{name} is {text!r}, wanted a time") from None
    if found.tzinfo is None:
        raise ValueError(f"{name} is {text!r}, wanted a time with its zone")
    return found.astimezone(UTC)
