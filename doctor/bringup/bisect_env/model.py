"""The hypotheses about the cause, their probabilities, and the update after a run (Bayes).

A hypothesis states that some values of one variable, or of two variables together, cause the fault; or
that no variable does. It is combined with the flakiness of the test: known rates, or a small grid of
rates. All functions process many independent cases at once (a leading axis), for the simulation; a session
has one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from zinc_rt.doctor.bringup.bisect_env.variables import LEAST_RATE, Problem, Rates

SINGLE_SHARE = 0.6  # prior of one guilty variable against two that need each other
ELSEWHERE = 0.02  # prior of each of the two ways in which no variable here is the cause
ENOUGH = 0.97  # posterior at which a cause is named
UNKNOWN_RATES = tuple(Rates(passes, fails) for passes in (0.02, 0.1, 0.25) for fails in (LEAST_RATE, 0.1))
ALWAYS = "none of these: it fails with all values"
NEVER = "none of these alone or in pairs: it passes where it should fail"


@dataclass(frozen=True, slots=True)
class Cause:
    """The reported cause. `variables` are indices in the problem's list; if empty, `text` describes the
    cause."""

    variables: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True)
class CauseModel:
    """Every hypothesis, as arrays. `patterns`: (variable, [values] bool: the values that cause the fault).
    `parts` [hypotheses, 2] are indices in `patterns`, equal for a single one. Two further hypotheses
    follow: always, never. `cause_of` [hypotheses] are indices in `causes`; `prior` [hypotheses];
    `rates` and `rate_prior` [rates]."""

    patterns: tuple[tuple[int, np.ndarray], ...]
    parts: np.ndarray
    causes: tuple[Cause, ...]
    cause_of: np.ndarray
    prior: np.ndarray
    rates: tuple[Rates, ...]
    rate_prior: np.ndarray

    def start(self, cases: int = 1) -> np.ndarray:
        """Return the posterior [cases, rates, hypotheses] before any run."""
        return np.tile(self.rate_prior[:, None] * self.prior, (cases, 1, 1))

    def present(self, runs: np.ndarray) -> np.ndarray:
        """Return [hypotheses, runs] bool: whether the fault is present, in runs [runs, variables]."""
        of_pattern = np.array([bad[runs[:, variable]] for variable, bad in self.patterns])
        both = of_pattern[self.parts[:, 0]] & of_pattern[self.parts[:, 1]]
        ends = np.array([[True], [False]]) & np.ones(len(runs), bool)
        return np.concatenate([both, ends])

    def fails(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the probability that a run fails [rates], with the fault and without it."""
        return np.array([1 - each.bad_passes for each in self.rates]), np.array([e.good_fails for e in self.rates])

    def after(self, posterior: np.ndarray, present: np.ndarray, failed: np.ndarray) -> np.ndarray:
        """Return the posterior after one run of each case: `present` [cases, hypotheses] bool, `failed`
        [cases] bool."""
        with_fault, without = self.fails()
        chance = np.where(present[:, None, :], with_fault[:, None], without[:, None])
        chance = np.where(failed[:, None, None], chance, 1 - chance)
        weighted = posterior * chance
        return weighted / weighted.sum(axis=(1, 2), keepdims=True)

    def beliefs(self, posterior: np.ndarray) -> np.ndarray:
        """Return the probabilities of the causes [cases, causes]."""
        of_hypothesis = posterior.sum(axis=1)
        beliefs = np.zeros((len(posterior), len(self.causes)))
        np.add.at(beliefs.T, self.cause_of, of_hypothesis.T)
        return beliefs


def entropy(chance: np.ndarray) -> np.ndarray:
    """Return the entropy in bits."""
    sure = np.clip(chance, 1e-12, 1 - 1e-12)
    return -(sure * np.log2(sure) + (1 - sure) * np.log2(1 - sure))


def information(model: CauseModel, posterior: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Return the expected information in bits [cases, runs] of each possible run; `present` [hypotheses,
    runs] as float32."""
    cases, rates, hypotheses = posterior.shape
    fault = (posterior.reshape(-1, hypotheses).astype(np.float32) @ present).reshape(cases, rates, -1)
    healthy = posterior.sum(axis=2, dtype=np.float32)[:, :, None] - fault
    with_fault, without = (each.astype(np.float32)[:, None] for each in model.fails())
    fails = (fault * with_fault + healthy * without).sum(axis=1)
    gain: np.ndarray = entropy(fails) - (fault * entropy(with_fault) + healthy * entropy(without)).sum(axis=1)
    return gain


def build(problem: Problem) -> CauseModel:
    patterns: list[tuple[int, np.ndarray]] = []
    weights: list[float] = []
    texts: list[str] = []
    for at, variable in enumerate(problem.variables):
        own_patterns = variable.patterns()
        for each in own_patterns:
            bad = np.zeros(len(variable.values), bool)
            bad[list(each)] = True
            patterns.append((at, bad))
            weights.append(variable.suspect / len(own_patterns))
            texts.append(_text(problem, at, each))
    singles = [(each, each) for each in range(len(patterns))]
    pairs = [
        (one, other)
        for one, other in combinations(range(len(patterns)), 2)
        if patterns[one][0] != patterns[other][0]
    ]
    single_weights = np.array(weights) / sum(weights)
    pair_weights = np.array([weights[one] * weights[other] for one, other in pairs])
    single_share = (SINGLE_SHARE if pairs else 1.0) * (1 - 2 * ELSEWHERE)
    pair_share = 1 - 2 * ELSEWHERE - single_share
    pair_priors = pair_weights / pair_weights.sum() * pair_share if pairs else np.zeros(0)
    prior = np.concatenate([single_weights * single_share, pair_priors, [ELSEWHERE, ELSEWHERE]])

    causes: dict[Cause, int] = {}
    cause_of = []
    for one, other in [*singles, *pairs]:
        places = tuple(dict.fromkeys((patterns[one][0], patterns[other][0])))
        description = texts[one] if one == other else f"{texts[one]} together with {texts[other]}"
        cause_of.append(causes.setdefault(Cause(places, description), len(causes)))
    cause_of += [causes.setdefault(Cause((), text), len(causes)) for text in (ALWAYS, NEVER)]
    rates = UNKNOWN_RATES if problem.rates is None else (problem.rates,)
    return CauseModel(
        tuple(patterns),
        np.array([*singles, *pairs]),
        tuple(causes),
        np.array(cause_of),
        prior,
        rates,
        np.full(len(rates), 1 / len(rates)),
    )


def _text(problem: Problem, at: int, bad: frozenset[int]) -> str:
    """Describe a cause: for an ordered variable also the value where it begins, for others the name alone."""
    variable = problem.variables[at]
    if len(variable.values) == 2 or not variable.ordered:
        return f"{variable.name} {variable.values[variable.bad]}"
    first = min(bad) if variable.bad > variable.good else max(bad)
    before = first - 1 if variable.bad > variable.good else first + 1
    return f"{variable.name} from {variable.values[first]} on ({variable.values[before]} is good)"
