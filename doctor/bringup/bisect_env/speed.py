"""Bisect a loss of speed over ordered versions: up to two steps, measured with noise.

A hypothesis states at which versions the speed changes: at none, one or two. The logarithm of the speed is
linear in the steps, so the probability of each hypothesis given all runs has a closed form (conjugate linear
regression with an unknown base, unknown steps and an uncertain noise). Runs with wrong output are not part of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2

import numpy as np

from zinc_rt.doctor.bringup.bisect_env.journal import JournalRun
from zinc_rt.doctor.bringup.bisect_env.propose import Partial, Proposal, candidate_runs, possible_runs, run_minutes
from zinc_rt.doctor.bringup.bisect_env.variables import Assignment, Problem, SpeedMeasure, Variable

STEP = 0.10  # prior mean of a step's size, of the logarithm of the speed
SPREAD = 0.04  # and its standard deviation: smaller steps are not looked for
FASTER = 0.05  # prior of a step that gains speed
STEPS_PRIOR = (0.06, 0.47, 0.47)  # none, one and two steps
NOISE_RUNS = 8  # the stated noise counts as much as so many runs
HYPOTHESES = 120  # the likeliest, with which the next run is chosen
CANDIDATES = 16  # the runs with the most different predictions, of which the information is computed
CONFIRMING = 2  # measurements on each side of a step before it is named
SHOWN = 5
GRID = np.linspace(-6, 6, 33)  # standard deviations of the noise


def count_most_runs(problem: Problem) -> int:
    """Return the number of runs after which the bisection ends: 4 log2(n) + 20 for n versions."""
    return ceil(4 * log2(sum(len(variable.bad_value_sets()) for variable in problem.variables) + 1)) + 20


@dataclass(frozen=True, slots=True)
class SpeedStep:
    """A change of speed at a version of a variable. `share`: -0.07 is 7 % slower."""

    variable: int
    version: int
    share: float


class SpeedModel:
    """All hypotheses of a problem. `bad_value_sets` [patterns] are (variable, first version of the new speed);
    `parts` [hypotheses, 2] are indices in patterns, -1 for no step."""

    def __init__(self, problem: Problem) -> None:
        assert problem.measure is not None
        self.problem, self.measure = problem, problem.measure
        self.patterns: list[tuple[int, int]] = []
        for index, variable in enumerate(problem.variables):
            step = 1 if variable.bad > variable.good else -1
            self.patterns += [(index, first) for first in range(variable.good + step, variable.bad + step, step)]
        count = len(self.patterns)
        two = np.array(np.triu_indices(count, 1)).T
        lone = np.stack([np.arange(count), np.full(count, -1)], axis=1)
        groups: list[tuple[np.ndarray, tuple[int, int], float]] = [  # parts, their directions, prior
            (np.array([[-1, -1]]), (0, 0), STEPS_PRIOR[0]),
            (lone, (-1, 0), STEPS_PRIOR[1] * (1 - FASTER)),
            (lone, (1, 0), STEPS_PRIOR[1] * FASTER),
            (two, (-1, -1), STEPS_PRIOR[2] * (1 - 2 * FASTER)),
            (two, (-1, 1), STEPS_PRIOR[2] * FASTER),
            (two, (1, -1), STEPS_PRIOR[2] * FASTER),
        ]
        groups = [group for group in groups if len(group[0])]
        self.parts = np.concatenate([parts for parts, _, _ in groups]).astype(int)
        self.expected = (
            np.concatenate([np.tile(np.array(signs), (len(parts), 1)) for parts, signs, _ in groups]) * STEP
        )
        self.prior = np.log(
            np.concatenate([np.full(len(parts), prior / len(parts)) for parts, _, prior in groups])
        )
        self.candidates = candidate_runs(problem)

    def find_present_steps(self, runs: np.ndarray) -> np.ndarray:
        """Return [patterns + 1, runs]: whether a run has the version of the step or a later one; the last row,
        for no step, is 0."""
        result = np.zeros((len(self.patterns) + 1, len(runs)))
        for index, (location, first) in enumerate(self.patterns):
            variable = self.problem.variables[location]
            values = runs[:, location]
            result[index] = values >= first if variable.bad > variable.good else values <= first
        return result

    def fit_hypotheses(self, runs: np.ndarray, values: np.ndarray) -> SpeedFit:
        """Fit all hypotheses to the measured `values` [runs] of `runs` [runs, variables]."""
        speeds = np.log(values) * (1 if self.measure.higher_is_better else -1)
        present = self.find_present_steps(runs)
        count, mean, centre = len(runs), present.mean(axis=1), speeds.mean()
        ridge = (self.measure.noise / SPREAD) ** 2
        moments = (present - mean[:, None]) @ (present - mean[:, None]).T
        response = (present - mean[:, None]) @ (speeds - centre)
        one, two = self.parts.T
        xx, yy, xy = moments[one, one], moments[two, two], moments[one, two]
        left, right = self.expected.T
        to_one, to_two = response[one] - xx * left - xy * right, response[two] - xy * left - yy * right
        a, d = xx + ridge, yy + ridge
        det = a * d - xy * xy
        first, second = (d * to_one - xy * to_two) / det, (a * to_two - xy * to_one) / det
        rest = ((speeds - centre) ** 2).sum() - 2 * (left * response[one] + right * response[two])
        rest += left * left * xx + 2 * left * right * xy + right * right * yy - first * to_one - second * to_two
        first, second = first + left, second + right
        scale = (NOISE_RUNS * self.measure.noise**2 + rest) / (NOISE_RUNS + count - 1)
        chance = self.prior + np.log(ridge) - 0.5 * np.log(det) - 0.5 * (NOISE_RUNS + count - 1) * np.log(scale)
        weight = np.exp(chance - chance.max())
        base = centre - first * mean[one] - second * mean[two]
        return SpeedFit(weight / weight.sum(), base, np.stack([first, second], axis=1), np.sqrt(scale))

    def steps(self, hypothesis: int, fit: SpeedFit) -> list[SpeedStep]:
        """Return the steps of a hypothesis, in the order of the file."""
        result = []
        for part, size in zip(self.parts[hypothesis], fit.steps[hypothesis], strict=True):
            if part >= 0:
                result.append(
                    SpeedStep(
                        variable=self.patterns[part][0],
                        version=self.patterns[part][1],
                        share=float(np.expm1(size)),
                    )
                )
        return result

    def propose(
        self, fit: SpeedFit | None, runs: Sequence[Assignment], wrong: Sequence[Assignment], now: Assignment,
        impossible: Sequence[Partial] = (),
    ) -> Proposal | None:  # fmt: skip
        """Return the run with the most information per minute, or None if no combination is left. The first
        two are the ends. Values whose output was wrong are not measured again."""
        tried = possible_runs(
            self.candidates, [*impossible, *(tuple(enumerate(assignment)) for assignment in wrong)]
        )
        if not len(tried):
            return None
        cost = run_minutes(self.problem, tried, now)
        for end in (self.problem.bad, self.problem.good):
            places = np.flatnonzero((tried == np.array(end)).all(axis=1))
            if len(places) and end not in runs:
                return Proposal(end, 0.0, float(cost[places[0]]), new_boot=False)
        if fit is None:
            run = tuple(int(item) for item in tried[0])
            return Proposal(run, 0.0, float(cost[0]), new_boot=False)
        likely = np.argsort(-fit.weight)[:HYPOTHESES]
        weight = fit.weight[likely] / fit.weight[likely].sum()
        present = self.find_present_steps(tried)
        one, two = self.parts[likely].T
        predicted = (
            fit.base[likely, None] + fit.steps[likely, :1] * present[one] + fit.steps[likely, 1:] * present[two]
        )
        spread = np.sqrt(np.maximum(weight @ predicted**2 - (weight @ predicted) ** 2, 0))
        best = np.argsort(-spread / cost, kind="stable")[:CANDIDATES]
        bits = _expected_information(weight, predicted[:, best], float(weight @ fit.noise[likely]))
        index = int(best[int((bits / cost[best]).argmax())])
        return Proposal(
            tuple(int(item) for item in tried[index]), float(bits.max()), float(cost[index]), new_boot=False
        )


@dataclass(frozen=True, slots=True)
class SpeedFit:
    """Every hypothesis after the runs: the probability `weight`, `base` (logarithm of the speed without steps),
    the two `steps` [hypotheses, 2] in that logarithm, and the `noise` (standard deviation).
    """

    weight: np.ndarray
    base: np.ndarray
    steps: np.ndarray
    noise: np.ndarray


def _expected_information(weight: np.ndarray, predicted: np.ndarray, noise: float) -> np.ndarray:
    """Return the expected information in bits [runs] about the hypotheses, `predicted` [hypotheses, runs]."""
    low, high = predicted.min(axis=0), predicted.max(axis=0)
    grid = low + (high - low) * (GRID[:, None] + 6) / 12 + GRID[:, None] * noise  # [points, runs]
    density = np.exp(-0.5 * ((grid[:, None] - predicted) / noise) ** 2)  # of a Gaussian, times its norm
    mixture = np.einsum("h,phr->pr", weight, density) + 1e-300
    norm = noise * np.sqrt(2 * np.pi)
    step = grid[1] - grid[0]
    entropy = -(mixture / norm * np.log2(mixture / norm)).sum(axis=0) * step
    result: np.ndarray = entropy - 0.5 * np.log2(2 * np.pi * np.e * noise**2)
    return result


@dataclass(slots=True)
class SpeedState:
    """A speed bisection after its runs. `verdict` is empty while more runs are needed, otherwise found, no-step,
    or likely: no runs are left and the likeliest answer is less certain than requested. `complete`: it is as
    certain as requested.
    """

    model: SpeedModel
    fit: SpeedFit | None
    runs: list[JournalRun]
    confidence: float
    verdict: str = ""
    complete: bool = False

    @property
    def chance(self) -> float:
        """The probability of the likeliest hypothesis."""
        return 0.0 if self.fit is None else float(self.fit.weight.max())

    def steps(self) -> list[SpeedStep]:
        """Return the steps of the likeliest hypothesis."""
        return [] if self.fit is None else self.model.steps(int(self.fit.weight.argmax()), self.fit)

    def likeliest_hypotheses(self) -> list[tuple[list[SpeedStep], float]]:
        """Return the likeliest hypotheses with their probabilities."""
        if self.fit is None:
            return []
        order = np.argsort(-self.fit.weight, kind="stable")[:SHOWN]
        return [(self.model.steps(int(at), self.fit), float(self.fit.weight[at])) for at in order]

    def named(self) -> list[tuple[SpeedStep, float]]:
        """Return the sufficiently certain steps of the likeliest hypothesis, each with its probability."""
        if self.fit is None:
            return []
        best, result = int(self.fit.weight.argmax()), []
        for part, step in zip(self.model.parts[best], self.model.steps(best, self.fit), strict=False):
            chance = float(self.fit.weight[(self.model.parts == part).any(axis=1)].sum())
            if chance >= self.confidence:
                result.append((step, chance))
        return result

    def propose_confirmation(self) -> Assignment | None:
        """Return a run on one side of a likely step that has fewer than CONFIRMING measurements there."""
        if self.fit is None:
            return None
        measured = [run.run for run in self.runs if run.outcome == "measured"]
        wrong = find_wrong_combinations(self.runs)
        for step in self.model.steps(int(self.fit.weight.argmax()), self.fit):
            variable = self.model.problem.variables[step.variable]
            before = step.version - (1 if variable.bad > variable.good else -1)
            for version in (step.version, before):
                runs = [run for run in measured if run[step.variable] == version]
                run = list(runs[-1] if runs else measured[-1])
                run[step.variable] = version
                if len(runs) < CONFIRMING and tuple(run) not in wrong:
                    return tuple(run)
        return None


def compute_state(model: SpeedModel, runs: Sequence[JournalRun], confidence: float) -> SpeedState:
    """Compute the state from all records."""
    measured = [run for run in runs if run.outcome == "measured"]
    fit = None
    if measured:
        fit = model.fit_hypotheses(
            np.array([item.run for item in measured]), np.array([item.value for item in measured])
        )
    state = SpeedState(model, fit, list(runs), confidence)
    state.complete = fit is not None and float(fit.weight.max()) >= confidence
    spent = sum(run.outcome in ("measured", "wrong") for run in runs) >= count_most_runs(model.problem)
    if state.complete and state.propose_confirmation() is None and len({item.run for item in measured}) > 1:
        state.verdict = "found" if state.named() else "no-step"
    elif spent:
        state.verdict = "likely"
    return state


def propose_run(state: SpeedState, now: Assignment, impossible: Sequence[Partial] = ()) -> Proposal | None:
    """Return the next run, or None if no combination is left."""
    problem = state.model.problem
    if state.complete:
        run = state.propose_confirmation()
        if run is not None and len(possible_runs(np.array([run]), impossible)):
            return Proposal(run, 0.0, float(run_minutes(problem, np.array([run]), now)[0]), new_boot=False)
    runs = [run.run for run in state.runs if run.outcome != "could-not"]
    return state.model.propose(state.fit, runs, find_wrong_combinations(state.runs), now, impossible)


def find_wrong_combinations(runs: Sequence[JournalRun]) -> list[Assignment]:
    """Return the combinations whose output was wrong in most runs and at least twice, so they cannot be
    measured.
    """
    result = []
    for run in dict.fromkeys(run.run for run in runs):
        wrong, right = (
            sum(e.run == run and e.outcome == outcome for e in runs) for outcome in ("wrong", "measured")
        )
        if wrong >= 2 and wrong > right:
            result.append(run)
    return result


# --- simulation ---

RIGHT_LIMIT = 0.95


@dataclass(frozen=True, slots=True)
class SpeedSetting:
    """One row of the table: `versions` of each variable, the sizes of the planted steps, the noise of a run,
    whether it has heavier tails than the model's, and the fraction of runs with wrong output."""

    versions: tuple[int, ...]
    steps: int = 2
    least: float = 0.05
    most: float = 0.15
    noise: float = 0.03
    heavy_tails: bool = False
    wrong: float = 0.0
    judged: bool = True

    @property
    def text(self) -> str:
        count = {0: "no step", 1: "one step", 2: "two steps"}[self.steps]
        text = f"{' + '.join(map(str, self.versions))} versions, {count}"
        if self.steps:
            text += f" of {self.least:.0%}" + (f"-{self.most:.0%}" if self.most > self.least else "")
        text += f", noise {self.noise:.0%}" + (" (heavy tails)" if self.heavy_tails else "")
        return text + (f", {self.wrong:.0%} of runs wrong" if self.wrong else "")


