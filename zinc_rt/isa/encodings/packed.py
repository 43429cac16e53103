"""VOP3P: packed 16-bit arithmetic, dot products, WMMA, SWMMAC, and their DPP forms.

Flags of a row:

| flag | means |
|---|---|
| packed | op_sel, op_sel_hi, neg_lo and neg_hi, a bit a source |
| mix | op_sel and op_sel_hi so, and neg and abs in place of neg_lo and neg_hi |
| loose | op_sel_hi means nothing; without these three op_sel_hi must be all ones and op_sel 0 |
| ignores | hardware ignores op_sel, op_sel_hi and clamp (captured), regardless of the text LLVM writes |
| l3 h3 | which sources have neg_lo, neg_hi (a bit a source) |
| c | has clamp |
| k1 k0 | how many bits from 11 on are index_key in wave32; one more in wave64 |
| dpp | has DPP forms |
| y2 y6 | there, source 1, or 1 and 2, must be vector registers |
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from zinc_rt.isa.encodings import dpp
from zinc_rt.isa.encodings.kinds import Decoder, accepts_literal, make_decoder
from zinc_rt.isa.encodings.vector import CLAMP, make_bits_modifier
from zinc_rt.isa.instruction import Instruction, Modifier
from zinc_rt.isa.operand import add_modifiers
from zinc_rt.isa.rows import InstructionRow, make_rows
from zinc_rt.isa.target import Target

_INDEX_KEY = tuple(Modifier("index_key", f"index_key:{i}", i) for i in range(4))


@dataclass(frozen=True, slots=True)
class PackedPlan:
    row: InstructionRow
    decoders: tuple[Decoder, ...]  # of the destination and the sources
    dpp_decoders: tuple[Decoder, ...]  # source 0 is a vector register there
    literal_fields: frozenset[int]
    selects: bool
    mix: bool
    key: int  # the bits of index_key
    all_ones: tuple[int, ...]  # the op_sel_hi value that is not printed
    fixed: int  # mask of fixed bits
    fixed_value: int  # their values


@cache
def make_plans(target: Target) -> dict[int, PackedPlan]:
    return {
        opcode: _make_plan(row, target) for opcode, row in make_rows("packed", "VOP3P", target.generation).items()
    }


def _make_plan(row: InstructionRow, target: Target) -> PackedPlan:
    decoders = tuple(make_decoder(kind, target) for kind in row.operands)
    sources = len(row.operands) - 1
    every = (1 << sources) - 1
    selects, mix, loose = "packed" in row.flags, "mix" in row.flags, "loose" in row.flags
    low = every if selects or mix else 7 if loose else row.mask("l")
    high = every if selects or mix else 7 if loose else row.mask("h")
    fixed = (~low & 7) << 61 | (~high & 7) << 8
    value = 0
    if selects or mix:
        fixed |= (~every & 7) << 11
    else:
        fixed |= 7 << 11
        if not loose:
            fixed |= 3 << 59 | 1 << 14
            value |= 3 << 59 | 1 << 14
    if "c" not in row.flags:
        fixed |= 1 << 15
    if "ignores" in row.flags:
        ignored = 3 << 59 | 31 << 11
        fixed, value = fixed & ~ignored, value & ~ignored
    if "k0" in row.flags or "k1" in row.flags:
        key = (1 << row.mask("k") + target.mask_width - 1) - 1
    else:
        key = 0
    fixed &= ~(key << 11)
    literal_fields = frozenset(i for i, kind in enumerate(row.operands) if i and accepts_literal(kind))
    return PackedPlan(
        row,
        decoders,
        (
            decoders[0],
            make_decoder("v1", target),
            *(
                make_decoder("V1", target) if row.mask("y") >> i & 1 else decoders[i + 1]
                for i in range(1, sources)
            ),
        ),
        literal_fields,
        selects or mix,
        mix,
        key,
        (0,) * sources if mix else (1,) * sources,
        fixed,
        value,
    )


def decode(word: int, code: bytes, index: int, target: Target) -> Instruction | None:
    plan = make_plans(target).get(word >> 16 & 0x7F)
    if plan is None or index + 8 > len(code) or word >> 23 & 1:
        return None
    high = int.from_bytes(code[index + 4 : index + 8], "little")
    if (high << 32 | word) & plan.fixed != plan.fixed_value:
        return None
    fields = (word & 0xFF, high & 0x1FF, high >> 9 & 0x1FF, high >> 18 & 0x1FF)
    tail = dpp.read_tail(plan.row, (word, high), fields, plan.literal_fields, code, index)
    if tail is None:
        return None
    operands = []
    for location, decode_operand in enumerate(plan.dpp_decoders if tail.kind else plan.decoders):
        operand = decode_operand(tail.fields[location], tail.literal)
        if operand is None:
            return None
        if plan.mix and location and (high >> 28 + location | word >> 7 + location) & 1:
            operand = add_modifiers(operand, bool(high >> 28 + location & 1), bool(word >> 7 + location & 1))
        operands.append(operand)
    modifiers = _decode_modifiers(plan, word, high) + tail.modifiers
    return Instruction(plan.row, tuple(operands), modifiers, tail.words, dpp=tail.kind)


@cache
def _split_bits(value: int, count: int) -> tuple[int, ...]:
    return tuple(value >> i & 1 for i in range(count))


def _decode_modifiers(plan: PackedPlan, word: int, high: int) -> tuple[Modifier, ...]:
    count = len(plan.all_ones)
    result = []
    if plan.selects:
        if word & 7 << 11:
            result.append(make_bits_modifier("op_sel", _split_bits(word >> 11 & 7, count)))
        op_sel_hi = _split_bits(high >> 27 & 3 | (word >> 14 & 1) << 2, count)
        if op_sel_hi != plan.all_ones:
            result.append(make_bits_modifier("op_sel_hi", op_sel_hi))
    elif plan.key and word >> 11 & plan.key:
        result.append(_INDEX_KEY[word >> 11 & plan.key])
    if not plan.mix:
        if high >> 29:
            result.append(make_bits_modifier("neg_lo", _split_bits(high >> 29, count)))
        if word & 7 << 8:
            result.append(make_bits_modifier("neg_hi", _split_bits(word >> 8 & 7, count)))
    if word >> 15 & 1 and "ignores" not in plan.row.flags:
        result.append(CLAMP)
    return tuple(result)
