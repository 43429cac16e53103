"""Select the next run: the one with the most expected information per minute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from zinc_rt.doctor.bringup.bisect_env.model import CauseModel, expected_information
from zinc_rt.doctor.bringup.bisect_env.variables import KINDS, Assignment, Problem

EVERY = 1 << 13  # so many combinations are all looked at; of more, a sample, improved step by step
SAMPLE = 1 << 11
ROUNDS = 40
REBOOT_MINUTES = 4.0  # as of the kinds that reboot
Partial = tuple[tuple[int, int], ...]  # (variable, value) pairs: what could not be set up together


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed run, its expected information in `bits`, and its cost in `minutes` from the current state.
    `new_boot`: it needs a boot without earlier runs.
    """

    run: Assignment
    bits: float
    minutes: float
    new_boot: bool = True


def run_minutes(problem: Problem, runs: np.ndarray, now: Assignment, *, reboot: bool = False) -> np.ndarray:
    """Return the cost [runs] from the state `now`: the test, every change, and once the most expensive shared
    cost, which is at least a reboot if `reboot`.
    """
    changed = runs != np.array(now)
    item = np.array([KINDS[variable.kind].each_minutes for variable in problem.variables])
    once = np.array([KINDS[variable.kind].once_minutes for variable in problem.variables])
    shared = np.maximum((changed * once).max(axis=1), REBOOT_MINUTES if reboot else 0.0)
    total: np.ndarray = problem.test_minutes + changed @ item + shared
    return total


def needs_reboot(problem: Problem, runs: np.ndarray, now: Assignment) -> np.ndarray:
    """Return [runs] bool: whether the change from `now` includes a reboot."""
    once = np.array([KINDS[variable.kind].once_minutes for variable in problem.variables])
    result: np.ndarray = ((runs != np.array(now)) & (once >= REBOOT_MINUTES)).any(axis=1)
    return result


def propose(
    problem: Problem,
    model: CauseModel,
    posterior: np.ndarray,
    now: Assignment,
    impossible: Sequence[Partial] = (),
    in_boot: tuple[np.ndarray, np.ndarray] | None = None,
) -> Proposal | None:
    """Return the best run, or None if every combination is impossible. Deterministic. `in_boot`: the probabilities
    of failure in the current boot if it has earlier runs (`fails_in_boot`); a run there provides less information,
    and a reboot costs time.
    """
    tried = possible_runs(candidate_runs(problem), impossible)
    best: tuple[float, Proposal] | None = None
    for _ in range(ROUNDS):
        if not len(tried):
            break
        present = model.find_present_causes(tried).astype(np.float32)
        options = [
            (
                expected_information(model, posterior, present)[0],
                run_minutes(problem, tried, now, reboot=bool(in_boot)),
            )
        ]
        if in_boot is not None:
            stays = ~needs_reboot(problem, tried, now)
            bits = np.where(stays, expected_information(model, posterior, present, in_boot)[0], 0)
            options.append((bits, run_minutes(problem, tried, now)))
        changes = (tried != np.array(now)).sum(axis=1)
        result = [
            _best_proposal(tried, bits, cost, changes, new_boot=not index)
            for index, (bits, cost) in enumerate(options)
        ]
        step = max(result, key=lambda item: item[0])
        if best is not None and step[0] <= best[0]:
            break
        best = step
        if count_combinations(problem) <= EVERY:
            break
        tried = possible_runs(neighbouring_runs(problem, np.array(best[1].run)), impossible)
    return None if best is None else best[1]


def _best_proposal(
    tried: np.ndarray, bits: np.ndarray, cost: np.ndarray, changes: np.ndarray, *, new_boot: bool
) -> tuple[float, Proposal]:
    """The run with the most bits per minute; among equal ones, the run with the fewest changes."""
    score = np.round(bits / cost, 9)
    index = int(np.lexsort((changes, -score))[0])
    run = tuple(int(item) for item in tried[index])
    return float(score[index]), Proposal(run, max(float(bits[index]), 0.0), float(cost[index]), new_boot)


def count_combinations(problem: Problem) -> int:
    return prod(len(variable.values) for variable in problem.variables)


def candidate_runs(problem: Problem) -> np.ndarray:
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


def neighbouring_runs(problem: Problem, run: np.ndarray) -> np.ndarray:
    """Return the neighbours of `run`: itself, and all runs that differ from it in one variable."""
    here = tuple(int(item) for item in run)
    result = {
        (*here[:index], value, *here[index + 1 :])
        for index, variable in enumerate(problem.variables)
        for value in range(len(variable.values))
    }
    return np.array(sorted(result))


def possible_runs(runs: np.ndarray, impossible: Sequence[Partial]) -> np.ndarray:
    """Return the runs without those that contain an impossible combination."""
    keep = np.ones(len(runs), bool)
    for partial in impossible:
        keep &= ~np.all([runs[:, variable] == value for variable, value in partial], axis=0)
    return runs[keep]
