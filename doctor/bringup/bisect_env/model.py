"""The hypotheses about the cause, their probabilities, and the update after a run (Bayes).

A hypothesis states that some values of one variable, or of two variables together, cause the fault; or
that no variable does. It is combined with the flakiness of the test: known rates, or a grid of rates. Runs
of one boot share its failure rate, so they count less than runs of different boots. All functions process many
independent cases at once (a leading axis), for the simulation; a session has one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from zinc_rt.doctor.bringup.bisect_env.variables import LEAST_RATE, Problem, Rates

SINGLE_SHARE = 0.6  # prior of one guilty variable against two that need each other
ELSEWHERE = 0.02  # prior of each of the two ways in which no variable here is the cause
SUSPECTED = 0.9  # posterior of the search at which a suspect is named
ENOUGH = 0.97  # default posterior at which the confirmation names it, and the search a cause outside the list
BOOT_WEIGHT = 1.0  # a boot's failure rate is Beta(w m, w (1 - m)): n runs of one boot count as 2 n / (1 + n)
PASSES = {0.02: 0.3, 0.1: 0.4, 0.25: 0.2, 0.4: 0.1}  # rates that are tracked if none are given, with their prior
FAILS = {LEAST_RATE: 0.6, 0.1: 0.25, 0.25: 0.1, 0.4: 0.05}
UNKNOWN_RATES = {Rates(bad, good): p * q for bad, p in PASSES.items() for good, q in FAILS.items()}
PATIENCE = 3.0  # a search that has gained so many times the bits of the prior tests its likeliest suspect
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
    `parts` [hypotheses, 2] are indices in `patterns`, equal for a single one. The last two hypotheses are always
    and never. `cause_of` [hypotheses] are indices in `causes`; `prior` [hypotheses]; `rates` and `rate_prior`
    [rates].
    """

    patterns: tuple[tuple[int, np.ndarray], ...]
    parts: np.ndarray
    causes: tuple[Cause, ...]
    cause_of: np.ndarray
    prior: np.ndarray
    rates: tuple[Rates, ...]
    rate_prior: np.ndarray

    @property
    def search_bits(self) -> float:
        """Return the expected information in bits that is sufficient for a search if the model holds."""
        joint = self.rate_prior[:, None] * self.prior
        return PATIENCE * float(-(joint * np.log2(joint)).sum())

    def start(self, cases: int = 1) -> np.ndarray:
        """Return the posterior [cases, rates, hypotheses] before any run."""
        return np.tile(self.rate_prior[:, None] * self.prior, (cases, 1, 1))

    def find_present_causes(self, runs: np.ndarray) -> np.ndarray:
        """Return [hypotheses, runs] bool: whether the fault is present, in runs [runs, variables]."""
        of_pattern = np.array([bad[runs[:, variable]] for variable, bad in self.patterns])
        both = of_pattern[self.parts[:, 0]] & of_pattern[self.parts[:, 1]]
        ends = np.array([[True], [False]]) & np.ones(len(runs), bool)
        return np.concatenate([both, ends])

    def fails(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the probability that a run fails [rates, 1], with the fault and without it, in a new boot."""
        return (
            np.array([[1 - rate.bad_passes] for rate in self.rates]),
            np.array([[rate.good_fails] for rate in self.rates]),
        )

    def boot_failure_probability(self, present: np.ndarray, failed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the probability that the next run of this boot fails [rates, hypotheses], with the fault and
        without it, after the boot's runs `present` [runs, hypotheses] bool, `failed` [runs] bool."""
        with_fault, without = self.fails()
        faulty, faulty_fails = present.sum(axis=0), (present & failed[:, None]).sum(axis=0)
        other, other_fails = (~present).sum(axis=0), (~present & failed[:, None]).sum(axis=0)
        return (
            (BOOT_WEIGHT * with_fault + faulty_fails) / (BOOT_WEIGHT + faulty),
            (BOOT_WEIGHT * without + other_fails) / (BOOT_WEIGHT + other),
        )

    def after(
        self,
        posterior: np.ndarray,
        present: np.ndarray,
        failed: np.ndarray,
        chances: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> np.ndarray:
        """Return the posterior after one run of each case: `present` [cases, hypotheses] bool, `failed`
        [cases] bool. `chances`: those of `boot_failure_probability`; default a new boot."""
        with_fault, without = chances or self.fails()
        chance = np.where(present[:, None, :], with_fault, without)
        chance = np.where(failed[:, None, None], chance, 1 - chance)
        result = posterior * chance
        return result / result.sum(axis=(1, 2), keepdims=True)

    def find_bad_values(self, pattern: int) -> tuple[int, frozenset[int]]:
        """Return a pattern's variable and its values that cause the fault."""
        variable, bad = self.patterns[pattern]
        return variable, frozenset(int(index) for index in np.flatnonzero(bad))

    def refute_cause(self, posterior: np.ndarray, cause: int) -> np.ndarray:
        """Return the posterior after a cause (an index in `causes`) was refuted."""
        result = np.where(self.cause_of == cause, 0.0, posterior)
        return result / result.sum(axis=(1, 2), keepdims=True)

    def cause_probabilities(self, posterior: np.ndarray) -> np.ndarray:
        """Return the probabilities of the causes [cases, causes]."""
        of_hypothesis = posterior.sum(axis=1)
        result = np.zeros((len(posterior), len(self.causes)))
        np.add.at(result.T, self.cause_of, of_hypothesis.T)
        return result


def compute_entropy(chance: np.ndarray) -> np.ndarray:
    """Return the entropy in bits."""
    sure = np.clip(chance, 1e-12, 1 - 1e-12)
    return -(sure * np.log2(sure) + (1 - sure) * np.log2(1 - sure))


def expected_information(
    model: CauseModel,
    posterior: np.ndarray,
    present: np.ndarray,
    chances: tuple[np.ndarray, np.ndarray] | None = None,
) -> np.ndarray:
    """Return the expected information in bits [cases, runs] of each possible run; `present` [hypotheses,
    runs] as float32. `chances`: those of `boot_failure_probability`; default a new boot."""
    with_fault, without = chances or model.fails()

    def expected_entropy(fault_counts: np.ndarray, other_counts: np.ndarray) -> np.ndarray:
        fault = (posterior * fault_counts).sum(axis=1)
        others = (posterior * other_counts).sum(axis=1)
        counts: np.ndarray = (fault - others).astype(np.float32) @ present + others.sum(axis=1, keepdims=True)
        return counts

    bits: np.ndarray = compute_entropy(expected_entropy(with_fault, without)) - expected_entropy(
        compute_entropy(with_fault), compute_entropy(without)
    )
    return bits


def build_model(problem: Problem) -> CauseModel:
    patterns: list[tuple[int, np.ndarray]] = []
    weights: list[float] = []
    texts: list[str] = []
    for index, variable in enumerate(problem.variables):
        bad_values = variable.bad_value_sets()
        for pattern in bad_values:
            bad = np.zeros(len(variable.values), bool)
            bad[list(pattern)] = True
            patterns.append((index, bad))
            weights.append(variable.suspect / len(bad_values))
            texts.append(_describe_cause(problem, index, pattern))
    singles = [(index, index) for index in range(len(patterns))]
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
        text = texts[one] if one == other else f"{texts[one]} together with {texts[other]}"
        cause_of.append(causes.setdefault(Cause(places, text), len(causes)))
    cause_of += [causes.setdefault(Cause((), text), len(causes)) for text in (ALWAYS, NEVER)]
    rates = UNKNOWN_RATES if problem.rates is None else {problem.rates: 1.0}
    return CauseModel(
        tuple(patterns),
        np.array([*singles, *pairs]),
        tuple(causes),
        np.array(cause_of),
        prior,
        tuple(rates),
        np.array(list(rates.values())),
    )


def _describe_cause(problem: Problem, index: int, bad: frozenset[int]) -> str:
    """A cause in words: for an ordered variable with the first bad value, for others only the name."""
    variable = problem.variables[index]
    if len(variable.values) == 2 or not variable.ordered:
        return f"{variable.name} {variable.values[variable.bad]}"
    first = min(bad) if variable.bad > variable.good else max(bad)
    before = first - 1 if variable.bad > variable.good else first + 1
    return f"{variable.name} from {variable.values[first]} on ({variable.values[before]} is good)"
