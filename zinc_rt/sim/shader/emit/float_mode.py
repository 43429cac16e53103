"""MODE's float part: how results are rounded, and which denormals are kept (RDNA4 ISA 3.4, 7.2.4).

Bits 1:0 round 32-bit results, 3:2 those of 16 and 64 bits; bits 5:4 and 7:6 keep denormals of the same formats,
the lower bit those of sources, the upper one those of results. A wave begins with PGM_RSRC1.FLOAT_MODE.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.emit.values import FLOAT

FLOAT_MODE_BITS = 8
NEAREST_KEPT = 0xF0  # to nearest even, all denormals kept


class Rounding(IntEnum):
    """FP_ROUND's codes."""

    NEAREST = 0
    UP = 1
    DOWN = 2
    ZERO = 3


@dataclass(frozen=True, slots=True)
class FloatMode:
    """MODE[7:0], asked by the LLVM type of a format."""

    bits: int

    def rounding(self, of: ir.Type) -> Rounding:
        return Rounding(self.bits >> (0 if of is FLOAT else 2) & 3)

    def flushes_sources(self, of: ir.Type) -> bool:
        return not self._kept(of) & 1

    def flushes_results(self, of: ir.Type) -> bool:
        return not self._kept(of) & 2

    def _kept(self, of: ir.Type) -> int:
        return self.bits >> (4 if of is FLOAT else 6) & 3
