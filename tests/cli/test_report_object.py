"""A report in Python: a verdict, a data frame, a table for notebooks."""

from __future__ import annotations

import json
import sys

import pytest

from zinc_rt.cli.report import COLUMNS, HTML_ROWS, Report, Result
from zinc_rt.host.errors import UnsupportedError

BAD = Result(
    "b<1>", "layer", "fail", tier="t1", reason="<script>", measure={"rel_rms": 0.5}, limit={"rel_rms": 0.1}
)


def test_passed_is_the_exit_code() -> None:
    good, skipped = Result("a", "layer", "pass"), Result("c", "layer", "skip")
    assert Report("x", results=[good, skipped]).passed
    assert not Report("x", results=[good, skipped], strict=True).passed
    assert not Report("x", results=[good, BAD]).passed
    assert not Report("x").passed  # nothing ran


def test_strict_applies_to_the_json_verdict() -> None:
    report = Report("x", results=[Result("a", "layer", "pass"), Result("c", "layer", "skip")], strict=True)
    assert json.loads(report.to_json())["verdict"]["exit"] == 1
    assert report.as_dict(strict=False)["verdict"]["exit"] == 0


@pytest.mark.rest
def test_frame_has_a_row_per_result() -> None:
    pytest.importorskip("pandas")
    frame = Report("x", results=[Result("a", "layer", "pass", measure={"rel_rms": float("nan")}), BAD]).to_frame()
    assert list(frame["id"]) == ["a", "b<1>"] and tuple(frame.columns[: len(COLUMNS)]) == COLUMNS
    assert list(frame["measure.rel_rms"]) == ["nan", 0.5]  # as in JSON
    assert frame["limit.rel_rms"][1] == 0.1
    assert frame.attrs["verdict"]["status"] == "FAIL"


def test_report_without_results_gives_an_empty_frame() -> None:
    pytest.importorskip("pandas")
    frame = Report("x").to_frame()
    assert frame.empty and tuple(frame.columns) == COLUMNS


def test_missing_pandas_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'zinc-rt\[report\]'"):
        Report("x").to_frame()


def test_notebook_table_is_escaped_and_shows_failures_first() -> None:
    many = [Result(f"r{number}", "layer", "pass") for number in range(HTML_ROWS)]
    shown = Report("x&y", results=[*many, BAD])._repr_html_()
    assert "<script>" not in shown and "&lt;script&gt;" in shown and "x&amp;y: FAIL" in shown
    assert shown.index("b&lt;1&gt;") < shown.index("<td>r0</td>")
    assert "1 more results" in shown
