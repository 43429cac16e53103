"""Seeded runs have the schedules of the hashes below: every plan, batch, event and the usage by tenant.

A change that makes a step cheaper must not change a hash. A change of policy changes some: replace them by those
that the failing tests print.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from fake_runner import FakeRunner
from scheduler_machine import PlainSchedulerMachine, SchedulerMachine

from zinc_rt.perf.bench_sched import SchedulerLoad
from zinc_rt.sched.plan import Batch, StepPlan
from zinc_rt.sched.request import Request
from zinc_rt.sched.scheduler import Scheduler
from zinc_rt.sched.simulation.simulate import Simulation, SimulationSettings
from zinc_rt.sched.simulation.workloads import WORKLOADS
from zinc_rt.sched.state import StepTimes
from zinc_rt.sched.step_cost import PREDICTED


class ScheduleHash:
    """An observer that hashes what a scheduler plans and delivers."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler, self.steps, self._hash = scheduler, 0, hashlib.sha256()
        scheduler.observers.append(self)

    def event(self, what: str, request: Request, amount: int) -> None:
        self._add(what, request.number, request.choice, request.slot, amount)

    def stepped(self, plan: StepPlan, batch: Batch, times: StepTimes) -> None:
        self.steps += 1
        self._add(plan.number, plan.tokens, plan.sequences, plan.rows, plan.decodes, plan.context)
        tokens, rows, sequences = plan.tokens, plan.rows, plan.sequences
        self._add_arrays(
            plan.token_id[:tokens], plan.position[:tokens], plan.slot[:tokens], plan.sequence[:tokens]
        )
        self._add_arrays(plan.logit_row[:rows], plan.row_slot[:rows], plan.row_position[:rows])
        if self.scheduler.cache.rows is not None:
            self._add_arrays(plan.state_source[:sequences], plan.state_target[:sequences])
        for piece in plan.prompts:
            self._add(piece.request.number, piece.request.choice, piece.first, piece.last, piece.draws)
        self._add(plan.bound, [sorted(changes.items()) for changes in plan.table_changes])
        self._add([(copy.group, copy.source, copy.target, copy.tokens) for copy in plan.copies])
        self._add([(slot, counts.tolist()) for slot, counts in plan.counts_of.items()])
        self._add(plan.bias_of, sorted(plan.mask_of))
        self._add_arrays(self.scheduler.slots.words[plan.bound], batch.requests, batch.choice, batch.tokens)
        self._add(batch.step, batch.ended)

    def result(self) -> str:
        """Return the hash, and the number of steps."""
        ledger = self.scheduler.ledger
        assert ledger is not None
        self._add(sorted(ledger.take().usage.items()))
        return f"{self._hash.hexdigest()[:16]} {self.steps} steps"

    def _add(self, *values: object) -> None:
        self._hash.update(repr(values).encode())

    def _add_arrays(self, *arrays: np.ndarray) -> None:
        for array in arrays:
            self._hash.update(np.ascontiguousarray(array).data)


# --- what runs


def hash_of_workload(name: str, steps: int) -> str:
    """Run the first steps of a workload of the simulation."""
    workload = WORKLOADS[name]
    arrivals = workload.arrivals(np.random.default_rng(7))
    settings = SimulationSettings(workload.slots, pages=workload.pages, check_every=1 << 20, most_steps=steps)
    simulation = Simulation(arrivals, workload.tenants, settings, PREDICTED, lambda requests: None)
    schedule = ScheduleHash(simulation.scheduler)
    assert simulation.run().broken is None
    return schedule.result()


def hash_of_load(running: int, gap: int, arrivals: int) -> str:
    """The load of the benchmark."""
    load = SchedulerLoad(running, gap)
    schedule = ScheduleHash(load.scheduler)
    for _ in range(arrivals):
        load.arrive()
        load.steps()
    return schedule.result()


def hash_of_machine(kind: type[SchedulerMachine], seed: int, events: int) -> str:
    """Random events: cancelled and paused requests, preemptions, evictions, failed steps, quotas, sessions,
    forks.
    """
    m, choice = kind(), random.Random(seed)
    m.runner = m.scheduler.runner = FakeRunner()  # type: ignore[assignment]  # the checks of its own are not needed
    m.runner.scheduler = m.scheduler
    schedule = ScheduleHash(m.scheduler)
    for _ in range(events):
        apply_event(m, choice)
    m.drain()
    return schedule.result()


