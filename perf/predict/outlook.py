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
        one = self.forecast
        if not self.reachable:
            return "unreachable"
        if one.likely is None or one.low is None or one.high is None:
            return "no forecast"
        if self.target <= one.low:
            return "expected"
        return "within the range" if self.target <= one.high else "above the range"

    @property
    def needs(self) -> str:
        """Return what would have to be true to reach the target."""
        one = self.forecast
        if not self.reachable:
            by = "bytes" if one.bytes_bound <= one.flops_bound else "operations"
            share = 1 - self.bound / self.target
            return f"at least {share:.0%} fewer {by}: the limit by {by} is {self.bound:.0f} tok/s"
        if one.likely is None or self.target <= one.likely:
            return "the likely assumptions" if one.likely is not None else one.note
        faster = self.target / one.likely
        return f"{faster:.2f} times the forecast: {self.target / self.bound:.0%} of the limit of {self.bound:.0f}"

    @property
    def text(self) -> str:
        one = self.forecast
        if one.likely is None:
            return f"target {self.target:g}, no forecast ({one.note})"
        return (
            f"target {self.target:g}, forecast {one.likely:.0f} ({one.low:.0f} to {one.high:.0f}), limits "
            f"{one.bytes_bound:.0f} by bytes, {one.flops_bound:.0f} by operations: {self.verdict}; "
            f"needs {self.needs}"
        )
