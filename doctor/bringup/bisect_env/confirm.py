"""Confirm a suspect by experiment: runs with only the suspect bad, and with everything but the suspect bad.

The search assumes that one variable, or two together, cause the fault. The confirmation does not: every arm (a
fixed set of values, run over several boots) has a failure rate of its own, and the question is whether the suspect
alone is sufficient and whether it is necessary. Only runs of the confirmation are used. Its number of boots is
planned before the first of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil

import numpy as np

from zinc_rt.doctor.bringup.bisect_env.model import BOOT_WEIGHT, CauseModel
from zinc_rt.doctor.bringup.bisect_env.variables import LEAST_RATE, Assignment, Problem, Rates

CHANCES = np.array([LEAST_RATE, 0.02, 0.05, *np.arange(0.1, 0.951, 0.05), 0.98, 1 - LEAST_RATE])
MOST_BY_CHANCE = 0.45  # a run without the fault fails at most so often
LEAST_EFFECT = 0.18  # the fault adds at least so much to the failure rate
CHANCE_SPREAD = 0.25  # prior of the rate of failures by chance: exponential with this mean
DECIDES = 0.8  # a plan confirms a true suspect at least so often; otherwise it is extended
SIZES = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 18, 20, 24, 28, 33, 40, 50, 65, 80, 100, 130, 170, 220)
DRAWS = 200
BLOCK = 4
TINY = 1e-280
REFUTED = 0.0001  # probability of the suspect at which it is refuted; before any run it is 0.25 or 0.125
STRICTER = 25  # a result without a cause ends the bisection, so its probability of error is so many times smaller
MOST_SUSPECTS = 4  # refuted: then the model does not explain the runs


@dataclass(frozen=True, slots=True)
class Arm:
    """A fixed set of values that is run over several boots. `role`: "only" (only the suspect is bad), "but" (all
    but one of its variables are bad), or "good" (all good, which shows how often a run fails by chance).
    """

    role: str
    run: Assignment
    text: str


@dataclass(frozen=True, slots=True)
class ConfirmationPlan:
    """The arms and the `boots` of each, stated before the first boot."""

    arms: tuple[Arm, ...]
    boots: tuple[int, ...]

    def find_next_arm(self, spent: Sequence[int]) -> int | None:
        """Return the arm of the next boot, or None if no boots are left. Arms take turns of BLOCK boots, because a
        change of arms changes most variables.
        """
        open_arms = [index for index, boots in enumerate(self.boots) if spent[index] < boots]
        return min(open_arms, key=lambda open_arm: (spent[open_arm] // BLOCK, open_arm)) if open_arms else None


def build_arms(problem: Problem, suspect: Sequence[tuple[int, frozenset[int]]]) -> tuple[Arm, ...]:
    """Return the arms of a suspect, given as variables with their bad values. For an ordered variable they use the
    first bad value and the value before it, so the boundary is confirmed as well.
    """
    only, but = list(problem.good), list(problem.bad)
    names = " and ".join(problem.variables[index].name for index, _ in suspect)
    fine: dict[int, int] = {}
    for index, bad in suspect:
        variable = problem.variables[index]
        only[index] = but[index] = variable.bad
        fine[index] = variable.good
        if variable.ordered:
            step = 1 if variable.bad > variable.good else -1
            first = min(bad) if step > 0 else max(bad)
            only[index], fine[index] = first, first - step
    result = [Arm("only", tuple(only), f"with only {names} bad")]
    for index, _ in suspect:
        without = tuple(fine[index] if location == index else value for location, value in enumerate(but))
        result.append(Arm("but", without, f"with everything but {problem.variables[index].name} bad"))
    return (*result, Arm("good", problem.good, "with all values good"))


def compute_boot_likelihood(failed: np.ndarray | int, runs: int) -> np.ndarray:
    """Return the log likelihood [..., chances] of `failed` failures among the `runs` of one boot, whose failure
    rate varies around that of the arm.
    """
    fails = np.asarray(failed)[..., None]
    result = np.zeros((*np.shape(failed), len(CHANCES)))
    for seen in range(runs):  # the order of a boot's runs does not matter: take the fails first
        result += np.log(np.where(seen < fails, BOOT_WEIGHT * CHANCES + seen, 1))
        result += np.log(np.where(seen < runs - fails, BOOT_WEIGHT * (1 - CHANCES) + seen, 1))
        result -= np.log(BOOT_WEIGHT + seen)
    return result


@dataclass(frozen=True, slots=True)
class Judgement:
    """Probabilities [cases] that the suspect is the cause, and [cases, arms] that the fault is present in each arm
    except the good one.
    """

    cause: np.ndarray
    present: np.ndarray


def judge(likelihood: np.ndarray, rates: Rates | None = None) -> Judgement:
    """Judge log likelihoods [cases, arms, chances]: the first arm is "only", the last "good". Before any run, the
    fault is present in each arm with probability 1/2. With known `rates`, an arm fails at one of these two
    rates.
    """
    chance, prior, first, rest = _compute_priors(rates)
    plain = np.exp(likelihood - likelihood.max(axis=2, keepdims=True))
    good = likelihood[:, -1, chance]
    good = prior * np.exp(good - good.max(axis=1, keepdims=True))  # [cases, by chance]
    only_fault = plain[:, :1] * first  # [cases, by chance, rates of the first arm]
    only = np.concatenate([only_fault, plain[:, 0, chance, None]], axis=2)
    but_absent = plain[:, 1:-1, chance, None]  # [cases, other arms, by chance, 1]
    but_fault = np.tensordot(plain[:, 1:-1], rest, axes=([2], [2]))  # [.., by chance, rates of the first arm]
    either = but_absent + but_fault + TINY
    joint = (good[..., None] * only + TINY) * either.prod(axis=1)  # [cases, by chance, first arm]
    total = joint.sum(axis=(1, 2))
    of_only = joint[..., :-1].sum(axis=(1, 2))
    cause = (joint * (but_absent / either).prod(axis=1))[..., :-1].sum(axis=(1, 2))
    of_but = (joint[:, None] * (but_fault / either)).sum(axis=(2, 3))
    return Judgement(cause / total, np.concatenate([of_only[:, None], of_but], axis=1) / total[:, None])


def strict_probability(confidence: float) -> float:
    """Return the probability at which the bisection ends without a cause, for the `confidence` of naming one. Both
    are compared after every run, and checking weak evidence repeatedly would end too many bisections.
    """
    return 1 - (1 - confidence) / STRICTER


def is_outside_suspects(present: np.ndarray, confidence: float) -> bool:
    """Return whether no single variable and no pair explains the probabilities `present` [arms] of a refuted
    suspect: it is sufficient, but none of its variables is necessary; or two variables are each necessary, but
    together not sufficient.
    """
    only, but = present[0], present[1:]
    independent = only >= confidence and but.min() >= confidence
    needs_more = len(but) == 2 and only <= 1 - confidence and but.max() <= 1 - confidence
    return bool(independent or needs_more)


@cache
def _compute_priors(rates: Rates | None) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the places in CHANCES of the rates of failures by chance and their prior; the prior of the
    first arm's rate with the fault [by chance, chances]; that of another arm's rate with the fault [by chance,
    first arm's rate, or last: the fault is absent there; chances]."""
    if rates is not None:
        chance = np.array([np.abs(CHANCES - rates.good_fails).argmin()])
        fault = (np.arange(len(CHANCES)) == np.abs(CHANCES - (1 - rates.bad_passes)).argmin()).astype(float)
        return chance, np.ones(1), fault[None], np.tile(fault, (1, len(CHANCES) + 1, 1))
    chance = np.flatnonzero(CHANCES <= MOST_BY_CHANCE)
    rate = CHANCES[chance, None]
    first = (rate + LEAST_EFFECT <= CHANCES).astype(float)
    first /= first.sum(axis=1, keepdims=True)
    effect = np.maximum(LEAST_EFFECT, 2 * np.sqrt(rate * (1 - rate)))
    minimum = rate + np.concatenate([np.minimum(effect, (CHANCES - rate) / 2), effect], axis=1)
    rest = (np.maximum(minimum, rate + 0.04)[..., None] <= CHANCES).astype(float)
    rest[:, :, -1] = 1
    return chance, np.exp(-CHANCES[chance] / CHANCE_SPREAD), first, rest / rest.sum(axis=2, keepdims=True)


