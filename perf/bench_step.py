"""Measure the host time of a step: filling the block, replaying a graph, building packets. Nothing is computed.

python3 ci/run.py bench perf/bench_step.py [-k TestStep|TestExec|TestRing|TestPm4]

step   a decode step of the engine over a backend that completes at once. A model of tiny width has as many
       layers as a real one, because the cost must not depend on them. A fixed NumPy loop of the same run is
       the measure of how busy the machine is: where it is far slower than its own best, the limits are not
       judged (BLOCKED).
exec   replay and wait of a graph with many ports, over a launcher that does nothing. The ports' buffers share
       two usages, as a model's state and a variant's arena do, so the number of ports must not show.
ring   Graph.replay on tiers T1 and T2, for graphs of 64, 256 and 1,500 dispatches. The queue is plain memory:
       rptr and the fence are set to the values that a GPU would have left, between the timed calls, so the
       ring never fills and no replay is in flight. Uncached ring memory and a real doorbell cost more.
pm4    building a packet; decoding, linting and disassembling a stream. Building is the constructor and
       `words`, on the fields that a decode loop would set. The goal is 2 us a packet.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

from zinc_rt.backends import registry
from zinc_rt.backends.amd.backend import AmdBackend
from zinc_rt.backends.amd.kmd_side import Incident
from zinc_rt.backends.amd.options import AmdOptions
from zinc_rt.backends.amd.packet_list import PacketList
from zinc_rt.backends.base import Device, Submissions
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.runner import Runner
from zinc_rt.exec import Buffer, Fence, Graph, Stream, Usage
from zinc_rt.golden.tiny_models.writer import write_tiny
from zinc_rt.isa.target import DEFAULT_ARCH, make_default_target
from zinc_rt.kernels.sets import find_kernel_set
from zinc_rt.kernels.weight import Weight
from zinc_rt.kmd.driver import PROT_READ, PROT_WRITE
from zinc_rt.kmd.driver import Mapping as MappedMemory
from zinc_rt.kmd.resources import Ledger
from zinc_rt.kmd.transport import DeviceBuffer, Placement, Queue
from zinc_rt.lower import LoweredGraph
from zinc_rt.model.gguf import read_gguf
from zinc_rt.pm4 import Generation, Packet, Sh, decode_stream
from zinc_rt.pm4.disassemble import disassemble
from zinc_rt.pm4.lint import lint
from zinc_rt.pm4.packets import (
    PACKETS,
    AcquireMem,
    DispatchDirect,
    DispatchIndirect,
    EventWrite,
    HdpFlush,
    IndirectBuffer,
    Nop,
    ProtectedFenceSignal,
    ReleaseMem,
    SetShReg,
    WaitRegMem,
    WaitRegMem64,
    WriteData,
)
from zinc_rt.sched.plan import StepPlan

STEP_LIMIT_US = {1: 25.0, 64: 60.0}  # by sequences
# Engine.step at commit 567be3d with the same kind of backend, nine writes a step; 2 cores of an AMD EPYC. By
# sequences and layers.
BEFORE_US = {(1, 28): 59.8, (1, 64): 88.6, (64, 28): 230.6, (64, 64): 261.3}
SLOTS, CTX, START = 64, 256, 16
STEP_ROUNDS = 2000
BUSY = 1.5  # the NumPy loop's median over its best: above this another program is using the machine

REPLAY_LIMIT_US, RING_AIM_US = 5.0, 3.0
RING_ROUNDS = 5000
KEY = (1, 1, 1)
NO_LAUNCHER = "a launcher that does nothing"


def check_median(benchmark: Any, limit_us: float, of: str = "") -> None:
    if benchmark.stats is not None:  # None where benchmarks are switched off
        median_us = benchmark.stats.stats.median * 1e6
        assert median_us <= limit_us, f"{median_us:.2f} us median{of}, limit {limit_us} us"


class ReachedFence:
    """A fence that is already signalled."""

    def __init__(self, value: int = 1) -> None:
        self.value = value

    def done(self) -> bool:
        return True

    def wait(self, timeout_seconds: float) -> None: ...


class InstantBackend:
    """A Backend over plain memory that computes nothing and completes immediately."""

    spec = registry.spec("t_cpu")
    device = Device("plain memory", "none")
    ordering = "canonical-1"
    kernels = find_kernel_set("numpy-reference")
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


def run_numpy_loop() -> None:
    """Run a fixed sequence of small NumPy calls that takes some microseconds."""
    array = np.arange(64, dtype=np.int32)
    for _ in range(8):
        array = (array * 3 + 1) & 0xFFFF


def decode(
    runner: Runner, plan: StepPlan, tokens: np.ndarray, positions: np.ndarray, slots: np.ndarray
) -> np.ndarray:
    """Decode one token for each sequence, with the previous step's token as input."""
    count = plan.tokens = plan.sequences = plan.rows = len(slots)
    plan.token_id[:count], plan.position[:count] = tokens, positions
    plan.slot[:count] = plan.sequence[:count] = plan.logit_row[:count] = slots
    return runner.collect(runner.submit(runner.fill(plan))).tokens


