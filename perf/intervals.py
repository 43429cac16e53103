"""Confidence intervals for paired measurements, and change points in a series."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

RESAMPLES = 4000
SEED = 1
CONFIDENCE = 0.95


def compute_ratio_interval(
    ours: Sequence[float], theirs: Sequence[float], *, confidence: float = CONFIDENCE
) -> tuple[float, float, float]:
    """Return the ratio ours/theirs of paired runs with its bootstrap interval: (ratio, low, high), geometric
    means. Pairs are resampled as a whole, so that a slowdown of both runs of a pair cancels. Raise ValueError for
    fewer than two pairs.
    """
    if len(ours) != len(theirs) or len(ours) < 2 or min(*ours, *theirs) <= 0:
        raise ValueError(f"expected two or more pairs of positive figures, got {len(ours)} and {len(theirs)}")
    logs = [math.log(a / b) for a, b in zip(ours, theirs, strict=True)]
    draw = random.Random(SEED)
    means = sorted(statistics.fmean(draw.choices(logs, k=len(logs))) for _ in range(RESAMPLES))
    tail = (1 - confidence) / 2
    low, high = means[int(tail * RESAMPLES)], means[min(RESAMPLES - 1, int((1 - tail) * RESAMPLES))]
    return math.exp(statistics.fmean(logs)), math.exp(low), math.exp(high)


def compute_wilson_lower_bound(passed: int, count: int, *, confidence: float = CONFIDENCE) -> float:
    """Return the lower end of Wilson's two-sided interval of a proportion; 0 without trials."""
    if not count:
        return 0.0
    z = statistics.NormalDist().inv_cdf((1 + confidence) / 2)
    share, square = passed / count, z * z / count
    return (share + square / 2 - z * math.sqrt(share * (1 - share) / count + square / 4 / count)) / (1 + square)


@dataclass(frozen=True, slots=True)
class LevelChange:
    """A change of level of the series at `index`. `p` is the probability that a shuffled series has an equally
    strong change.
    """

    index: int
    before: float
    after: float
    p: float

    @property
    def ratio(self) -> float:
        return self.after / self.before


def find_change_points(values: Sequence[float], *, minimum: int = 3, p: float = 0.01) -> list[LevelChange]:
    """Find shifts of the level: binary segmentation on ranks; each split is kept if a permutation test at `p`
    keeps it. At least `minimum` values are on each side. Ranks are used so that one outlier is not a shift.
    """
    points: list[int] = []
    _split(values, 0, len(values), minimum, p, points)
    edges = [0, *sorted(points), len(values)]
    changes = []
    for start, index, end in zip(edges, edges[1:], edges[2:], strict=False):
        before, after = statistics.median(values[start:index]), statistics.median(values[index:end])
        score = _find_best_split(_compute_ranks(values[start:end]), minimum)[0]
        changes.append(
            LevelChange(index, before, after, _estimate_chance(_compute_ranks(values[start:end]), minimum, score))
        )
    return changes


def _split(values: Sequence[float], start: int, end: int, minimum: int, p: float, points: list[int]) -> None:
    if end - start < 2 * minimum:
        return
    ranks = _compute_ranks(values[start:end])
    score, index = _find_best_split(ranks, minimum)
    if score <= 0 or _estimate_chance(ranks, minimum, score) > p:
        return
    points.append(start + index)
    _split(values, start, start + index, minimum, p, points)
    _split(values, start + index, end, minimum, p, points)


def _compute_ranks(values: Sequence[float]) -> list[float]:
    """Return mid-ranks: equal values share a rank."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for location in order[start:end]:
            ranks[location] = (start + end - 1) / 2
        start = end
    return ranks


def _find_best_split(ranks: Sequence[float], minimum: int) -> tuple[float, int]:
    """Return the split with the largest distance between the mean ranks of both sides, relative to their sizes."""
    total, count, left = sum(ranks), len(ranks), 0.0
    best = (0.0, 0)
    for index in range(1, count):
        left += ranks[index - 1]
        if minimum <= index <= count - minimum:
            apart = abs(left / index - (total - left) / (count - index))
            best = max(best, (apart * math.sqrt(index * (count - index) / count), index))
    return best


def _estimate_chance(ranks: Sequence[float], minimum: int, score: float, *, shuffles: int = 500) -> float:
    draw, shuffled, as_high = random.Random(SEED), list(ranks), 0
    for _ in range(shuffles):
        draw.shuffle(shuffled)
        as_high += _find_best_split(shuffled, minimum)[0] >= score
    return (as_high + 1) / (shuffles + 1)
