"""The float part of MODE: rounding and denormal control (RDNA4 ISA 3.4, 7.2.4).

Bits 1:0 control rounding of 32-bit results, 3:2 of 16-bit and 64-bit results. Bits 5:4 and 7:6 keep denormals of
the same formats; the lower bit is for sources, the upper one for results. The initial values are
PGM_RSRC1.FLOAT_MODE and, for bit 23, PGM_RSRC1.FP16_OVFL: if set, 16-bit and 8-bit overflow gives the largest
number. On gfx11, bit 8 is DX10_CLAMP and bit 9 IEEE, from RSRC1 (RDNA3 ISA 3.4.2).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa.wave_rules import WaveRules
from zinc_rt.sim.shader.emit.values import FLOAT
from zinc_rt.sim.shader.layout import DX10_CLAMP, FP16_OVFL, IEEE

NEAREST_KEPT = 0xF0  # to nearest even, all denormals kept
_RESULTS_KEPT = 0xA0


def find_float_mode_bits(rules: WaveRules) -> int:
    """Return the bits of MODE that arithmetic depends on."""
    return 0xFF | FP16_OVFL | (DX10_CLAMP | IEEE) * rules.has_ieee_mode


class Rounding(IntEnum):
    """FP_ROUND values."""

    NEAREST = 0
    UP = 1
    DOWN = 2
    ZERO = 3


@dataclass(frozen=True, slots=True)
class FloatMode:
    """The bits of MODE that arithmetic depends on, queried by LLVM float type."""

    bits: int

    def rounding(self, of: ir.Type) -> Rounding:
        return Rounding(self.bits >> (0 if of is FLOAT else 2) & 3)

    def flushes_sources(self, of: ir.Type) -> bool:
        return not self._kept(of) & 1

    def flushes_results(self, of: ir.Type) -> bool:
        return not self._kept(of) & 2

    @property
    def saturates(self) -> bool:
        return bool(self.bits & FP16_OVFL)

    @property
    def clamps_nan(self) -> bool:
        """Return DX10_CLAMP, which only gfx11 has."""
        return bool(self.bits & DX10_CLAMP)

    @property
    def is_ieee(self) -> bool:
        """Return IEEE, which only gfx11 has."""
        return bool(self.bits & IEEE)

    def without_denormal_results(self) -> FloatMode:
        return replace(self, bits=self.bits & ~_RESULTS_KEPT)

    def _kept(self, of: ir.Type) -> int:
        return self.bits >> (4 if of is FLOAT else 6) & 3
