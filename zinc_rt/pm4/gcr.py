"""Cache operations: GCR_CNTL of ACQUIRE_MEM (19 bits) and its 13-bit subset in RELEASE_MEM.

Source: PAL's MEC packet headers and gfx12CmdUtil.cpp; pm4.md §3.4, §3.5. gfx12 has no GL1 and no metadata cache:
the GLM and GL1 bits are reserved, and ignored by hardware (tinygrad sets them).
"""

from __future__ import annotations

from collections.abc import Mapping

from zinc_rt.pm4.bits import Bits, pack, parse_bit_table
from zinc_rt.pm4.generation import Generation

_RANGE = {0: "all", 1: "vol", 2: "range", 3: "first_last"}
_SEQUENCE = {0: "parallel", 1: "forward", 2: "reverse"}

_ACQUIRE_11 = (
    Bits("GLI_INV", 1, 0, {0: "nop", 1: "all", 2: "range", 3: "first_last"}),
    Bits("GL1_RANGE", 3, 2, _RANGE),
    *parse_bit_table("GLM_WB 4, GLM_INV 5, GLK_WB 6, GLK_INV 7, GLV_INV 8, GL1_INV 9, GL2_US 10"),
    Bits("GL2_RANGE", 12, 11, _RANGE),
    *parse_bit_table("GL2_DISCARD 13, GL2_INV 14, GL2_WB 15"),
    Bits("SEQ", 17, 16, _SEQUENCE),
    Bits("RANGE_IS_PA", 18, 18),
)
_RELEASE_11 = (  # bit 0 here is bit 12 of the packet's first body dword
    *parse_bit_table("GLM_WB 0, GLM_INV 1, GLV_INV 2, GL1_INV 3, GL2_US 4"),
    Bits("GL2_RANGE", 6, 5, _RANGE),
    *parse_bit_table("GL2_DISCARD 7, GL2_INV 8, GL2_WB 9"),
    Bits("SEQ", 11, 10, _SEQUENCE),
    Bits("GLK_WB", 12, 12),
)
TOLERATED_GFX12 = ("GLM_WB", "GLM_INV", "GL1_INV")


def _remove_fields(fields: tuple[Bits, ...]) -> tuple[Bits, ...]:
    renamed = {"GL1_RANGE": "KV_RANGE"}  # on gfx12: the range of scalar and vector caches
    return tuple(
        Bits(renamed.get(f.name, f.name), f.high, f.low, f.values) for f in fields if f.name not in TOLERATED_GFX12
    )


ACQUIRE: Mapping[Generation, tuple[Bits, ...]] = {
    Generation.GFX11: _ACQUIRE_11,
    Generation.GFX12: _remove_fields(_ACQUIRE_11),
}
RELEASE: Mapping[Generation, tuple[Bits, ...]] = {
    Generation.GFX11: _RELEASE_11,
    Generation.GFX12: _remove_fields(_RELEASE_11),
}


def acquire(generation: Generation, **fields: int) -> int:
    """Return the GCR_CNTL for ACQUIRE_MEM: `acquire(gfx12, GLI_INV=1, GLK_INV=1, GLV_INV=1, GL2_INV=1)`."""
    return pack(ACQUIRE[generation], **fields)


def release(generation: Generation, **fields: int) -> int:
    """Return the gcr_cntl for RELEASE_MEM: `release(gfx12, GL2_WB=1, SEQ=1)`."""
    return pack(RELEASE[generation], **fields)
