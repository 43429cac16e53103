"""A step runner that fails on demand, put between a served model's scheduler and its device."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from zinc_rt.exec import DeadlineMissed
from zinc_rt.sched.plan import Drawn, StepPlan
from zinc_rt.sched.usage.ledger import RunnerCounts
from zinc_rt.serve.engine.served_model import ServedModel
from zinc_rt.serve.engine.server import InferenceServer


class FaultyRunner:
    """The model's own runner, but for what a test plants: `fails`, whether a step of that number, with those in
    it (their records), does not come back; `comes_back`, whether the device does after that; `nan`, whose logits
    are no numbers; `seconds`, how much longer each step takes. `seen`: the requests of each step."""

    def __init__(self, model: ServedModel) -> None:
        self.model, self.real = model, model.core.scheduler.runner
        self.fails: Callable[[int, np.ndarray], bool] = lambda step, records: False
        self.comes_back = True
        self.nan: Callable[[np.void], bool] = lambda record: False
        self.seconds = 0.0
        self.steps = self.reopened = 0
        self.seen: list[set[int]] = []

    @property
    def counts(self) -> RunnerCounts:
        return self.real.counts

    def submit(self, plan: StepPlan) -> Any:
        return plan, self.real.submit(plan)

    def collect(self, handle: Any) -> Drawn:
        plan, running = handle
        records = self.model.core.scheduler.records
        record = records[np.unique(plan.slot[: plan.tokens])]
        self.steps += 1
        self.seen.append(set(record["request"].tolist()))
        time.sleep(self.seconds)
        if self.fails(self.steps, record):
            raise DeadlineMissed("the step did not finish")
        drawn = self.real.collect(running)
        for row, slot in enumerate(plan.row_slot[: plan.rows].tolist()):
            if self.nan(records[slot]):
                drawn.nonfinite[row] = 7
        return drawn

    def reopen(self) -> bool:
        self.reopened += 1
        return self.comes_back and self.real.reopen()


async def plant_runner(server: InferenceServer, model: str) -> FaultyRunner:
    """Switch between two steps, so that no step runs partly on the real runner."""
    served = server.model(model)
    faulty = FaultyRunner(served)

    def replace_runner() -> None:
        served.core.scheduler.runner = faulty

    await server.call(replace_runner)
    return faulty
