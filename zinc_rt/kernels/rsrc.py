"""COMPUTE_PGM_RSRC1 to 3 of a kernel, computed from its header."""

from __future__ import annotations

FLOAT_MODE = 0xF0  # round to nearest even; denormals of every width kept
# s[0:1], the address of the kernarg block. With the four system SGPRs that follow, gfx11 has 16: on gfx1100 and
# gfx1102 a wave of fewer starts with wrong ones (LLVM, FeatureUserSGPRInit16Bug).
USER_SGPRS = {11: 12, 12: 2}
LDS_UNIT_BYTES = 512
VGPR_UNIT = {32: 8, 64: 4}
CACHE_LINE_BYTES = 128  # instruction cache line: the unit of INST_PREF_SIZE
PREFETCH_MAXIMUM = {11: 63, 12: 255}  # INST_PREF_SIZE has 6 bits on gfx11, 8 on gfx12

_WGP_MODE, _MEM_ORDERED, _FWD_PROGRESS = 1 << 29, 1 << 30, 1 << 31
_DX10_CLAMP, _IEEE_MODE = 1 << 21, 1 << 23  # gfx11's: a clamped NaN is 0, signalling NaNs are quieted
_TGID_XYZ_EN, _TG_SIZE_EN = 0b111 << 7, 1 << 10  # TG_SIZE has the wave's number, which gfx12 provides in ttmp8


def encode_rsrc1(vgprs: int, wave: int, generation: int) -> int:
    blocks = max(1, -(-vgprs // VGPR_UNIT[wave])) - 1
    modes = _DX10_CLAMP | _IEEE_MODE if generation == 11 else 0
    return blocks | FLOAT_MODE << 12 | modes | _WGP_MODE | _MEM_ORDERED | _FWD_PROGRESS


def encode_rsrc2(workgroup: tuple[int, int, int], lds_bytes: int, scratch_bytes: int, generation: int) -> int:
    dimensions = 2 if workgroup[2] > 1 else 1 if workgroup[1] > 1 else 0
    lds = -(-lds_bytes // LDS_UNIT_BYTES)
    ids = _TGID_XYZ_EN | _TG_SIZE_EN if generation == 11 else _TGID_XYZ_EN
    return (scratch_bytes > 0) | USER_SGPRS[generation] << 1 | ids | dimensions << 11 | lds << 15


def encode_rsrc3(code_bytes: int, generation: int) -> int:
    return min(-(-code_bytes // CACHE_LINE_BYTES), PREFETCH_MAXIMUM[generation]) << 4
