"""Vulkan on this machine's device: a decode step beside T-CPU's, and what replays and recording cost the host.

    python3 ci/run.py bench perf/bench_vulkan.py

Qwen 3 0.6 B's shape in Q8_0 with random weights (synthetic.py). Both tiers decode in turns, the medians are
compared. On a driver in software (lavapipe) a time is the software's: the ratio to T-CPU is what counts there, and
no speed is a GPU's. T-CPU has as many threads as lavapipe.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import pytest

from zinc_rt.backends import registry
from zinc_rt.backends.vulkan.backend import VulkanBackend
from zinc_rt.backends.vulkan.executable import VulkanExecutable
from zinc_rt.engine.devices import Choice, choose_tier, open_backend
from zinc_rt.engine.engine import Engine
from zinc_rt.errors import ZincError
from zinc_rt.exec import Stream
from zinc_rt.host.machine import available_cores
from zinc_rt.model.gguf import GGUFFile, read_gguf
from zinc_rt.perf.synthetic import cached

MODEL = "qwen3-0.6b-q8_0"
CTX = 256
STEPS = 10
ORACLE_RATIO = 1.5  # T-CPU's seconds a token over lavapipe's, at least
REPLAY_US = 50.0
REPLAY_SHARE = 0.01  # of the step
RECORD_SECONDS = 0.020


class HostCost:
    """Times what the host spends in a backend's `submit`, and keeps what was submitted last."""

    def __init__(self, backend: VulkanBackend) -> None:
        self.seconds: list[float] = []
        self.executable: VulkanExecutable | None = None
        self._submit = backend.submit
        backend.submit = self  # type: ignore[method-assign]

    def __call__(self, executable: VulkanExecutable, stream: Stream) -> Any:
        started = time.perf_counter()
        fence = self._submit(executable, stream)
        self.seconds.append(time.perf_counter() - started)
        self.executable = executable
        return fence


@dataclass
class Turns:
    """Steps of one token: seconds on the wall, and of this process on all cores. A busy machine stretches only the
    first."""

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)

    def take(self, engine: Engine, sequence: Any) -> None:
        before = time.process_time()
        self.seconds += decode(engine, sequence, 1)
        self.cpu_seconds.append(time.process_time() - before)


@pytest.fixture(scope="module")
def choice() -> Choice:
    """Where no device runs models, nothing is measured, and no model is made."""
    try:
        return choose_tier("vulkan")
    except ZincError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def gguf(choice: Choice) -> GGUFFile:
    return read_gguf(cached(MODEL))


@pytest.fixture(scope="module")
def engine(choice: Choice, gguf: GGUFFile) -> Iterator[Engine]:
    backend = open_backend(choice, "canonical-1")
    with Engine(gguf, backend, ctx=CTX) as made:
        sequence = made.open()
        decode(made, sequence, 2)  # every variant is built, every kernel compiled
        made.release(sequence)
        yield made


def decode(engine: Engine, sequence: Any, count: int) -> list[float]:
    """Seconds of each of so many steps of one token."""
    token, taken = 1, []
    for _ in range(count):
        started = time.perf_counter()
        token = int(engine.advance([(sequence, [token])], [0]).tokens[0])
        taken.append(time.perf_counter() - started)
    return taken


def test_decode_step(benchmark: Any, gguf: GGUFFile, engine: Engine) -> None:
    """The ratio is its seconds over T-CPU's."""
    oracle = open_backend(choose_tier(registry.ORACLE), "canonical-1", threads=available_cores())
    with Engine(gguf, oracle, ctx=CTX) as beside:
        ours, theirs = engine.open(), beside.open()
        decode(beside, theirs, 1)
        mine, peer = Turns(), Turns()
        benchmark.pedantic(lambda: mine.take(engine, ours), setup=lambda: peer.take(beside, theirs), rounds=STEPS)
        engine.release(ours)
    longer = median(peer.seconds) / median(mine.seconds)
    benchmark.extra_info.update(
        ratio=round(1 / longer, 3),
        limit_ratio=round(1 / ORACLE_RATIO, 3),
        peer=f"T-CPU's {median(peer.seconds):.2f} s in turns, {longer:.2f} times as long; of all cores "
        f"{median(peer.cpu_seconds):.2f} s beside {median(mine.cpu_seconds):.2f} s",
        note=_device(engine),
    )


def test_host_cost_of_a_replay(benchmark: Any, engine: Engine) -> None:
    """What vkQueueSubmit and what is around it take of the host, inside decode steps."""
    backend = engine.backend
    assert isinstance(backend, VulkanBackend)
    submitted = HostCost(backend)
    sequence = engine.open()
    steps = decode(engine, sequence, STEPS)
    backend.submit = submitted._submit  # type: ignore[method-assign]
    engine.release(sequence)
    share = median(submitted.seconds) / median(steps)
    assert submitted.executable is not None
    executable, stream = submitted.executable, Stream("replays")
    fences = []

    def replay() -> None:
        fences.append(backend.submit(executable, stream))

    def settle() -> None:
        if fences:
            backend.wait(fences[-1], 600.0)

    benchmark.pedantic(replay, setup=settle, rounds=STEPS)
    settle()
    benchmark.extra_info.update(
        limit_median_us=REPLAY_US,
        ratio=round(share, 5),
        note=f"{share:.3%} of the step it begins, at most {REPLAY_SHARE:.0%}; {_device(engine)}",
    )
    if benchmark.stats is not None:
        assert share <= REPLAY_SHARE


def test_recording_a_step(benchmark: Any, engine: Engine) -> None:
    """The decode graph's command buffer; its pipelines are there."""
    backend = engine.backend
    assert isinstance(backend, VulkanBackend)
    recorded = HostCost(backend)
    sequence = engine.open()
    decode(engine, sequence, 1)
    backend.submit = recorded._submit  # type: ignore[method-assign]
    engine.release(sequence)
    executable = recorded.executable
    assert executable is not None
    builder, plan, block = backend.builder, executable.plan, executable.block

    def record() -> None:
        builder.pool.free(builder.record(plan, block))

    benchmark.pedantic(record, rounds=20, warmup_rounds=2)
    count = sum(1 for _ in executable.plan.dispatches)
    benchmark.extra_info.update(limit_seconds=RECORD_SECONDS, note=f"{count} dispatches; {_device(engine)}")


def _device(engine: Engine) -> str:
    device = engine.backend.device
    return f"{device.profile}{', software: no GPU speed' if device.software else ''}"
