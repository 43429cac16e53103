"""Detect runs that were not measured: without jitter, copies of another run, or scaled, shifted or permuted ones.

Timings of a device and its host vary in every token. Seconds may be rounded to microseconds, so single equal
values prove nothing, but rows of equal values in the same order do.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from zinc_rt.perf.gate.offered import SubmittedReport, check_number

LEAST_DISTINCT = 0.10  # of the values of a run, and of the differences between neighbours
WINDOW = 8  # equal values in a row, which independent runs do not share
SAME_SHAPE = 0.995  # correlation of the differences between neighbours; position-dependent costs reach less
COUNTED = ("power", "endurance")  # whose runs are no seconds
MIN_TOKENS = 16  # a shorter run is too short to compare


def repeats(case: SubmittedReport) -> str | None:
    """Require that every run was measured: runs vary, and none repeats another."""
    for result in case.evidence.results:
        runs = result.get("measure", {}).get("runs")
        if runs is None or result.get("id") in COUNTED:
            continue
        name = str(result["id"])
        reason = (
            _compare_lists(name, runs)
            if any(isinstance(run, list) for run in runs)
            else _compare_scalars(name, runs)
        )
        if reason:
            return reason
    return _check_pairs(case)


def _compare_lists(name: str, runs: Sequence[Any]) -> str | None:
    """Compare runs of seconds per token."""
    rows = [np.array([check_number(value, f"{name}: a token") for value in run]) for run in runs]
    for location, row in enumerate(rows):
        if problem := _check_jitter(row):
            return f"{name}: run {location} {problem}"
    for (i, one), (j, other) in combinations(enumerate(rows), 2):
        if problem := _check_copied(one, other):
            return f"{name}: run {j} {problem} run {i}"
    return None


def _check_jitter(row: np.ndarray) -> str | None:
    if len(row) < MIN_TOKENS:
        return None
    steps = np.round(np.diff(row), 12)
    for values, what in ((row, "values"), (steps, "differences")):
        distinct = len(np.unique(values))
        if distinct < max(2, LEAST_DISTINCT * len(values)):
            return f"has no jitter: {distinct} different {what} in {len(row)} tokens"
    windows = _list_windows(row)
    if len(set(windows)) < len(windows):
        return "repeats itself"
    return None


def _check_copied(one: np.ndarray, other: np.ndarray) -> str | None:
    if min(len(one), len(other)) < MIN_TOKENS:
        return None
    if set(_list_windows(one)) & set(_list_windows(other)):
        return "repeats tokens of"
    if len(one) == len(other) and np.array_equal(np.sort(one), np.sort(other)):
        return "has in another order the tokens of"
    length = min(len(one), len(other))
    for order in (1, -1):
        a, b = np.diff(one[:length]), np.diff(other[:length][::order])
        if a.std() and b.std() and abs(float(np.corrcoef(a, b)[0, 1])) > SAME_SHAPE:
            return "is scaled or shifted from"
    return None


def _list_windows(row: np.ndarray) -> list[bytes]:
    return [row[start : start + WINDOW].tobytes() for start in range(len(row) - WINDOW + 1)]


def _compare_scalars(name: str, runs: Sequence[Any]) -> str | None:
    values = [check_number(value, f"{name}: a run") for value in runs]
    if len(set(values)) < len(values):
        return f"{name}: {len(values) - len(set(values)) + 1} of {len(values)} runs took the same time"
    steps = {round(after - before, 12) for before, after in pairwise(values)}
    if len(values) > 3 and len(steps) == 1:
        return f"{name}: its runs differ by the same time"
    return None


def _check_pairs(case: SubmittedReport) -> str | None:
    """Require that the other program's runs differ too."""
    if case.criterion.measure != "against":
        return None
    theirs = [check_number(pair[1], "their speed") for pair in case.result["measure"]["pairs"]]
    if len(set(theirs)) < len(theirs):
        return f"the other program has {len(set(theirs))} speeds in {len(theirs)} runs"
    return None
