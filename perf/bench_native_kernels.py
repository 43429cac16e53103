"""Projection kernels of t_cpu_native by themselves: python -m zinc_rt.perf.bench_native_kernels --help

GB/s of weights, walked from memory (a matrix of more than 600 MB, each byte once a pass) or from the second-level
cache (--resident: a matrix of 512 KiB, in the thread's own time), and GMAC/s. With more than 8 tokens the matrix
has 8 MB. One thread unless asked; the figure is the fastest pass's. Activations are quantised before.
"""

from __future__ import annotations

import argparse
import ctypes
import struct
import threading
import time
from itertools import count

import numpy as np

from zinc_rt.backends.cpu.host_memory import aligned
from zinc_rt.backends.cpu.library import load
from zinc_rt.ir.dtypes import block_of, row_bytes
from zinc_rt.kernels.native import build
from zinc_rt.kernels.native.rows.projections import PANEL, Q8_BLOCKS, record_bytes
from zinc_rt.kernels.native.types import type_number

MEMORY_BYTES, RESIDENT_BYTES = 640 << 20, 512 << 10
CLAIM_BYTES = 512 << 10
SCALES_AT = {"q8_0": (0,), "q4_0": (0,), "q4_k": (0, 2), "q5_k": (0, 2), "q6_k": (208,)}  # halves in a block


def weights(dtype: str, rows: int, k: int, size_bytes: int) -> np.ndarray:
    """Random blocks with ordinary scales, the same few MB again and again: uint8 [rows][bytes]."""
    random = np.random.default_rng(1)
    some = random.integers(0, 256, (min(rows, 4096), row_bytes(dtype, k)), dtype=np.uint8)
    blocks = some.reshape(-1, block_of(dtype)[1])
    for at in SCALES_AT.get(dtype, ()):
        scales = random.normal(0, 0.01, len(blocks)).astype(np.float16)
        blocks[:, at : at + 2] = scales.view(np.uint8).reshape(-1, 2)
    if dtype in ("f32", "f16", "bf16"):
        values = random.normal(0, 0.01, (len(some), k)).astype(np.float32)
        bits = values.view(np.uint32)
        plain: dict[str, np.ndarray] = {
            "f32": bits,
            "f16": values.astype(np.float16),
            "bf16": (bits >> 16).astype("u2"),
        }
        some = plain[dtype].view(np.uint8).reshape(len(some), -1)
    return np.ascontiguousarray(np.resize(some, (rows, some.shape[1])))


class ProjectionBench:
    """One weight and its inputs, ready for calls."""

    def __init__(self, handle: ctypes.CDLL, dtype: str, q8: bool, k: int, tokens: int, size_bytes: int) -> None:
        self.rows = max(PANEL, size_bytes // row_bytes(dtype, k) // PANEL * PANEL)
        self.w = weights(dtype, self.rows, k, size_bytes)
        block = Q8_BLOCKS.get(dtype, 0) if q8 else 0
        self.x = aligned(4 * tokens * k).view(np.float32).reshape(tokens, k)
        self.x[:] = np.random.default_rng(2).normal(size=(tokens, k))
        self.y = aligned(4 * tokens * self.rows).view(np.float32).reshape(tokens, self.rows)
        source, x_bytes = self.x, 4 * k
        if block:
            x_bytes = record_bytes(block, k)
            source = aligned(tokens * x_bytes).reshape(tokens, x_bytes)
            arguments = struct.pack("<4Q5I", self.x.ctypes.data, source.ctypes.data, 0, 0, k, x_bytes, k, 0, 0)
            segments = -(-k // 1024)
            call(handle, f"quantise{block}", arguments, (segments, 1, tokens), 0, segments * tokens)
        self.source = source
        w = self.w.ctypes.data
        self.arguments = struct.pack(
            "<10Q", source.ctypes.data, w, 0, self.w.strides[0], self.y.ctypes.data, 0, 0, 0, 0, 0
        )
        self.arguments += struct.pack(
            "<11I", tokens, 0, type_number(dtype), self.rows, k, x_bytes, 0, self.rows, 0, 1, 1
        )
        self.panels = -(-self.rows // PANEL)
        self.kernel = "project_q8" if block else "project_c1"
        self.handle = handle
        self.macs = self.rows * k * tokens

    def run(self, threads: int, resident: bool) -> float:
        """Seconds of one pass: of the thread's own where it waits for no memory, else of the clock."""
        claim = max(1, CLAIM_BYTES // (PANEL * self.w.shape[1]))
        if threads == 1:
            clock = time.thread_time if resident else time.perf_counter
            began = clock()
            call(self.handle, self.kernel, self.arguments, (self.panels, 1, 1), 0, self.panels)
            return clock() - began
        numbers = count()

        def work() -> None:
            while (first := next(numbers) * claim) < self.panels:
                last = min(first + claim, self.panels)
                call(self.handle, self.kernel, self.arguments, (self.panels, 1, 1), first, last)

        helpers = [threading.Thread(target=work) for _ in range(threads - 1)]
        began = time.perf_counter()
        for helper in helpers:
            helper.start()
        work()
        for helper in helpers:
            helper.join()
        return time.perf_counter() - began


def call(
    handle: ctypes.CDLL, kernel: str, arguments: bytes, grid: tuple[int, int, int], first: int, last: int
) -> None:
    dims = (ctypes.c_uint32 * 3)(*grid)
    refused = getattr(handle, f"zrt_{kernel}")(arguments, dims, ctypes.c_uint32(first), ctypes.c_uint32(last))
    assert refused == 0, f"{kernel} refused: {refused}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench_native_kernels", description=__doc__)
    parser.add_argument(
        "--types", default="q8_0,q4_0,q4_k,q5_k,q6_k,f16", help="weight types (default %(default)s)"
    )
    parser.add_argument("--orderings", default="q8,c1", help="q8, c1 or both (default %(default)s)")
    parser.add_argument("--tokens", default="1", help="how many, by commas (default %(default)s)")
    parser.add_argument("--k", type=int, default=1024, help="columns (default %(default)s)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument(
        "--resident", action="store_true", help="a matrix of 512 KiB: the kernel without the memory"
    )
    parser.add_argument("--level", default="native", help="what -mcpu names (default %(default)s)")
    given = parser.parse_args()
    handle = load(build.compile_library(build.compiler(), given.level))
    for dtype in given.types.split(","):
        for ordering in given.orderings.split(","):
            for tokens in map(int, given.tokens.split(",")):
                size = RESIDENT_BYTES if given.resident else MEMORY_BYTES if tokens <= 8 else 8 << 20
                bench = ProjectionBench(handle, dtype, ordering == "q8", given.k, tokens, size)
                passes = given.passes * (40 if given.resident else 1)
                best = min(bench.run(given.threads, given.resident) for _ in range(passes + 1))
                what = f"{bench.w.nbytes / best / 1e9:6.1f} GB/s"
                print(
                    f"{dtype:5} {ordering} {tokens:4} tokens {what} {bench.macs / best / 1e9:7.1f} GMAC/s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
