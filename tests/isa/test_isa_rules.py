"""Rules of the text, each on an encoding worked out by hand; wave64 and structured operands."""

from __future__ import annotations

import pytest

from zinc_rt.isa import Kind, Target, decode, target_of
from zinc_rt.isa.effects import effects, format_registers

W32, W64, RDNA3 = target_of("gfx1201"), target_of("gfx1201", 64), target_of("gfx1100")


def disassemble(raw: str, target: Target = W32) -> str:
    text = decode(bytes.fromhex(raw), 0, target)
    return "INVALID" if text is None else text.text


@pytest.mark.parametrize(
    ("raw", "in_wave32", "in_wave64"),
    [
        ("0505027c", "v_cmp_lt_f16_e32 vcc_lo, v5, v2", "v_cmp_lt_f16_e32 vcc, v5, v2"),
        ("0a0011d401050200", "v_cmp_lt_f32_e64 s10, v1, v2", "v_cmp_lt_f32_e64 s[10:11], v1, v2"),
        ("01050a02", "v_cndmask_b32_e32 v5, v1, v2, vcc_lo", "v_cndmask_b32_e32 v5, v1, v2, vcc"),
        ("050001d501051a00", "v_cndmask_b32_e64 v5, v1, v2, s6", "v_cndmask_b32_e64 v5, v1, v2, s[6:7]"),
        ("050600d701050200", "v_add_co_u32 v5, s6, v1, v2", "v_add_co_u32 v5, s[6:7], v1, v2"),
        (
            "084040cc2061021d",
            "v_wmma_f32_16x16x16_f16 v[8:15], v[32:35], v[48:51], v[64:71]",
            "v_wmma_f32_16x16x16_f16 v[8:11], v[32:33], v[48:49], v[64:67]",
        ),
    ],
)
def test_lane_mask_and_matrix_widths_follow_wave_size(raw: str, in_wave32: str, in_wave64: str) -> None:
    assert disassemble(raw) == in_wave32
    assert disassemble(raw, W64) == in_wave64


def test_dual_instructions_are_wave32_only() -> None:
    assert disassemble("0104c8c8010406ff") == "v_dual_mul_f32 v255, s1, v2 :: v_dual_add_f32 v6, s1, v2"
    assert disassemble("0104c8c8010406ff", W64) == "INVALID"


@pytest.mark.parametrize(
    ("literal", "want"),
    [
        ("05000000", "lit(0x5)"),
        ("41000000", "0x41"),
        ("0000003f", "lit(0x3f000000)"),
        ("f0ffffff", "lit(0xfffffff0)"),
        ("efffffff", "0xffffffef"),
    ],
)
def test_literal_equal_to_inline_constant_is_printed_as_literal(literal: str, want: str) -> None:
    assert disassemble("ff008abe" + literal) == f"s_mov_b32 s10, {want}"


def test_operands_are_structured_data() -> None:
    text = decode(bytes.fromhex("050013d601050e04"), 0, W32)
    assert text is not None and text.mnemonic == "v_fma_f32" and text.encoding == "VOP3"
    assert [(operand.kind, operand.index, operand.width) for operand in text.operands] == [
        (Kind.VGPR, 5, 1),
        (Kind.VGPR, 1, 1),
        (Kind.VGPR, 2, 1),
        (Kind.VGPR, 3, 1),
    ]
    negative = decode(bytes.fromhex("050113d601050e24"), 0, W32)
    assert negative is not None and negative.text == "v_fma_f32 v5, -|v1|, v2, v3"
    assert negative.operands[1].negate and negative.operands[1].absolute and negative.operands[1].index == 1
    constant = decode(bytes.fromhex("c10080be"), 0, W32)
    assert constant is not None and constant.operands[1].value == -1
    load = decode(bytes.fromhex("7c0005ee0100000003c0ffff"), 0, W32)
    assert load is not None and load.text == "global_load_b32 v1, v[3:4], off offset:-64"
    offset = load.modifier("offset")
    assert offset is not None and offset.value == -64
    dual = decode(bytes.fromhex("0104c8c8010406ff"), 0, W32)
    assert dual is not None and dual.second is not None and dual.second.operands[0].index == 6


def test_dpp_keeps_every_lane_select_bit() -> None:
    """LLVM 22.1.8 drops bit 15 of the DPP dword of some opcodes; the hardware reads it."""
    assert disassemble("e9660a7e01ffffff") == "v_sqrt_f32_dpp v5, v1 dpp8:[7,7,7,7,7,7,7,7]"
    result = decode(bytes.fromhex("e9660a7e01ffffff"), 0, W32)
    assert result is not None and result.encoding == "VOP1_DPP8" and result.modifiers[0].value == (7,) * 8


def test_register_tuple_continues_from_s105_into_vcc() -> None:
    """RADV loads so; LLVM 22 has no such register."""
    assert disassemble("2f5a00f400000058") == "s_load_b128 s[104:107], s[94:95], s44 offset:0x0"
    instruction = decode(bytes.fromhex("2f5a00f400000058"), 0, W32)
    assert (
        instruction is not None
        and format_registers(effects(instruction, W32).writes) == "s[104:105], vcc_lo, vcc_hi"
    )


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("fdb80a7f", "a 16-bit destination beyond v127"),
        ("ff0e0a7e", "a literal that is missing"),
        ("d10080be", "source 209 has no meaning"),
        ("6b0180be", "a pair that starts at vcc_hi"),
        ("004024cc01050e5c", "neg_lo of a source without it"),
        ("010422ca810606ff", "v_dual_mov_b32 with a second source"),
    ],
)
def test_illegal_encodings_are_not_decoded(raw: str, reason: str) -> None:
    assert disassemble(raw) == "INVALID", reason


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        ("85050b64", "v_add_f16_e32 v5.l, v5.h, v2.h"),
        ("050832d501050200", "v_add_f16_e64 v5.l, v1.h, v2.l op_sel:[1,0,0]"),
        ("050052dc03007c40", "global_load_b32 v64, v[3:4], off offset:5"),
        ("04042cf4000000f8", "s_buffer_load_b256 s[16:23], s[8:11], null"),
        ("040400f4640000f8", "s_load_b32 s16, s[8:9], 0x64"),
        ("055050e010400204", "buffer_load_b32 v64, off, s[8:11], s4 offset:5 glc slc"),
        ("084040cc2061021d", "v_wmma_f32_16x16x16_f16 v[8:15], v[32:39], v[48:55], v[64:71]"),
    ],
)
def test_gfx11_encodings_decode(raw: str, want: str) -> None:
    assert disassemble(raw, RDNA3) == want
