"""Programs of test kernels (pool_kernels.c) on kernels/native/c/pool.c, without graphs.

with Pool(threads=4) as pool:
    ran = np.zeros(100, np.uint32)
    assert pool.run([Step("count", (ran,), 100)]) == 0
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

import numpy as np
from kernels.native.libraries import find_compiler

from zinc_rt.backends.cpu import library
from zinc_rt.backends.cpu.host_memory import allocate_aligned
from zinc_rt.backends.cpu.tasks import IS_COUNT, LINE_BYTES, TASK, TaskListStruct
from zinc_rt.backends.cpu.threads import HelperThreads
from zinc_rt.kernels.native import build
from zinc_rt.kernels.native.task import ANY

KERNELS = Path(__file__).with_name("pool_kernels.c")
STOPPED = -1


@dataclass(frozen=True, slots=True)
class Step:
    """`items`: a number, or "counts[i]". Operands: arrays by address, numbers as 32 bits."""

    kernel: str
    operands: tuple[np.ndarray | int, ...]
    items: int | str
    barrier: bool = True
    least: int = 1
    most: int = ANY


class Program:
    def __init__(self, code: ctypes.CDLL, steps: Sequence[Step], counts: np.ndarray, shuffle: int = 0) -> None:
        self._tasks = allocate_aligned(max(len(steps), 1) * TASK.itemsize).view(TASK)
        self._blocks = [pack_block(step) for step in steps]
        self._cells = allocate_aligned(max(len(steps), 1) * LINE_BYTES)
        self._keeps = (steps, counts)
        for row, step, block in zip(self._tasks, steps, self._blocks, strict=False):
            row["run"] = ctypes.cast(getattr(code, f"zrt_{step.kernel}"), ctypes.c_void_p).value
            row["arguments"] = ctypes.addressof(block)
            row["dims"] = (encode_dim(step.items), 1, 1)
            row["barrier"], row["least"], row["most"] = step.barrier, step.least, step.most
        self.struct = TaskListStruct(
            self._tasks.ctypes.data, counts.ctypes.data, self._cells.ctypes.data, len(steps), shuffle
        )


def pack_block(step: Step) -> ctypes.Array[ctypes.c_char]:
    parts = [
        struct.pack("<I", operand) if isinstance(operand, int) else struct.pack("<Q", operand.ctypes.data)
        for operand in step.operands
    ]
    return ctypes.create_string_buffer(b"".join(parts))


def encode_dim(items: int | str) -> int:
    return items if isinstance(items, int) else IS_COUNT | int(items[7:-1])


class Pool:
    """Helpers with the test kernels' library."""

    def __init__(self, threads: int, affinity: tuple[int, ...] = ()) -> None:
        self.code = load_pool_library()
        self.helpers = HelperThreads(self.code, threads, affinity)
        self._programs: list[Program] = []

    def program(self, steps: Sequence[Step], counts: np.ndarray | None = None, shuffle: int = 0) -> Program:
        program = Program(self.code, steps, np.zeros(4, np.int32) if counts is None else counts, shuffle)
        self._programs.append(program)
        return program

    def run(self, steps: Sequence[Step] | Program) -> int:
        """0, STOPPED, or why << 32 | task."""
        program = steps if isinstance(steps, Program) else self.program(steps)
        return self.helpers.run(program.struct)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.helpers.close()


@cache
def load_pool_library() -> ctypes.CDLL:
    return library.load(build.compile_library(find_compiler(), "native", (), (build.SOURCES / "pool.c", KERNELS)))
