"""Many tenants on one device: what its scheduler promises of traffic, and requests that leave each other alone."""

from __future__ import annotations

import numpy as np

from zinc_rt.errors import ZincError
from zinc_rt.perf.structure.lab import CannotMeasure, Lab, Measurement
from zinc_rt.sched.simulation.schedule_checks import CheckOutcome, judged
from zinc_rt.sched.simulation.simulate import SimulationSettings, simulate
from zinc_rt.sched.simulation.step_cost import PREDICTED
from zinc_rt.sched.simulation.workloads import WORKLOADS
from zinc_rt.validate.command import parser
from zinc_rt.validate.isolation.mix import PAGES_SHARE, SLOTS
from zinc_rt.validate.isolation.trial import MixTrial
from zinc_rt.validate.isolation.verdict import MixVerdict
from zinc_rt.validate.prepare import prepare

SEED = 1


def scheduled(lab: Lab, workload: str, check: str, figure: str) -> Measurement:
    """One figure of one check of `zinc-rt sched-test`: the real scheduler in virtual time. Counts and shares are
    the scheduler's; seconds are a predicted card's, and only their ratios are judged."""
    found = _checked(workload, check)
    if found.status == "skip" or figure not in found.measure:
        raise CannotMeasure(f"sched-test --workload {workload}: {check}: {found.reason or 'says no ' + figure}")
    value = float(found.measure[figure])
    how = f"zinc-rt sched-test --workload {workload} --seed {SEED}: {figure.replace('_', ' ')}, in virtual time"
    return Measurement(value, how, {"measure": dict(found.measure), "first_bad": dict(found.first_bad)})


def _checked(name: str, check: str) -> CheckOutcome:
    workload = WORKLOADS[name]
    wanted = [each for each in workload.checks if each.id == check]
    arrivals = workload.arrivals(np.random.default_rng(SEED))
    settings = SimulationSettings(slots=workload.slots, pages=workload.pages, seed=SEED)
    seen = simulate(arrivals, workload.tenants, settings, PREDICTED)
    if seen.broken is not None:
        raise CannotMeasure(f"step {seen.broken.step} broke: {seen.broken.found[0]}")
    baseline = None
    if any(each.needs_baseline for each in wanted):
        plain = SimulationSettings(slots=workload.slots, pages=workload.pages, seed=SEED, policy="fcfs")
        baseline = simulate(arrivals, workload.tenants, plain, PREDICTED)
    (found,) = judged(wanted, seen, baseline)
    return found


def requests_disturbed(lab: Lab, tier: str, requests: int) -> Measurement:
    """Requests of a mix that had other bits, or other tokens, than alone, and plans or books that were wrong."""
    found = _mixed(lab, tier, requests)
    wrong = len(found.witness.diverged) + len(list(found.lost())) + len(found.wrong)
    return Measurement(wrong, f"{found.told()} on {tier}", {"mix": found.figures(), "digest": list(found.lines())})


def requests_at_once(lab: Lab, tier: str, slots: int, requests: int) -> Measurement:
    """The most that had a slot at once, in a mix in which nobody was disturbed."""
    found = _mixed(lab, tier, requests, slots=slots)
    if not found.passed:
        return Measurement(0, next(found.lines()), {"digest": list(found.lines())})
    most = found.witness.bound
    return Measurement(most, f"{most} slots at once, {found.told()} on {tier}", {"mix": found.figures()})


def _mixed(lab: Lab, tier: str, requests: int, *, slots: int = 0) -> MixVerdict:
    """A mix on a tier, as `zinc-rt validate --isolation` runs it. Raises CannotMeasure where it cannot run."""
    line = ["--isolation", "--model", str(lab.model), "--tiers", tier, "--device", lab.device_option]
    try:
        arguments = parser().parse_args(line)
        arguments.observer = lab.observer
        (job,) = prepare(arguments, lab.settings)
    except ZincError as error:
        raise CannotMeasure(str(error).partition("\n")[0]) from error
    trial = MixTrial(job, SEED, requests, slots=slots or SLOTS, pages_share=1.0 if slots else PAGES_SHARE)
    (spec,) = job.tiers
    with trial.opened(spec) as engine:
        lab.devices.setdefault(tier, engine.backend.device)
        return trial.verdict(spec, engine)
