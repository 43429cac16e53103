"""Kernel profiles: instruction and memory traffic counts, computed from the execution counts of blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zinc_rt.isa import Instruction, Target
from zinc_rt.isa.control_flow import control_flow


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


def block_weights(code: bytes, target: Target, entry: int = 0) -> BlockWeights:
    """Return the weight of each block of the kernel, in the order of `Translation.blocks`."""
    blocks, wave = control_flow(code, target, entry, running=True).blocks.values(), target.wave
    return BlockWeights(
        np.array([len(block.instructions) for block in blocks], np.int64),
        np.array([sum(bytes_of(made, wave) for _, made in block.instructions) for block in blocks], np.int64),
    )


def bytes_of(instruction: Instruction, wave: int) -> int:
    """Return the bytes that an instruction moves between memory, except LDS, and the registers of a full wave."""
    row = instruction.row
    if row.unit not in ("load", "store", "smem"):
        return 0
    return row.access_bytes * (1 if row.unit == "smem" else wave)
