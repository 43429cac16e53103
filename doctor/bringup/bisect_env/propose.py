"""Select the next run: the one with the most expected information per minute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from zinc_rt.doctor.bringup.bisect_env.model import CauseModel, information
from zinc_rt.doctor.bringup.bisect_env.variables import KINDS, Assignment, Problem

EVERY = 1 << 13  # so many combinations are all looked at; of more, a sample, improved step by step
SAMPLE = 1 << 11
ROUNDS = 40
Partial = tuple[tuple[int, int], ...]  # (variable, value) pairs: what could not be set up together


@dataclass(frozen=True, slots=True)
class Proposal:
    """A run to make, the `bits` of information it is expected to provide, and the `minutes` it costs from
    the present state."""

    run: Assignment
    bits: float
    minutes: float


def minutes(problem: Problem, runs: np.ndarray, now: Assignment) -> np.ndarray:
    """Return the cost [runs] from `now` on: the test, every change, and once the most expensive shared
    cost."""
    changed = runs != np.array(now)
    each = np.array([KINDS[variable.kind].each_minutes for variable in problem.variables])
    once = np.array([KINDS[variable.kind].once_minutes for variable in problem.variables])
    total: np.ndarray = problem.test_minutes + changed @ each + (changed * once).max(axis=1)
    return total


def propose(
    problem: Problem, model: CauseModel, posterior: np.ndarray, now: Assignment, impossible: Sequence[Partial] = ()
) -> Proposal | None:
    """Return the best run, or None if every combination is impossible. Deterministic."""
    tried = possible(candidates(problem), impossible)
    best: tuple[float, np.ndarray, float, float] | None = None
    for _ in range(ROUNDS):
        if not len(tried):
            break
        bits = information(model, posterior, model.present(tried).astype(np.float32))[0]
        cost = minutes(problem, tried, now)
        score = np.round(bits / cost, 9)
        changes = (tried != np.array(now)).sum(axis=1)
        at = int(np.lexsort((changes, -score))[0])
        if best is not None and score[at] <= best[0]:
            break
        best = float(score[at]), tried[at], float(bits[at]), float(cost[at])
        if combinations(problem) <= EVERY:
            break
        tried = possible(neighbours(problem, tried[at]), impossible)
    if best is None:
        return None
    return Proposal(tuple(int(each) for each in best[1]), max(best[2], 0.0), best[3])


def combinations(problem: Problem) -> int:
    return prod(len(variable.values) for variable in problem.variables)


def candidates(problem: Problem) -> np.ndarray:
    """Return [runs, variables]: all combinations, or a sample of mixes of good and bad."""
    sizes = [len(variable.values) for variable in problem.variables]
    if prod(sizes) <= EVERY:
        return np.array(list(product(*(range(size) for size in sizes))))
    draw = np.random.default_rng(len(sizes))
    good, bad = np.array(problem.good), np.array(problem.bad)
    share = draw.random((SAMPLE, 1))
    mixed = np.where(draw.random((SAMPLE, len(sizes))) < share, bad, good)
    anything = draw.integers(0, sizes, (SAMPLE, len(sizes)))
    some = np.where(draw.random(mixed.shape) < 0.2, anything, mixed)
    alone = np.tile(good, (len(sizes), 1))
    np.fill_diagonal(alone, bad)
    return np.unique(np.concatenate([mixed, some, alone, np.where(alone == good, bad, good)]), axis=0)


def neighbours(problem: Problem, run: np.ndarray) -> np.ndarray:
    """Return the neighbours of `run`: itself, and all runs that differ from it in one variable."""
    here = tuple(int(each) for each in run)
    settings = {
        (*here[:at], value, *here[at + 1 :])
        for at, variable in enumerate(problem.variables)
        for value in range(len(variable.values))
    }
    return np.array(sorted(settings))


def possible(runs: np.ndarray, impossible: Sequence[Partial]) -> np.ndarray:
    """Return the runs without those that contain an impossible combination."""
    keep = np.ones(len(runs), bool)
    for each in impossible:
        keep &= ~np.all([runs[:, variable] == value for variable, value in each], axis=0)
    return runs[keep]
