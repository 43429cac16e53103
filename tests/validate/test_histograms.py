"""Histograms of logits between every two sources: where each difference lies, and that canonical-1 has none."""

from __future__ import annotations

import json
import math
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from planted import change_element, one_ulp_up
from seen import Capture, Judge, golden_of

from zinc_rt.cli.report import Report
from zinc_rt.golden.capture import CapturedRun
from zinc_rt.golden.format import Golden
from zinc_rt.validate.command import main
from zinc_rt.validate.histograms import bins
from zinc_rt.validate.histograms.matrix import LogitMatrix, compare_sources
from zinc_rt.validate.histograms.pair import compare_pair, compute_value_histogram, count_rank_changes
from zinc_rt.validate.histograms.sources import make_golden_source, make_run_source
from zinc_rt.validate.histograms.text import format_pages, format_spread
from zinc_rt.validate.html import to_html


@pytest.mark.parametrize(
    ("difference", "name"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (2.0**-30, "0..2^-24"),
        (-(2.0**-149), "-0..-2^-24"),
        (2.0**-24, "2^-24..2^-23"),
        (-1.0, "-2^0..-2^1"),
        (math.nextafter(2.0, 0.0), "2^0..2^1"),
        (32.0, "2^5 and beyond"),
        (-3e38, "-2^5 and beyond"),
        (math.inf, "not finite"),
        (math.nan, "not finite"),
    ],
)
def test_difference_falls_into_one_of_64_bins(difference: float, name: str) -> None:
    counts = bins.count_differences(np.array([[difference]]))
    assert len(counts) == 64 and counts.sum() == 1
    assert bins.name_signed_bin(int(counts.argmax())) == name


def test_bins_are_in_numeric_order() -> None:
    magnitudes = 1.5 * 2.0 ** np.arange(-40, 40)
    values = np.concatenate([-magnitudes[::-1], [0.0], magnitudes])
    places = [int(bins.count_differences(np.array([value])).argmax()) for value in values]
    assert places == sorted(places) and set(places) == set(range(63))
    assert (bins.count_differences(values) == np.bincount(places, minlength=64)).all()


@pytest.mark.parametrize(
    ("distance", "name"),
    [(0, "0"), (1, "1"), (2, "2..3"), (3, "2..3"), (4, "4..7"), (2**31, "2147483648..4294967295")],
)
def test_ulp_distance_bins_double_in_width(distance: int, name: str) -> None:
    counts = bins.count_distances(np.array([distance], np.int64))
    assert counts.sum() == 1 and bins.name_distance_bin(int(counts.argmax())) == name


def test_differences_and_ulps_match_known_values() -> None:
    want = np.array([[1.0, 2.0, 0.0, 5.0, 7.0]], np.float32)
    got = np.array([[np.nextafter(np.float32(1), np.float32(2)), 1.5, -0.0, np.nan, 7.0]], np.float32)
    result = compute_value_histogram(got, want)
    named = {bins.name_signed_bin(index): count for index, count in enumerate(result.differences) if count}
    assert named == {"-2^-1..-2^0": 1, "0": 2, "2^-23..2^-22": 1, "not finite": 1}
    assert result.total == 5 and result.nonfinite == 1 and result.max_abs == 0.5 and not result.equal_bits
    assert result.ulps[:2] == (2, 1) and sum(result.ulps) == 4
    assert not compute_value_histogram(np.array([[-0.0]], np.float32), np.zeros((1, 1), np.float32)).equal_bits


def test_rank_change_counts_tokens_that_overtook() -> None:
    want = np.arange(100, 0, -1, dtype=np.float32)[None]
    got = want.copy()
    got[0, [3, 4]] = want[0, [4, 3]]
    assert count_rank_changes(want, want)[:2] == (50, 0)
    assert count_rank_changes(got, want)[:3] == (48, 2, 0)
    got[0, 0] = -1.0  # from the first to the last place: 49 move up by one
    assert (
        count_rank_changes(got, want, top=50)[bins.DOUBLING_BINS - 1 :: -1].index(1) == bins.DOUBLING_BINS - 1 - 7
    )
    ties = np.zeros((1, 100), np.float32)
    assert count_rank_changes(ties, ties)[0] == 50


def make_run(logits: np.ndarray, *after: int) -> CapturedRun:
    return CapturedRun(logits, {"l_out-0": logits[:3, :2], "Qcur-0": logits[:3, :2]}, list(after))


def test_only_positions_with_same_tokens_are_compared() -> None:
    logits = np.random.default_rng(1).standard_normal((6, 8)).astype(np.float32)
    source = make_run_source(make_run(logits, 4, 5, 6), "one", "canonical-1", 3)
    other = make_run_source(make_run(logits, 4, 7, 6), "other", "canonical-1", 3)
    pair = compare_pair(source, other, same_bits=True)
    assert pair.positions == (0, 1, 2, 3) and list(pair.layers) == ["l_out-0"] and not pair.wrong


