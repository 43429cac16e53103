"""Measure the simulated device: its command processor, and running waves on the host.

python3 ci/run.py bench perf/bench_sim.py [-k TestCp|TestShader]

cp      packets a second, and seconds from doorbell to fence. The memory is a flat bytearray without page tables
        and no waves run: the figures are the command processor's own. One thread steps it for the packet rates;
        for the latency it runs in its own thread and the host polls the fence, both under one interpreter lock.
shader  a matvec compared with C, threads, compiling, the smallest dispatch. The matvec is gfx1201's matvec_f32
        on 1024 x 1024, canonical-1. The C code adds in the same order (128 accumulators, then pairs; no
        contraction) and is compiled with -O3 -march=native; results are compared bit for bit. `ratio` in
        `extra_info`: kernel and peer run in turns in one process, each several times in a row, and the ratio is
        of lower quartiles, because ratios travel to other machines and seconds do not.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zinc_rt.host.object_cache import ObjectCache
from zinc_rt.isa.target import make_default_target
from zinc_rt.kernels.gfx1201.table import load, names
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.packet import Packet
from zinc_rt.pm4.packets import (
    AcquireMem,
    DispatchDirect,
    EventWrite,
    IndirectBuffer,
    Nop,
    ReleaseMem,
    SetShReg,
    WriteData,
)
from zinc_rt.pm4.registers import Sh
from zinc_rt.sim.cp.command_processor import CommandProcessor
from zinc_rt.sim.interfaces import AccessKind, DeviceFinding, Fault, HardwareQueue, QueueKind
from zinc_rt.sim.shader.launch_setup import FLOAT_MODE, LaunchSetup
from zinc_rt.sim.shader.layout import Checks, KernelVariant
from zinc_rt.sim.shader.memory.ranges import PlacedArray, RangeTable, of_arrays
from zinc_rt.sim.shader.run.group_runner import Stop
from zinc_rt.sim.shader.run.kernels import (
    CompiledKernel,
    CompiledKernels,
    choose_variant,
    compile_variant,
    load_variant,
)
from zinc_rt.sim.shader.run.launch_run import LaunchRun, WaveThreads
from zinc_rt.sim.shader_engine import NOTHING, Accesses, NoShaderEngine, ShaderDispatch

BASE = 0x100000
RING, POINTERS, EOP, FENCE, IB, CODE = (BASE + at for at in (0, 0x10000, 0x11000, 0x12000, 0x20000, 0x60000))
RING_BYTES, MEMORY_BYTES, IB_DW = 0x10000, 0x80000, 0xF000


class FlatMemory:
    """Memory whose addresses are offsets into a buffer."""

    def __init__(self) -> None:
        self.memory = bytearray(MEMORY_BYTES)

    def read(self, va: int, size_bytes: int) -> bytes:
        offset = va - BASE
        if offset < 0 or offset + size_bytes > MEMORY_BYTES:
            raise Fault(va, AccessKind.READ, "not present")
        return bytes(self.memory[offset : offset + size_bytes])

    def write(self, va: int, data: bytes) -> None:
        offset = va - BASE
        if offset < 0 or offset + len(data) > MEMORY_BYTES:
            raise Fault(va, AccessKind.WRITE, "not present")
        self.memory[offset : offset + len(data)] = data

    def view(self, va: int, size_bytes: int, access: AccessKind) -> memoryview:
        return memoryview(self.memory)[va - BASE :][:size_bytes]

    def fetch(self, va: int, size_bytes: int) -> bytes:
        return self.read(va, size_bytes)

    def describe(self, va: int) -> str:
        return "memory"

    def nearby(self, va: int) -> str:
        return self.describe(va)

    def flush_hdp(self, inside: tuple[int, int] | None = None) -> None:
        return None

    def find_unflushed(self, ranges: Iterable[tuple[int, int]]) -> int | None:
        return None

    def write_back(self) -> None:
        return None

    def host_sees(self, va: int) -> bool:
        return True

    def before_waves(self) -> None:
        return None

    def stop_caching_coherent(self) -> None:
        return None

    def after_waves(self, touched: Iterable[tuple[int, int]]) -> None:
        return None

    def invalidate_wave_caches(
        self, *, vector: bool, scalar: bool, array: bool, inside: tuple[int, int] | None = None
    ) -> None:
        return None

    def invalidate_gl2(self, inside: tuple[int, int] | None = None) -> None:
        return None

    def invalidate_icache(self) -> None:
        return None


class SilentKmd:
    """A kernel driver that counts findings and expects none."""

    findings = 0

    def interrupt(self, queue: HardwareQueue, context_id: int) -> None:
        return None

    def vm_fault(self, queue: HardwareQueue, fault: Fault) -> None:
        raise RuntimeError(queue.report)

    def hung(self, queue: HardwareQueue) -> None:
        raise RuntimeError(queue.report)

    def finding(self, finding: DeviceFinding) -> None:
        raise RuntimeError(finding.sentence)

    def queue_exception(self, queue: HardwareQueue, code: int) -> None:
        return None

    def fence_signal(self, queue: HardwareQueue, position_dw: int) -> None:
        return None

    def injected(self, point: str) -> bool:
        return False

    def gpu_counter(self) -> int:
        return time.monotonic_ns() // 10


class InstantWaves(NoShaderEngine):
    """Waves that take no time and access nothing."""

    def run(self, dispatch: ShaderDispatch) -> Accesses | None:
        return NOTHING


class CpHost:
    def __init__(self) -> None:
        self.space = FlatMemory()
        self.cp = CommandProcessor(SilentKmd(), generation=Generation.GFX12, engine=InstantWaves())
        self.queue = HardwareQueue(
            1, 1, QueueKind.KFD_COMPUTE, self.space, RING, RING_BYTES, POINTERS, POINTERS + 64, EOP
        )
        self.cp.attach(self.queue)
        self.wptr = 0

    def submit(self, data: bytes) -> None:
        offset, memory = 4 * self.wptr % RING_BYTES, self.space.memory
        first = min(len(data), RING_BYTES - offset)
        memory[offset : offset + first] = data[:first]
        memory[: len(data) - first] = data[first:]
        self.wptr += len(data) // 4
        struct.pack_into("<Q", memory, POINTERS + 64 - BASE, self.wptr)
        self.cp.ring(self.queue, self.wptr)

    def read_fence(self) -> int:
        return int(struct.unpack_from("<I", self.space.memory, FENCE - BASE)[0])


def pack_packets(packets: Sequence[Packet]) -> bytes:
    words = [word for packet in packets for word in packet.words(Generation.GFX12)]
    return struct.pack(f"<{len(words)}I", *words)


LAUNCH: list[Packet] = [  # the stream of pm4.md §6, as one kernel of a lowered graph costs
    AcquireMem(0x1C0),
    SetShReg(Sh.PGM_LO, (CODE >> 8, 0)),
    SetShReg(Sh.PGM_RSRC1, (0, 0)),
    SetShReg(Sh.USER_DATA_0, tuple(range(16))),
    SetShReg(Sh.START_X, (0, 0, 0, 32, 1, 1, 0, 0)),
    DispatchDirect(1, 1, 1, 0x8005),
    EventWrite.cs_partial_flush(),
]
STREAMS: dict[str, list[Packet]] = {
    "NOP, 1 dword": [Nop()] * 2000,
    "NOP, 17 dwords": [Nop((0,) * 16)] * 600,
    "WRITE_DATA, 1 dword": [WriteData(FENCE + 64, (1,))] * 1500,
    "RELEASE_MEM, 32 bits": [ReleaseMem(FENCE, value) for value in range(1000)],
    "SET_SH_REG, 16 values": [SetShReg(Sh.USER_DATA_0, tuple(range(16)))] * 600,
    "launch (7 packets)": LAUNCH * 120,
}


def make_ring_runner(host: CpHost, data: bytes) -> Callable[[], None]:
    def run() -> None:
        host.submit(data)
        host.cp.step(1 << 20)

    return run


def prepare_replay(packets: Sequence[Packet]) -> tuple[CpHost, bytes]:
    """Return the packets as an indirect buffer, and the ring contents of one token."""
    host = CpHost()
    body = pack_packets(packets)
    body += pack_packets([Nop()] * (-len(body) // 4 % 8))
    host.space.write(IB, body)
    return host, pack_packets([IndirectBuffer(IB, len(body) // 4), ReleaseMem(FENCE, 1)])


FENCES = 5000


class TestCp:
    @pytest.mark.parametrize("name", STREAMS)
    def test_packets(self, name: str, benchmark: Any) -> None:
        benchmark(make_ring_runner(CpHost(), pack_packets(STREAMS[name])))
        if benchmark.stats is not None:  # None where benchmarks are switched off
            rate = len(STREAMS[name]) / benchmark.stats.stats.median
            benchmark.extra_info["note"] = f"{rate / 1e3:.0f} k packets/s"

    def test_replay_of_an_indirect_buffer(self, benchmark: Any) -> None:
        host, data = prepare_replay(LAUNCH * 200)
        benchmark(make_ring_runner(host, data))
        benchmark.extra_info["note"] = "200 launches"

    def test_doorbell_to_fence(self, benchmark: Any) -> None:
        """Measure the time from ringing the doorbell until the host sees the fence."""
        host, values = CpHost(), itertools.count(1)

        def fence() -> None:
            value = next(values)
            host.submit(pack_packets([ReleaseMem(FENCE, value)]))
            while host.read_fence() != value:
                time.sleep(0)

        host.cp.start()
        try:
            benchmark.pedantic(fence, rounds=FENCES if benchmark.enabled else 1, warmup_rounds=FENCES // 10)
        finally:
            host.cp.close()
        if benchmark.stats is not None:
            p99_us = float(np.percentile(benchmark.stats.stats.data, 99)) * 1e6
            benchmark.extra_info["note"] = f"{p99_us:.0f} us at the 99th percentile"


SIZE = 1024
LEVELS = ("off", "fast", "full")
NEW = {"embed_q4_0": 203, "rms_norm": 224, "matvec_f32": 292}  # kernels, and how many instructions they have
SHADER_ROUNDS, IN_A_ROW = 25, 4
TOKENS = 32  # of the grid that several threads share
ENDPGM = bytes.fromhex("0000b0bf")
# v2 = 5; v3 = 0; 16384 times: v[4:5] = v0 * v0 + v[2:3] (v_mad_co_u64_u32), v2 ^= v4
ADDENDS = bytes.fromhex("8502047e8002067e004004b0047cfed600010a040209043a04818480048007bffaffa2bf0000b0bf")
# The same with v3 unwritten: the upper half of the addend, which compilers leave undefined.
HALF_ADDENDS = ADDENDS[:4] + bytes.fromhex("000080bf") + ADDENDS[8:]

C_SOURCE = """
void matvec(const float *restrict x, const float *restrict w, float *restrict y, int n, int k) {
    for (int row = 0; row < n; row++) {
        float sum[128] = {0};
        const float *line = w + (long)row * k;
        for (int at = 0; at < k; at += 128)
            for (int i = 0; i < 128; i++)
                sum[i] = sum[i] + x[at + i] * line[at + i];
        for (int width = 64; width; width /= 2)
            for (int i = 0; i < width; i++)
                sum[i] = sum[2 * i] + sum[2 * i + 1];
        y[row] = sum[0];
    }
}
"""


@functools.cache
def compile_c_matvec() -> Callable[[int, int, int, int, int], None]:
    """Compile the C matvec with gcc, or with clang if gcc is missing."""
    folder = Path(tempfile.mkdtemp())
    (folder / "matvec.c").write_text(C_SOURCE)
    compiler = ["gcc"] if shutil.which("gcc") else [sys.executable, "-m", "ziglang", "cc"]
    flags = ["-O3", "-march=native", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run([*compiler, *flags, str(folder / "matvec.c"), "-o", str(folder / "matvec.so")], check=True)
    function = ctypes.CDLL(str(folder / "matvec.so")).matvec
    function.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int] * 2
    return function


@functools.cache
def kernels() -> CompiledKernels:
    return CompiledKernels(ObjectCache(Path(tempfile.mkdtemp())))


class Matvec:
    """The kernel, set up for repeated runs like a replayed graph."""

    def __init__(self, level: str, threads: int = 1, tokens: int = 1) -> None:
        self.zrt = load("matvec_f32")
        random = np.random.default_rng(1)
        self.x = random.standard_normal((tokens, SIZE), np.float32)
        self.w = random.standard_normal((SIZE, SIZE), np.float32)
        self.y = np.zeros((tokens, SIZE), np.float32)
        vas = [0x1_0000_0000 * number for number in range(1, 4)]
        self.arguments = np.zeros(self.zrt.buffers * 8 + self.zrt.constant_bytes, np.uint8)
        self.arguments[: 8 * self.zrt.buffers].view(np.uint64)[:3] = vas
        self.arguments[8 * self.zrt.buffers :].view(np.uint32)[:3] = (SIZE, SIZE, 4 * SIZE)
        self.arguments[8 * self.zrt.buffers :].view(np.uint32)[7] = 1
        placed = [
            PlacedArray(va, array, name)
            for va, array, name in zip(vas, (self.x, self.w, self.y), ("x", "w", "y"), strict=True)
        ]
        placed.append(PlacedArray(4 << 32, self.arguments, "arguments"))
        self.table: RangeTable = of_arrays(placed, bounds=level != "off", races=level == "full")
        threads_of_group = self.zrt.workgroup
        self.launch = LaunchSetup(
            (tokens, SIZE // 16, 1), threads_of_group, threads_of_group, 32, (0, 4),
            vgprs=self.zrt.vgprs, sgprs=self.zrt.sgprs,
        )  # fmt: skip
        kernel = kernels().of(choose_variant(self.launch, make_default_target(), self.zrt.code, Checks(level)))
        self._run = LaunchRun(kernel, self.launch, WaveThreads(threads), mode=FLOAT_MODE)
        self._serials = itertools.count(1)

    def __call__(self) -> None:
        self._run.begin(self.table, 0x5_0000_0000, next(self._serials))
        finish(self._run)

    def run_in_c(self) -> np.ndarray:
        y = np.zeros(SIZE, np.float32)
        compile_c_matvec()(self.x.ctypes.data, self.w.ctypes.data, y.ctypes.data, SIZE, SIZE)
        return y


def finish(run: LaunchRun) -> None:
    stop = Stop.FUEL
    while stop is Stop.FUEL:
        stop = run.advance(1.0)
    assert stop is Stop.DONE and not run.findings()[1], (stop, run.findings())


def prepare_wave(code: bytes, level: str, threads: int) -> tuple[LaunchRun, RangeTable]:
    launch = LaunchSetup((1, 1, 1), (32, 1, 1), (32, 1, 1), 32, (0, 0), vgprs=8)
    kernel = kernels().of(choose_variant(launch, make_default_target(), code, Checks(level)))
    table = of_arrays([PlacedArray(1 << 32, np.zeros(1024), "memory")], bounds=True)
    return LaunchRun(kernel, launch, WaveThreads(threads), mode=FLOAT_MODE), table


def measure_seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    for _ in range(IN_A_ROW):
        call()
    return (time.perf_counter() - start) / IN_A_ROW


def measure_alternately(one: Callable[[], object], other: Callable[[], object]) -> tuple[float, float]:
    """Return the lower quartile of the seconds of each, measured alternately; the machine may be shared."""
    one(), other()
    rows = [(measure_seconds(one), measure_seconds(other)) for _ in range(SHADER_ROUNDS)]
    first, second = (statistics.quantiles(column, n=4)[0] for column in zip(*rows, strict=True))
    return first, second


def find_largest_kernel() -> KernelVariant:
    """Return the kernel with the most code, in mode full."""
    zrt = max(map(load, names()), key=lambda item: len(item.code))
    launch = LaunchSetup((1, 1, 1), zrt.workgroup, zrt.workgroup, 32, (0, 0), vgprs=zrt.vgprs, sgprs=zrt.sgprs)
    return choose_variant(launch, make_default_target(), zrt.code, Checks("full"))


def make_sum_runner(code: bytes, level: str) -> Callable[[], None]:
    """Return a function that runs one wave of ADDENDS or HALF_ADDENDS."""
    run, table = prepare_wave(code, level, threads=1)

    def call() -> None:
        run.begin(table, 0x5_0000_0000, 1)
        finish(run)

    return call


def make_empty_dispatch() -> Callable[[], None]:
    """Return a function that runs one workgroup of one wave that ends immediately, like a repeated launch of the
    engine.
    """
    run, table = prepare_wave(ENDPGM, "fast", threads=2)

    def call() -> None:
        run.begin(table, 0x5_0000_0000, 1)
        assert run.advance(1.0) is Stop.DONE
        run.findings(), run.accesses()

    return call


def make_kernel_compiler(level: str, name: str) -> Callable[[], CompiledKernel]:
    """Return a function that compiles a new kernel at each call; shared helpers are already compiled."""
    zrt = load(name)
    quick = CompiledKernels(ObjectCache(Path(tempfile.mkdtemp())), quick=True)
    launch = LaunchSetup((1, 1, 1), zrt.workgroup, zrt.workgroup, 32, (0, 4), vgprs=zrt.vgprs, sgprs=zrt.sgprs)
    numbers = itertools.count(1)

    def call() -> CompiledKernel:
        behind_the_end = next(numbers).to_bytes(4, "little")
        return quick.of(choose_variant(launch, make_default_target(), zrt.code + behind_the_end, Checks(level)))

    call()
    return call


def note_ratio(benchmark: Any, call: Callable[[], object], peer: Callable[[], object], name: str) -> None:
    """Add the ratio of the seconds of `call` to those of `peer` to the report."""
    if benchmark.enabled:
        ours, theirs = measure_alternately(call, peer)
        benchmark.extra_info.update(ratio=ours / theirs, peer=f"{name}, {theirs * 1e6:.0f} us")


class TestShader:
    @pytest.mark.parametrize("name", NEW)
    @pytest.mark.parametrize("level", LEVELS)
    def test_a_new_kernel(self, level: str, name: str, benchmark: Any) -> None:
        """Measure a new kernel. Its first wave adds less than a millisecond."""
        benchmark.pedantic(make_kernel_compiler(level, name), rounds=5)
        benchmark.extra_info["note"] = f"{NEW[name]} instructions"

    @pytest.mark.parametrize("level", LEVELS)
    def test_matvec(self, level: str, benchmark: Any) -> None:
        matvec = Matvec(level)
        matvec()
        assert np.array_equal(matvec.y[0].view(np.uint32), matvec.run_in_c().view(np.uint32))
        benchmark(matvec)
        note_ratio(benchmark, matvec, matvec.run_in_c, "C, -O3 -march=native")

    def test_matvec_in_c(self, benchmark: Any) -> None:
        benchmark(Matvec("off").run_in_c)

    @pytest.mark.parametrize("level", ["fast", "full"])
    @pytest.mark.parametrize("threads", [1, 2])
    def test_threads(self, threads: int, level: str, benchmark: Any) -> None:
        matvec = Matvec(level, threads, TOKENS)
        benchmark(matvec)
        if threads > 1:
            note_ratio(benchmark, matvec, Matvec(level, 1, TOKENS), "one thread")

    @pytest.mark.parametrize(
        ("code", "level"),
        [(ADDENDS, "off"), (ADDENDS, "fast"), (HALF_ADDENDS, "fast")],
        ids=["defined-off", "defined-fast", "half-undefined-fast"],
    )
    def test_undefined_bits(self, code: bytes, level: str, benchmark: Any) -> None:
        call = make_sum_runner(code, level)
        benchmark(call)
        if level != "off":
            note_ratio(benchmark, call, make_sum_runner(code, "off"), "level off")

    def test_an_empty_dispatch(self, benchmark: Any) -> None:
        benchmark(make_empty_dispatch())

    def test_a_cold_compile_of_the_largest_kernel(self, benchmark: Any) -> None:
        benchmark.pedantic(compile_variant, args=(find_largest_kernel(),), rounds=1)

    def test_the_largest_kernel_from_the_cache(self, benchmark: Any) -> None:
        expected = find_largest_kernel()
        payload = compile_variant(expected)
        benchmark(lambda: load_variant(expected, payload))
