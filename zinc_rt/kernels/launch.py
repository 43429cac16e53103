"""The launches of a node: the dispatches of a GPU kernel table row, over logical buffers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from zinc_rt.ir.graph import Node, OpGraph

COUNTS = "step.counts"  # count of each symbol in a step: ir.graph.SYMBOLS

Grid = tuple[int | str, int | str, int | str]
"""Workgroups of each axis. A symbol of ir.graph.SYMBOLS is that count of the step, never its capacity."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A byte position in a buffer of the graph, by the buffer's name."""

    name: str
    offset_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Temp:
    """Device memory shared by the launches of one node, uninitialised at first use. A name always has the same
    size. `zeroed`: it is 0 at first use in each step, and shared with no other node."""

    name: str
    size_bytes: int
    zeroed: bool = False


@dataclass(frozen=True, slots=True)
class Stride:
    """A stand-in for a buffer argument: the 64-bit stride in bytes of a weight's dimension. Only for tiers that
    read weights in the file's layout; elsewhere packing fixes the strides."""

    name: str
    axis: int


Operand = Ref | Temp | Stride


@dataclass(frozen=True, slots=True)
class Launch:
    """One dispatch. The kernarg block is the buffers' addresses (None: 0), then the constants as dwords.

    `constants` are integers -2^31..2^32-1, or floats that are rounded to float32. `makes`: a temporary that
    depends only on the graph's buffers and that other launches only read. Nodes between two barriers with equal
    launches share it.
    """

    kernel: str
    buffers: tuple[Operand | None, ...]
    constants: tuple[int | float, ...] = ()
    grid: Grid = (1, 1, 1)
    makes: Temp | None = None

    @property
    def kernarg_bytes(self) -> int:
        return 8 * len(self.buffers) + 4 * len(self.constants)

    def pack_kernarg(self, address: Callable[[Operand], int]) -> bytes:
        """Return the block's bytes, little-endian."""
        addresses = (0 if buffer is None else address(buffer) for buffer in self.buffers)
        return b"".join((*(struct.pack("<Q", va) for va in addresses), *map(_pack_dword, self.constants)))


@dataclass(frozen=True, slots=True)
class Sync:
    """A barrier: earlier launches of this node finish, and their stores become visible, before later ones
    start."""


SYNC = Sync()


def list_kernel_names(
    code: Callable[..., Any], node: Node, graph: OpGraph, capacity: Mapping[str, int]
) -> tuple[str, ...]:
    """Return the kernels that a row's `code` launches for a node, in order; none if it is not a row of a GPU
    tier.
    """
    try:
        launches = list(code(node, graph, capacity))
    except (TypeError, AttributeError):
        return ()
    return tuple(dict.fromkeys(item.kernel for item in launches if isinstance(item, Launch)))


Launches = Callable[[Node, OpGraph, Mapping[str, int]], Iterable[Launch | Sync]]
"""(node, graph, capacity of each symbol) -> its dispatches. Launches without a SYNC between may overlap."""


def _pack_dword(value: int | float) -> bytes:
    if isinstance(value, float):
        return struct.pack("<f", value)
    return struct.pack("<I", value & 0xFFFFFFFF)
