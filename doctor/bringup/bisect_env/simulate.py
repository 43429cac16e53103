"""Simulate bisections of generated faults, many at once: runs, boots and correct results.

The generated fault does not follow the model: a boot's failure rate is drawn from a uniform distribution (the
model has a Beta), and some faults are no single variable and no pair.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zinc_rt.doctor.bringup.bisect_env import confirm
from zinc_rt.doctor.bringup.bisect_env.model import (
    BOOT_WEIGHT,
    ENOUGH,
    SUSPECTED,
    CauseModel,
    build_model,
    expected_information,
)
from zinc_rt.doctor.bringup.bisect_env.propose import candidate_runs
from zinc_rt.doctor.bringup.bisect_env.variables import LEAST_RATE, Problem, Rates, Variable

VARIABLES = 12
MOST_RUNS = 4000
CHUNK = 100  # cases at once: 100 x 4096 combinations a step
NEAR = 1e-6  # bits: combinations that tell as much as each other
RIGHT_LIMIT = 0.95
WRONG_LIMIT = 0.03  # of the causes outside the model that are named all the same
FAULTS = {
    "one variable": 1,
    "a pair": 2,
    "either of two": 2,
    "one of two, not both": 2,
    "three together": 3,
}
EXPLAINED = ("one variable", "a pair")


@dataclass(frozen=True, slots=True)
class SimulatedSetting:
    """One row of the table. `fault`: a key of FAULTS. `rates` None: every boot has its own failure rate of 20
    to 95 %. `known`: the rates are given, otherwise they are estimated. `median_limit`: limit for the median
    number of runs until a suspect is named (issue 11).
    """

    fault: str
    rates: Rates | None
    median_limit: int | None = None
    known: bool = True
    runs_per_boot: int = 1

    @property
    def text(self) -> str:
        text = f"{self.fault}, {_format_rates(self.rates)}"
        return text + (f", {self.runs_per_boot} runs a boot" if self.runs_per_boot > 1 else "")

    @property
    def explained(self) -> bool:
        return self.fault in EXPLAINED


def _format_rates(rates: Rates | None) -> str:
    if rates is None:
        return "boots fail 20-95%"
    return f"{rates.bad_passes:.0%} pass, {rates.good_fails:.0%} fail by chance"


TOLD = tuple(
    SimulatedSetting(fault, Rates(0.1, fails), limit)
    for fault, fails, limit in (
        ("one variable", 0.0, 6),
        ("one variable", 0.1, 10),
        ("a pair", 0.0, 12),
        ("a pair", 0.1, 20),
    )
)
NOT_TOLD = tuple(SimulatedSetting(item.fault, item.rates, item.median_limit, known=False) for item in TOLD)
VERY_FLAKY = tuple(
    SimulatedSetting(fault, rates, known=False)
    for fault in EXPLAINED
    for rates in (Rates(0.4, 0.0), Rates(0.1, 0.4), Rates(0.3, 0.3), Rates(0.4, 0.4))
)
BOOTS = tuple(
    SimulatedSetting(fault, None, known=False, runs_per_boot=runs) for runs in (1, 3) for fault in EXPLAINED
)
UNEXPLAINED = tuple(
    SimulatedSetting(fault, rates, known=False)
    for fault in FAULTS
    if fault not in EXPLAINED
    for rates in (Rates(0.1, 0.0), Rates(0.3, 0.1), None)
)
SETTINGS = (*TOLD, *NOT_TOLD, *VERY_FLAKY, *BOOTS, *UNEXPLAINED)


@dataclass(frozen=True, slots=True)
class SimulatedOutcome:
    """The results for generated faults [cases]: `runs` until the first suspect, total boots, `planned` and used
    boots of the confirmations; `right` or `wrong`: a cause is confirmed, `not_found`: the result is NOT EXPLAINED
    or NOT FOUND. The rest is undecided after MOST_RUNS.
    """

    runs: np.ndarray
    boots: np.ndarray
    planned: np.ndarray
    spent: np.ndarray
    right: np.ndarray
    wrong: np.ndarray
    not_found: np.ndarray


def build_problem(setting: SimulatedSetting, variables: int = VARIABLES) -> Problem:
    rates = setting.rates
    message = Rates(max(rates.bad_passes, LEAST_RATE), max(rates.good_fails, LEAST_RATE)) if rates else None
    rows = tuple(Variable(f"v{index}", ("good", "bad"), 0, 1) for index in range(variables))
    return Problem(rows, rates=message if setting.known else None)


def simulate(
    setting: SimulatedSetting, cases: int, seed: int = 11, confidence: float = ENOUGH
) -> SimulatedOutcome:
    """Simulate the bisections. All changes have the same cost, so the run with the most information is selected,
    and each run takes place in a separate boot.
    """
    result = build_problem(setting)
    model = build_model(result)
    draw = np.random.default_rng(seed)
    parts = [
        _Chunk(setting, result, model, min(CHUNK, cases - index), draw, confidence).finish()
        for index in range(0, cases, CHUNK)
    ]
    names = SimulatedOutcome.__slots__
    return SimulatedOutcome(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _sample_runs(runs: np.ndarray) -> np.ndarray:
    """Return one of every eight runs, and all runs with at most two variables good or bad, which are the arms of a
    confirmation. The command considers all runs; the simulation therefore needs slightly more runs.
    """
    bad = runs.sum(axis=1)
    run: np.ndarray = runs[
        (np.random.default_rng(0).random(len(runs)) < 1 / 8) | (bad <= 2) | (bad >= VARIABLES - 2)
    ]
    return run


class _Truth:
    """The generated faults of some cases, and their failure rates."""

    def __init__(self, setting: SimulatedSetting, cases: int, draw: np.random.Generator) -> None:
        self.setting, self.draw = setting, draw
        self.guilty = draw.random((cases, VARIABLES)).argsort(axis=1)[:, : FAULTS[setting.fault]]
        self.mean = draw.uniform(0.35, 0.8, (cases, FAULTS[setting.fault]))  # if every boot has its own
        self.by_chance = draw.uniform(0, 0.05, cases)

    def fails(self, cases: np.ndarray, runs: np.ndarray) -> np.ndarray:
        """Return the number of failed runs [cases] in one boot of each case with `runs` [cases, variables]."""
        bad = np.take_along_axis(runs, self.guilty[cases], axis=1).astype(bool)
        fault = self.setting.fault
        if fault == "either of two":
            causes = bad
        elif fault == "one of two, not both":
            causes = bad & (bad.sum(axis=1, keepdims=True) == 1)
        else:
            causes = bad & bad.all(axis=1, keepdims=True)
            causes[:, 1:] = False
        if self.setting.rates is None:
            mean = self.mean[cases]
            boot = self.draw.uniform(np.maximum(0.2, mean - 0.3), np.minimum(0.95, mean + 0.3))
            rate = 1 - (1 - boot * causes).prod(axis=1) * (1 - self.by_chance[cases])
        else:
            rates = self.setting.rates
            rate = np.where(causes.any(axis=1), 1 - rates.bad_passes, rates.good_fails)
        result: np.ndarray = self.draw.binomial(self.setting.runs_per_boot, rate)
        return result


class _Chunk:
    """A set of bisections, each at a different stage: searching for a suspect or confirming it."""

    def __init__(
        self,
        setting: SimulatedSetting,
        made: Problem,
        model: CauseModel,
        cases: int,
        draw: np.random.Generator,
        confidence: float,
    ) -> None:
        self.setting, self.made, self.model, self.draw, self.confidence = setting, made, model, draw, confidence
        self.truth = _Truth(setting, cases, draw)
        self.possible = _sample_runs(candidate_runs(made))
        self.present = model.find_present_causes(self.possible)
        self.as_float = self.present.astype(np.float32)
        self.index = {tuple(run): index for index, run in enumerate(self.possible.tolist())}
        self.posterior = model.start(cases)
        self.plans: list[confirm.ConfirmationPlan | None] = [None] * cases
        self.suspect = np.full(cases, -1)
        self.counts = [[0] * 4 for _ in range(cases)]
        self.likelihood = np.zeros((cases, 4, len(confirm.CHANCES)))
        self.refuted = np.zeros(cases, int)
        self.bits = np.zeros(cases)
        self.live = np.ones(cases, bool)
        self.result = SimulatedOutcome(
            *(np.zeros(cases, int) for _ in range(4)), *(np.zeros(cases, bool) for _ in range(3))
        )

    def finish(self) -> SimulatedOutcome:
        for _ in range(MOST_RUNS):
            live = np.flatnonzero(self.live)
            if not len(live):
                break
            self._simulate_boot(live)
        return self.result

    def _simulate_boot(self, live: np.ndarray) -> None:
        chosen = np.zeros(len(live), int)
        arm = np.full(len(live), -1)
        for location, case in enumerate(live):
            plan = self.plans[case]
            if plan is not None:
                index = plan.find_next_arm(self.counts[case])
                assert index is not None
                arm[location], chosen[location] = index, self.index[plan.arms[index].run]
        search = np.flatnonzero(arm < 0)
        if len(search):
            message = expected_information(self.model, self.posterior[live[search]], self.as_float)
            message += self.draw.random(message.shape, np.float32) * NEAR  # any of those that tell as much
            chosen[search] = message.argmax(axis=1)
            self.bits[live[search]] += message.max(axis=1)
        failed = self.truth.fails(live, self.possible[chosen])
        self._learn_outcome(live, chosen, failed)
        self.result.boots[live] += 1
        first = live[(self.suspect[live] < 0) & (self.refuted[live] == 0)]
        self.result.runs[first] += 1
        boot = confirm.compute_boot_likelihood(failed, self.setting.runs_per_boot)
        for location, case in enumerate(live):
            if arm[location] >= 0:
                self.likelihood[case, arm[location]] += boot[location]
                self.counts[case][arm[location]] += 1
                self.result.spent[case] += 1
        self._judge_cases(live[arm >= 0])
        self._plan_confirmations(live)

    def _learn_outcome(self, live: np.ndarray, chosen: np.ndarray, failed: np.ndarray) -> None:
        with_fault, without = self.model.fails()
        for seen in range(self.setting.runs_per_boot):
            fail = seen < failed
            fails = np.minimum(seen, failed)[:, None, None]
            weight = BOOT_WEIGHT + seen
            chances = (BOOT_WEIGHT * with_fault + fails) / weight, (BOOT_WEIGHT * without + fails) / weight
            self.posterior[live] = self.model.after(self.posterior[live], self.present[:, chosen].T, fail, chances)

    def _judge_cases(self, cases: np.ndarray) -> None:
        """Confirm or refute the suspects of these cases, or extend their plan."""
        sizes = np.array([len(self._plan_case(case).arms) for case in cases])
        for arms in set(sizes.tolist()):
            some = cases[sizes == arms]
            judged = confirm.judge(self.likelihood[some, :arms], self.made.rates)
            for case, cause, present in zip(some, judged.cause, judged.present, strict=True):
                if cause >= self.confidence:
                    guilty = self.model.causes[self.suspect[case]].variables
                    right = self.setting.explained and set(guilty) == set(self.truth.guilty[case].tolist())
                    (self.result.right if right else self.result.wrong)[case] = True
                    self.live[case] = False
                elif cause <= confirm.REFUTED:
                    self._refute_suspect(
                        case, confirm.is_outside_suspects(present, confirm.strict_probability(self.confidence))
                    )
                elif self._plan_case(case).find_next_arm(self.counts[case]) is None:
                    self.plans[case] = confirm.extend(self._plan_case(case))
                    self.result.planned[case] += sum(self._plan_case(case).boots) - sum(self.counts[case])

    def _refute_suspect(self, case: int, outside: bool) -> None:
        self.posterior[case] = self.model.refute_cause(self.posterior[case : case + 1], self.suspect[case])[0]
        self.refuted[case] += 1
        self.plans[case], self.suspect[case] = None, -1
        if outside or self.refuted[case] >= confirm.MOST_SUSPECTS:
            self.result.not_found[case] = True
            self.live[case] = False

    def _plan_case(self, case: int) -> confirm.ConfirmationPlan:
        plan = self.plans[case]
        assert plan is not None
        return plan

    def _plan_confirmations(self, live: np.ndarray) -> None:
        """Plan the confirmation of new suspects."""
        free = np.array([case for case in live if self.live[case] and self.plans[case] is None], int)
        if not len(free):
            return
        beliefs = self.model.cause_probabilities(self.posterior[free])
        for case, belief in zip(free, beliefs, strict=True):
            index = int(belief.argmax())
            named = bool(self.model.causes[index].variables)
            if named and belief[index] < SUSPECTED and self.bits[case] < self.model.search_bits:
                continue
            if not named and belief[index] < confirm.strict_probability(self.confidence):
                continue
            self.bits[case] = 0
            if not named:
                self.result.not_found[case] = True
                self.live[case] = False
                continue
            self.suspect[case] = index
            self.plans[case] = confirm.plan_confirmation(
                self.made, self.model, self.posterior[case], index, self.confidence
            )
            self.counts[case] = [0] * 4
            self.likelihood[case] = 0
            self.result.planned[case] += sum(self._plan_case(case).boots)
