"""Kernel profiles: counts of instructions and memory traffic, and executed code, from the executions of blocks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from zinc_rt.isa import Instruction, Target
from zinc_rt.isa.control_flow import find_control_flow
from zinc_rt.sim.executions import CodeExecution, KernelExecution, MemoryAccess


@dataclass(slots=True)
class KernelCounters:
    """Counters of one kernel on one device, since creation. `instructions` (of waves) and `bytes` (loaded and
    stored by full waves, except LDS) are 0 unless the device was created with `profile`.
    """

    name: str
    dispatches: int = 0
    waves: int = 0
    seconds: float = 0.0
    findings: int = 0
    instructions: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class BlockWeights:
    """Weights of blocks, [blocks] int64 each: instructions, and bytes loaded and stored by a full wave, per
    execution.
    """

    instructions: np.ndarray
    bytes: np.ndarray
    places: tuple[tuple[int, int], ...]  # (start, end) of each block, as offsets from the entry


def compute_block_weights(code: bytes, target: Target, entry: int = 0) -> BlockWeights:
    """Return the weight of each block of the kernel, in the order of `Translation.blocks`."""
    blocks, wave = find_control_flow(code, target, entry, running=True).blocks.values(), target.wave
    places = tuple((block.start - entry, block.end - entry) for block in blocks)
    return BlockWeights(
        np.array([len(block.instructions) for block in blocks], np.int64),
        np.array(
            [sum(count_moved_bytes(result, wave) for _, result in block.instructions) for block in blocks],
            np.int64,
        ),
        places,
    )


class ExecutionRecord:
    """The executions of one kernel in any number of launches."""

    def __init__(self, kernel: str) -> None:
        self.kernel = kernel
        self._code: Counter[tuple[int, int]] = Counter()
        self._accesses: dict[int, set[tuple[int, int]]] = {}

    def add(
        self, weights: BlockWeights, times: np.ndarray, accesses: dict[int, set[tuple[int, int]]], entry: int
    ) -> None:
        """Add a launch: `times` [blocks] executions, and the ranges that each instruction accessed, by offset in
        the code."""
        for location, count in zip(weights.places, times.tolist(), strict=True):
            self._code[location] += count
        for pc, ranges in accesses.items():
            self._accesses.setdefault(pc - entry, set()).update(ranges)

    def result(self) -> KernelExecution:
        code = (CodeExecution(start, end, times) for (start, end), times in self._code.items() if times)
        accesses = (MemoryAccess(pc, tuple(sorted(ranges))) for pc, ranges in sorted(self._accesses.items()))
        return KernelExecution(self.kernel, tuple(code), tuple(accesses))


def count_moved_bytes(instruction: Instruction, wave: int) -> int:
    """Return the bytes that an instruction moves between memory, except LDS, and the registers of a full wave."""
    row = instruction.row
    if row.unit not in ("load", "store", "smem"):
        return 0
    return row.access_bytes * (1 if row.unit == "smem" else wave)