def test_golden_with_selected_rows_is_compared_on_those_rows() -> None:
    logits = np.random.default_rng(2).standard_normal((6, 8)).astype(np.float32)
    golden = Golden(
        path=Path("g.npz"),
        ids=np.arange(4, dtype=np.int32),
        logits=logits[[1, 3]],
        variant="",
        rows=np.array([1, 3], np.int32),
        l_out=logits[None, [1, 3], :2],
        greedy_tokens=np.array([4, 5], np.int32),
        greedy_logits=logits[4:],
    )
    run = CapturedRun(logits, {"l_out-0": logits[:4, :2]}, [4, 5])
    pair = compare_pair(
        make_run_source(run, "t_cpu", "canonical-1", 4), make_golden_source(golden), same_bits=False
    )
    assert pair.positions == (1, 3, 4, 5) and pair.top1 == 4 and max(pair.kl) == 0.0
    assert pair.logits is not None and pair.logits.equal_bits and pair.layers["l_out-0"].total == 4


def three_runs() -> LogitMatrix:
    """Two tiers of one ordering that differ, and another engine."""
    logits = np.random.default_rng(3).standard_normal((3, 64)).astype(np.float32)
    off = logits.copy()
    off[2, 5] += np.float32(2**-10)
    broken = logits.copy()
    broken[0, 0] = np.nan
    return compare_sources(
        "m",
        [
            make_run_source(make_run(off), "t1", "canonical-1", 3),
            make_run_source(make_run(logits), "t_cpu", "canonical-1", 3),
            make_run_source(make_run(broken), "other", "float32-dequant", 3),
        ],
    )


def test_only_same_canonical_ordering_requires_equal_bits() -> None:
    result = three_runs()
    assert [(pair.got, pair.want, pair.same_bits, pair.wrong) for pair in result.pairs] == [
        ("t1", "t_cpu", True, True), ("t1", "other", False, False), ("t_cpu", "other", False, False),
    ]  # fmt: skip
    assert result.find_pair("t_cpu", "t1") is result.pairs[0] and result.find_pair("t1", "t1") is None


def test_summary_has_a_row_per_pair_and_verbose_lists_every_bin() -> None:
    [brief] = format_pages(three_runs(), verbose=False)
    rows = str(brief).splitlines()[2:]
    assert [row.split()[:2] for row in rows] == [["t1", "t_cpu"], ["t1", "other"], ["t_cpu", "other"]]
    assert rows[0].split()[2] == "FAIL" and "2^-9" in rows[0] and "1 not finite" in rows[2]
    full = "\n".join(map(str, format_pages(three_runs(), verbose=True)))
    assert "t1 against t_cpu, one ordering: every difference must be 0" in full
    assert "2^-10..2^-9" in full and "l_out-0" in full


def test_sparkline_is_symmetric_and_reaches_the_farthest_bin() -> None:
    assert format_spread(bins.count_differences(np.zeros(4)).tolist()) == "none"
    assert (
        format_spread(bins.count_differences(np.array([2.0**-24, -(2.0**-25), 0.0])).tolist())
        == "-2^-23  █ 0  █ 2^-23"
    )
    assert format_spread(bins.count_differences(np.array([100.0, np.nan])).tolist()).endswith(
        "█ 2^5+, 1 not finite"
    )


class TagChecker(HTMLParser):
    """Counts tags, and checks that opened tags are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs).get("class") or ""))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs).get("class") or ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_shows_the_matrix_and_marks_forbidden_differences() -> None:
    page = to_html(Report("validate"), [], [three_runs()])
    tags = TagChecker()
    tags.feed(page)
    assert tags.open == [] and ("rect", "nonfinite") in tags.seen and ("rect", "zero") in tags.seen
    assert page.count("must be bit-exact, but differs") == 2
    folded = ("details", "part")
    assert tags.seen.count(folded) == 2 and [tag for tag, _ in tags.seen].count("details") == 5
    assert page.count(" open>") == 2, "the section and the pair that differs are unfolded"
    assert "Differences of logits, by pair" not in to_html(Report("validate"), [], [])


@pytest.mark.rest
def test_tiers_of_one_ordering_have_all_mass_in_bin_0(qwen3: str, tmp_path: Path, capsys: Capture) -> None:
    report = tmp_path / "r.json"
    line = ["--model", qwen3, "--golden", golden_of(qwen3), "--tiers", "t_cpu,t_cpu:float32-dequant"]
    assert main([*line, "--json", str(report)]) == 0
    histogram = json.loads(report.read_text())["details"]["histograms"]["qwen3-q"]
    assert (
        histogram["sources"] == ["t_cpu:float32-dequant", "t_cpu", "qwen3-q.npz_deq"]
        and len(histogram["pairs"]) == 3
    )
    assert len(histogram["bins"]["differences"]) == 64
    for pair in histogram["pairs"]:
        assert len(pair["positions"]) == 32 and not pair["same_bits"]
        assert 0 < pair["logits"]["differences"][bins.ZERO] < sum(pair["logits"]["differences"]) // 2
        assert list(pair["layers"]) == ["l_out-0", "l_out-1", "l_out-2"]
    assert "top 50 moved" in capsys.readouterr().out


def test_one_ulp_in_a_bit_exact_tier_is_reported(qwen3: str, judge_plant: Judge) -> None:
    seen = judge_plant(qwen3, change_element("l_out-1", 2, 17, one_ulp_up))
    [pair] = seen.report["details"]["histograms"]["qwen3-q"]["pairs"]
    assert seen.exit == 1 and pair["same_bits"] and not pair["logits"]["equal_bits"]
    assert pair["layers"]["l_out-0"]["equal_bits"] and sum(pair["layers"]["l_out-1"]["ulps"][1:]) == 1
