"""What the books cost a step: counted for 64 running requests, recorded for the timeline, written once a second.

    python3 ci/run.py bench perf/bench_ledger.py

Counting is a copy of a step's counts, with every 32nd step the sums of 32. A batch is written by a thread of its
own, so its time is nobody's step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zinc_rt.ir.slot_record import RECORD
from zinc_rt.sched.plan import StepPlan
from zinc_rt.sched.step_trace import StepNumbers, StepTrace
from zinc_rt.sched.usage.ledger import RunnerCounts, StepKind, StepMade, UsageLedger
from zinc_rt.sched.usage.ledger_store import LedgerStore

RUNNING = 64
PAGES = {"full": 4096}


class Counted:
    """A ledger, and a step of 64 decodes, an equal share for each tenant."""

    def __init__(self, tenants: int) -> None:
        self.ledger = UsageLedger([f"tenant {number}" for number in range(tenants)], PAGES)
        self.made: StepMade = self.ledger.empty_step()
        for kind in (StepKind.DECODE_INPUTS, StepKind.TOKENS_GENERATED, StepKind.SLOT_STEPS):
            self.made.counts[kind, :RUNNING] = max(1, RUNNING // tenants)
        self.made.pages[0, -1] = PAGES["full"]
        self.runner = RunnerCounts()

    def step(self) -> None:
        self.runner = self.runner.after(RUNNING, RUNNING, RUNNING, 2_000_003)
        self.ledger.add(self.made, self.runner)


@pytest.mark.parametrize("tenants", [8, 64, 1000])
def test_a_step_is_counted(benchmark: Any, tenants: int) -> None:
    counted = Counted(tenants)
    if tenants <= RUNNING:
        benchmark.extra_info["limit_median_us"] = 8
    benchmark.pedantic(counted.step, rounds=200, iterations=32)  # each round has its share of the sums
    if tenants <= RUNNING:
        assert not counted.ledger.problems()


@pytest.mark.parametrize("slots", [64, 256])
def test_a_step_is_recorded(benchmark: Any, slots: int) -> None:
    trace, plan, records = StepTrace(["a"], slots, ["full"]), StepPlan(512, slots, 1), np.zeros(slots, RECORD)
    plan.tokens = plan.decodes = slots
    plan.slot[:slots] = range(slots)
    numbers = StepNumbers(1, 2, slots, slots, 0, slots, 0)
    benchmark(lambda: trace.record(plan, records, numbers, [1, 2, 3], [4], [5]))


def test_a_batch_is_written(benchmark: Any, tmp_path: Path) -> None:
    counted = Counted(8)
    store = LedgerStore(tmp_path / "usage.sqlite", {"m": counted.ledger}, period_s=3600)

    def batch() -> None:
        for _ in range(RUNNING):
            counted.step()
        assert store.settle()

    benchmark.extra_info["note"] = f"with {RUNNING} steps counted"
    benchmark.pedantic(batch, rounds=50)
    store.close()
