"""The scalar ALU's encodings: SOP1, SOP2, SOPC, SOPK, SOPP.

Kinds in addition to those of kinds.py: `sb` for a scalar source that cannot be a literal, and the 16-bit
immediates of immediates.TEXTS. Flags: `zero`: the immediate must be 0; `optional`: the immediate is shown only if
it is not 0.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from zinc_rt.isa.encodings import immediates
from zinc_rt.isa.encodings.kinds import Decoder, accepts_literal, make_decoder
from zinc_rt.isa.encodings.source import LITERAL
from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.rows import InstructionRow, make_rows
from zinc_rt.isa.target import Target

_ORDER = {"SOP1": (0, 1), "SOP2": (0, 1, 2), "SOPC": (1, 2), "SOPK": (0, 3), "SOPP": (3,)}
_NONE = 4


class ScalarPlan(NamedTuple):
    """A preprocessed row. `operands` holds decoders and the fields that they read."""

    row: InstructionRow
    operands: tuple[tuple[Decoder, int], ...]
    has_literal: bool
    literal_fields: frozenset[int]


@cache
def make_plans(encoding: str, target: Target) -> dict[int, ScalarPlan]:
    result: dict[int, ScalarPlan] = {}
    for opcode, row in make_rows("scalar", encoding, target.isa).items():
        order = iter(_ORDER[encoding])
        operands: list[tuple[Decoder, int]] = []
        literals = set()
        for kind in row.operands:
            if kind == "no":
                next(order)
            elif kind in ("vcc", "K", "k"):
                operands.append((make_decoder(kind, target), _NONE))
            elif kind in immediates.KINDS:
                operands.append((immediates.make_decoder(kind, target), 1 if encoding == "SOP1" else 3))
            else:
                operands.append((make_decoder(kind, target), next(order)))
                if accepts_literal(kind):
                    literals.add(operands[-1][1])
        always = bool({"K", "k"} & set(row.operands))
        result[opcode] = ScalarPlan(row, tuple(operands), always, frozenset(literals))
    return result


def decode(encoding: str, word: int, code: bytes, index: int, target: Target) -> Instruction | None:
    if encoding in ("SOPP", "SOPC"):
        opcode = word >> 16 & 0x7F
    elif encoding == "SOP1":
        opcode = word >> 8 & 0xFF
    else:
        opcode = word >> 23 & (0x1F if encoding == "SOPK" else 0x7F)
    plan = make_plans(encoding, target).get(opcode)
    if plan is None:
        return None
    row, decoders, has_literal, literals = plan
    flags = row.flags
    if flags and ("zero" in flags and word & 0xFFFF):
        return None
    if flags and ("optional" in flags and not word & 0xFFFF):
        decoders = ()
    fields = (word >> 16 & 0x7F, word & 0xFF, word >> 8 & 0xFF, word & 0xFFFF, 0)
    words: tuple[int, ...] = (word,)
    literal = 0
    if has_literal or any(field in literals and fields[field] == LITERAL for _, field in decoders):
        if index + 8 > len(code):
            return None
        literal = int.from_bytes(code[index + 4 : index + 8], "little")
        words = (word, literal)
    operands = []
    for decode_operand, field in decoders:
        operand = decode_operand(fields[field], literal)
        if operand is None:
            return None
        operands.append(operand)
    return Instruction(row, tuple(operands), (), words)