def apply_event(m: SchedulerMachine, choice: random.Random) -> None:
    what, back, running = choice.random(), choice.randint(0, 9), list(m.scheduler.running())
    if what < 0.3 and len(m.scheduler.live) < 30:
        shared = [1] * choice.choice([0, 4, 8, 12])
        prompt = shared + [choice.randint(0, 1) for _ in range(choice.randint(1, 6))]
        m.submit(
            tenant=choice.randint(0, 3), prompt=prompt, limit=choice.randint(1, 14), seed=choice.randint(0, 3),
            lower=choice.random() < 0.2, wait_ms=choice.choice([None, None, 40, 4000]),
            choices=choice.choice([1, 1, 2, 3]), session=choice.randint(0, 2),
        )  # fmt: skip
    elif what < 0.33:
        m.cancel(back)
    elif what < 0.40:
        m.hold(back, choice.random() < 0.4)
    elif what < 0.43 and running:
        m.scheduler.park(choice.choice(running))
    elif what < 0.46 and running:
        m.scheduler.evict(choice.choice(running))
    elif what < 0.47:
        m.steps_fail(1)
    elif what < 0.475:
        m.one_has_no_logits(back)
    elif what < 0.49:
        m.configure(
            choice.randint(0, 3), choice.choice([0.5, 1.0, 3.0]), choice.randint(0, 3),
            choice.choice([None, 1, 3]), choice.randint(0, 12), choice.choice([None, 9, 16]),
        )  # fmt: skip
    elif what < 0.52 and m.scheduler.live:
        m.scheduler.receive()
        alive = [request for request in m.scheduler.requests() if request.generated < request.limit]
        if alive:
            m.continue_from(choice.choice(alive), choice.randint(1, 2))
    elif what < 0.55 and m.capsules:
        m.drop_capsule()
    else:
        m.one_step(choice.choice([1, 10, 10, 10, 500, 30_000]))


# --- the hashes

WORKLOAD_HASHES = (
    ("interactive", 400, "d9c71eaa2988155a 400 steps"),
    ("pressure", 400, "5b0d8edff920b12b 400 steps"),
    ("guarantees", 400, "b760c6b569fd3ac7 400 steps"),
    ("chat", 400, "7a6c192bc2c76003 400 steps"),
    ("overload", 4000, "9bfcc20bb4ad5da9 2182 steps"),
    ("on-off", 4000, "4dc0c5a98bf5bf1e 4000 steps"),
    ("short-long", 4000, "6910bd08dc586e6c 2057 steps"),
    ("shift", 4000, "e95ea5e46e2884df 4000 steps"),
    ("flood", 4000, "29601c698db309de 3901 steps"),
    ("interactive", 4000, "4c4dbda02a930bdb 2348 steps"),
    ("classes", 4000, "6433c56ba310154e 4000 steps"),
    ("streams", 4000, "113948458b0060f2 3476 steps"),
    ("documents", 4000, "8e68c4cd9682aca5 759 steps"),
    ("tenants", 4000, "c05c84b23181be7e 4000 steps"),
    ("long", 4000, "36aaeff33099c41b 2973 steps"),
    ("chat", 4000, "a634891b554673d0 4000 steps"),
    ("pressure", 4000, "b58947fdc4d3d765 4000 steps"),
    ("guarantees", 4000, "5e537f657c02552a 4000 steps"),
)
LOAD_HASHES = (
    (16, 1, 60, "e4fb826395234833 60 steps"),
    (64, 8, 20, "979b260bcc33f20f 160 steps"),
    (64, 1, 400, "554e09c4016e02c3 400 steps"),
)
MACHINE_HASHES = (
    (PlainSchedulerMachine, 1, 600, "4a03d706d79003ae 307 steps"),
    (SchedulerMachine, 1, 600, "1db45d10e167ae5f 332 steps"),
    (PlainSchedulerMachine, 2, 600, "3b6753f8fc08115c 318 steps"),
    (SchedulerMachine, 2, 600, "fe26f07d78523192 328 steps"),
    (PlainSchedulerMachine, 4, 2500, "e13872d2fa0fc76e 1142 steps"),
    (SchedulerMachine, 4, 2500, "296cdf91da78467f 1224 steps"),
    (PlainSchedulerMachine, 5, 2500, "22dae6d819508ce6 1136 steps"),
    (SchedulerMachine, 5, 2500, "81af4fe45cf799a2 1208 steps"),
    (PlainSchedulerMachine, 6, 2500, "8f764c0636843bfb 1192 steps"),
    (SchedulerMachine, 6, 2500, "95227868e8f67a0c 1252 steps"),
)


def mark_all_but_quick(rows: Sequence[tuple[Any, ...]], quick: int) -> list[Any]:
    """The first `quick` rows run by default, as many more with --rest, all with --slow."""
    result = []
    for index, row in enumerate(rows):
        name = "-".join(str(getattr(item, "__name__", item)) for item in row[:-1])
        marks = [] if index < quick else [pytest.mark.rest] if index < 2 * quick else [pytest.mark.slow]
        result.append(pytest.param(*row, id=name, marks=marks))
    return result


@pytest.mark.parametrize(("name", "steps", "expected"), mark_all_but_quick(WORKLOAD_HASHES, 4))
def test_workload_schedule_has_the_recorded_hash(name: str, steps: int, expected: str) -> None:
    assert hash_of_workload(name, steps) == expected


@pytest.mark.parametrize(("running", "gap", "arrivals", "expected"), mark_all_but_quick(LOAD_HASHES, 2))
def test_benchmark_load_schedule_has_the_recorded_hash(
    running: int, gap: int, arrivals: int, expected: str
) -> None:
    assert hash_of_load(running, gap, arrivals) == expected


@pytest.mark.parametrize(("kind", "seed", "events", "expected"), mark_all_but_quick(MACHINE_HASHES, 4))
def test_random_event_schedule_has_the_recorded_hash(
    kind: type[SchedulerMachine], seed: int, events: int, expected: str
) -> None:
    assert hash_of_machine(kind, seed, events) == expected
