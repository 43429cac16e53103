"""Ratios of runs in turns: what they are made of, and when none may be judged."""

from __future__ import annotations

import pytest

from zinc_rt.perf.native.paired import (
    RunConditions,
    compute_ratio,
    find_best_setting,
    find_blocking_reasons,
    make_pair_results,
)

QUIET = RunConditions([40.0, 41.0, 42.0], [1.0, 2.4, 2.1], threads=2)
OURS = [30.0, 36.0, 33.0, 35.0, 34.0]
THEIRS = {"repack": [20.0, 24.0, 22.0, 22.0, 22.0], "no repack": [23.0, 18.0, 19.0, 19.0, 19.0]}


def test_ratio_uses_fastest_runs_and_best_peer_setting() -> None:
    assert find_best_setting(THEIRS) == "repack"
    assert compute_ratio(OURS, THEIRS) == 36 / 24


def test_spread_is_computed_over_rounds() -> None:
    measure = make_pair_results(OURS, THEIRS)
    assert measure["ratio"] == 1.5
    assert (measure["ratio_low"], measure["ratio_high"]) == (1.5, 35 / 22)
    assert measure["ratio_of_medians"] == pytest.approx(34 / 22)
    assert measure["theirs"] == THEIRS and measure["setting"] == "repack"


def test_missing_peer_gives_speed_without_ratio() -> None:
    measure = make_pair_results(OURS, {})
    assert measure["tokens_per_second"] == 36 and "ratio" not in measure


def test_quiet_machine_can_be_judged() -> None:
    assert find_blocking_reasons(QUIET, 5, "", needs_peer=True) == ""


@pytest.mark.parametrize(
    ("conditions", "rounds", "problem", "reason"),
    [
        (RunConditions([40.0, 35.0], [1.0], 2), 5, "", "read bandwidth moved by 12%"),
        (RunConditions([40.0, 40.0], [2.6], 2), 5, "", "load average 2.60, allowed 2.5"),
        (QUIET, 4, "", "4 rounds, expected 5"),
        (QUIET, 5, "no llama.cpp: cmake missing", "cmake missing"),
    ],
)
def test_noise_too_few_rounds_and_missing_peer_each_block(
    conditions: RunConditions, rounds: int, problem: str, reason: str
) -> None:
    assert reason in find_blocking_reasons(conditions, rounds, problem, needs_peer=True)
