"""MUBUF and MTBUF of gfx11: buffer accesses, two dwords. Rows are those of buffer.py.

The flag `lds` marks loads that write to LDS, at the address in M0: no data operand.
"""

from __future__ import annotations

from zinc_rt.isa.encodings.buffer import DEFAULT_FORMAT, TFE, place_modifiers
from zinc_rt.isa.encodings.flat import OFF
from zinc_rt.isa.encodings.kinds import make_decoder
from zinc_rt.isa.encodings.memory_gfx11 import decode_cache_bits
from zinc_rt.isa.encodings.source import LITERAL, make_scalar
from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.operand import Operand, make_data, make_vgpr
from zinc_rt.isa.rows import make_rows
from zinc_rt.isa.target import Target


def decode(word: int, code: bytes, index: int, target: Target) -> Instruction | None:
    typed = word >> 26 == 0x3A
    encoding, opcode = ("MTBUF", word >> 15 & 15) if typed else ("MUBUF", word >> 18 & 0xFF)
    row = make_rows("memory", encoding, target.generation).get(opcode)
    if row is None or index + 8 > len(code):
        return None
    high = int.from_bytes(code[index + 4 : index + 8], "little")
    words: tuple[int, ...] = (word, high)
    to_lds = "lds" in row.flags
    if not row.operands and not to_lds:  # buffer_gl0_inv and the like
        if word & 0x6000 or high & 7 << 21:
            return None
        return Instruction(row, (), (), words)
    literal, code_of_offset = 0, high >> 24
    if code_of_offset == LITERAL:
        if index + 12 > len(code):
            return None
        literal = int.from_bytes(code[index + 8 : index + 12], "little")
        words = (word, high, literal)
    resource = make_scalar((high >> 16 & 0x1F) << 2, 4)
    soffset = make_decoder("s32", target)(code_of_offset, literal)
    tfe, offen, idxen = high >> 21 & 1, high >> 22 & 1, high >> 23 & 1
    if resource is None or soffset is None or (tfe and (typed or to_lds or row.unit == "atomic")):
        return None
    address = make_vgpr(high & 0xFF, offen + idxen) if offen or idxen else OFF
    modifiers = place_modifiers(word >> 19 & 0x7F if typed else DEFAULT_FORMAT, idxen, offen, word & 0xFFF)
    # slc and dlc are swapped compared with FLAT
    modifiers += decode_cache_bits(word >> 13 & 3 | (word >> 12 & 1) << 2)
    modifiers += (TFE,) * tfe
    operands: tuple[Operand, ...] = (address, resource, soffset)
    if not to_lds:
        width = int(row.operands[-1][1:]) + tfe
        operands = (make_data(high >> 8 & 0xFF, width, None if tfe else row.data_half), *operands)
    return Instruction(row, operands, tuple(modifiers), words)
