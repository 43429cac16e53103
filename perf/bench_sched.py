"""Measure the host time of a step of the scheduler and of the usage ledger, over a runner that computes nothing.

python3 ci/run.py bench perf/bench_sched.py [-k TestSched|TestLedger]

sched   a step with tenants, classes, prefix cache and ledger on. Requests are made, and their pages hashed,
        where they are submitted, which is not timed: a server's front end does that. The peer is continuous
        batching without any policy (PlainBatcher), under the same load; the ratio is in `extra_info`. A step
        waits for nothing, so the processor time of this thread is measured.
ledger  counting a step of 64 running requests, recording it for the timeline, writing a batch to disk. Counting
        copies a step's counts, and every 32nd step sums 32 of them. A batch is written by another thread, so
        its time is not part of a step.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zinc_rt.ir.slot_record import RECORD
from zinc_rt.sched.kv.kv_cache import KvCache, PageGroup
from zinc_rt.sched.kv.pages import PageQuota
from zinc_rt.sched.kv.prefix import make_namespace
from zinc_rt.sched.plan import Drawn, StepPlan
from zinc_rt.sched.sampling import Sampling
from zinc_rt.sched.scheduler import NewRequest, Scheduler, SchedulerLimits
from zinc_rt.sched.step_trace import StepNumbers, StepTrace
from zinc_rt.sched.tenant import Priority, Tenant
from zinc_rt.sched.usage.ledger import DrawnTokens, RunnerCounts, StepKind, StepUsage, UsageLedger
from zinc_rt.sched.usage.ledger_store import LedgerStore

PAGE, CTX, PROMPT, STEP_TOKENS = 16, 4096, 512, 1024
TENANTS = [
    Tenant("desk", Priority.INTERACTIVE, slots_guaranteed=2, pages=(PageQuota(64),)),
    Tenant("phone", Priority.INTERACTIVE, weight=2.0),
    *(Tenant(f"team{index}", weight=1.0 + index) for index in range(4)),
    Tenant("night", Priority.BATCH),
    Tenant("archive", Priority.BATCH, decode=(1_000_000, 1_000_000)),
]
NOT_REAL = f"a runner that computes nothing; a step has {STEP_TOKENS} tokens (default 512)"
ROUNDS = 300


class IdleRunner:
    """Returns the same token for every request, immediately."""

    def __init__(self) -> None:
        self.counts = RunnerCounts()
        self.states = np.empty(0)  # of the slots' records
        self._tokens, self._finite = np.full(4096, 7, np.int32), np.full(4096, -1, np.int32)

    def submit(self, plan: StepPlan) -> StepPlan:
        return plan

    def collect(self, handle: object) -> Drawn:
        assert isinstance(handle, StepPlan)
        rows = handle.rows
        self.counts = self.counts.after(handle.tokens, rows, int(np.count_nonzero(self.states)), 1000)
        return Drawn(self._tokens[:rows], self._finite[:rows])

    def reopen(self) -> bool:
        return False


@dataclass(slots=True, eq=False)
class PlainSequence:
    tokens: list[int]
    prompt: int
    limit: int
    blocks: list[int] = field(default_factory=list)
    computed: int = 0


class PlainBatcher:
    """Continuous batching in its smallest form, of nano-vllm's shape (schedule, run, postprocess).

    It has a queue, a list of running sequences, and a block table per sequence, all Python objects. With one
    tenant and no classes, prefix cache or ledger, it shows the cost of a step without policy. `step` prepares the
    input of a model: token ids, positions, and the locations of keys and values.
    """

    def __init__(self, slots: int, blocks: int, block_tokens: int, step_tokens: int) -> None:
        self.slots, self.block_tokens, self.step_tokens = slots, block_tokens, step_tokens
        self.free = deque(range(blocks))
        self.waiting: deque[PlainSequence] = deque()
        self.running: deque[PlainSequence] = deque()

    def add(self, sequence: PlainSequence) -> None:
        self.waiting.append(sequence)

    def step(self) -> int:
        """Run a step and return the number of tokens computed."""
        scheduled, prefill = self.schedule()
        inputs = self.prepare(scheduled, prefill)
        self.postprocess(scheduled, [7] * len(scheduled))
        return len(inputs[0])

    def schedule(self) -> tuple[list[PlainSequence], bool]:
        """Schedule complete prompts first; if there are none, one token of every running sequence."""
        scheduled: list[PlainSequence] = []
        tokens = 0
        while self.waiting and len(self.running) < self.slots:
            sequence = self.waiting[0]
            needed = -(-len(sequence.tokens) // self.block_tokens)
            if tokens + len(sequence.tokens) > self.step_tokens or len(self.free) < needed:
                break
            tokens += len(sequence.tokens)
            sequence.blocks = [self.free.popleft() for _ in range(needed)]
            self.running.append(self.waiting.popleft())
            scheduled.append(sequence)
        if scheduled:
            return scheduled, True
        while self.running and len(scheduled) < self.slots:
            sequence = self.running.popleft()
            while len(sequence.blocks) * self.block_tokens < len(sequence.tokens) and not self.free:
                self.preempt(self.running.pop() if self.running else sequence)
            if len(sequence.blocks) * self.block_tokens < len(sequence.tokens):
                sequence.blocks.append(self.free.popleft())
            scheduled.append(sequence)
        self.running.extendleft(reversed(scheduled))
        return scheduled, False

    def preempt(self, sequence: PlainSequence) -> None:
        self.free.extend(sequence.blocks)
        sequence.blocks.clear()
        self.waiting.appendleft(sequence)

    def prepare(self, scheduled: list[PlainSequence], prefill: bool) -> tuple[list[int], list[int], list[int]]:
        """Build the step's input as lists."""
        ids: list[int] = []
        positions: list[int] = []
        places: list[int] = []
        size = self.block_tokens
        for sequence in scheduled:
            last = len(sequence.tokens) - 1
            if prefill:
                ids += sequence.tokens
                positions += range(last + 1)
                for index, block in enumerate(sequence.blocks):
                    places += range(block * size, block * size + min(size, last + 1 - index * size))
            else:
                ids.append(sequence.tokens[-1])
                positions.append(last)
                places.append(sequence.blocks[-1] * size + last % size)
        return ids, positions, places

    def postprocess(self, scheduled: list[PlainSequence], drawn: list[int]) -> None:
        for sequence, token in zip(scheduled, drawn, strict=True):
            sequence.tokens.append(token)
            if len(sequence.tokens) - sequence.prompt >= sequence.limit:
                self.running.remove(sequence)
                self.free.extend(sequence.blocks)


