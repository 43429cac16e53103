"""Compute figures from raw samples, one row per kind of result, so that a bench and a gate compute the same
value.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zinc_rt.perf.gate.milestones import Criterion
from zinc_rt.perf.intervals import compute_ratio_interval
from zinc_rt.perf.native.paired import compute_ratio

Measure = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CriterionFigure:
    """A figure. `per_run` is one number per run, for the spread, or None if none is meaningful. `of` are fields by
    name.
    """

    of: Mapping[str, Callable[[Measure], float]]
    per_run: Callable[[Measure], list[float] | None]


def compute_speeds(measure: Measure) -> list[float]:
    """Return tok/s of each run from its tokens' seconds; with slots, every step yields one token per slot."""
    return [measure.get("slots", 1) * len(run) / sum(run) for run in measure["runs"]]


def compute_prompt_speeds(measure: Measure) -> list[float]:
    return [measure["prompt_tokens"] / seconds for seconds in measure["runs"]]


def _list_runs(measure: Measure) -> list[float]:
    return [float(value) for value in measure["runs"]]


def _ratio_lower_bound(measure: Measure) -> float:
    ours, theirs = zip(*measure["pairs"], strict=True)
    return compute_ratio_interval(ours, theirs)[1]


def _measure_idle_penalty(measure: Measure) -> float:
    """Return the additional seconds that a first token takes on an idle device, compared with a later token."""
    return statistics.median(_list_runs(measure)) - statistics.median(measure["steady"])


def _compute_gap_ratio(measure: Measure) -> float:
    gaps = [float(value) for run in measure["runs"] for value in run]
    return compute_percentile(gaps, 0.99) / compute_percentile(gaps, 0.50)


FIGURES: Mapping[str, CriterionFigure] = {
    "decode": CriterionFigure(
        {"tokens_per_second": lambda m: statistics.median(compute_speeds(m))}, compute_speeds
    ),
    "aggregate": CriterionFigure(
        {"tokens_per_second": lambda m: statistics.median(compute_speeds(m))}, compute_speeds
    ),
    "prefill": CriterionFigure(
        {"tokens_per_second": lambda m: statistics.median(compute_prompt_speeds(m))}, compute_prompt_speeds
    ),
    "ttft": CriterionFigure({"seconds": lambda m: statistics.median(_list_runs(m))}, _list_runs),
    "ttft_warm": CriterionFigure({"seconds": lambda m: statistics.median(_list_runs(m))}, _list_runs),
    "idle_to_stream": CriterionFigure({"seconds": _measure_idle_penalty}, lambda m: None),
    "fairness": CriterionFigure({"p99_over_p50": _compute_gap_ratio}, lambda m: None),
    "endurance": CriterionFigure({"tokens": lambda m: min(_list_runs(m))}, lambda m: None),
    "power": CriterionFigure({"watts": lambda m: statistics.fmean(_list_runs(m))}, lambda m: None),
    "against": CriterionFigure(
        {"ratio_low": _ratio_lower_bound}, lambda m: [ours / theirs for ours, theirs in m["pairs"]]
    ),
}


# The figure of each result of zinc-rt perf bench --requests.
REQUEST_FIGURES: Mapping[str, str] = {
    "ttft_warm": "seconds",
    "idle_to_stream": "seconds",
    "fairness": "p99_over_p50",
    "endurance": "tokens",
}
# Of a report of zinc-rt perf native, whatever the result: one program's samples, or two programs' in turns.
TIMED: Mapping[str, Callable[[Measure], float]] = {
    "ratio": lambda m: compute_ratio(m["runs"], m["theirs"]),
    "bandwidth_share": lambda m: m["bytes_a_token"] * max(m["runs"]) / (max(m["conditions"]["read_gbs"]) * 1e9),
    "oracle_ratio": lambda m: max(m["runs"]) / max(m["oracle"]),
    "seconds_a_token": lambda m: 1 / max(m["runs"]),
    "of_allowed": lambda m: float(m["of_allowed"]),
    "us": lambda m: float(m["us"]),
}


def compute_figure(criterion: Criterion, result: Mapping[str, Any]) -> float | None:
    """Return the figure of a result that a criterion needs, from its samples. Return None if no bench of this
    version records the figure.
    """
    row = FIGURES.get(criterion.measure)
    if row is None or criterion.figure not in row.of:
        return None
    try:
        return float(row.of[criterion.figure](result["measure"]))
    except (KeyError, ValueError, ZeroDivisionError, TypeError, statistics.StatisticsError):
        return None


def compute_percentile(values: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile, which is an observed value."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(share * len(ordered)) - 1))]