class TestStep:
    @pytest.mark.parametrize("layers", [28, 64])
    @pytest.mark.parametrize("sequences", [1, 64])
    def test_step(
        self, benchmark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], sequences: int, layers: int
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
                run_numpy_loop()
            beside = []
            for _ in range(STEP_ROUNDS):
                started = time.perf_counter()
                run_numpy_loop()
                beside.append(time.perf_counter() - started)
            benchmark.pedantic(step, rounds=STEP_ROUNDS, warmup_rounds=10)
            benchmark.extra_info.update(
                layers=layers,
                sequences=sequences,
                before_median_us=BEFORE_US[sequences, layers],
                limit_median_us=STEP_LIMIT_US[sequences],
                numpy_loop_us=round(median(beside) * 1e6, 2),
                not_real="nothing is computed",
            )
        if benchmark.stats is None:  # benchmarks are switched off
            return
        median_us = benchmark.stats.stats.median * 1e6
        with capsys.disabled():
            print(
                f"\nsequences {sequences}, layers {layers}: {median_us:.1f} us a step, before "
                f"{BEFORE_US[sequences, layers]} us, limit {STEP_LIMIT_US[sequences]} us; "
                f"the NumPy loop next to it {median(beside) * 1e6:.1f} us; nothing is computed"
            )
        if median(beside) > BUSY * min(beside):
            times = median(beside) / min(beside)
            pytest.skip(f"BLOCKED: the machine is busy, its NumPy loop takes {times:.1f} times its best")
        check_median(benchmark, STEP_LIMIT_US[sequences])


class IdleLauncher:
    """A launcher that accepts everything and completes immediately."""

    def submit(self, variant: Any, stream: Stream) -> Fence:
        return ReachedFence()

    def read(self, buffer: Buffer, offset_bytes: int, size_bytes: int) -> memoryview:
        return memoryview(buffer.storage)[offset_bytes : offset_bytes + size_bytes].toreadonly()

    def write(self, buffer: Buffer, offset_bytes: int, data: memoryview) -> None:
        buffer.storage[offset_bytes : offset_bytes + data.nbytes] = data

    def fill(self, buffer: Buffer, offset_bytes: int, size_bytes: int, stream: Stream) -> Fence:
        return ReachedFence()


def make_graph(ports: int) -> Graph:
    graph = Graph("decode", IdleLauncher())
    usages = Usage(), Usage()
    for number in range(ports):
        buffer = Buffer(f"b{number}", 64, "host_visible", bytearray(64), usage=usages[number % 2])
        graph.bind(buffer.name, buffer)
    graph.add(KEY, "decode")
    return graph


class TestExec:
    @pytest.mark.parametrize("ports", [10, 120])
    def test_replay_and_wait(self, benchmark: Any, ports: int) -> None:
        graph, stream = make_graph(ports), Stream("main")

        def step() -> None:
            graph.replay(KEY, stream)
            graph.wait(1.0)

        benchmark.extra_info.update(ports=ports, limit_median_us=REPLAY_LIMIT_US, not_real=NO_LAUNCHER)
        benchmark(step)
        check_median(benchmark, REPLAY_LIMIT_US)

    @pytest.mark.parametrize("ports", [10, 120])
    def test_write_and_view(self, benchmark: Any, ports: int) -> None:
        graph, stream = make_graph(ports), Stream("main")
        graph.replay(KEY, stream)
        graph.wait(1.0)

        def step() -> None:
            graph.write("b0", 0, b"step")
            graph.view("b1")

        benchmark.extra_info.update(ports=ports, limit_median_us=REPLAY_LIMIT_US, not_real=NO_LAUNCHER)
        benchmark(step)
        check_median(benchmark, REPLAY_LIMIT_US)


