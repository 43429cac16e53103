"""A target next to its forecast: whether it is within the bounds, and what would have to be true to reach it."""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.perf.predict.sealed import Forecast


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
        """Return whether the target is within the bounds of the bytes and operations that are executed now."""
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
            return "the likely assumptions" if forecast.likely is not None else forecast.note
        faster = self.target / forecast.likely
        return f"{faster:.2f} times the forecast: {self.target / self.bound:.0%} of the limit of {self.bound:.0f}"

    @property
    def text(self) -> str:
        forecast = self.forecast
        if forecast.likely is None:
            return f"target {self.target:g}, no forecast ({forecast.note})"
        return (
            f"target {self.target:g}, forecast {forecast.likely:.0f} ({forecast.low:.0f} to {forecast.high:.0f}), "
            f"limits {forecast.bytes_bound:.0f} by bytes, {forecast.flops_bound:.0f} by operations: "
            f"{self.verdict}; needs {self.needs}"
        )
