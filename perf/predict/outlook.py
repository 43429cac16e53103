"""A target next to its forecast: whether it is within the bounds, and what would have to be true to reach it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from zinc_rt.perf.gate.milestones import Criterion, load_milestones
from zinc_rt.perf.predict.sealed import MODELS, Forecast, find_forecast


@dataclass(frozen=True, slots=True)
class Outlook:
    """A target in tok/s and the forecast for it."""

    target: float
    forecast: Forecast

    @property
    def bound(self) -> float:
        """Return the smaller of the bounds by bytes and by operations."""
        return min(self.forecast.bytes_bound, self.forecast.flops_bound)

    @property
    def reachable(self) -> bool:
        """Return whether the target is within the bounds of the current bytes and operations."""
        return self.target <= self.bound

    @property
    def verdict(self) -> str:
        forecast = self.forecast
        if not self.reachable:
            return "unreachable"
        if forecast.likely is None or forecast.low is None or forecast.high is None:
            return "no forecast"
        if self.target <= forecast.low:
            return "expected"
        return "within the range" if self.target <= forecast.high else "above the range"

    @property
    def needs(self) -> str:
        """Return what would have to be true to reach the target."""
        forecast = self.forecast
        if not self.reachable:
            by = "bytes" if forecast.bytes_bound <= forecast.flops_bound else "operations"
            share = 1 - self.bound / self.target
            return f"at least {share:.0%} fewer {by}: the limit by {by} is {self.bound:.0f} tok/s"
        if forecast.likely is None or self.target <= forecast.likely:
            return "nothing beyond the likely assumptions" if forecast.likely is not None else forecast.note
        faster = self.target / forecast.likely
        return f"{faster:.2f} times the forecast: {self.target / self.bound:.0%} of the limit of {self.bound:.0f}"

    @property
    def speed(self) -> str:
        """Return the forecast with its range, "–" without one."""
        forecast = self.forecast
        if forecast.likely is None:
            return "–"
        return f"{forecast.likely:.0f} ({forecast.low:.0f} to {forecast.high:.0f})"

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for a report, in tok/s, with the verdict and the sentence."""
        forecast = self.forecast
        return {
            "target": self.target,
            "likely": forecast.likely,
            "range": None if forecast.likely is None else [forecast.low, forecast.high],
            "bytes_bound": forecast.bytes_bound,
            "flops_bound": forecast.flops_bound,
            "reachable": self.reachable,
            "verdict": self.verdict,
            "needs": self.needs,
            "text": self.text,
        }

    @property
    def text(self) -> str:
        forecast = self.forecast
        if forecast.likely is None:
            return f"target {self.target:g}, no forecast ({forecast.note})"
        return (
            f"target {self.target:g}, forecast {self.speed}, "
            f"limits {forecast.bytes_bound:.0f} by bytes, {forecast.flops_bound:.0f} by operations: "
            f"{self.verdict}; needs {self.needs}"
        )


def outlook_of(criterion: Criterion) -> Outlook | None:
    """Return a speed criterion's target next to its sealed forecast; None if no forecast is sealed for it."""
    is_speed = criterion.type == "measured" and criterion.unit == "tok/s" and criterion.bound.sign == ">="
    if not is_speed or criterion.model is None:
        return None
    model = next((name for name, shape in MODELS.items() if shape == criterion.model.shape), "")
    loads = {"decode": "decode", "prefill": "prompt of 512", "aggregate": f"{criterion.slots} slots"}
    try:
        sealed = find_forecast(criterion.hardware["device"], model, loads.get(criterion.measure, ""))
    except KeyError:
        return None
    return Outlook(criterion.bound.limit, sealed)


def outlooks() -> Iterator[tuple[Criterion, Outlook]]:
    """Yield every criterion with a sealed forecast, in the order of the milestones."""
    for milestone in load_milestones():
        for criterion in milestone.criteria:
            if (outlook := outlook_of(criterion)) is not None:
                yield criterion, outlook
