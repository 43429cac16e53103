"""The report as one self-contained HTML page.

The page opens with the verdict and a summary table. Drift charts, checks and histograms follow, folded by model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import jinja2

from zinc_rt.cli.output import format_simulated_note
from zinc_rt.cli.report import Report
from zinc_rt.validate.check_result import CheckResult
from zinc_rt.validate.histograms.matrix import LogitMatrix
from zinc_rt.validate.histograms.page import make_matrix_section
from zinc_rt.validate.measure import Limit
from zinc_rt.validate.table import (
    format_figures,
    format_first_bad,
    format_limit,
    format_resync,
    format_summary,
    has_resync,
)

TEMPLATES = Path(__file__).resolve().parent
CHART_WIDTH, CHART_HEIGHT = 640, 200
MARGIN_LEFT, MARGIN_BOTTOM, MARGIN_TOP = 56, 24, 10
BAND = 16  # above and below the axis, for zero and non-finite values


@dataclass(frozen=True, slots=True)
class DriftMark:
    """One layer's error in pixels. Zero is drawn at the bottom and infinity at the top, outside the axis."""

    x: float
    y: float
    text: str
    kind: Literal["value", "zero", "nonfinite"] = "value"


@dataclass(frozen=True, slots=True)
class DriftLine:
    """One series of a chart: `points` are polylines between adjacent values, `marks` has one entry per layer."""

    name: str
    points: list[str]
    marks: list[DriftMark]


@dataclass(frozen=True, slots=True)
class DriftChart:
    """A chart of the largest absolute error of each layer, on a logarithmic axis."""

    lines: list[DriftLine]
    ticks: list[tuple[float, str]]
    layers: list[tuple[float, str]]
    limit_y: float | None
    limit_text: str
    width: int = CHART_WIDTH
    height: int = CHART_HEIGHT
    left: int = MARGIN_LEFT


def make_drift_chart(results: Sequence[CheckResult]) -> DriftChart | None:
    """Return the chart of one pair, or None if fewer than two layers have an error to plot."""
    layers = [result for result in results if result.kind == "layer" and result.value is not None]
    values = [result.value for result in layers if result.value is not None]
    series = {"free-running": [value.distance.max_abs for value in values]}
    resynced = [value.resync.max_abs for value in values if value.resync is not None]
    if layers and len(resynced) == len(layers):
        series["input reset before each layer"] = resynced
    bound = layers[0].limit.max_abs if layers and isinstance(layers[0].limit, Limit) else None
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

    def scale_y(value: float) -> float:
        return round(top + (bottom - top) * (high - math.log10(value)) / (high - low), 1)

    def scale_x(index: int) -> float:
        return round(MARGIN_LEFT + 12 + (CHART_WIDTH - MARGIN_LEFT - 24) * index / (len(layers) - 1), 1)

    def make_mark(index: int, value: float) -> DriftMark:
        name = layers[index].name
        if not math.isfinite(value):
            return DriftMark(scale_x(index), MARGIN_TOP, f"{name}: not finite", "nonfinite")
        return (
            DriftMark(scale_x(index), scale_y(value), f"{name}: {value:.2e}")
            if value
            else DriftMark(scale_x(index), floor, f"{name}: 0", "zero")
        )

    lines = [
        _make_line(name, [make_mark(i, value) for i, value in enumerate(values)])
        for name, values in series.items()
    ]
    every = -(-len(layers) // 16)
    return DriftChart(
        lines=lines,
        ticks=[(scale_y(10.0**e), f"1e{e}") for e in range(low, high + 1)],
        layers=[(scale_x(i), r.id.rpartition("-")[2]) for i, r in enumerate(layers) if i % every == 0],
        limit_y=scale_y(bound) if bound else None,
        limit_text=f"limit {bound:.0e}" if bound else "",
    )


def _make_line(name: str, marks: list[DriftMark]) -> DriftLine:
    runs = groupby(marks, key=lambda mark: mark.kind == "value")
    pieces = [[f"{mark.x},{mark.y}" for mark in run] for is_value, run in runs if is_value]
    return DriftLine(name, [" ".join(piece) for piece in pieces if len(piece) > 1], marks)


def _result_name(result: CheckResult) -> str:
    return result.id.rpartition("/")[2]


def _make_row(result: CheckResult) -> dict[str, Any]:
    counts = result.value.histogram if result.value is not None else ()
    top = max(counts, default=0) or 1
    max_abs, rel_rms, ulp = ("" if text == "-" else text for text in format_figures(result))
    return {
        "name": result.name,
        "status": result.status,
        "bars": [round(16 * count / top, 1) for count in counts],
        "max_abs": max_abs,
        "rel_rms": rel_rms,
        "ulp": ulp,
        "resync": format_resync(result),
        "limit": format_limit(result),
        "note": "; ".join(
            filter(None, [result.reason] if result.status == "skip" else [format_first_bad(result), result.cause])
        ),
        "repro": result.repro,
    }


def _summarise_status(results: Sequence[CheckResult]) -> str:
    """Return FAIL if a check failed, PASS if one passed, else the status of the first check, in upper case."""
    statuses = [result.status for result in results]
    return next((status.upper() for status in ("fail", "pass") if status in statuses), statuses[0].upper())


def _list_contexts(report: Report) -> dict[str, int]:
    """Return the context length of each model's run, by the model's name."""
    jobs = report.details.get("jobs", {})
    return {name: job["ctx"] for name, job in jobs.items() if "ctx" in job}


def _make_group(results: Sequence[CheckResult], marks: Mapping[str, str], ctx: int | None) -> dict[str, Any]:
    """Return the template's values for the checks of one model on one tier against one reference."""
    first = results[0]
    agreements = (
        result.value.agreement for result in results if result.kind == "logits" and result.value is not None
    )
    tier, against, checks, layers, logits, kl, top1, _ = map(str, format_summary([results], marks).rows[0])
    return {
        "model": first.model,
        "title": f"{first.tier} against {first.against}",
        "chart": make_drift_chart(results),
        "rows": [_make_row(result) for result in results],
        "resync": has_resync(results),
        "logits": next((agreement for agreement in agreements if agreement is not None), None),
        "verdict": _summarise_status(results),
        "ctx": ctx or "",
        "summary": (tier, against, checks, layers, logits, kl, top1),
    }


def to_html(
    report: Report,
    results: Sequence[CheckResult],
    matrices: Sequence[LogitMatrix] = (),
    *,
    strict: bool = False,
) -> str:
    """Return the page. `results`: the checks of `report`; `matrices`: one for each model with logits."""
    marks = dict.fromkeys(report.simulated_tiers(), "simulated")
    contexts = _list_contexts(report)
    pairs = dict.fromkeys((result.model, result.tier, result.reference) for result in results)
    groups = [
        _make_group([result for result in results if (result.model, result.tier, result.reference) == pair], marks,
               contexts.get(pair[0]))
        for pair in pairs
    ]  # fmt: skip
    models = [
        {
            "name": name,
            "verdict": _summarise_status([result for result in results if result.model == name]),
            "groups": [group for group in groups if group["model"] == name],
        }
        for name in dict.fromkeys(result.model for result in results)
    ]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("report.html.jinja").render(
        report=report.as_dict(strict=strict),
        groups=groups,
        models=models,
        contexts=contexts,
        matrices=[make_matrix_section(matrix) for matrix in matrices if len(matrix.names) > 1],
        simulated=format_simulated_note(report).removeprefix(" on "),
    )
