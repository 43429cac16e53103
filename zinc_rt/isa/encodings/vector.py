"""The vector ALU's basic encodings: VOP1, VOP2, VOPC, VOP3, and their DPP forms.

Flags of a row:

Operand kinds are those of kinds.py, in field order: the destination, then the sources. The prefix `+` marks the
scalar destination in bits 14:8. `no` skips a field.

| flag | means |
|---|---|
| m3 | sources 0 and 1 take neg and abs (a bit a source); n, a: only that one |
| x3 | those bits of sources 0 and 1 are there but mean nothing; others must be 0 |
| c o | has clamp; has omod |
| s1101 | bits 11 to 14 (op_sel): 1 shown, z as 0, h i not, 0 y w must be 0, of which y w are shown, y not in DPP |
| r1101 | the same as s, where 16-bit operands are halves (Target.has_halves) |
| real | exists only where 16-bit operands are halves |
| byte0 byte2 | those bits are a byte_sel |
| dpp | has DPP forms |
| halves | added to every row with 16-bit operands |
| any | sources mean nothing, and the destination must be 0 |
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from zinc_rt.isa.encodings import dpp
from zinc_rt.isa.encodings.kinds import Decoder, accepts_literal, make_decoder
from zinc_rt.isa.encodings.source import LITERAL
from zinc_rt.isa.instruction import Instruction, Modifier
from zinc_rt.isa.operand import Operand, add_modifiers
from zinc_rt.isa.rows import InstructionRow, make_rows
from zinc_rt.isa.target import Target

# Operand kind of source 0 under DPP, where it is not a plain vector register.
_DPP_SOURCES = {"t16": "T1", "ti16": "T1", "hf": "h1", "hi": "h1"}
_LONG_HALVES = ("l1", "lf", "li", "ly", "w1", "wf", "wi", "wy")
_DPP_SOURCES |= {kind: kind[0] + "1" for kind in _LONG_HALVES}
_BYTE_SEL = {"byte0": (12, 11), "byte2": (13, 14)}
CLAMP = Modifier("clamp", "clamp", 1)
OMOD = (None, Modifier("omod", "mul:2", 2), Modifier("omod", "mul:4", 4), Modifier("omod", "div:2", -2))


@dataclass(frozen=True, slots=True)
class VectorPlan:
    """A preprocessed row.

    `operands` holds a decoder and the field it reads: 0 for the destination, 1 to 3 for the sources, 4 for the
    scalar destination, 5 for none.
    """

    row: InstructionRow
    operands: tuple[tuple[Decoder, int], ...]
    neg: int
    abs: int
    must_be_zero: int
    clamp: bool
    omod: bool
    op_sel: tuple[tuple[int, str], ...]  # bit and letter
    byte_sel: tuple[int, int] | None
    has_literal: bool
    literal_fields: frozenset[int]
    halves: tuple[int, ...]  # 0x200 for each field of which op_sel selects a half
    whole: VectorPlan | None  # the plan with whole registers, which LLVM tries where this one rejects the bits
    dpp_zero: int  # must_be_zero of VOP3's DPP forms
    dpp_operands: tuple[tuple[Decoder, int], ...]  # source 0 is a vector register there


_ORDER = {"VOP1": (0, 1), "VOP2": (0, 1, 2), "VOPC": (1, 2), "VOP3": (0, 1, 2, 3)}


@cache
def make_plans(encoding: str, target: Target) -> dict[int, VectorPlan]:
    table = make_rows("vector", encoding, target.generation, target.has_halves)
    whole: dict[int, VectorPlan] = {}
    if target.has_halves:
        whole = make_plans(encoding, target.with_true16("fake"))
    return {opcode: _make_plan(encoding, row, target, whole.get(opcode)) for opcode, row in table.items()}


def _make_plan(encoding: str, row: InstructionRow, target: Target, vector_plan: VectorPlan | None) -> VectorPlan:
    order = iter(_ORDER[encoding])
    operands: list[tuple[Decoder, int]] = []
    literal_fields = set()
    half_fields = set()
    dpp_source = "v1"
    for kind in row.operands:
        if kind[0] == "+":
            operands.append((make_decoder(kind[1:], target), 4))
        elif kind in ("vcc", "K"):
            operands.append((make_decoder(kind, target), 5))
        elif kind == "no":
            next(order)
        else:
            operands.append((make_decoder(kind, target), next(order)))
            field = operands[-1][1]
            if accepts_literal(kind):
                literal_fields.add(field)
            if kind in _LONG_HALVES:
                half_fields.add(field)
            if field == 1 and kind in _DPP_SOURCES:
                dpp_source = _DPP_SOURCES[kind]
    halves = tuple(0x200 * (field in half_fields) for field in range(4)) if half_fields else ()
    masks = {letter: row.mask(letter) for letter in ("m", "n", "a", "x")}
    has_scalar = any(field == 4 for _, field in operands)
    op_sel = "" if has_scalar else next((f[1:] for f in row.flags if len(f) == 5 and f[0] == "s"), "iiii")
    byte_sel = next((bits for flag, bits in _BYTE_SEL.items() if flag in row.flags), None)
    neg, absolute = masks["m"] | masks["n"], masks["m"] | masks["a"]
    zero = 0
    if "any" in row.flags:
        zero = 0xF8000000000087FF
    elif encoding == "VOP3":
        zero = (~(neg | masks["x"]) & 7) << 61
        if not has_scalar:
            zero |= (~(absolute | masks["x"]) & 7) << 8
        if byte_sel:
            zero |= 15 << 11 & ~(1 << byte_sel[0] | 1 << byte_sel[1])
        else:
            zero |= sum(1 << 11 + i for i, what in enumerate(op_sel) if what in "0yw")
        zero |= (0 if "c" in row.flags else 1 << 15) | (0 if "o" in row.flags else 3 << 59)
    else:  # bits that must be zero in a DPP16 dword
        allowed = masks["m"] | masks["x"]
        zero = sum(3 << 20 + 2 * i for i in range(2) if not allowed >> i & 1)
    return VectorPlan(
        row,
        tuple(operands),
        neg,
        absolute,
        zero,
        "c" in row.flags,
        "o" in row.flags,
        tuple((11 + i, what) for i, what in enumerate(op_sel) if what in "1zyw"),
        byte_sel,
        "K" in row.operands,
        frozenset(literal_fields),
        halves,
        vector_plan,
        zero & ~(15 << 11) if byte_sel else zero,
        tuple((make_decoder(dpp_source, target), field) if field == 1 else (d, field) for d, field in operands),
    )


def decode_short(encoding: str, word: int, code: bytes, index: int, target: Target) -> Instruction | None:
    """Decode VOP1, VOP2 and VOPC: one dword, plus one for a literal or DPP."""
    if encoding == "VOP2":
        opcode, destination = word >> 25 & 0x3F, word >> 17 & 0xFF
    elif encoding == "VOP1":
        opcode, destination = word >> 9 & 0xFF, word >> 17 & 0xFF
    else:
        opcode, destination = word >> 17 & 0xFF, 0
    plan = make_plans(encoding, target).get(opcode)
    if plan is None:
        return None
    source = word & 0x1FF
    if not plan.operands:
        return None if destination else Instruction(plan.row, (), (), (word,))
    modifiers: tuple[Modifier, ...] = ()
    kind, extra = "", 0
    words: tuple[int, ...] = (word,)
    neg = absolute = 0
    if (
        source == LITERAL
        or plan.has_literal
        or source in dpp.CODES
        or (destination == LITERAL and 0 in plan.literal_fields)
    ):
        if index + 8 > len(code):
            return None
        extra = int.from_bytes(code[index + 4 : index + 8], "little")
        words = (word, extra)
        if source in dpp.CODES:
            if "dpp" not in plan.row.flags or plan.has_literal:
                return None
            if source == dpp.DPP16:
                if extra & plan.must_be_zero:
                    return None
                neg = (extra >> 20 & 1 | extra >> 21 & 2) & plan.neg
                absolute = (extra >> 21 & 1 | extra >> 22 & 2) & plan.abs
            kind, modifiers = dpp.decode_dpp(source, extra)
            source = extra & 0xFF
    fields = (destination, source, word >> 9 & 0xFF, 0, 0, 0)
    operands = _decode_operands(plan.dpp_operands if kind else plan.operands, fields, extra, neg, absolute)
    if operands is None:
        return None
    if (
        kind and absolute & 2 and target.generation == 12 and operands[-1].text.startswith("vcc")
    ):  # LLVM prints the closing bar after the VCC
        second, mask = operands[-2:]
        operands = (*operands[:-2], replace(second, text=second.text[:-1]), replace(mask, text=mask.text + "|"))
    return Instruction(plan.row, operands, modifiers, words, dpp=kind)


def decode_long(word: int, code: bytes, index: int, target: Target) -> Instruction | None:
    """Decode VOP3: two dwords, plus one for a literal or DPP."""
    opcode = word >> 16 & 0x3FF
    plan = make_plans("VOP3", target).get(opcode)
    if plan is None or index + 8 > len(code):
        return None
    high = int.from_bytes(code[index + 4 : index + 8], "little")
    is_dpp = high & 0x1FF in dpp.CODES
    while (high << 32 | word) & (plan.dpp_zero if is_dpp else plan.must_be_zero):
        if plan.whole is None:
            return None
        plan = plan.whole
    fields: tuple[int, ...] = (
        word & 0xFF,
        high & 0x1FF,
        high >> 9 & 0x1FF,
        high >> 18 & 0x1FF,
        word >> 8 & 0x7F,
        0,
    )
    modifiers = _decode_long_modifiers(plan, word, high, is_dpp=is_dpp)
    tail = dpp.read_tail(plan.row, (word, high), fields, plan.literal_fields, code, index)
    if tail is None:
        return None
    fields = tail.fields
    if plan.halves:
        select = (word >> 5 & 0x200, word >> 2 & 0x200, word >> 3 & 0x200, word >> 4 & 0x200)
        fields = (*(f | bit & on for f, bit, on in zip(fields, select, plan.halves, strict=False)), *fields[4:])
    decoders = plan.dpp_operands if tail.kind else plan.operands
    operands = _decode_operands(decoders, fields, tail.literal, high >> 29 & plan.neg, word >> 8 & plan.abs)
    if operands is None:
        return None
    return Instruction(plan.row, operands, modifiers + tail.modifiers, tail.words, dpp=tail.kind)


def _decode_operands(
    decoders: tuple[tuple[Decoder, int], ...], fields: tuple[int, ...], literal: int, neg: int, absolute: int
) -> tuple[Operand, ...] | None:
    operands = []
    for decode, field in decoders:
        operand = decode(fields[field], literal)
        if operand is None:
            return None
        if 1 <= field <= 3 and (neg | absolute) >> field - 1 & 1:
            operand = add_modifiers(operand, bool(neg >> field - 1 & 1), bool(absolute >> field - 1 & 1))
        operands.append(operand)
    return tuple(operands)


def _decode_long_modifiers(plan: VectorPlan, word: int, high: int, *, is_dpp: bool) -> tuple[Modifier, ...]:
    if not word & 0xF800 and not high & 0x18000000:
        return ()
    result = []
    if plan.op_sel:
        bits = tuple(word >> bit & (what == "1") for bit, what in plan.op_sel if what != "y" or not is_dpp)
        if any(bits):
            result.append(make_bits_modifier("op_sel", bits))
    if plan.byte_sel is not None:
        value = word >> plan.byte_sel[0] & 1 | (word >> plan.byte_sel[1] & 1) << 1
        if value:
            result.append(Modifier("byte_sel", f"byte_sel:{value}", value))
    if plan.clamp and word >> 15 & 1:
        result.append(CLAMP)
    if plan.omod and (omod := OMOD[high >> 27 & 3]) is not None:
        result.append(omod)
    return tuple(result)


@cache
def make_bits_modifier(name: str, bits: tuple[int, ...]) -> Modifier:
    return Modifier(name, f"{name}:[{','.join(map(str, bits))}]", bits)
