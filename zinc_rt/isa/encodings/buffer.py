"""VBUFFER of gfx12: untyped and typed buffer accesses, three dwords.

Operands of a row are those of flat.py; the data is one operand here, as wide as what is stored. Flags: load, store
or atomic, and `typed`.
"""

from __future__ import annotations

from functools import cache

from zinc_rt.isa.encodings.cache_policy import policy
from zinc_rt.isa.encodings.flat import OFF
from zinc_rt.isa.encodings.source import scalar
from zinc_rt.isa.instruction import Instruction, Modifier
from zinc_rt.isa.operand import vgpr
from zinc_rt.isa.rows import rows
from zinc_rt.isa.tables import formats
from zinc_rt.isa.target import Target

OFFEN, IDXEN = Modifier("offen", "offen", 1), Modifier("idxen", "idxen", 1)
TFE = Modifier("tfe", "tfe", 1)
DEFAULT_FORMAT = 1  # 8_UNORM


def decode(word: int, code: bytes, at: int, target: Target) -> Instruction | None:
    row = rows("memory", "VBUFFER", target.generation).get(word >> 14 & 0xFF)
    if row is None or at + 12 > len(code):
        return None
    middle = int.from_bytes(code[at + 4 : at + 8], "little")
    high = int.from_bytes(code[at + 8 : at + 12], "little")
    tfe = word >> 22 & 1
    typed = "typed" in row.flags
    resource, soffset = scalar(middle >> 9 & 0x1FF, 4), scalar(word & 0x7F, 1)
    if resource is None or soffset is None or high >> 31 or (tfe and (typed or row.unit == "atomic")):
        return None
    offen, idxen = middle >> 30 & 1, middle >> 31
    data = vgpr(middle & 0xFF, int(row.operands[-1][1:]) + tfe)
    address = vgpr(high & 0xFF, offen + idxen) if offen or idxen else OFF
    modifiers: list[Modifier] = []
    if typed and (number := middle >> 23 & 0x7F) != DEFAULT_FORMAT:
        modifiers.append(buffer_format(number))
    if idxen:
        modifiers.append(IDXEN)
    if offen:
        modifiers.append(OFFEN)
    if offset := high >> 8 & 0x7FFFFF:
        modifiers.append(Modifier("offset", f"offset:{offset}", offset))
    modifiers += policy(row.unit, middle >> 20 & 7, middle >> 18 & 3, word >> 7 & 1)
    if tfe:
        modifiers.append(TFE)
    operands = (data, address, resource, soffset)
    return Instruction(row, operands, tuple(modifiers), (word, middle, high))


@cache
def buffer_format(number: int) -> Modifier:
    names = formats.NAMES
    text = f"[BUF_FMT_{names[number]}]" if number < len(names) else str(number)
    return Modifier("format", f"format:{text}", number)
