"""Measure tiers on models of a real shape, and the underlying arithmetic and thread pool.

    python3 ci/run.py bench perf/bench_models.py [-k TestModel|TestTiers|TestVulkan|TestArithmetic|TestNativePool]

    model        the oracle (T-CPU) on a whole model of Qwen 3 0.6 B's shape, Q8_0, random weights. T-CPU is the
                 oracle, not an inference engine: the figures are the cost of validating a real model.
    tiers        simulated T1 at each level of its sanitizer, and T-CPU on the same model in the same run, so that
                 the quotient of the two survives a change of machine. They say nothing about hardware.
    vulkan       a decode step of this machine's Vulkan device in turns with T-CPU's, and the host's cost of
                 replays and recording. On a software driver (lavapipe) only the ratio to T-CPU counts, and no
                 speed is a GPU's. T-CPU has as many threads as lavapipe.
    arithmetic   the oracle's projections and attention at Qwen3-0.6B's shapes, per ordering. The weights are
                 random Q8_0 bytes.
    native_pool  more threads than CPUs: a program of 340 tasks by four threads pinned to one CPU, against one
                 thread there. Progress is counted in items, never in threads that arrive: a thread that the system
                 does not run delays the others only where it was stopped inside a claim. A barrier that waits for
                 arriving threads costs a time slice a task here.

Limits are in `extra_info`.
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

from zinc_rt.backends import registry
from zinc_rt.backends.cpu.host_memory import allocate_aligned
from zinc_rt.backends.cpu.library import Library, build_library
from zinc_rt.backends.cpu.oracle import CpuBackend
from zinc_rt.backends.cpu.tasks import LINE_BYTES, TASK, TaskListStruct
from zinc_rt.backends.cpu.threads import HelperThreads
from zinc_rt.backends.vulkan.backend import VulkanBackend
from zinc_rt.backends.vulkan.executable import VulkanExecutable
from zinc_rt.engine.devices import SANITIZERS, Choice, choose_tier, count_available_cores, open_backend
from zinc_rt.engine.engine import Engine
from zinc_rt.exec import Stream
from zinc_rt.host.errors import UnsupportedError, ZincError
from zinc_rt.kernels.native.task import ANY
from zinc_rt.kernels.reference.arithmetic import ORDERINGS, Arithmetic, arithmetic
from zinc_rt.kernels.weight import Weight
from zinc_rt.model.gguf import GGUFFile, read_gguf
from zinc_rt.perf.synthetic import SHAPES, open_cached, write_synthetic

MODEL = "qwen3-0.6b-q8_0"
PROMPT = list(range(1, 129))
CTX = 512


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_synthetic(tmp_path_factory.mktemp("model") / "model.gguf", SHAPES[MODEL])


def time_command(benchmark: Any, argv: Sequence[str], **options: Any) -> None:
    how = {"check": True, "stdout": subprocess.DEVNULL, "env": options.pop("env", None)}
    benchmark.pedantic(subprocess.run, ([sys.executable, "-m", "zinc_rt.cli", *argv],), how, **options)


def note_engine(benchmark: Any, engine: Engine, **limits: object) -> None:
    benchmark.extra_info.update(
        ordering=engine.backend.ordering,
        cores=count_available_cores(),
        machine=engine.backend.device.name,
        peak_rss_mib=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        **limits,
    )


class TestModel:
    @pytest.fixture(params=ORDERINGS)
    def engine(self, request: pytest.FixtureRequest, model: Path) -> Iterator[Engine]:
        with Engine(
            read_gguf(model), CpuBackend(request.param, threads=count_available_cores()), ctx=CTX
        ) as opened:
            yield opened

    def test_decode_one_token(self, benchmark: Any, engine: Engine) -> None:
        request = engine.open()
        engine.extend(request, PROMPT[:4], rows="last")
        benchmark.pedantic(engine.extend, (request, [5]), {"rows": "last"}, rounds=5, warmup_rounds=1)
        note_engine(benchmark, engine, limit_seconds=2.0 if engine.backend.ordering == "canonical-1" else None)

    def test_prefill_128_tokens(self, benchmark: Any, engine: Engine) -> None:
        benchmark.pedantic(engine.forward, (PROMPT,), {"rows": "last"}, rounds=1, warmup_rounds=0)
        note_engine(
            benchmark,
            engine,
            limit_seconds={"canonical-1": 150.0, "float32-dequant": 12.0}.get(engine.backend.ordering),
        )

    def test_validate_the_embedded_models(self, benchmark: Any) -> None:
        time_command(benchmark, ["validate", "--tiers", "t_cpu", "--no-cache"], rounds=3)
        benchmark.extra_info.update(limit_seconds=60.0)

    @pytest.mark.parametrize("command", ["", "validate", "run", "inspect", "logits", "tokenize", "golden"])
    def test_help(self, benchmark: Any, command: str) -> None:
        time_command(benchmark, [*command.split(), "--help"], rounds=5)
        benchmark.extra_info.update(limit_seconds=0.5)


ORDERING = "canonical-1"
PLACES = ("t_cpu", *(f"t1 {level}" for level in SANITIZERS))
LIMIT_SECONDS = {"t1 fast": 0.6}  # a token
VALIDATE = ("validate", "--device", "sim", "--tiers", "t1,t2,t_cpu")


def note_limit(benchmark: Any, *, limit_seconds: float | None) -> None:
    benchmark.extra_info.update(cores=count_available_cores(), ordering=ORDERING, limit_seconds=limit_seconds)


class TestTiers:
    @pytest.fixture(params=PLACES)
    def engine(self, request: pytest.FixtureRequest, model: Path) -> Iterator[Engine]:
        tier, _, level = request.param.partition(" ")
        choice = choose_tier(tier, "sim", sanitizer=level) if level else choose_tier(tier)
        with Engine(read_gguf(model), open_backend(choice, ORDERING), ctx=CTX) as opened:
            yield opened

    def test_decode_one_token(self, benchmark: Any, engine: Engine, request: pytest.FixtureRequest) -> None:
        location = request.node.callspec.params["engine"]
        sequence = engine.open()
        engine.extend(sequence, [1, 2, 3, 4], rows="last")
        benchmark.pedantic(engine.extend, (sequence, [5]), {"rows": "last"}, rounds=9, warmup_rounds=2)
        note_limit(benchmark, limit_seconds=LIMIT_SECONDS.get(location))
        if benchmark.stats:
            benchmark.extra_info["tokens_per_second"] = round(1 / benchmark.stats.stats.median, 2)

    @pytest.mark.parametrize(("kernels", "rounds"), [("cold", 1), ("warm", 3)])
    def test_validate_the_embedded_models(self, benchmark: Any, tmp_path: Path, kernels: str, rounds: int) -> None:
        """A cold run: with empty caches, so that every kernel is translated and compiled, and every oracle result
        computed.
        """
        environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
        time_command(benchmark, VALIDATE, env=environment, rounds=rounds, warmup_rounds=int(kernels == "warm"))
        note_limit(benchmark, limit_seconds={"cold": 60.0, "warm": 20.0}[kernels])


VULKAN_CTX = 256
STEPS = 10
ORACLE_RATIO = 1.5  # T-CPU's seconds a token over lavapipe's, at least
REPLAY_US = 50.0
REPLAY_SHARE = 0.01  # of the step
RECORD_SECONDS = 0.020


class HostCost:
    """Times a backend's `submit` on the host, and keeps the last submission."""

    def __init__(self, backend: VulkanBackend) -> None:
        self.seconds: list[float] = []
        self.executable: VulkanExecutable | None = None
        self._submit = backend.submit
        self._backend = backend
        backend.submit = self  # type: ignore[method-assign]

    def stop(self) -> None:
        self._backend.submit = self._submit  # type: ignore[method-assign]

    def __call__(self, executable: VulkanExecutable, stream: Stream) -> Any:
        started = time.perf_counter()
        fence = self._submit(executable, stream)
        self.seconds.append(time.perf_counter() - started)
        self.executable = executable
        return fence