class SchedulerLoad:
    """`running` requests, one of which ends and is replaced every `gap` steps, and `waiting` requests without a
    slot.
    """

    def __init__(self, running: int, gap: int, waiting: int = 0) -> None:
        self.gap, self.number, self.lives = gap, 0, running * gap
        pages = running * (-(-(PROMPT + self.lives) // PAGE) + 1) + 4096
        self.cache = KvCache((PageGroup("full", pages),), PAGE, STEP_TOKENS)
        self.runner, self.clock = IdleRunner(), 0
        ledger = UsageLedger([tenant.name for tenant in TENANTS], {"full": pages})
        limits = SchedulerLimits(running, CTX, STEP_TOKENS)
        self.scheduler = Scheduler(limits, TENANTS, self.cache, self.runner, self.now, ledger=ledger)
        self.runner.states = self.scheduler.records["state"]
        self.spaces = [make_namespace("m", "canonical-1", "f32", PAGE) for _ in TENANTS]
        self.random = np.random.default_rng(5)
        for index in range(running):
            self.arrive(limit=max(1, (index + 1) * gap))
            self.scheduler.step()
        while self.scheduler.prefilling:
            self.scheduler.step()
        for _ in range(waiting):
            self.arrive(limit=self.lives)
        self.scheduler.step()

    def now(self) -> int:
        self.clock += 10_000
        return self.clock

    def arrive(self, limit: int | None = None) -> None:
        tenant = self.number % len(TENANTS)
        self.number += 1
        tokens = self.random.integers(0, 30_000, PROMPT, np.int32)
        sampling = Sampling(max(1, limit or self.lives), seed=self.number)
        self.scheduler.submit(
            NewRequest(self.number, tenant, tokens, self.spaces[tenant], sampling, end_tokens=frozenset({2, 3}))
        )

    def steps(self) -> None:
        for _ in range(self.gap):
            self.scheduler.step()


class PlainLoad:
    """The same load, for the loop without policy."""

    def __init__(self, running: int, gap: int) -> None:
        self.gap, self.lives = gap, running * gap
        blocks = running * (-(-(PROMPT + self.lives) // PAGE) + 1) + 4096
        self.batcher = PlainBatcher(running, blocks, PAGE, STEP_TOKENS)
        for index in range(running):
            self.arrive(max(1, (index + 1) * gap))
            self.batcher.step()

    def arrive(self, limit: int | None = None) -> None:
        self.batcher.add(PlainSequence([1] * PROMPT, PROMPT, max(1, limit or self.lives)))

    def steps(self) -> None:
        for _ in range(self.gap):
            self.batcher.step()


def measure_step(load: SchedulerLoad | PlainLoad, rounds: int = ROUNDS) -> float:
    """Return the median over rounds of `gap` steps, the first of which contains an arrival."""
    times = []
    for _ in range(rounds):
        load.arrive()
        start = time.thread_time()
        load.steps()
        times.append(time.thread_time() - start)
    return statistics.median(times) / load.gap


def time_load(
    benchmark: Any, load: SchedulerLoad, steps: Callable[[], None], rounds: int = ROUNDS
) -> float | None:
    """Return the benchmark's median per step in microseconds, or None if benchmarks are disabled."""
    benchmark.pedantic(steps, setup=lambda: load.arrive(), rounds=rounds, warmup_rounds=20)
    return None if benchmark.stats is None else benchmark.stats.stats.median / load.gap * 1e6


class TestSched:
    @pytest.mark.benchmark(timer=time.thread_time)
    @pytest.mark.parametrize(
        ("running", "gap", "limit_us"), [(16, 8, None), (64, 8, 82), (256, 8, 250), (64, 1, 130)],
        ids=["16-running", "64-running", "256-running", "64-running-one-arrival-each-step"],
    )  # fmt: skip
    def test_a_step(self, benchmark: Any, running: int, gap: int, limit_us: float | None) -> None:
        load = SchedulerLoad(running, gap)
        benchmark.extra_info.update(running=running, steps_an_arrival=gap, not_real=NOT_REAL)
        if limit_us is not None:
            benchmark.extra_info.update(limit_median_us=limit_us * gap)  # a round is `gap` steps
        median_us = time_load(benchmark, load, load.steps)
        if median_us is not None:
            plain_us = measure_step(PlainLoad(running, gap)) * 1e6
            benchmark.extra_info.update(step_us=median_us, plain_us=plain_us, ratio=median_us / plain_us)
            ratio = median_us / plain_us
            print(f"\n{running} running: {median_us:.1f} us a step, {plain_us:.1f} without policy: {ratio:.2f}x")
            assert limit_us is None or median_us <= limit_us, f"{median_us:.1f} us median, limit {limit_us} us"

    @pytest.mark.benchmark(timer=time.thread_time)
    def test_four_times_as_many_cost_three_times_as_much_at_most(self, benchmark: Any) -> None:
        few, many = SchedulerLoad(64, 8), SchedulerLoad(256, 8)
        few_us = measure_step(few) * 1e6
        many_us = time_load(benchmark, many, many.steps)
        if many_us is not None:
            benchmark.extra_info.update(ratio=many_us / few_us, limit_ratio=3.0, not_real=NOT_REAL)
            print(f"\n64 running {few_us:.1f} us, 256 running {many_us:.1f}: {many_us / few_us:.2f}x")
            assert many_us <= 3.0 * few_us

    @pytest.mark.benchmark(timer=time.thread_time)
    def test_a_thousand_times_as_many_waiting_cost_a_fifth_more_at_most(self, benchmark: Any) -> None:
        few, many = SchedulerLoad(64, 8, waiting=10), SchedulerLoad(64, 8, waiting=10_000)
        few_us = measure_step(few) * 1e6
        many_us = time_load(benchmark, many, many.steps)
        if many_us is not None:
            benchmark.extra_info.update(ratio=many_us / few_us, limit_ratio=1.2, not_real=NOT_REAL)
            print(f"\n10 waiting {few_us:.1f} us, 10,000 waiting {many_us:.1f}: {many_us / few_us:.2f}x")
            assert many_us <= 1.2 * few_us


RUNNING = 64
PAGES = {"full": 4096}


class CountingLoad:
    """A ledger and a step of 64 decodes, distributed equally over the tenants."""

    def __init__(self, tenants: int) -> None:
        self.ledger = UsageLedger([f"tenant {number}" for number in range(tenants)], PAGES)
        self.generated: StepUsage = self.ledger.clear_step()
        for kind in (StepKind.DECODE_INPUTS, StepKind.TOKENS_GENERATED, StepKind.SLOT_STEPS):
            self.generated.counts[kind, :RUNNING] = max(1, RUNNING // tenants)
        self.generated.pages[0, -1] = PAGES["full"]
        gaps_ns = np.random.default_rng(1).integers(2_000_000, 3_000_000, RUNNING)
        self.generated.drawn = DrawnTokens(np.arange(RUNNING) % tenants, np.ones(RUNNING, bool), gaps_ns)
        self.runner = RunnerCounts()

    def step(self) -> None:
        self.runner = self.runner.after(RUNNING, RUNNING, RUNNING, 2_000_003)
        self.ledger.add(self.generated, self.runner)


class TestLedger:
    @pytest.mark.parametrize("tenants", [8, 64, 1000])
    def test_a_step_is_counted(self, benchmark: Any, tenants: int) -> None:
        counted = CountingLoad(tenants)
        if tenants <= RUNNING:
            benchmark.extra_info["limit_median_us"] = 8
        benchmark.pedantic(counted.step, rounds=200, iterations=32)  # each round has its share of the sums
        if tenants <= RUNNING:
            assert not counted.ledger.find_problems()

    @pytest.mark.parametrize("slots", [64, 256])
    def test_a_step_is_recorded(self, benchmark: Any, slots: int) -> None:
        trace, plan, records = StepTrace(["a"], slots, ["full"]), StepPlan(512, slots, 1), np.zeros(slots, RECORD)
        plan.tokens = plan.decodes = slots
        plan.slot[:slots] = range(slots)
        numbers = StepNumbers(1, 2, slots, slots, 0, slots, 0)
        benchmark(lambda: trace.record(plan, records, numbers, [1, 2, 3], [4], [5]))

    def test_a_batch_is_written(self, benchmark: Any, tmp_path: Path) -> None:
        counted = CountingLoad(8)
        store = LedgerStore(tmp_path / "usage.sqlite", {"m": counted.ledger}, period_s=3600)

        def batch() -> None:
            for _ in range(RUNNING):
                counted.step()
            assert store.settle()

        benchmark.extra_info["note"] = f"with {RUNNING} steps counted"
        benchmark.pedantic(batch, rounds=50)
        store.close()
