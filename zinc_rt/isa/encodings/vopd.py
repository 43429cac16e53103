"""VOPD: two vector operations in one instruction, wave32 only.

Both halves share one literal. The parity of Y's destination is opposite to X's, so its lowest bit is not stored.
"""

from __future__ import annotations

from functools import cache

from zinc_rt.isa.encodings.kinds import Decoder, accepts_literal, make_decoder
from zinc_rt.isa.encodings.source import LITERAL
from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.operand import Operand
from zinc_rt.isa.rows import InstructionRow, make_rows
from zinc_rt.isa.target import Target

_NONE = 3
VopdPlan = tuple[InstructionRow, tuple[tuple[Decoder, int], ...], bool]  # row; decoders, fields; whether K is read


@cache
def make_plans(target: Target) -> dict[int, VopdPlan]:
    result: dict[int, VopdPlan] = {}
    for opcode, row in make_rows("vopd", "VOPD", target.generation).items():
        order = iter((0, 1, 2))
        operands = [
            (make_decoder(kind, target), _NONE if kind in ("vcc", "K") else next(order)) for kind in row.operands
        ]
        assert all(not accepts_literal(kind) for kind in row.operands[2:])
        result[opcode] = (row, tuple(operands), "K" in row.operands)
    return result


def decode(word: int, code: bytes, index: int, target: Target) -> Instruction | None:
    if index + 8 > len(code) or target.wave != 32:
        return None
    high = int.from_bytes(code[index + 4 : index + 8], "little")
    opcode_x, opcode_y = word >> 22 & 15, word >> 17 & 31
    table = make_plans(target)
    if opcode_x not in table or opcode_y not in table:
        return None
    destination = high >> 24
    fields_x = (destination, word & 0x1FF, word >> 9 & 0xFF, 0)
    fields_y = ((high >> 17 & 0x7F) << 1 | ~destination & 1, high & 0x1FF, high >> 9 & 0xFF, 0)
    words: tuple[int, ...] = (word, high)
    literal = 0
    if LITERAL in (fields_x[1], fields_y[1]) or table[opcode_x][2] or table[opcode_y][2]:
        if index + 12 > len(code):
            return None
        literal = int.from_bytes(code[index + 8 : index + 12], "little")
        words = (word, high, literal)
    x = _decode_operands(table[opcode_x], fields_x, literal)
    y = _decode_operands(table[opcode_y], fields_y, literal)
    if x is None or y is None:
        return None
    second = Instruction(table[opcode_y][0], y, (), words)
    return Instruction(table[opcode_x][0], x, (), words, second)


def _decode_operands(plan: VopdPlan, fields: tuple[int, ...], literal: int) -> tuple[Operand, ...] | None:
    operands = []
    if len(plan[1]) == 2 and fields[2]:  # v_dual_mov_b32
        return None
    for decode_operand, field in plan[1]:
        operand = decode_operand(fields[field], literal)
        if operand is None:
            return None
        operands.append(operand)
    return tuple(operands)