def _sum_logs(logs: np.ndarray) -> np.ndarray:
    result: np.ndarray = np.logaddexp.reduce(logs, axis=-1)
    return result


def build_arms_of_cause(
    problem: Problem, model: CauseModel, posterior: np.ndarray, suspect: int
) -> tuple[Arm, ...]:
    """Return the arms of a suspect (an index in `model.causes`)."""
    hypotheses = np.flatnonzero(model.cause_of == suspect)
    likeliest = hypotheses[int(posterior[:, hypotheses].sum(axis=0).argmax())]
    parts = dict.fromkeys(int(item) for item in model.parts[likeliest])
    return build_arms(problem, [model.find_bad_values(part) for part in parts])


def plan_confirmation(
    problem: Problem, model: CauseModel, posterior: np.ndarray, suspect: int, confidence: float
) -> ConfirmationPlan:
    """Plan the confirmation of a suspect (an index in `model.causes`), from the failure rates that the search
    estimated (`posterior` [rates, hypotheses])."""
    arms = build_arms_of_cause(problem, model, posterior, suspect)
    hypotheses = np.flatnonzero(model.cause_of == suspect)
    weight = posterior[:, hypotheses].sum(axis=1)
    weight = weight / weight.sum()
    passes = float(sum(w * item.bad_passes for w, item in zip(weight, model.rates, strict=True)))
    fails = model.rates[int(weight.argmax())].good_fails
    nearest = Rates(*(round(ceil(item / 0.05 - 0.5) * 0.05, 2) for item in (passes, fails)))
    return ConfirmationPlan(arms, plan_boots(nearest, len(arms) - 2, problem.rates, confidence))


