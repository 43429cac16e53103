"""VIMAGE and VSAMPLE of gfx12: image accesses, three dwords.

The number of addresses depends on the dimension, on the mnemonic (a compare value, a bias, an offset, gradients, a
level of detail) and on a16. The amount of data depends on dmask, d16 and tfe. Flags of a row:

| flag | means |
|---|---|
| load, store, atomic | the kind of access |
| x1 | that many extra addresses: offset, bias, compare |
| lod | one more coordinate: a mip level, a level of detail or its clamp |
| grad g16 | gradients; as 16-bit values |
| four | always four dwords of data |
| nocoords | the dimension is ignored |
| nod16 | d16 must be 0 |
| bvh | a ray: dmask must be 15, r128 set, and so on |
| nosampler | no sampler |

If a dimension and dmask require a form that no instruction has, or a register beyond v255, LLVM shows the maximum
number of addresses in single registers and the minimum amount of data.
"""

from __future__ import annotations

from functools import cache

from zinc_rt.isa.encodings.cache_policy import format_policy
from zinc_rt.isa.encodings.source import LITERAL, make_source
from zinc_rt.isa.encodings.source import make_literal as source_literal
from zinc_rt.isa.instruction import Instruction, Modifier
from zinc_rt.isa.operand import Kind, Operand, make_vgpr
from zinc_rt.isa.rows import InstructionRow, make_rows
from zinc_rt.isa.target import Target

_DIMENSIONS = ("1D", "2D", "3D", "CUBE", "1D_ARRAY", "2D_ARRAY", "2D_MSAA", "2D_MSAA_ARRAY")
_COORDINATES = (1, 2, 3, 3, 2, 3, 3, 4)
_GRADIENTS = (2, 4, 6, 4, 2, 4, 4, 4)
DIM = tuple(Modifier("dim", f"dim:SQ_RSRC_IMG_{text}", i) for i, text in enumerate(_DIMENSIONS))
R128, A16, TFE, LWE, D16, UNORM = (
    Modifier(text, text, 1) for text in ("r128", "a16", "tfe", "lwe", "d16", "unorm")
)


def decode_image(word: int, code: bytes, index: int, target: Target) -> Instruction | None:
    fields = _decode_fields(word, code, index, "VIMAGE", target)
    if fields is None:
        return None
    row, middle, high = fields
    tfe = middle >> 23 & 1
    words, literal = _read_words(word, middle, high, code, index, {middle >> 9 & 0x1FF})
    resource = _make_resource(middle, row, literal)
    if resource is None or not words:
        return None
    addresses = (*(high >> 8 * i & 0xFF for i in range(4)), middle >> 24)
    if "bvh" in row.flags:
        return _decode_ray(row, words, addresses, resource)
    if addresses[4] or _is_invalid_d16(row, word):
        return None
    operands = (*_make_data_and_addresses(row, word, middle, tfe, addresses[:4]), resource)
    return _make_instruction(row, operands, words, tfe, lwe=0)


def decode_sample(word: int, code: bytes, index: int, target: Target) -> Instruction | None:
    fields = _decode_fields(word, code, index, "VSAMPLE", target)
    if fields is None:
        return None
    row, middle, high = fields
    tfe, lwe = word >> 3 & 1, middle >> 8 & 1
    words, literal = _read_words(word, middle, high, code, index, {middle >> 9 & 0x1FF, middle >> 23})
    resource = _make_resource(middle, row, literal)
    if resource is None or not words:
        return None
    addresses = tuple(high >> 8 * i & 0xFF for i in range(4))
    if any(addresses[_find_most_addresses(row) :]) or _is_invalid_d16(row, word):
        return None
    operands = [*_make_data_and_addresses(row, word, middle, tfe, addresses), resource]
    if "nosampler" in row.flags:
        if middle >> 23:
            return None
    else:
        sampler = _make_descriptor(middle >> 23, 4, literal)
        if sampler is None:
            return None
        operands.append(sampler)
    return _make_instruction(row, tuple(operands), words, tfe, lwe)


def _decode_fields(
    word: int, code: bytes, index: int, encoding: str, target: Target
) -> tuple[InstructionRow, int, int] | None:
    row = make_rows("graphics", encoding, target.generation).get(word >> 14 & 0xFF)
    if row is None or index + 12 > len(code):
        return None
    middle = int.from_bytes(code[index + 4 : index + 8], "little")
    return row, middle, int.from_bytes(code[index + 8 : index + 12], "little")


def _make_instruction(
    row: InstructionRow, operands: tuple[Operand, ...], words: tuple[int, ...], tfe: int, lwe: int
) -> Instruction:
    word, middle = words[:2]
    dmask = word >> 22 & 15
    modifiers = [Modifier("dmask", f"dmask:{dmask:#x}", dmask)] if dmask else []
    modifiers.append(DIM[word & 7])
    modifiers += (UNORM,) * (row.encoding == "VSAMPLE" and word >> 13 & 1)
    modifiers += format_policy(row.unit, middle >> 20 & 7, middle >> 18 & 3, word >> 7 & 1)
    marks = ((word >> 4 & 1, R128), (word >> 6 & 1, A16), (tfe, TFE), (lwe, LWE), (word >> 5 & 1, D16))
    modifiers += [modifier for is_set, modifier in marks if is_set]
    return Instruction(row, operands, tuple(modifiers), words)


