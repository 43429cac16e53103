"""What a step costs the host: the block filled, one write, one replay, one wait, the tokens read.

    python3 ci/run.py bench perf/bench_step.py

The backend completes at once, so what is timed is all ours. A model of tiny width has as many layers as a real
one: the cost must not depend on them. A fixed NumPy loop of the same run stands beside it, because a busy machine
makes both slower; where that loop is far slower than its own best, the limits are not judged (BLOCKED).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

from zinc_rt.backends import registry
from zinc_rt.backends.base import Device, Submissions
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.runner import Runner
from zinc_rt.exec import Buffer, Fence, Stream
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.kernels.sets import kernel_set
from zinc_rt.kernels.weight import Weight
from zinc_rt.lower import LoweredGraph
from zinc_rt.model.gguf import read_gguf
from zinc_rt.sched.plan import StepPlan

LIMIT_US = {1: 25.0, 64: 60.0}
# Engine.step at commit 567be3d with the same kind of backend, nine writes a step; 2 cores of an AMD EPYC. By
# sequences and layers.
BEFORE_US = {(1, 28): 59.8, (1, 64): 88.6, (64, 28): 230.6, (64, 64): 261.3}
SLOTS, CTX, START = 64, 256, 16
ROUNDS = 2000
BUSY = 1.5  # the NumPy loop's median over its best: above this somebody else is using the machine


class ReachedFence:
    """A fence that was reached before it was asked."""

    def __init__(self, value: int) -> None:
        self.value = value

    def done(self) -> bool:
        return True

    def wait(self, timeout_seconds: float) -> None: ...


class InstantBackend:
    """A Backend over plain memory that computes nothing and is done at once."""

    spec = registry.spec("t_cpu")
    device = Device("plain memory", "none")
    ordering = "canonical-1"
    kernels = kernel_set("numpy-reference")
    instrument = None

    def __init__(self) -> None:
        self.submitted = 0
        self.submissions = Submissions()

    def alloc(self, size_bytes: int, heap: str, name: str, *, zeroed: bool = True) -> Buffer:
        return Buffer(name, size_bytes, heap, storage=np.zeros(size_bytes, np.uint8))

    def free(self, buffer: Buffer) -> None:
        buffer.storage = None

    def write(self, buffer: Buffer, offset_bytes: int, data: memoryview) -> None:
        memoryview(buffer.storage)[offset_bytes : offset_bytes + data.nbytes] = data

    def read(self, buffer: Buffer, offset_bytes: int, size_bytes: int) -> memoryview:
        return memoryview(buffer.storage)[offset_bytes : offset_bytes + size_bytes]

    def fill(self, buffer: Buffer, offset_bytes: int, size_bytes: int, stream: Stream) -> Fence:
        return ReachedFence(0)

    def upload(self, weights: Mapping[str, Weight], constants: Mapping[str, np.ndarray]) -> dict[str, Buffer]:
        return {name: Buffer(name, 0, "device_local") for name in (*weights, *constants)}

    def build(self, program: LoweredGraph, buffers: Mapping[str, Buffer]) -> object:
        return object()

    def unload(self, executable: object) -> None: ...

    def submit(self, executable: object, stream: Stream) -> Fence:
        self.submitted += 1
        return ReachedFence(self.submitted)

    def wait(self, fence: Fence, timeout_seconds: float) -> None: ...

    def close(self) -> None: ...


def numpy_loop() -> None:
    """Some microseconds of small NumPy calls, always the same."""
    array = np.arange(64, dtype=np.int32)
    for _ in range(8):
        array = (array * 3 + 1) & 0xFFFF


def decode(
    runner: Runner, plan: StepPlan, tokens: np.ndarray, positions: np.ndarray, slots: np.ndarray
) -> np.ndarray:
    """One token for each sequence, fed with what the step before gave."""
    count = plan.tokens = plan.sequences = plan.rows = len(slots)
    plan.token_id[:count], plan.position[:count] = tokens, positions
    plan.slot[:count] = plan.sequence[:count] = plan.logit_row[:count] = slots
    return runner.collect(runner.submit(runner.fill(plan))).tokens


@pytest.mark.parametrize("layers", [28, 64])
@pytest.mark.parametrize("sequences", [1, 64])
def test_step(
    benchmark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], sequences: int, layers: int
) -> None:
    write_tiny(tmp_path / "model.gguf", "qwen3", hidden=32, layers=layers)
    with Engine(read_gguf(tmp_path / "model.gguf"), InstantBackend(), ctx=CTX, slots=SLOTS) as engine:  # type: ignore[arg-type]
        slots = np.arange(sequences, dtype=np.int32)
        positions = np.full(sequences, START, np.int32)
        tokens = np.zeros(sequences, np.int32)
        plan = StepPlan(SLOTS, SLOTS, 1)

        def step() -> None:
            nonlocal tokens, positions
            tokens = decode(engine.runner, plan, tokens, positions, slots)
            positions += 1

        for _ in range(200):
            step()
            numpy_loop()
        beside = []
        for _ in range(ROUNDS):
            started = time.perf_counter()
            numpy_loop()
            beside.append(time.perf_counter() - started)
        benchmark.pedantic(step, rounds=ROUNDS, warmup_rounds=10)
        benchmark.extra_info.update(
            layers=layers,
            sequences=sequences,
            before_median_us=BEFORE_US[sequences, layers],
            limit_median_us=LIMIT_US[sequences],
            numpy_loop_us=round(median(beside) * 1e6, 2),
            not_real="nothing is computed",
        )
    if benchmark.stats is None:  # benchmarks are switched off
        return
    median_us = benchmark.stats.stats.median * 1e6
    with capsys.disabled():
        print(
            f"\nsequences {sequences}, layers {layers}: {median_us:.1f} us a step, before "
            f"{BEFORE_US[sequences, layers]} us, limit {LIMIT_US[sequences]} us; "
            f"the NumPy loop beside it {median(beside) * 1e6:.1f} us; nothing is computed"
        )
    if median(beside) > BUSY * min(beside):
        pytest.skip(
            f"BLOCKED: the machine is busy, its NumPy loop takes {median(beside) / min(beside):.1f} times its best"
        )
    assert median_us <= LIMIT_US[sequences], f"{median_us:.1f} us median, limit {LIMIT_US[sequences]} us"
