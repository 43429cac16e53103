"""COMPUTE_PGM_RSRC1 to 3 of a kernel, computed from its header."""

from __future__ import annotations

from zinc_rt.isa.wave_rules import WaveRules

FLOAT_MODE = 0xF0  # round to nearest even; denormals of every width kept
LDS_UNIT_BYTES = 512
VGPR_UNIT = {32: 8, 64: 4}
CACHE_LINE_BYTES = 128  # instruction cache line: the unit of INST_PREF_SIZE

_DX10_CLAMP, _IEEE_MODE = 1 << 21, 1 << 23  # a clamped NaN is 0; signalling NaNs are quieted
_WGP_MODE, _MEM_ORDERED, _FWD_PROGRESS = 1 << 29, 1 << 30, 1 << 31
_TGID_XYZ_EN = 0b111 << 7
_TG_SIZE_EN = 1 << 10  # the wave's number in its workgroup
_SYSTEM_SGPRS = 4  # the ids and the wave's number, if they are not in TTMPs
_SGPRS_MINIMUM = 16  # gfx1100 and gfx1102 initialise fewer wrongly in wave32 (LLVM, FeatureUserSGPRInit16Bug)


def count_user_sgprs(rules: WaveRules) -> int:
    """Return the number of user SGPRs. s[0:1] is the address of the kernarg block; others are not used."""
    return 2 if rules.ids_in_ttmp else _SGPRS_MINIMUM - _SYSTEM_SGPRS


def count_initial_sgprs(rules: WaveRules) -> int:
    """Return the number of SGPRs that a wave starts with: user data and, if they are not in TTMPs, ids."""
    return count_user_sgprs(rules) + (0 if rules.ids_in_ttmp else _SYSTEM_SGPRS)


def encode_rsrc1(vgprs: int, wave: int, rules: WaveRules) -> int:
    blocks = max(1, -(-vgprs // VGPR_UNIT[wave])) - 1
    modes = _DX10_CLAMP | _IEEE_MODE if rules.has_ieee_mode else 0
    return blocks | FLOAT_MODE << 12 | modes | _WGP_MODE | _MEM_ORDERED | _FWD_PROGRESS


def encode_rsrc2(workgroup: tuple[int, int, int], lds_bytes: int, scratch_bytes: int, rules: WaveRules) -> int:
    dimensions = 2 if workgroup[2] > 1 else 1 if workgroup[1] > 1 else 0
    lds = -(-lds_bytes // LDS_UNIT_BYTES)
    ids = _TGID_XYZ_EN if rules.ids_in_ttmp else _TGID_XYZ_EN | _TG_SIZE_EN
    return (scratch_bytes > 0) | count_user_sgprs(rules) << 1 | ids | dimensions << 11 | lds << 15


def encode_rsrc3(code_bytes: int, rules: WaveRules) -> int:
    return min(-(-code_bytes // CACHE_LINE_BYTES), (1 << rules.prefetch_bits) - 1) << 4
