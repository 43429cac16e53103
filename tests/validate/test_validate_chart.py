"""The numbers behind the drift chart: zero and infinity have no place on a logarithmic axis, and get none."""

from __future__ import annotations

import math

import pytest

from zinc_rt.cli.report import Report
from zinc_rt.validate.check_result import CheckResult, ValueMeasure
from zinc_rt.validate.html import CHART_HEIGHT, MARGIN_BOTTOM, MARGIN_TOP, DriftChart, make_drift_chart, to_html
from zinc_rt.validate.measure import Limit, Measure

FLOOR = CHART_HEIGHT - MARGIN_BOTTOM


def layer_results(*errors: float) -> list[CheckResult]:
    limit = Limit(max_abs=1e-3)
    return [
        CheckResult(f"m/t1/l_out-{index}", "layer", "pass", "t1", "g.npz", measure=measure_of(error), limit=limit)
        for index, error in enumerate(errors)
    ]


def measure_of(error: float) -> ValueMeasure:
    return ValueMeasure(Measure(error, error, 1, equal_bits=not error, nonfinite=0, within=True))


def draw_chart(*errors: float) -> DriftChart:
    drawn = make_drift_chart(layer_results(*errors))
    assert drawn is not None
    return drawn


def test_values_are_one_line_in_order_of_size() -> None:
    [line] = draw_chart(1e-6, 1e-5, 1e-4).lines
    assert [mark.kind for mark in line.marks] == ["value"] * 3
    heights = [mark.y for mark in line.marks]
    assert heights == sorted(heights, reverse=True) and len(line.points) == 1
    assert line.points[0].count(",") == 3


def test_zero_is_a_gap_with_a_mark_on_the_floor() -> None:
    [line] = draw_chart(1e-6, 1e-5, 0.0, 1e-4, 1e-3).lines
    assert [mark.kind for mark in line.marks] == ["value", "value", "zero", "value", "value"]
    assert line.marks[2].y == FLOOR and line.marks[2].text == "l_out-2: 0"
    assert all(mark.y < FLOOR for mark in line.marks if mark.kind == "value"), "no value is drawn where zero is"
    assert len(line.points) == 2, "the line does not go through it"


@pytest.mark.parametrize("error", [math.inf, math.nan])
def test_non_finite_value_is_a_labelled_mark_at_the_top(error: float) -> None:
    drawn = draw_chart(1e-6, 1e-3, error)
    [line] = drawn.lines
    assert line.marks[2].kind == "nonfinite" and line.marks[2].y == MARGIN_TOP
    assert line.marks[2].text == "l_out-2: not finite"
    assert min(y for y, _ in drawn.ticks) > MARGIN_TOP, "above the axis"
    assert str(line.marks[2].x) not in "".join(line.points)
    assert "l_out-2: not finite" in to_html(Report("validate"), layer_results(1e-6, 1e-3, error))


def test_chart_with_only_non_finite_values_is_drawn() -> None:
    assert [mark.kind for mark in draw_chart(0.0, math.nan).lines[0].marks] == ["zero", "nonfinite"]


def test_no_errors_means_no_chart() -> None:
    assert make_drift_chart(layer_results(0.0, 0.0)) is None
