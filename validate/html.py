"""The report as one self-contained page: verdict, a drift chart a model, every check with its histogram."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import jinja2

from zinc_rt.commands.output import simulated_note
from zinc_rt.report import Report, Result
from zinc_rt.validate.table import figure, first_bad, limit

TEMPLATE = Path(__file__).resolve().parent / "report.html.jinja"
CHART_WIDTH, CHART_HEIGHT = 640, 200
MARGIN_LEFT, MARGIN_BOTTOM, MARGIN_TOP = 56, 24, 10
BAND = 16  # above and below the axis, for what has no place on it


@dataclass(frozen=True, slots=True)
class DriftMark:
    """One layer's error in pixels. Zero lies on the floor and infinity on the top, beside the axis."""

    x: float
    y: float
    text: str
    kind: Literal["value", "zero", "nonfinite"] = "value"


@dataclass(frozen=True, slots=True)
class DriftLine:
    """One series of a chart: `points` are the polylines between neighbouring values, `marks` every layer."""

    name: str
    points: list[str]
    marks: list[DriftMark]


@dataclass(frozen=True, slots=True)
class DriftChart:
    """max abs error of each layer on a logarithmic axis."""

    lines: list[DriftLine]
    ticks: list[tuple[float, str]]
    layers: list[tuple[float, str]]
    limit_y: float | None
    limit_text: str
    width: int = CHART_WIDTH
    height: int = CHART_HEIGHT
    left: int = MARGIN_LEFT


def drift_chart(results: Sequence[Result]) -> DriftChart | None:
    """None where fewer than two layers have an error to plot."""
    layers = [result for result in results if result.kind == "layer" and "max_abs" in result.measure]
    series = {"free-running": [float(result.measure["max_abs"]) for result in layers]}
    if layers and all("resync" in result.measure for result in layers):
        series["each layer's input reset"] = [float(result.measure["resync"]["max_abs"]) for result in layers]
    bound = layers[0].limit.get("max_abs") if layers else None
    finite = [v for values in series.values() for v in values if v > 0 and math.isfinite(v)]
    beyond = any(not math.isfinite(v) for values in series.values() for v in values)
    if len(layers) < 2 or not (finite or beyond):
        return None
    known = [*finite, *([bound] if bound else [])] or [1.0]
    low = math.floor(math.log10(min(finite or known)))
    high = max(math.ceil(math.log10(max(known))), low + 1)
    top = MARGIN_TOP + (BAND if beyond else 0)
    floor = CHART_HEIGHT - MARGIN_BOTTOM
    bottom = floor - (BAND if any(v == 0 for values in series.values() for v in values) else 0)

    def y(value: float) -> float:
        return round(top + (bottom - top) * (high - math.log10(value)) / (high - low), 1)

    def x(index: int) -> float:
        return round(MARGIN_LEFT + 12 + (CHART_WIDTH - MARGIN_LEFT - 24) * index / (len(layers) - 1), 1)

    def mark(index: int, value: float) -> DriftMark:
        name = _name(layers[index])
        if not math.isfinite(value):
            return DriftMark(x(index), MARGIN_TOP, f"{name}: not finite", "nonfinite")
        return (
            DriftMark(x(index), y(value), f"{name}: {value:.2e}")
            if value
            else DriftMark(x(index), floor, f"{name}: 0", "zero")
        )

    lines = [_line(name, [mark(i, value) for i, value in enumerate(values)]) for name, values in series.items()]
    every = -(-len(layers) // 16)
    return DriftChart(
        lines=lines,
        ticks=[(y(10.0**e), f"1e{e}") for e in range(low, high + 1)],
        layers=[(x(i), r.id.rpartition("-")[2]) for i, r in enumerate(layers) if i % every == 0],
        limit_y=y(bound) if bound else None,
        limit_text=f"limit {bound:.0e}" if bound else "",
    )


def _line(name: str, marks: list[DriftMark]) -> DriftLine:
    runs = groupby(marks, key=lambda mark: mark.kind == "value")
    pieces = [[f"{mark.x},{mark.y}" for mark in run] for is_value, run in runs if is_value]
    return DriftLine(name, [" ".join(piece) for piece in pieces if len(piece) > 1], marks)


def _name(result: Result) -> str:
    return result.id.rpartition("/")[2]


def _row(result: Result) -> dict[str, Any]:
    counts = result.measure.get("histogram", [])
    top = max(counts, default=0) or 1

    def measured(name: str) -> str:
        return figure(result.measure[name]) if name in result.measure else ""

    return {
        "name": _name(result),
        "status": result.status,
        "bars": [round(16 * count / top, 1) for count in counts],
        "max_abs": measured("max_abs") or measured("median_max_abs"),
        "rel_rms": measured("rel_rms"),
        "ulp": measured("max_ulp"),
        "resync": figure(result.measure["resync"]["max_abs"]) if "resync" in result.measure else "",
        "limit": limit(result),
        "note": "; ".join(
            filter(None, [result.reason] if result.status == "skip" else [first_bad(result), result.cause])
        ),
        "repro": result.repro,
    }


def to_html(report: Report, *, strict: bool = False) -> str:
    groups = []
    for model, tier, reference in dict.fromkeys(
        (result.id.partition("/")[0], result.tier, result.reference) for result in report.results
    ):
        mine = [
            r for r in report.results if (r.id.partition("/")[0], r.tier, r.reference) == (model, tier, reference)
        ]
        logits = next((r.measure for r in mine if r.kind == "logits" and "kl_mean" in r.measure), None)
        groups.append(
            {
                "model": model,
                "title": f"{tier} against {'itself' if tier == reference else reference}",
                "chart": drift_chart(mine),
                "rows": [_row(result) for result in mine],
                "resync": any("resync" in result.measure for result in mine),
                "logits": logits,
                "failed": any(result.status == "fail" for result in mine),
            }
        )
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        report=report.as_dict(strict=strict), groups=groups, simulated=simulated_note(report).removeprefix(" on ")
    )