@dataclass
class Turns:
    """Steps of one token: wall-clock seconds, and CPU seconds of this process on all cores. A busy machine affects
    only the former.
    """

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)

    def take(self, engine: Engine, sequence: Any) -> None:
        before = time.process_time()
        self.seconds += decode_seconds(engine, sequence, 1)
        self.cpu_seconds.append(time.process_time() - before)


def decode_seconds(engine: Engine, sequence: Any, count: int) -> list[float]:
    """Return the seconds of each of `count` steps of one token."""
    token, taken = 1, []
    for _ in range(count):
        started = time.perf_counter()
        token = int(engine.advance([(sequence, [token])], [0]).tokens[0])
        taken.append(time.perf_counter() - started)
    return taken


def describe_device(engine: Engine) -> str:
    device = engine.backend.device
    return f"{device.profile}{', software: no GPU speed' if device.software else ''}"


class TestVulkan:
    @pytest.fixture(scope="module")
    @classmethod
    def choice(cls) -> Choice:
        """Choose the device. If no device can run models, skip without creating a model."""
        try:
            return choose_tier("vulkan")
        except ZincError as error:
            pytest.skip(str(error))

    @pytest.fixture(scope="module")
    @classmethod
    def gguf(cls, choice: Choice) -> GGUFFile:
        return read_gguf(open_cached(MODEL))

    @pytest.fixture(scope="module")
    @classmethod
    def engine(cls, choice: Choice, gguf: GGUFFile) -> Iterator[Engine]:
        backend = open_backend(choice, "canonical-1")
        with Engine(gguf, backend, ctx=VULKAN_CTX) as opened:
            sequence = opened.open()
            decode_seconds(opened, sequence, 2)  # every variant is built, every kernel compiled
            opened.release(sequence)
            yield opened

    def test_decode_step(self, benchmark: Any, gguf: GGUFFile, engine: Engine) -> None:
        """Measure a decode step. The ratio is its seconds over T-CPU's."""
        oracle = open_backend(choose_tier(registry.ORACLE), "canonical-1", threads=count_available_cores())
        with Engine(gguf, oracle, ctx=VULKAN_CTX) as beside:
            ours, theirs = engine.open(), beside.open()
            decode_seconds(beside, theirs, 1)
            mine, peer = Turns(), Turns()
            benchmark.pedantic(
                lambda: mine.take(engine, ours), setup=lambda: peer.take(beside, theirs), rounds=STEPS
            )
            engine.release(ours)
        longer = median(peer.seconds) / median(mine.seconds)
        benchmark.extra_info.update(
            ratio=round(1 / longer, 3),
            limit_ratio=round(1 / ORACLE_RATIO, 3),
            peer=f"T-CPU's {median(peer.seconds):.2f} s in turns, {longer:.2f} times as long; of all cores "
            f"{median(peer.cpu_seconds):.2f} s beside {median(mine.cpu_seconds):.2f} s",
            note=describe_device(engine),
        )

    def test_host_cost_of_a_replay(self, benchmark: Any, engine: Engine) -> None:
        """Measure the host time of vkQueueSubmit and the surrounding code within decode steps."""
        backend = engine.backend
        assert isinstance(backend, VulkanBackend)
        submitted = HostCost(backend)
        sequence = engine.open()
        steps = decode_seconds(engine, sequence, STEPS)
        submitted.stop()
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
            note=f"{share:.3%} of the step it begins, at most {REPLAY_SHARE:.0%}; {describe_device(engine)}",
        )
        if benchmark.stats is not None:
            assert share <= REPLAY_SHARE

    def test_recording_a_step(self, benchmark: Any, engine: Engine) -> None:
        """Measure recording the decode graph's command buffer, with its pipelines already built."""
        backend = engine.backend
        assert isinstance(backend, VulkanBackend)
        recorded = HostCost(backend)
        sequence = engine.open()
        decode_seconds(engine, sequence, 1)
        recorded.stop()
        engine.release(sequence)
        executable = recorded.executable
        assert executable is not None
        builder, plan, block = backend.builder, executable.plan, executable.block

        def record() -> None:
            builder.pool.free(builder.record(plan, block))

        benchmark.pedantic(record, rounds=20, warmup_rounds=2)
        count = sum(1 for _ in executable.plan.dispatches)
        benchmark.extra_info.update(
            limit_seconds=RECORD_SECONDS, note=f"{count} dispatches; {describe_device(engine)}"
        )


