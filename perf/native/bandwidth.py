"""Measure the read bandwidth of this machine's memory and the cost of an empty node, to report with every speed.

Bytes are read from a buffer larger than any cache here; every thread reads a separate part from end to end.
"""

from __future__ import annotations

import ctypes
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from zinc_rt.backends.cpu.host_memory import allocate_aligned
from zinc_rt.backends.cpu.library import build_library
from zinc_rt.backends.cpu.tasks import LINE_BYTES, TASK, TaskListStruct
from zinc_rt.backends.cpu.threads import HelperThreads
from zinc_rt.kernels.native import build
from zinc_rt.kernels.native.task import ANY

SOURCE = Path(__file__).resolve().parent / "bandwidth.c"
BUFFER_BYTES = 768 << 20  # more than 600 MB: no cache serves it
STEP_BYTES = 512
PASSES = 5
EMPTY_NODES = 2000
EMPTY_RUNS = 2000
EMPTY_COUNTED = 20  # of them, at least
SHARED = 0.2  # of an even share of the nodes that others than one thread must have run


class BandwidthThreads(ctypes.Structure):
    """bandwidth.c's `runners`."""

    _fields_ = (("stack", ctypes.c_uint64), ("others", ctypes.c_uint32))


class Bandwidth:
    """A buffer for bandwidth measurements; call `read_gbs` between rounds. Raises UnsupportedError without a
    compiler.
    """

    def __init__(self, compiler: str = "") -> None:
        content = build.compile_library(build.find_compiler(compiler), "native", files=(SOURCE,))
        with tempfile.TemporaryDirectory(prefix="zinc-rt-") as folder:
            path = Path(folder) / "bandwidth.so"
            path.write_bytes(content)
            self.code = ctypes.CDLL(str(path))
        self.code.read_all.restype = ctypes.c_uint64
        self.code.read_all.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        self._buffer = allocate_aligned(BUFFER_BYTES)
        self._buffer.fill(1)  # touched, because all untouched pages are the same page of zeros

    def read_gbs(self, threads: int) -> float:
        """Return the total GB/s of `threads` threads, the best of a few passes."""
        return max(self._run_pass(threads) for _ in range(PASSES))

    def _run_pass(self, threads: int) -> float:
        part = BUFFER_BYTES // threads // STEP_BYTES * STEP_BYTES
        base = self._buffer.ctypes.data
        together = threading.Barrier(threads)
        times: list[tuple[float, float]] = []

        def read(number: int) -> None:
            together.wait()
            started = time.perf_counter()
            self.code.read_all(base + number * part, part)
            times.append((started, time.perf_counter()))

        workers = [threading.Thread(target=read, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        seconds = max(end for _, end in times) - min(start for start, _ in times)
        return part * threads / seconds / 1e9

    def measure_empty_node(self, threads: int) -> float | None:
        """Return the microseconds of an empty task followed by a barrier: the median over programs in which the
        threads alternated; None if they never did, as on a busy machine.
        """
        tasks = allocate_aligned(EMPTY_NODES * TASK.itemsize).view(TASK)
        tasks["run"] = ctypes.cast(self.code.nothing, ctypes.c_void_p).value
        seen = BandwidthThreads()
        tasks["arguments"] = ctypes.addressof(seen)
        tasks["dims"], tasks["barrier"], tasks["least"], tasks["most"] = 1, 1, 1, ANY
        cells, counts = allocate_aligned(EMPTY_NODES * LINE_BYTES), np.zeros(16, np.int32)
        program = TaskListStruct(tasks.ctypes.data, counts.ctypes.data, cells.ctypes.data, EMPTY_NODES, 0)
        helpers = HelperThreads(build_library().handle, threads)
        seconds = []
        try:
            for _ in range(EMPTY_RUNS):
                seen.stack, seen.others = 0, 0
                started = time.perf_counter()
                helpers.run(program)
                ended = time.perf_counter()
                if threads == 1 or seen.others > EMPTY_NODES * SHARED / threads:
                    seconds.append(ended - started)
        finally:
            helpers.settle()
            helpers.close()
        return float(np.median(seconds)) / EMPTY_NODES * 1e6 if len(seconds) >= EMPTY_COUNTED else None


def has_settled(readings: Sequence[float]) -> float:
    """Return (largest - smallest) / largest."""
    return (max(readings) - min(readings)) / max(readings)
