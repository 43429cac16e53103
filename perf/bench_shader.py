"""What running waves costs: a matvec against C, threads, compiling, the smallest dispatch.

    python perf/bench_shader.py                       all of it, as a table
    pytest perf/bench_shader.py -n 0 --benchmark-enable

The matvec is gfx1201's matvec_f32 on 1024 x 1024, canonical-1. The C code adds in the same order (128
accumulators, then pairs; no contraction) and is compiled with -O3 -march=native; results are compared bit for bit.
Kernel and C run by turns in one process, each several times in a row, and the ratio is of lower quartiles: ratios
travel, seconds do not.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import itertools
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zinc_rt.host.object_cache import ObjectCache
from zinc_rt.isa.target import default_target
from zinc_rt.kernels.gfx1201.table import load, names
from zinc_rt.sim.shader.launch_setup import FLOAT_MODE, LaunchSetup
from zinc_rt.sim.shader.layout import Checks, KernelVariant
from zinc_rt.sim.shader.memory.ranges import PlacedArray, RangeTable, of_arrays
from zinc_rt.sim.shader.run.group_runner import Stop
from zinc_rt.sim.shader.run.kernels import CompiledKernel, CompiledKernels, compiled, loaded, variant_for
from zinc_rt.sim.shader.run.launch_run import LaunchRun, WaveThreads

SIZE = 1024
LEVELS = ("off", "fast", "full")
NEW = {"embed_q4_0": 203, "rms_norm": 224, "matvec_f32": 292}  # kernels, and how many instructions they have
ROUNDS, IN_A_ROW = 25, 4
TOKENS = 32  # of the grid that several threads share
ENDPGM = bytes.fromhex("0000b0bf")
# v2 = 5; v3 = 0; 16384 times: v[4:5] = v0 * v0 + v[2:3] (v_mad_co_u64_u32), v2 ^= v4
ADDENDS = bytes.fromhex("8502047e8002067e004004b0047cfed600010a040209043a04818480048007bffaffa2bf0000b0bf")
# The same, and nobody writes v3: the upper half of the addend, as compilers leave it.
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
def c_matvec() -> Callable[[int, int, int, int, int], None]:
    """gcc's, or without one clang's."""
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
    """The kernel, set up to be run again and again, as a replayed graph does."""

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
        kernel = kernels().of(variant_for(self.launch, default_target(), self.zrt.code, Checks(level)))
        self._run = LaunchRun(kernel, self.launch, WaveThreads(threads), mode=FLOAT_MODE)
        self._serials = itertools.count(1)

    def __call__(self) -> None:
        self._run.begin(self.table, 0x5_0000_0000, next(self._serials))
        stop = Stop.FUEL
        while stop is Stop.FUEL:
            stop = self._run.advance(1.0)
        assert stop is Stop.DONE and not self._run.findings()[1], (stop, self._run.findings())

    def in_c(self) -> np.ndarray:
        y = np.zeros(SIZE, np.float32)
        c_matvec()(self.x.ctypes.data, self.w.ctypes.data, y.ctypes.data, SIZE, SIZE)
        return y


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    for _ in range(IN_A_ROW):
        call()
    return (time.perf_counter() - start) / IN_A_ROW


def paired(one: Callable[[], object], other: Callable[[], object]) -> tuple[float, float]:
    """Seconds of each, by turns: the lower quartile, as others use the machine too."""
    one(), other()
    rows = [(seconds(one), seconds(other)) for _ in range(ROUNDS)]
    first, second = (statistics.quantiles(column, n=4)[0] for column in zip(*rows, strict=True))
    return first, second


def largest() -> KernelVariant:
    """The kernel with the most code, at level full."""
    zrt = max(map(load, names()), key=lambda each: len(each.code))
    launch = LaunchSetup((1, 1, 1), zrt.workgroup, zrt.workgroup, 32, (0, 0), vgprs=zrt.vgprs, sgprs=zrt.sgprs)
    return variant_for(launch, default_target(), zrt.code, Checks("full"))


def sums(code: bytes, level: str) -> Callable[[], None]:
    """One wave of ADDENDS or HALF_ADDENDS."""
    launch = LaunchSetup((1, 1, 1), (32, 1, 1), (32, 1, 1), 32, (0, 0), vgprs=8)
    run = LaunchRun(
        kernels().of(variant_for(launch, default_target(), code, Checks(level))),
        launch,
        WaveThreads(1),
        mode=FLOAT_MODE,
    )
    table = of_arrays([PlacedArray(1 << 32, np.zeros(1024), "memory")], bounds=True)

    def call() -> None:
        run.begin(table, 0x5_0000_0000, 1)
        stop = Stop.FUEL
        while stop is Stop.FUEL:
            stop = run.advance(1.0)
        assert stop is Stop.DONE and not run.findings()[1]

    return call


def empty_dispatch() -> Callable[[], None]:
    """One workgroup of one wave that ends at once, as the engine runs it again."""
    launch = LaunchSetup((1, 1, 1), (32, 1, 1), (32, 1, 1), 32, (0, 0), vgprs=8)
    run = LaunchRun(
        kernels().of(variant_for(launch, default_target(), ENDPGM, Checks("fast"))),
        launch,
        WaveThreads(2),
        mode=FLOAT_MODE,
    )
    table = of_arrays([PlacedArray(1 << 32, np.zeros(1024), "memory")], bounds=True)

    def call() -> None:
        run.begin(table, 0x5_0000_0000, 1)
        assert run.advance(1.0) is Stop.DONE
        run.findings(), run.accesses()

    return call


def new_kernels(level: str, name: str) -> Callable[[], CompiledKernel]:
    """Each call makes a kernel ready that nobody has compiled; helpers that kernels share are there already."""
    zrt = load(name)
    quick = CompiledKernels(ObjectCache(Path(tempfile.mkdtemp())), quick=True)
    launch = LaunchSetup((1, 1, 1), zrt.workgroup, zrt.workgroup, 32, (0, 4), vgprs=zrt.vgprs, sgprs=zrt.sgprs)
    numbers = itertools.count(1)

    def call() -> CompiledKernel:
        behind_the_end = next(numbers).to_bytes(4, "little")
        return quick.of(variant_for(launch, default_target(), zrt.code + behind_the_end, Checks(level)))

    call()
    return call


@pytest.mark.parametrize("name", NEW)
@pytest.mark.parametrize("level", LEVELS)
def test_a_new_kernel(level: str, name: str, benchmark: Any) -> None:
    """Its first wave adds less than a millisecond."""
    benchmark.pedantic(new_kernels(level, name), rounds=5)


@pytest.mark.parametrize("level", LEVELS)
def test_matvec(level: str, benchmark: Any) -> None:
    matvec = Matvec(level)
    matvec()
    assert np.array_equal(matvec.y[0].view(np.uint32), matvec.in_c().view(np.uint32))
    benchmark(matvec)


def test_matvec_in_c(benchmark: Any) -> None:
    benchmark(Matvec("off").in_c)


@pytest.mark.parametrize("level", ["fast", "full"])
@pytest.mark.parametrize("threads", [1, 2])
def test_threads(threads: int, level: str, benchmark: Any) -> None:
    benchmark(Matvec(level, threads, TOKENS))


@pytest.mark.parametrize(
    ("code", "level"),
    [(ADDENDS, "off"), (ADDENDS, "fast"), (HALF_ADDENDS, "fast")],
    ids=["defined-off", "defined-fast", "half-undefined-fast"],
)
def test_undefined_bits(code: bytes, level: str, benchmark: Any) -> None:
    benchmark(sums(code, level))


def test_an_empty_dispatch(benchmark: Any) -> None:
    benchmark(empty_dispatch())


def test_a_cold_compile_of_the_largest_kernel(benchmark: Any) -> None:
    benchmark.pedantic(compiled, args=(largest(),), rounds=1)


def test_the_largest_kernel_from_the_cache(benchmark: Any) -> None:
    wanted = largest()
    payload = compiled(wanted)
    benchmark(lambda: loaded(wanted, payload))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    threads = parser.parse_args().threads
    print(f"{platform.machine()}, Python {platform.python_version()}; matvec {SIZE} x {SIZE} f32, canonical-1")
    for level in LEVELS:
        matvec = Matvec(level)
        matvec()
        assert np.array_equal(matvec.y[0].view(np.uint32), matvec.in_c().view(np.uint32)), "not what C says"
        mine, c = paired(matvec, matvec.in_c)
        print(f"{'level ' + level:28} {mine * 1e6:9.0f} µs   C {c * 1e6:7.0f} µs   {c / mine:6.1%} of C")
    for level in ("fast", "full"):
        one, several = paired(Matvec(level, 1, TOKENS), Matvec(level, threads, TOKENS))
        name = f"{threads} threads, {TOKENS} tokens, {level}"
        print(f"{name:28} {several * 1e6:9.0f} µs   {one / several:6.2f} times one thread")
    for name, count in NEW.items():
        for level in ("fast", "full"):
            new = new_kernels(level, name)
            took = statistics.median(timeit.repeat(new, number=1, repeat=9))
            print(f"{f'new: {name}, {level}':28} {took * 1e3:9.0f} ms   {count} instructions")
    wanted = largest()
    start = time.perf_counter()
    payload = compiled(wanted)
    cold = time.perf_counter() - start
    start = time.perf_counter()
    loaded(replace(wanted), payload)
    print(f"{'the most code, level full':28} {len(wanted.code):9} bytes of code")
    print(f"{'  compiled':28} {cold * 1e3:9.0f} ms")
    print(f"{'  loaded from the cache':28} {(time.perf_counter() - start) * 1e3:9.1f} ms")
    for name, code in (("defined", ADDENDS), ("half undefined", HALF_ADDENDS)):
        off, fast = paired(sums(code, "off"), sums(code, "fast"))
        print(f"{'sums, ' + name + ', fast':28} {fast * 1e6:9.0f} µs   {fast / off:6.2f} times level off")
    empty = empty_dispatch()
    empty()
    print(f"{'an empty dispatch':28} {statistics.median(seconds(empty) for _ in range(500)) * 1e6:9.1f} µs")


if __name__ == "__main__":
    main()
