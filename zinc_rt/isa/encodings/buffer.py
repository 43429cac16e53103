"""VBUFFER of gfx12: untyped and typed buffer accesses, three dwords.

Operands of a row are those of flat.py, but the data is one operand with the width of the stored data. Flags: load,
store or atomic, and `typed`.
"""

from __future__ import annotations

from functools import cache

from zinc_rt.isa.encodings.cache_policy import format_policy
from zinc_rt.isa.encodings.flat import OFF
from zinc_rt.isa.encodings.source import make_scalar
from zinc_rt.isa.instruction import Instruction, Modifier
from zinc_rt.isa.operand import make_data, make_vgpr
from zinc_rt.isa.rows import make_rows
from zinc_rt.isa.target import Target

OFFEN, IDXEN = Modifier("offen", "offen", 1), Modifier("idxen", "idxen", 1)
TFE = Modifier("tfe", "tfe", 1)
DEFAULT_FORMAT = 1  # 8_UNORM
_FORMATS = """
    INVALID 8_UNORM 8_SNORM 8_USCALED 8_SSCALED 8_UINT 8_SINT 16_UNORM 16_SNORM 16_USCALED 16_SSCALED
    16_UINT 16_SINT 16_FLOAT 8_8_UNORM 8_8_SNORM 8_8_USCALED 8_8_SSCALED 8_8_UINT 8_8_SINT 32_UINT 32_SINT
    32_FLOAT 16_16_UNORM 16_16_SNORM 16_16_USCALED 16_16_SSCALED 16_16_UINT 16_16_SINT 16_16_FLOAT
    10_11_11_FLOAT 11_11_10_FLOAT 10_10_10_2_UNORM 10_10_10_2_SNORM 10_10_10_2_UINT 10_10_10_2_SINT
    2_10_10_10_UNORM 2_10_10_10_SNORM 2_10_10_10_USCALED 2_10_10_10_SSCALED 2_10_10_10_UINT 2_10_10_10_SINT
    8_8_8_8_UNORM 8_8_8_8_SNORM 8_8_8_8_USCALED 8_8_8_8_SSCALED 8_8_8_8_UINT 8_8_8_8_SINT 32_32_UINT
    32_32_SINT 32_32_FLOAT 16_16_16_16_UNORM 16_16_16_16_SNORM 16_16_16_16_USCALED 16_16_16_16_SSCALED
    16_16_16_16_UINT 16_16_16_16_SINT 16_16_16_16_FLOAT 32_32_32_UINT 32_32_32_SINT 32_32_32_FLOAT
    32_32_32_32_UINT 32_32_32_32_SINT 32_32_32_32_FLOAT
""".split()  # noqa: SIM905


def decode(word: int, code: bytes, index: int, target: Target) -> Instruction | None:
    row = make_rows("memory", "VBUFFER", target.generation).get(word >> 14 & 0xFF)
    if row is None or index + 12 > len(code):
        return None
    middle = int.from_bytes(code[index + 4 : index + 8], "little")
    high = int.from_bytes(code[index + 8 : index + 12], "little")
    tfe = word >> 22 & 1
    typed = "typed" in row.flags
    resource, soffset = make_scalar(middle >> 9 & 0x1FF, 4), make_scalar(word & 0x7F, 1)
    if resource is None or soffset is None or high >> 31 or (tfe and (typed or row.unit == "atomic")):
        return None
    offen, idxen = middle >> 30 & 1, middle >> 31
    value = make_data(middle & 0xFF, int(row.operands[-1][1:]) + tfe, None if tfe else row.data_half)
    address = make_vgpr(high & 0xFF, offen + idxen) if offen or idxen else OFF
    modifiers = place_modifiers(
        middle >> 23 & 0x7F if typed else DEFAULT_FORMAT, idxen, offen, high >> 8 & 0x7FFFFF
    )
    modifiers += format_policy(row.unit, middle >> 20 & 7, middle >> 18 & 3, word >> 7 & 1)
    if tfe:
        modifiers.append(TFE)
    operands = (value, address, resource, soffset)
    return Instruction(row, operands, tuple(modifiers), (word, middle, high))


def place_modifiers(number: int, idxen: int, offen: int, offset: int) -> list[Modifier]:
    """Return the modifiers for a format, an index and offsets."""
    modifiers = [_format(number)] if number != DEFAULT_FORMAT else []
    modifiers += (IDXEN,) * idxen + (OFFEN,) * offen
    if offset:
        modifiers.append(Modifier("offset", f"offset:{offset}", offset))
    return modifiers


@cache
def _format(number: int) -> Modifier:
    text = f"[BUF_FMT_{_FORMATS[number]}]" if number < len(_FORMATS) else str(number)
    return Modifier("format", f"format:{text}", number)
