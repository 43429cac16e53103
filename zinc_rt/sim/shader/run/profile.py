"""What kernels did, in counts: how often each block of a kernel ran says how many instructions, and what memory
instructions asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from zinc_rt.isa import Target
from zinc_rt.sim.shader.translate.cfg import graph_of

_BITS = re.compile(r"_(?:load|store)(?:_tr)?_(?:d16_)?(?:hi_)?[uib](\d+)")
_SCALAR = ("s_load", "s_buffer_load")
_MEMORY = ("global_", "buffer_", "flat_", "scratch_", *_SCALAR)


@dataclass(slots=True)
class KernelCounters:
    """Of one kernel on one device, since it was made. `instructions` (of waves) and `bytes` (loaded and stored by
    full waves, LDS aside) are counted where the device was made with `profile`, else 0."""

    name: str
    dispatches: int = 0
    waves: int = 0
    seconds: float = 0.0
    findings: int = 0
    instructions: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class BlockWeights:
    """[blocks] int64 each: instructions, and bytes that a full wave loads and stores, of one run of a block."""

    instructions: np.ndarray
    bytes: np.ndarray


def block_weights(code: bytes, wave: int, entry: int = 0) -> BlockWeights:
    blocks = graph_of(code, entry, Target(12, wave)).blocks.values()
    return BlockWeights(
        np.array([len(block.code) for block in blocks], np.int64),
        np.array([sum(bytes_of(each.mnemonic, wave) for _, each in block.code) for block in blocks], np.int64),
    )


def bytes_of(mnemonic: str, wave: int) -> int:
    """What an instruction moves between memory and the registers of a full wave."""
    found = _BITS.search(mnemonic) if mnemonic.startswith(_MEMORY) else None
    if found is None:
        return 0
    return int(found.group(1)) // 8 * (1 if mnemonic.startswith(_SCALAR) else wave)
