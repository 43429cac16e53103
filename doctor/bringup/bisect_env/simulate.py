"""Simulate bisections of generated faults, many at once, and count runs and correct results."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zinc_rt.doctor.bringup.bisect_env.model import ENOUGH, CauseModel, build, information
from zinc_rt.doctor.bringup.bisect_env.propose import candidates
from zinc_rt.doctor.bringup.bisect_env.variables import LEAST_RATE, Problem, Rates, Variable

VARIABLES = 12
MOST_RUNS = 80
CHUNK = 100  # cases at once: 100 x 4096 combinations a step
NEAR = 1e-6  # bits: combinations that tell as much as each other


@dataclass(frozen=True, slots=True)
class SimulatedSetting:
    """One row of the table. `known`: the rates are given, otherwise they are estimated. Limits from issue
    11."""

    guilty: int  # variables that the fault needs: 1 or 2
    rates: Rates
    median_limit: int
    known: bool = True

    @property
    def text(self) -> str:
        what = "one variable" if self.guilty == 1 else "a pair"
        chance = f"passes by chance {self.rates.bad_passes:.0%}, fails by chance {self.rates.good_fails:.0%}"
        return f"{what}, {chance}" + ("" if self.known else ", rates not told")


RIGHT_LIMIT = 0.95
SETTINGS = tuple(
    SimulatedSetting(guilty, Rates(0.1, fails), limit, known)
    for known in (True, False)
    for guilty, fails, limit in ((1, 0.0, 6), (1, 0.1, 10), (2, 0.0, 12), (2, 0.1, 20))
)


@dataclass(frozen=True, slots=True)
class SimulatedOutcome:
    """The result of many generated faults: `runs` [cases] until the end, `right` [cases] whether the
    reported cause is the generated one."""

    runs: np.ndarray
    right: np.ndarray


def problem(setting: SimulatedSetting, variables: int = VARIABLES) -> Problem:
    rates = Rates(max(setting.rates.bad_passes, LEAST_RATE), max(setting.rates.good_fails, LEAST_RATE))
    rows = tuple(Variable(f"v{at}", ("good", "bad"), 0, 1) for at in range(variables))
    return Problem(rows, rates=rates if setting.known else None)


def simulate(setting: SimulatedSetting, cases: int, seed: int = 11) -> SimulatedOutcome:
    """Simulate the bisections. All changes have the same cost, so the run with the most information is
    selected."""
    case = problem(setting)
    model = build(case)
    possible = candidates(case)
    present = model.present(possible)
    draw = np.random.default_rng(seed)
    parts = [_chunk(setting, model, present, min(CHUNK, cases - done), draw) for done in range(0, cases, CHUNK)]
    return SimulatedOutcome(np.concatenate([p.runs for p in parts]), np.concatenate([p.right for p in parts]))


def _chunk(
    setting: SimulatedSetting, model: CauseModel, present: np.ndarray, cases: int, draw: np.random.Generator
) -> SimulatedOutcome:
    sizes = np.array([len(cause.variables) for cause in model.causes])[model.cause_of]
    truth = draw.choice(np.flatnonzero(sizes == setting.guilty), cases)
    posterior = model.start(cases)
    runs = np.zeros(cases, int)
    live = np.arange(cases)
    as_float = present.astype(np.float32)
    for _ in range(MOST_RUNS):
        gain = information(model, posterior[live], as_float)
        gain += draw.random(gain.shape, np.float32) * NEAR  # any of those that tell as much
        chosen = gain.argmax(axis=1)
        fault = present[truth[live], chosen]
        chance = draw.random(len(live))
        failed = np.where(fault, chance >= setting.rates.bad_passes, chance < setting.rates.good_fails)
        posterior[live] = model.after(posterior[live], present[:, chosen].T, failed)
        runs[live] += 1
        live = live[model.beliefs(posterior[live]).max(axis=1) < ENOUGH]
        if not len(live):
            break
    named = model.beliefs(posterior).argmax(axis=1)
    return SimulatedOutcome(runs, named == model.cause_of[truth])