def extend(spent: ConfirmationPlan) -> ConfirmationPlan:
    """Return the plan that follows an undecided plan: twice the boots, and the arm with all values good."""
    boots = tuple(
        2 * max(item, max(spent.boots) if arm.role == "good" else 1)
        for arm, item in zip(spent.arms, spent.boots, strict=True)
    )
    return ConfirmationPlan(spent.arms, boots)


@cache
def plan_boots(rates: Rates, variables: int, known: Rates | None, confidence: float) -> tuple[int, ...]:
    """Return the boots of each arm: the smallest plan that confirms a true suspect with these rates in
    DECIDES of simulated confirmations. The arm with all values good is omitted if nothing fails by chance."""

    def arm_sizes(size: int) -> tuple[int, ...]:
        good = 0 if known is not None or rates.good_fails < 0.05 else size
        return (max(1, ceil(size / 2)) if rates.good_fails < 0.05 else size, *[size] * variables, good)

    def can_decide(size: int) -> bool:
        draw = np.random.default_rng(1)
        chance = [1 - rates.bad_passes, *[rates.good_fails] * (variables + 1)]
        likelihood = np.zeros((DRAWS, variables + 2, len(CHANCES)))
        for index, (runs, failing) in enumerate(zip(arm_sizes(size), chance, strict=True)):
            failed = draw.binomial(runs, failing, DRAWS)[:, None]
            likelihood[:, index] = failed * np.log(CHANCES) + (runs - failed) * np.log(1 - CHANCES)
        return bool((judge(likelihood, known).cause >= confidence).mean() >= DECIDES)

    return arm_sizes(SIZES[min(bisect_left(SIZES, True, key=can_decide), len(SIZES) - 1)])