def _is_invalid_d16(row: InstructionRow, word: int) -> bool:
    return bool(word >> 5 & 1) and "nod16" in row.flags


def _read_words(
    word: int, middle: int, high: int, code: bytes, index: int, descriptors: set[int]
) -> tuple[tuple[int, ...], int]:
    """Return the dwords and the literal that a descriptor requires; no dwords if the code is truncated."""
    if LITERAL not in descriptors:
        return (word, middle, high), 0
    if index + 16 > len(code):
        return (), 0
    literal = int.from_bytes(code[index + 12 : index + 16], "little")
    return (word, middle, high, literal), literal


def _make_resource(middle: int, row: InstructionRow, literal: int) -> Operand | None:
    return _make_descriptor(middle >> 9 & 0x1FF, 4 if "bvh" in row.flags else 8, literal)


def _make_descriptor(code: int, width: int, literal: int) -> Operand | None:
    if code == LITERAL:
        return source_literal(literal, "b32", False)
    return make_source(code, "b32", False, width, f"SReg_{32 * width}_XNULL")


def _make_data_and_addresses(
    row: InstructionRow, word: int, middle: int, tfe: int, registers: tuple[int, ...]
) -> tuple[Operand, Operand]:
    data = count_data_dwords(row, word >> 22 & 15, word >> 5 & 1, tfe)
    used = count_address_dwords(row, word & 7, word >> 6 & 1)
    first, places = middle & 0xFF, len(registers)
    minimum = 4 if "nosampler" in row.flags else 2 if "four" in row.flags or "cmpswap" in row.flags else 1
    beyond = (data > minimum and first + data > 256) or (used > places and registers[-1] + used - places + 1 > 256)
    if beyond or data not in list_data_counts(row) or used not in list_address_counts(row):
        data = minimum
        used = _find_most_addresses(row)
    return make_vgpr(first, data), make_addresses(registers, used)


def count_data_dwords(row: InstructionRow, dmask: int, d16: int, tfe: int) -> int:
    width = 4 if "four" in row.flags else max(dmask.bit_count(), 1)
    return ((width + 1) // 2 if d16 else width) + tfe


def list_data_counts(row: InstructionRow) -> tuple[int, ...]:
    if "four" in row.flags:
        return (2, 3, 4, 5) if "nosampler" in row.flags else (2, 4, 5)
    if row.unit == "atomic":
        return (2, 3, 4, 5) if "cmpswap" in row.flags else (1, 2, 3)
    return 1, 2, 3, 4, 5


def count_address_dwords(row: InstructionRow, dimension: int, a16: int) -> int:
    coordinates = (0 if "nocoords" in row.flags else _COORDINATES[dimension]) + ("lod" in row.flags)
    dwords = row.mask("x") + ((coordinates + 1) // 2 if a16 else coordinates)
    if "grad" in row.flags:
        gradients = _GRADIENTS[dimension]
        dwords += (gradients // 2 + 1) // 2 * 2 if "g16" in row.flags else gradients
    return dwords


@cache
def list_address_counts(row: InstructionRow) -> frozenset[int]:
    """Return the address counts of all dimensions. Multi-sampled arrays occur only in plain loads and stores."""
    plain = (row.counter != "samplecnt" and "lod" not in row.flags) or "nosampler" in row.flags
    counts = [
        count_address_dwords(row, dimension, a16) for dimension in range(8 if plain else 6) for a16 in (0, 1)
    ]
    return frozenset(range(min(counts), max(counts) + 1))


def _find_most_addresses(row: InstructionRow) -> int:
    return 4 if row.encoding == "VIMAGE" else min(4, max(list_address_counts(row)))


def make_addresses(registers: tuple[int, ...], used: int) -> Operand:
    """Return one register per address; the last address field names all remaining registers."""
    if used == 1:
        return make_vgpr(registers[0])
    places = len(registers)
    parts = [make_vgpr(register) for register in registers[:used]]
    if used > places:
        parts[-1] = make_vgpr(registers[-1], used - places + 1)
    return make_address_list(tuple(parts))


def make_address_list(parts: tuple[Operand, ...]) -> Operand:
    return Operand(Kind.VGPRS, f"[{', '.join(part.text for part in parts)}]", width=0, parts=parts)


def _decode_ray(
    row: InstructionRow, words: tuple[int, ...], registers: tuple[int, ...], resource: Operand
) -> Instruction | None:
    """Decode a ray instruction (bounding volume hierarchies). The row's operands give the widths of data and
    addresses."""
    word, middle = words[:2]
    if word & 0x03C00037 != 0x03C00010 or middle & 0x00FC0000:
        return None
    a16 = word >> 6 & 1
    widths = [int(width) for width in row.operands]
    if a16:
        if "packed16" not in row.flags:
            return None
        del widths[-2:]  # direction and its inverse share three registers
        widths.append(3)
    if any(registers[len(widths) - 1 :]):
        return None
    parts = tuple(make_vgpr(register, width) for register, width in zip(registers, widths[1:], strict=False))
    operands = (make_vgpr(middle & 0xFF, widths[0]), make_address_list(parts), resource)
    modifiers = (A16,) * a16
    return Instruction(row, operands, modifiers, words)