SPEED_SETTINGS = (
    *(SpeedSetting((count,)) for count in (16, 64, 256)),
    SpeedSetting((64,), heavy_tails=True),
    SpeedSetting((64,), steps=1),
    SpeedSetting((64,), steps=0),
    SpeedSetting((16, 12, 24)),
    SpeedSetting((64,), wrong=0.05),
    SpeedSetting((64,), most=0.05, judged=False),
)


@dataclass(frozen=True, slots=True)
class SpeedOutcome:
    """The results for generated histories [cases]: number of `runs`, whether the reported steps are `right`, and
    whether they are as certain as requested.
    """

    runs: np.ndarray
    right: np.ndarray
    sure: np.ndarray
    most: int


def simulate_problem(setting: SpeedSetting) -> Problem:
    rows = tuple(
        Variable(f"v{index}", tuple(f"{version}" for version in range(count)), 0, count - 1)
        for index, count in enumerate(setting.versions)
    )
    return Problem(rows, measure=SpeedMeasure("tokens/s", noise=0.03))


def simulate(setting: SpeedSetting, cases: int, seed: int = 11, confidence: float = 0.97) -> SpeedOutcome:
    """Plant steps in histories, bisect each."""
    problem = simulate_problem(setting)
    model = SpeedModel(problem)
    draw = np.random.default_rng(seed)
    runs, right, sure = np.zeros(cases, int), np.zeros(cases, bool), np.zeros(cases, bool)
    for case in range(cases):
        planted = np.sort(draw.permutation(len(model.patterns))[: setting.steps])
        sizes = np.log1p(-draw.uniform(setting.least, setting.most, setting.steps))
        result: list[JournalRun] = []
        state = compute_state(model, result, confidence)
        while not state.verdict:
            proposal = propose_run(state, problem.bad)
            if proposal is None:
                break
            present = model.find_present_steps(np.array([proposal.run]))[planted, 0]
            noise = draw.standard_t(4) / np.sqrt(2) if setting.heavy_tails else draw.standard_normal()
            value = 50 * np.exp(sizes @ present) * max(1 + setting.noise * noise, 0.01)
            is_wrong = draw.random() < setting.wrong
            outcome = "wrong" if is_wrong else "measured"
            result.append(JournalRun(proposal.run, outcome, "", "", value=float(value * (1.5 if is_wrong else 1))))
            state = compute_state(model, result, confidence)
        runs[case] = len(result)
        named = {(step.variable, step.version) for step in state.steps()}
        right[case] = bool(state.verdict) and named == {model.patterns[at] for at in planted}
        sure[case] = state.complete
    return SpeedOutcome(runs, right, sure, count_most_runs(problem))