HEADS, KV_HEADS, HEAD_DIM = 16, 8, 128
VOCABULARY, WIDTH, FFN = 151_936, 1024, 3072
LAYER = (  # (out, in): q, k, v, o, gate, up, down
    (2048, WIDTH),
    (1024, WIDTH),
    (1024, WIDTH),
    (WIDTH, 2048),
    (FFN, WIDTH),
    (FFN, WIDTH),
    (WIDTH, FFN),
)
LAYER_WEIGHTS = sum(rows * k for rows, k in LAYER)


def q8_0(rows: int, k: int) -> Weight:
    blocks = np.random.default_rng(rows + k).integers(0, 256, (rows, k // 32, 34), dtype=np.uint8)
    blocks[..., :2] = np.array([0.002], np.float16).view(np.uint8)
    return Weight("q8_0", (rows, k), blocks.reshape(rows, -1))


def make_activations(tokens: int, k: int) -> np.ndarray:
    return np.random.default_rng(k).normal(size=(tokens, k)).astype(np.float32)


def make_layer(math: Arithmetic, tokens: int) -> Callable[[], None]:
    weights = [q8_0(*shape) for shape in LAYER]
    x = {k: make_activations(tokens, k) for k in (WIDTH, 2048, FFN)}

    def run() -> None:
        for weight in weights:
            math.linear(x[weight.shape[1]], weight)

    return run


def make_attention(math: Arithmetic, tokens: int, keys: int) -> Callable[[], None]:
    q = make_activations(tokens, HEADS * HEAD_DIM).reshape(tokens, HEADS, HEAD_DIM)
    kv = make_activations(keys, KV_HEADS * HEAD_DIM).reshape(keys, KV_HEADS, HEAD_DIM)
    mask = np.arange(keys) <= keys - tokens + np.arange(tokens)[:, None]

    def run() -> None:
        math.attention(q, kv, kv, mask, HEAD_DIM**-0.5)

    return run


class TestArithmetic:
    @pytest.mark.parametrize("tokens", [1, 128])
    @pytest.mark.parametrize("ordering", ORDERINGS)
    def test_projections_of_a_layer(self, benchmark: Any, ordering: str, tokens: int) -> None:
        benchmark.extra_info["weights"] = LAYER_WEIGHTS
        benchmark(make_layer(arithmetic(ordering), tokens))

    @pytest.mark.parametrize(("tokens", "keys"), [(1, 128), (1, 4096), (128, 128)])
    @pytest.mark.parametrize("ordering", ORDERINGS)
    def test_attention_of_a_layer(self, benchmark: Any, ordering: str, tokens: int, keys: int) -> None:
        benchmark(make_attention(arithmetic(ordering), tokens, keys))


TASKS, ROWS, COLUMNS = 340, 32, 2048  # as many tasks as a small model's token has, about 10 us each
POOL_LIMIT = 3.0
POOL_ROUNDS = 15


class PoolOfAdds:
    """y += x in `TASKS` tasks, each of which depends on the previous one."""

    def __init__(self, code: Library) -> None:
        self.x, self.y = (allocate_aligned(4 * ROWS * COLUMNS).view(np.float32) for _ in range(2))
        self.x[:] = 1
        x, y = self.x.ctypes.data, self.y.ctypes.data
        self.block = ctypes.create_string_buffer(struct.pack("<QQQI", y, x, y, COLUMNS))
        self.tasks, self.cells = (
            allocate_aligned(TASKS * TASK.itemsize).view(TASK),
            allocate_aligned(TASKS * LINE_BYTES),
        )
        self.tasks["run"], self.tasks["arguments"] = code.address("add"), ctypes.addressof(self.block)
        self.tasks["dims"], self.tasks["barrier"] = (1, ROWS, 1), 1
        self.tasks["least"], self.tasks["most"] = 1, ANY
        self.counts = allocate_aligned(LINE_BYTES)
        self.struct = TaskListStruct(
            self.tasks.ctypes.data, self.counts.ctypes.data, self.cells.ctypes.data, TASKS, 0
        )


class TestNativePool:
    @pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin threads")
    def test_four_threads_on_one_cpu(self, benchmark: Any) -> None:
        try:
            code = build_library()
        except UnsupportedError as error:
            pytest.skip(str(error))
        cpu = min(os.sched_getaffinity(0))
        seconds: dict[int, list[float]] = {1: [], 4: []}
        sums: list[float] = []

        def rounds() -> None:  # in a separate thread, because pinning lasts as long as the thread
            adds = PoolOfAdds(code)
            helpers = {threads: HelperThreads(code.handle, threads, (cpu,)) for threads in seconds}
            for _ in range(POOL_ROUNDS):
                for threads, taken in seconds.items():
                    start = time.perf_counter()
                    assert helpers[threads].run(adds.struct) == 0
                    taken.append(time.perf_counter() - start)
            sums.extend(map(float, adds.y))
            for helper in helpers.values():
                helper.close()

        def pinned() -> None:
            thread = threading.Thread(target=rounds)
            thread.start()
            thread.join()

        benchmark.pedantic(pinned, rounds=1)
        assert set(sums[: ROWS * COLUMNS]) == {2.0 * POOL_ROUNDS * TASKS}
        ratio = float(np.median(seconds[4]) / np.median(seconds[1]))
        benchmark.extra_info.update(ratio=ratio, limit_ratio=POOL_LIMIT, peer="one thread on that CPU")
        if benchmark.stats is not None:
            assert ratio <= POOL_LIMIT, f"four threads took {ratio:.2f} times as long"
