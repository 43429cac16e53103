"""Scalar instructions: results and SCC worked out by hand, many of them the ISA guide's own examples."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from machine_words import EXEC, LITERAL, M0, encode_constant, s_move, sop1, sop2, sopc, sopk
from scalar_cases import DESTINATION, FIRST, SECOND, ScalarCase, run_cases

ONES = 0xFFFFFFFF
ALL = (1 << 64) - 1


def f32_bits(value: float) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0]


def f16_bits(value: float) -> int:
    return struct.unpack("<H", struct.pack("<e", value))[0]


def two_operand_case(
    name: str, first: int, second: int, expected: int, scc_after: int | None = None, **more
) -> ScalarCase:
    wide = name.split("_")[-1] in ("b64", "u64", "i64")
    words = [sop2(name, DESTINATION, FIRST, SECOND)]
    label = f"{name} {first:#x} {second:#x}"
    return ScalarCase(label, words, first, second, expected, wide=wide, scc_after=scc_after, **more)


def one_operand_case(
    name: str, first: int, expected: int, scc_after: int | None = None, *, wide=False, **more
) -> ScalarCase:
    words = [sop1(name, DESTINATION, FIRST)]
    return ScalarCase(f"{name} {first:#x}", words, first, 0, expected, wide=wide, scc_after=scc_after, **more)


def compare_case(name: str, first: int, second: int, scc_after: int) -> ScalarCase:
    return ScalarCase(
        f"{name} {first:#x} {second:#x}", [sopc(name, FIRST, SECOND)], first, second, scc_after=scc_after
    )


INTEGERS = [
    two_operand_case("s_add_co_u32", ONES, 1, 0, 1),
    two_operand_case("s_add_co_u32", 0x7FFFFFFF, 1, 0x80000000, 0),
    two_operand_case("s_sub_co_u32", 1, 2, ONES, 1),
    two_operand_case("s_sub_co_u32", 2, 2, 0, 0),
    two_operand_case("s_add_co_i32", 0x7FFFFFFF, 1, 0x80000000, 1),
    two_operand_case("s_add_co_i32", ONES, 1, 0, 0),
    two_operand_case("s_sub_co_i32", 0x80000000, 1, 0x7FFFFFFF, 1),
    two_operand_case("s_sub_co_i32", 5, 7, 0xFFFFFFFE, 0),
    two_operand_case("s_add_co_ci_u32", ONES, 0, 0, 1, scc=1),
    two_operand_case("s_add_co_ci_u32", 1, 2, 3, 0, scc=0),
    two_operand_case("s_sub_co_ci_u32", 0, 0, ONES, 1, scc=1),
    two_operand_case("s_sub_co_ci_u32", 5, ONES, 5, 1, scc=1),
    two_operand_case("s_absdiff_i32", 2, 5, 3, 1),
    two_operand_case("s_absdiff_i32", 0x80000000, 0, 0x80000000, 1),
    two_operand_case("s_absdiff_i32", 0x80000000, ONES, 0x7FFFFFFF, 1),
    two_operand_case("s_absdiff_i32", 9, 9, 0, 0),
    two_operand_case("s_lshl_b32", 3, 33, 6, 1),
    two_operand_case("s_lshl_b32", 0x80000000, 1, 0, 0),
    two_operand_case("s_lshl_b64", 1, 63, 1 << 63, 1),
    two_operand_case("s_lshl_b64", 1, 64, 1, 1),
    two_operand_case("s_lshr_b32", 0x80000000, 31, 1, 1),
    two_operand_case("s_lshr_b64", 1 << 63, 32, 1 << 31, 1),
    two_operand_case("s_ashr_i32", 0x80000000, 4, 0xF8000000, 1),
    two_operand_case("s_ashr_i64", 1 << 63, 63, ALL, 1),
    two_operand_case("s_lshl1_add_u32", 0x80000000, 3, 3, 1),
    two_operand_case("s_lshl2_add_u32", 3, 4, 16, 0),
    two_operand_case("s_lshl3_add_u32", 0x20000000, ONES, ONES, 1),
    two_operand_case("s_lshl4_add_u32", 1, 1, 17, 0),
    two_operand_case("s_min_i32", ONES, 1, ONES, 1),
    two_operand_case("s_min_i32", 1, 1, 1, 0),
    two_operand_case("s_min_u32", ONES, 1, 1, 0),
    two_operand_case("s_max_i32", 1, 1, 1, 1),
    two_operand_case("s_max_i32", ONES, 1, 1, 0),
    two_operand_case("s_max_u32", ONES, 1, ONES, 1),
    two_operand_case("s_and_b32", 0xF0, 0x3C, 0x30, 1),
    two_operand_case("s_and_b64", 1 << 40, 1 << 41, 0, 0),
    two_operand_case("s_or_b32", 0, 0, 0, 0),
    two_operand_case("s_or_b64", 1 << 63, 1, 1 << 63 | 1, 1),
    two_operand_case("s_xor_b32", 0xFF, 0x0F, 0xF0, 1),
    two_operand_case("s_xor_b64", ALL, ALL, 0, 0),
    two_operand_case("s_nand_b32", ONES, ONES, 0, 0),
    two_operand_case("s_nand_b64", 1, 1, ALL - 1, 1),
    two_operand_case("s_nor_b32", 0, 0xF, 0xFFFFFFF0, 1),
    two_operand_case("s_nor_b64", ALL, 0, 0, 0),
    two_operand_case("s_xnor_b32", 5, 5, ONES, 1),
    two_operand_case("s_xnor_b64", ALL, 0, 0, 0),
    two_operand_case("s_and_not1_b32", 0xFF, 0x0F, 0xF0, 1),
    two_operand_case("s_and_not1_b64", 3, 3, 0, 0),
    two_operand_case("s_or_not1_b32", 0, ONES, 0, 0),
    two_operand_case("s_or_not1_b64", 0, 1, ALL - 1, 1),
    two_operand_case("s_bfe_u32", 0x12345678, 8 << 16 | 4, 0x67, 1),
    two_operand_case("s_bfe_u32", ONES, 0 << 16 | 4, 0, 0),
    two_operand_case("s_bfe_u32", 0xABCD0000, 40 << 16 | 16, 0xABCD, 1),
    two_operand_case("s_bfe_i32", 0x80, 4 << 16 | 4, 0xFFFFFFF8, 1),
    two_operand_case("s_bfe_i32", 0x80000000, 32 << 16, 0x80000000, 1),
    two_operand_case("s_bfe_i32", 0x70, 4 << 16 | 4, 7, 1),
    two_operand_case("s_bfe_u64", 0x123456789ABCDEF0, 12 << 16 | 36, 0x567, 1),
    two_operand_case("s_bfe_i64", 1 << 47, 8 << 16 | 40, ALL - 0x7F, 1),
    two_operand_case("s_bfm_b32", 4, 8, 0xF00),
    two_operand_case("s_bfm_b32", 32, 8, 0),
    two_operand_case("s_bfm_b64", 40, 20, ((1 << 40) - 1) << 20),
    two_operand_case("s_mul_i32", 0xFFFFFFFE, 3, 0xFFFFFFFA),
    two_operand_case("s_mul_hi_u32", ONES, ONES, 0xFFFFFFFE),
    two_operand_case("s_mul_hi_i32", ONES, 5, ONES),
    two_operand_case("s_mul_u64", 1 << 33 | 1, 3, 3 << 33 | 3),
    two_operand_case("s_add_nc_u64", ALL, 2, 1),
    two_operand_case("s_sub_nc_u64", 0, 1, ALL),
    two_operand_case("s_cselect_b32", 1, 2, 1, scc=1),
    two_operand_case("s_cselect_b64", ALL, 2, 2, scc=0),
    two_operand_case("s_pack_ll_b32_b16", 0x11112222, 0x33334444, 0x44442222),
    two_operand_case("s_pack_lh_b32_b16", 0x11112222, 0x33334444, 0x33332222),
    two_operand_case("s_pack_hh_b32_b16", 0x11112222, 0x33334444, 0x33331111),
    two_operand_case("s_pack_hl_b32_b16", 0x11112222, 0x33334444, 0x44441111),
    one_operand_case("s_mov_b32", 0xDEADBEEF, 0xDEADBEEF, scc=1),
    one_operand_case("s_mov_b64", 1 << 50 | 3, 1 << 50 | 3, wide=True),
    one_operand_case("s_cmov_b32", 7, 7, scc=1),
    one_operand_case("s_cmov_b32", 7, 9, scc=0, before=9),
    one_operand_case("s_cmov_b64", ALL, 9, scc=0, before=9, wide=True),
    one_operand_case("s_not_b32", ONES, 0, 0),
    one_operand_case("s_not_b64", 1, ALL - 1, 1, wide=True),
    one_operand_case("s_brev_b32", 1, 0x80000000),
    one_operand_case("s_brev_b64", 2, 1 << 62, wide=True),
    one_operand_case("s_ctz_i32_b32", 0xAAAAAAAA, 1),
    one_operand_case("s_ctz_i32_b32", 0, ONES),
    one_operand_case("s_ctz_i32_b64", 1 << 40, 40),
    one_operand_case("s_ctz_i32_b64", 0, ONES),
    one_operand_case("s_clz_i32_u32", 0xCCCC, 16),
    one_operand_case("s_clz_i32_u32", 0, ONES),
    one_operand_case("s_clz_i32_u64", 1, 63),
    one_operand_case("s_cls_i32", 0, ONES),
    one_operand_case("s_cls_i32", 0xCCCC, 16),
    one_operand_case("s_cls_i32", 0xFFFF3333, 16),
    one_operand_case("s_cls_i32", 0x7FFFFFFF, 1),
    one_operand_case("s_cls_i32", 0x80000000, 1),
    one_operand_case("s_cls_i32", ONES, ONES),
    one_operand_case("s_cls_i32_i64", 1, 63),
    one_operand_case("s_sext_i32_i8", 0x180, 0xFFFFFF80),
    one_operand_case("s_sext_i32_i16", 0x18000, 0xFFFF8000),
    one_operand_case("s_bitset0_b32", 36, ONES - 16, before=ONES),
    one_operand_case("s_bitset0_b64", 36, ALL - (1 << 36), before=ALL, wide=True),
    one_operand_case("s_bitset1_b32", 31, 0x80000000, before=0),
    one_operand_case("s_bitset1_b64", 40, 1 << 40, before=0, wide=True),
    one_operand_case("s_bitreplicate_b64_b32", 0x80000005, 0xC000000000000033, wide=True),
    one_operand_case("s_abs_i32", 0x80000000, 0x80000000, 1),
    one_operand_case("s_abs_i32", 0x80000001, 0x7FFFFFFF, 1),
    one_operand_case("s_abs_i32", 0, 0, 0),
    one_operand_case("s_bcnt0_i32_b32", 0, 32, 1),
    one_operand_case("s_bcnt0_i32_b32", ONES, 0, 0),
    one_operand_case("s_bcnt0_i32_b64", 1, 63, 1),
    one_operand_case("s_bcnt1_i32_b32", 0xCCCCCCCC, 16, 1),
    one_operand_case("s_bcnt1_i32_b64", ALL, 64, 1),
    one_operand_case("s_quadmask_b32", 0xF0010020, 0b10010010, 1),
    one_operand_case("s_quadmask_b64", 1 << 63 | 1, 0x8001, 1, wide=True),
    one_operand_case("s_quadmask_b32", 0, 0, 0),
    one_operand_case("s_wqm_b32", 0x80010020, 0xF00F00F0, 1),
    one_operand_case("s_wqm_b64", 1 << 62 | 1, 0xF << 60 | 0xF, 1, wide=True),
    ScalarCase("s_movk_i32", [sopk("s_movk_i32", DESTINATION, -2)], expected=0xFFFFFFFE),
    ScalarCase("s_cmovk_i32", [sopk("s_cmovk_i32", DESTINATION, -2)], expected=1, before=1, scc=0),
    ScalarCase("s_cmovk_i32 taken", [sopk("s_cmovk_i32", DESTINATION, 8)], expected=8, scc=1),
    ScalarCase(
        "s_addk_co_i32", [sopk("s_addk_co_i32", DESTINATION, -1)], expected=0x7FFFFFFF, before=1 << 31, scc_after=1
    ),
    ScalarCase(
        "s_addk_co_i32 no overflow", [sopk("s_addk_co_i32", DESTINATION, 5)], expected=4, before=ONES, scc_after=0
    ),
    ScalarCase("s_mulk_i32", [sopk("s_mulk_i32", DESTINATION, -3)], expected=ONES - 14, before=5),
    compare_case("s_cmp_eq_i32", 5, 5, 1),
    compare_case("s_cmp_lg_i32", 5, 5, 0),
    compare_case("s_cmp_gt_i32", ONES, 1, 0),
    compare_case("s_cmp_ge_i32", 1, 1, 1),
    compare_case("s_cmp_lt_i32", ONES, 1, 1),
    compare_case("s_cmp_le_i32", 2, 1, 0),
    compare_case("s_cmp_eq_u32", 5, 6, 0),
    compare_case("s_cmp_lg_u32", 5, 6, 1),
    compare_case("s_cmp_gt_u32", ONES, 1, 1),
    compare_case("s_cmp_ge_u32", 0, 1, 0),
    compare_case("s_cmp_lt_u32", ONES, 1, 0),
    compare_case("s_cmp_le_u32", 1, 1, 1),
    compare_case("s_cmp_eq_u64", 1 << 40, 1 << 41, 0),
    compare_case("s_cmp_lg_u64", 1 << 40, 1 << 41, 1),
    compare_case("s_bitcmp0_b32", 4, 2, 0),
    compare_case("s_bitcmp1_b32", 4, 34, 1),
    compare_case("s_bitcmp0_b64", 1 << 40, 41, 1),
    compare_case("s_bitcmp1_b64", 1 << 40, 40, 1),
]
FLOATS = [
    two_operand_case("s_add_f32", f32_bits(1.0), f32_bits(2.0**-24), f32_bits(1.0)),
    two_operand_case("s_add_f32", f32_bits(1.0 + 2.0**-23), f32_bits(2.0**-24), f32_bits(1.0 + 2.0**-22)),
    two_operand_case("s_sub_f32", f32_bits(1.0), f32_bits(1.0), 0),
    two_operand_case("s_mul_f32", f32_bits(2.0**-100), f32_bits(2.0**-49), 1),
    two_operand_case(
        "s_fmac_f32",
        f32_bits(1 + 2.0**-12),
        f32_bits(1 + 2.0**-12),
        f32_bits(2.0**-24),
        before=f32_bits(-(1 + 2.0**-11)),
    ),
    two_operand_case("s_min_num_f32", 0x80000000, 0, 0x80000000),
    two_operand_case("s_min_num_f32", 0x7FC00000, f32_bits(3.0), f32_bits(3.0)),
    two_operand_case("s_max_num_f32", 0x80000000, 0, 0),
    two_operand_case("s_max_num_f32", f32_bits(3.0), 0x7FC00000, f32_bits(3.0)),
    two_operand_case("s_minimum_f32", f32_bits(1.0), f32_bits(-1.0), f32_bits(-1.0)),
    two_operand_case("s_maximum_f32", 0, 0x80000000, 0),
    two_operand_case(
        "s_cvt_pk_rtz_f16_f32", f32_bits(65519.0), f32_bits(-1.9999), f16_bits(65504.0) | f16_bits(-1.999) << 16
    ),
    two_operand_case("s_cvt_pk_rtz_f16_f32", f32_bits(1e9), f32_bits(float("inf")), 0x7BFF | 0x7C00 << 16),
    two_operand_case("s_add_f16", 0x55550000 | f16_bits(1.5), f16_bits(2.0), f16_bits(3.5)),
    two_operand_case("s_mul_f16", f16_bits(2.0**-14), f16_bits(0.5), f16_bits(2.0**-15)),
    two_operand_case("s_fmac_f16", f16_bits(2.0**-12), f16_bits(2.0**-12), f16_bits(1.0), before=f16_bits(1.0)),
    two_operand_case("s_min_num_f16", 0x7E00, f16_bits(2.0), f16_bits(2.0)),
    two_operand_case("s_maximum_f16", f16_bits(2.0), f16_bits(5.0), f16_bits(5.0)),
    one_operand_case("s_ceil_f32", f32_bits(-0.5), 0x80000000),
    one_operand_case("s_floor_f32", f32_bits(-0.5), f32_bits(-1.0)),
    one_operand_case("s_trunc_f32", f32_bits(-1.7), f32_bits(-1.0)),
    one_operand_case("s_rndne_f32", f32_bits(2.5), f32_bits(2.0)),
    one_operand_case("s_rndne_f16", f16_bits(3.5), f16_bits(4.0)),
    one_operand_case("s_cvt_f32_i32", ONES, f32_bits(-1.0)),
    one_operand_case("s_cvt_f32_u32", 0xFFFFFFFF, f32_bits(4294967296.0)),
    one_operand_case("s_cvt_i32_f32", f32_bits(-1.9), ONES),
    one_operand_case("s_cvt_i32_f32", f32_bits(3e9), 0x7FFFFFFF),
    one_operand_case("s_cvt_i32_f32", 0x7FC00000, 0),
    one_operand_case("s_cvt_u32_f32", f32_bits(-5.0), 0),
    one_operand_case("s_cvt_u32_f32", f32_bits(1e20), ONES),
    one_operand_case("s_cvt_f16_f32", f32_bits(1.0 + 2.0**-11), f16_bits(1.0)),
    one_operand_case("s_cvt_f16_f32", f32_bits(65520.0), 0x7C00),
    one_operand_case("s_cvt_f32_f16", 0xFFFF0001, f32_bits(2.0**-24)),
    one_operand_case("s_cvt_hi_f32_f16", f16_bits(-2.5) << 16, f32_bits(-2.5)),
    compare_case("s_cmp_lt_f32", f32_bits(1.0), f32_bits(2.0), 1),
    compare_case("s_cmp_lt_f32", 0x7FC00000, f32_bits(2.0), 0),
    compare_case("s_cmp_nlt_f32", 0x7FC00000, f32_bits(2.0), 1),
    compare_case("s_cmp_eq_f32", 0x80000000, 0, 1),
    compare_case("s_cmp_neq_f32", 0x7FC00000, 0x7FC00000, 1),
    compare_case("s_cmp_lg_f32", 0x7FC00000, 0, 0),
    compare_case("s_cmp_nlg_f32", 0x7FC00000, 0, 1),
    compare_case("s_cmp_le_f32", f32_bits(2.0), f32_bits(2.0), 1),
    compare_case("s_cmp_nle_f32", f32_bits(2.0), f32_bits(2.0), 0),
    compare_case("s_cmp_gt_f32", f32_bits(3.0), f32_bits(2.0), 1),
    compare_case("s_cmp_ngt_f32", f32_bits(3.0), f32_bits(2.0), 0),
    compare_case("s_cmp_ge_f32", f32_bits(3.0), f32_bits(3.0), 1),
    compare_case("s_cmp_nge_f32", f32_bits(2.0), f32_bits(3.0), 1),
    compare_case("s_cmp_o_f32", f32_bits(2.0), f32_bits(3.0), 1),
    compare_case("s_cmp_u_f32", f32_bits(2.0), 0x7FC00000, 1),
    compare_case("s_cmp_lt_f16", f16_bits(-1.0), f16_bits(1.0), 1),
    compare_case("s_cmp_u_f16", 0x7E00, 0, 1),
]
CONSTANTS = [
    ScalarCase(
        "inline 1.0 in 64 bits", [sop1("s_mov_b64", DESTINATION, 242)], expected=0x3FF0000000000000, wide=True
    ),
    ScalarCase("inline 1/(2 pi)", [sop1("s_mov_b32", DESTINATION, 248)], expected=0x3E22F983),
    ScalarCase(
        "inline -16 in 64 bits",
        [sop1("s_mov_b64", DESTINATION, encode_constant(-16))],
        expected=ALL - 15,
        wide=True,
    ),
    ScalarCase(
        "literal in 64 bits is zero-extended",
        [sop2("s_or_b64", DESTINATION, LITERAL, encode_constant(0)), 0x80000001],
        expected=0x80000001,
        wide=True,
        scc_after=1,
    ),
    ScalarCase(
        "literal in a signed 64-bit shift is sign-extended",
        [sop2("s_ashr_i64", DESTINATION, LITERAL, encode_constant(4)), 0x80000000],
        expected=ALL - 0x7FFFFFF,
        wide=True,
        scc_after=1,
    ),
    ScalarCase("inline half", [sop2("s_add_f16", DESTINATION, 240, 242)], expected=f16_bits(1.5)),
    ScalarCase("src_scc", [sop1("s_mov_b32", DESTINATION, 253)], expected=1, scc=1),
    ScalarCase("null reads 0", [sop1("s_mov_b64", DESTINATION, 124)], expected=0, wide=True),
]
INDEXED = [
    ScalarCase("s_movrels_b32", [*s_move(M0, 2), sop1("s_movrels_b32", DESTINATION, FIRST)], 1, 0x77, 0x77),
    ScalarCase(
        "s_movrels_b64",
        [*s_move(M0, 2), sop1("s_movrels_b64", DESTINATION, FIRST)],
        1,
        7 << 33,
        7 << 33,
        wide=True,
    ),
    ScalarCase("s_movreld_b32", [*s_move(M0, 4), sop1("s_movreld_b32", FIRST, SECOND)], 1, 0x88, 0x88),
    ScalarCase(
        "s_movrelsd_2_b32",
        [*s_move(M0, 4 << 16 | 2), sop1("s_movrelsd_2_b32", FIRST, FIRST)],
        1,
        0x99,
        0x99,
    ),
]


def exec_case(name: str, first: int, exec_before: int, saved: int, exec_after: int) -> ScalarCase:
    """EXEC is restored by a move from s28, so its value is read through s30."""
    words = [
        *s_move(EXEC, exec_before),
        sop1(name, DESTINATION, FIRST),
        sop1("s_mov_b32", DESTINATION + 1, EXEC),
        sop1("s_mov_b32", EXEC, encode_constant(-1)),
    ]
    return ScalarCase(name, words, first, 0, saved | exec_after << 32, wide=True, scc_after=int(exec_after != 0))


SAVE_EXEC = [
    exec_case("s_and_saveexec_b32", 0b0110, 0b1100, 0b1100, 0b0100),
    exec_case("s_or_saveexec_b32", 0b0110, 0b1100, 0b1100, 0b1110),
    exec_case("s_xor_saveexec_b32", 0b0110, 0b0110, 0b0110, 0),
    exec_case("s_nand_saveexec_b32", 0b0110, 0b1100, 0b1100, ONES - 0b0100),
    exec_case("s_nor_saveexec_b32", ONES, 0b1100, 0b1100, 0),
    exec_case("s_xnor_saveexec_b32", 0b0110, 0b1100, 0b1100, ONES - 0b1010),
    exec_case("s_and_not0_saveexec_b32", 0b0110, 0b1100, 0b1100, 0b1000),
    exec_case("s_or_not0_saveexec_b32", 0b0110, 0b1100, 0b1100, ONES - 0b0010),
    exec_case("s_and_not1_saveexec_b32", 0b0110, 0b1100, 0b1100, 0b0010),
    exec_case("s_or_not1_saveexec_b32", 0b0110, 0b1100, 0b1100, ONES - 0b1000),
    exec_case("s_and_not0_wrexec_b32", 0b0110, 0b1100, 0b1000, 0b1000),
    exec_case("s_and_not1_wrexec_b32", 0b0110, 0b1100, 0b0010, 0b0010),
]


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(
    "cases",
    [INTEGERS, FLOATS, CONSTANTS, INDEXED, SAVE_EXEC],
    ids=["integers", "floats", "constants", "indexed", "save exec"],
)
def test_destination_and_scc_match_expected_values(cases: list[ScalarCase]) -> None:
    wrong = []
    for case, (destination, scc) in zip(cases, run_cases(cases), strict=True):
        wanted_scc = case.scc if case.scc_after is None else case.scc_after
        shown = destination if case.wide else destination & ONES
        if case.expected is not None and shown != case.expected:
            wrong.append(f"{case.name}: {shown:#x}, expected {case.expected:#x}")
        if scc != wanted_scc:
            wrong.append(f"{case.name}: SCC {scc}, expected {wanted_scc}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.rest
def test_half_fma_rounds_once() -> None:
    """Against exact arithmetic in integers, on products near the middle of two halves."""
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 0x7C00, (200, 3)).astype(np.uint16) | (rng.integers(0, 2, (200, 3)) << 15).astype(
        np.uint16
    )
    cases = []
    for a, b, c in bits.tolist():
        x, y, z = (float(np.uint16(v).view(np.float16)) for v in (a, b, c))
        exact = x * y + z if abs(x * y + z) < 65520 else None  # doubles hold most of these exactly
        if exact is None or exact - z != x * y or (exact - x * y) != z:
            continue
        expected = int(np.float64(exact).astype(np.float16).view(np.uint16))
        cases.append(two_operand_case("s_fmac_f16", a, b, expected, before=c))
    assert len(cases) > 50
    wrong = [
        f"{case.name} + {case.before:#x}: {got:#x}, expected {case.expected:#x}"
        for case, (got, _) in zip(cases, run_cases(cases), strict=True)
        if got & ONES != case.expected
    ]
    assert not wrong, "\n".join(wrong)
