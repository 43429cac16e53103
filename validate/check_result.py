"""The typed result of one check. `reported` converts it to its row in the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from zinc_rt.backends.base import Finding
from zinc_rt.cli.describe import describe_finding
from zinc_rt.cli.report import Result, Status
from zinc_rt.validate.measure import Agreement, Measure


class Reportable(Protocol):
    """A measure or a limit, as JSON-ready figures by name."""

    def as_dict(self) -> dict[str, Any]: ...


class ReportFigures(dict[str, Any]):
    """Figures that are only reported and never read back."""

    def as_dict(self) -> dict[str, Any]:
        return dict(self)


@dataclass(frozen=True, slots=True)
class ValueMeasure:
    """The distance of one value from the reference. `resync` is the distance with the layer's input reset to the
    reference, `agreement` is for logits, and `histogram` for the value itself.
    """

    distance: Measure
    agreement: Agreement | None = None
    histogram: Sequence[int] = ()
    resync: Measure | None = None

    def as_dict(self) -> dict[str, Any]:
        figures = self.distance.as_dict()
        if self.agreement is not None:
            figures |= self.agreement.as_dict()
        if self.histogram:
            figures["histogram"] = list(self.histogram)
        if self.resync is not None:
            figures["resync"] = self.resync.as_dict()
        return figures


@dataclass(frozen=True, slots=True)
class MedianMeasure:
    """The median distance of logits with quantised activations, for which the maximum is not meaningful."""

    median_max_abs: float

    def as_dict(self) -> dict[str, Any]:
        return {"median_max_abs": self.median_max_abs}


@dataclass(frozen=True, slots=True)
class GreedyMeasure:
    """The result for a greedy continuation: the number of tokens compared, and the tokens that the tier chose."""

    tokens: int
    got: Sequence[int]

    def as_dict(self) -> dict[str, Any]:
        return {"tokens": self.tokens, "got": list(self.got)}


@dataclass(frozen=True, slots=True)
class NonfiniteMeasure:
    """Values that are NaN or infinite. `weights` describes those of the model file."""

    nonfinite: int
    weights: Sequence[str] = ()

    def as_dict(self) -> dict[str, Any]:
        return {"nonfinite": self.nonfinite, **({"weights": list(self.weights)} if self.weights else {})}


@dataclass(frozen=True, slots=True)
class SanitizerMeasure:
    """The findings of the simulated device: their number, the first few, and the facts they depend on."""

    findings: int
    level: str
    assumptions: Sequence[str]
    found: Sequence[Finding] = ()

    def as_dict(self) -> dict[str, Any]:
        findings = {"found": [describe_finding(finding) for finding in self.found]} if self.found else {}
        return {"findings": self.findings, "level": self.level, "assumptions": list(self.assumptions), **findings}


@dataclass(slots=True)
class CheckResult:
    """The result of one check. `measure` is the measured distance, `limit` the allowed distance."""

    id: str  # MODEL/TIER/NAME
    kind: str
    status: Status
    tier: str = ""
    reference: str = ""
    reason: str = ""
    measure: Reportable = field(default_factory=ReportFigures)
    limit: Reportable = field(default_factory=ReportFigures)
    first_bad: dict[str, Any] = field(default_factory=dict)
    cause: str = ""
    advice: str = ""
    repro: str = ""
    artifacts: list[str] = field(default_factory=list)

    @property
    def model(self) -> str:
        return self.id.partition("/")[0]

    @property
    def name(self) -> str:
        return self.id.rpartition("/")[2]

    @property
    def against(self) -> str:
        """Return the name of the reference."""
        return "itself" if self.reference == self.tier else self.reference

    @property
    def value(self) -> ValueMeasure | None:
        return self.measure if isinstance(self.measure, ValueMeasure) else None

    @property
    def distance(self) -> Measure | None:
        return self.value.distance if self.value is not None else None

    def reported(self) -> Result:
        """Return the result's row in the report."""
        return Result(
            self.id,
            self.kind,
            self.status,
            self.tier,
            self.reference,
            self.reason,
            self.measure.as_dict(),
            self.limit.as_dict(),
            self.first_bad,
            self.cause,
            self.advice,
            self.repro,
            self.artifacts,
        )
