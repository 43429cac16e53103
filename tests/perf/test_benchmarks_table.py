"""The table of benchmarks: each with its limit, and a limit that is passed fails it."""

from __future__ import annotations

from typing import Any

import pytest

from zinc_rt.perf.benchmarks import FOLDED, FOLDER, format_row, format_table, run


def make_benchmark(median: float, **info: Any) -> dict[str, Any]:
    stats = {"median": median, "q1": 0.9 * median, "q3": 1.1 * median, "rounds": 5}
    return {"fullname": "perf/bench_step.py::TestRing::test_graph_replay[64]", "stats": stats, "extra_info": info}


@pytest.mark.parametrize(
    ("values", "limit", "verdict"),
    [
        (make_benchmark(1.5, limit_seconds=2.0), "2 s", "ok"),
        (make_benchmark(2.5, limit_seconds=2.0), "2 s", "over"),
        (make_benchmark(3e-6, limit_median_us=5.0), "5 µs", "ok"),
        (make_benchmark(6e-6, limit_median_us=5.0), "5 µs", "over"),
        (make_benchmark(1.0, ratio=1.04, limit_ratio=1.05), "1.05", "ok"),
        (make_benchmark(1.0, ratio=1.2, limit_ratio=1.05), "1.05", "over"),
        (make_benchmark(1.0, limit_ratio=1.05), "1.05", "over"),
        (make_benchmark(1.0, limit_seconds=None), "", ""),
    ],
)
def test_limit_is_checked_against_its_benchmark(values: dict[str, Any], limit: str, verdict: str) -> None:
    assert format_row(values)[5:7] == [limit, verdict]


def test_row_is_formatted_with_units() -> None:
    assert format_row(make_benchmark(2.7e-6, peer="zig cc -O3", ratio=2.5)) == [
        "ring graph_replay[64]", "2.7 µs", "20%", "5", "2.50", "", "", "zig cc -O3",
    ]  # fmt: skip


def test_variants_without_limits_share_a_line() -> None:
    many = [make_benchmark(1e-6 * (1 + index)) for index in range(FOLDED + 1)]
    (line,) = format_table({"benchmarks": many})
    assert line[:2] == ["ring graph_replay (13 variants)", "1 µs to 13 µs"]
    assert len(format_table({"benchmarks": [make_benchmark(1.0, limit_seconds=2.0)] * (FOLDED + 1)})) == FOLDED + 1


@pytest.mark.rest
def test_benchmark_runs_and_its_results_are_read_back() -> None:
    code, content = run([f"{FOLDER / 'bench_step.py'}", "-k", "pm4 and decode", "--benchmark-max-time=0.01"])
    assert code == 0 and content["benchmarks"]
    assert all(line for line in map(format_row, content["benchmarks"]))
