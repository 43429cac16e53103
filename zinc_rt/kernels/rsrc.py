"""COMPUTE_PGM_RSRC1 to 3 of a gfx12 kernel, computed from its header."""

from __future__ import annotations

FLOAT_MODE = 0xF0  # round to nearest even; denormals of every width kept
USER_SGPRS = 2  # s[0:1], the address of the kernarg block
LDS_UNIT_BYTES = 512
VGPR_UNIT = {32: 8, 64: 4}
CACHE_LINE_BYTES = 128  # instruction cache line: the unit of INST_PREF_SIZE
PREFETCH_MAXIMUM = 255  # INST_PREF_SIZE has 8 bits on gfx12

_WGP_MODE, _MEM_ORDERED, _FWD_PROGRESS = 1 << 29, 1 << 30, 1 << 31
_TGID_XYZ_EN = 0b111 << 7


def encode_rsrc1(vgprs: int, wave: int) -> int:
    blocks = max(1, -(-vgprs // VGPR_UNIT[wave])) - 1
    return blocks | FLOAT_MODE << 12 | _WGP_MODE | _MEM_ORDERED | _FWD_PROGRESS


def encode_rsrc2(workgroup: tuple[int, int, int], lds_bytes: int, scratch_bytes: int) -> int:
    dimensions = 2 if workgroup[2] > 1 else 1 if workgroup[1] > 1 else 0
    lds = -(-lds_bytes // LDS_UNIT_BYTES)
    return (scratch_bytes > 0) | USER_SGPRS << 1 | _TGID_XYZ_EN | dimensions << 11 | lds << 15


def encode_rsrc3(code_bytes: int) -> int:
    return min(-(-code_bytes // CACHE_LINE_BYTES), PREFETCH_MAXIMUM) << 4