class NoFiles:
    """A driver for code that only looks for a core dump."""

    simulated = True

    def list_dir(self, path: str) -> list[str]:
        raise FileNotFoundError(path)

    def read_file(self, path: str) -> bytes:
        raise FileNotFoundError(path)


class StillTransport:
    """A transport and its kernel side over plain memory, in which only `finish` makes progress."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.driver: Any = NoFiles()
        self.transport: Any = self
        self.generation = make_default_target().version
        self.fallbacks: list[str] = []
        self.incidents: list[Incident] = []
        self.ask_seconds = 0.1
        self.queues: list[Queue] = []
        self.ledger = Ledger("still")
        self._next_va = 1 << 32

    def alloc(
        self, size_bytes: int, placement: Placement, name: str, *, fallback: Placement | None = None
    ) -> DeviceBuffer:
        size_bytes += -size_bytes % 4096
        store = (ctypes.c_char * (size_bytes + 256))()
        address = ctypes.addressof(store) + -ctypes.addressof(store) % 256
        mapping = MappedMemory(address, size_bytes, PROT_READ | PROT_WRITE)
        held = self.ledger.hold("buffer", name, lambda store=store: mapping.release())  # type: ignore[misc]
        va, self._next_va = self._next_va, self._next_va + size_bytes
        return DeviceBuffer(name, va, size_bytes, placement, 0, mapping, [held])

    def create_queue(self, *, ring_bytes: int, priority: int = 0) -> Queue:
        ring, rptr, wptr, eop, doorbell = (
            self.alloc(size, Placement.GTT, name)
            for name, size in (("ring", ring_bytes), ("rptr", 8), ("wptr", 8), ("eop", 8), ("doorbell", 8))
        )
        userq = self.kind == "userq"
        bell = doorbell.host.address
        held = [*ring.held, *rptr.held, *wptr.held, *eop.held, *doorbell.held]
        queue = Queue(self.kind, 0, self.generation, ring, rptr, wptr, eop, bell, userq, userq, held=held)
        self.queues.append(queue)
        return queue

    def finish(self, backend: AmdBackend, stream: Stream) -> None:
        """Mark everything submitted to the queue as read and completed."""
        ring = backend.ring(stream)
        rptr = ctypes.c_uint32.from_address(ring.queue.rptr.host.address)
        rptr.value = ring.wptr_dw % ring.ring_dw
        ctypes.c_uint64.from_address(ring.timeline.address).value = ring.timeline.submitted

    def settle(self) -> None: ...

    def flush_hdp(self) -> tuple[Packet, ...]:
        return (HdpFlush(),) if self.kind == "userq" else ()  # KFD's is one store

    def after_fence(self) -> tuple[Packet, ...]:
        return (ProtectedFenceSignal(),) if self.kind == "userq" else ()

    def look(self) -> None: ...

    def resources(self) -> dict[str, int]:
        return self.ledger.counts()

    def close(self) -> None: ...


def build_dispatches(count: int, code_va: int) -> tuple[Packet, ...]:
    """Build the packets of `count` kernels, each with its registers and a barrier after it."""
    one = (
        SetShReg(Sh.PGM_LO, (code_va >> 8 & 0xFFFF_FFFF, code_va >> 40)),
        SetShReg(Sh.USER_DATA_0, (0x2000, 0)),
        DispatchDirect(64, 1, 1, 0x8005),
        EventWrite.cs_partial_flush(),
    )
    return one * count


class TestRing:
    @pytest.mark.parametrize("writes", [False, True], ids=["replay", "BAR written before"])
    @pytest.mark.parametrize("count", [64, 256, 1500])
    @pytest.mark.parametrize(("kind", "tier"), [("kfd", "t1"), ("userq", "t2")])
    def test_graph_replay(self, benchmark: Any, kind: str, tier: str, count: int, writes: bool) -> None:
        """Measure a replay. With `writes` the host wrote to a buffer in the BAR since the last replay, so HDP is
        flushed.
        """
        still, stream = StillTransport(kind), Stream("main")
        device = Device("plain memory", DEFAULT_ARCH, simulated=True)
        with AmdBackend(still, registry.spec(tier), device, AmdOptions(hang_folder=None)) as backend:
            assert backend.generation is Generation.GFX12
            graph = Graph("decode", backend)
            code = backend.alloc(4096, "bar", "code")
            packets = build_dispatches(count, code.storage.device.gpu_va)
            graph.add((1,), backend.build(PacketList(packets, f"{count} dispatches"), {}))
            graph.bind("step", backend.alloc(4096, "host_visible", "step"))
            graph.bind("input", backend.alloc(4096, "bar", "input"))
            replay, key = graph.replay, (1,)
            replay(key, stream)  # makes the queue

            def setup() -> None:
                still.finish(backend, stream)
                if writes:
                    graph.write("input", 0, b"zinc")

            ring = backend.ring(stream)
            before = ring.wptr_dw
            benchmark.extra_info.update(
                dispatches=count,
                limit_median_us=REPLAY_LIMIT_US,
                aim_median_us=RING_AIM_US,
                not_real="plain memory, no GPU",
            )
            benchmark.pedantic(
                lambda: replay(key, stream),
                setup=setup,
                rounds=RING_ROUNDS,
                warmup_rounds=200,
            )
            calls = ring.timeline.submitted - 1
            benchmark.extra_info["ring_dwords_a_replay"] = (ring.wptr_dw - before) / calls
            still.finish(backend, stream)
        check_median(benchmark, REPLAY_LIMIT_US, f" for {count} dispatches")


VA = 0x7F12_3456_7800
G12 = Generation.GFX12

USED: dict[str, Callable[[], Packet]] = {  # the packets of a token's replay, as the ring builds them
    "acquire_mem": lambda: AcquireMem(0x4181),
    "dispatch_direct": lambda: DispatchDirect(4, 1, 1, 0x8005),
    "dispatch_indirect": lambda: DispatchIndirect(VA, 0x8005),
    "event_write": lambda: EventWrite(7, 4),
    "hdp_flush": lambda: HdpFlush(),
    "indirect_buffer": lambda: IndirectBuffer(VA, 4096, inherit_vmid=1),
    "nop": lambda: Nop(),
    "protected_fence_signal": lambda: ProtectedFenceSignal(),
    "release_mem": lambda: ReleaseMem(VA, 7, 0x600),
    "set_sh_reg": lambda: SetShReg(Sh.USER_DATA_0, (1, 2)),
    "set_sh_reg_8": lambda: SetShReg(Sh.START_X, (0, 0, 0, 64, 1, 1, 0, 0)),
    "wait_reg_mem": lambda: WaitRegMem(VA, 1),
    "wait_reg_mem64": lambda: WaitRegMem64(VA, 1),
    "write_data": lambda: WriteData(VA, (1,)),
}
SMALLEST = {"values": (0,), "pairs": ((0, 0),), "packed": ((0, 0), (0, 0)), "fences": ((0, 0),)}


def build_token_stream() -> list[int]:
    words = [word for make in USED.values() for word in make().words(G12)]
    return words * (16384 // len(words))


class TestPm4:
    @pytest.mark.parametrize("name", USED)
    def test_build(self, benchmark: Any, name: str) -> None:
        make = USED[name]
        benchmark(lambda: make().words(G12))

    @pytest.mark.parametrize("cls", [cls for cls in PACKETS if G12 in cls.ON], ids=lambda cls: cls.__name__)
    def test_build_every_packet_from_every_field(self, benchmark: Any, cls: type[Packet]) -> None:
        """Measure the slow path: every field is given and nonzero where possible."""
        fields: dict[str, Any] = {
            f.name: SMALLEST.get(f.place.payload, int(G12 in f.place.on)) for f in cls.FIELDS
        }
        benchmark(lambda: cls(**fields).words(G12))

    @pytest.mark.parametrize("work", [decode_stream, lint, disassemble], ids=lambda work: work.__name__)
    def test_read_a_stream(self, benchmark: Any, work: Callable[..., Any]) -> None:
        words = build_token_stream()
        benchmark.extra_info["dwords"] = len(words)
        benchmark(work, words, G12)
