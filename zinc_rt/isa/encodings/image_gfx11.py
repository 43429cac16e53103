"""MIMG of gfx11: image accesses, two dwords, or three with more address registers (NSA).

Rows and flags are those of image.py. Without the third dword, the addresses are in consecutive registers. With it,
each address has its own register, up to five; the last one starts a range if a sample needs more.
"""

from __future__ import annotations

from zinc_rt.isa.encodings.image import (
    A16,
    D16,
    DIM,
    LWE,
    R128,
    TFE,
    UNORM,
    count_address_dwords,
    count_data_dwords,
    list_address_counts,
    list_data_counts,
    make_address_list,
    make_addresses,
)
from zinc_rt.isa.encodings.memory_gfx11 import decode_cache_bits
from zinc_rt.isa.encodings.source import make_scalar
from zinc_rt.isa.instruction import Instruction, Modifier
from zinc_rt.isa.operand import Operand, make_vgpr
from zinc_rt.isa.rows import InstructionRow, make_rows
from zinc_rt.isa.target import Target

_RAY_MASK, _RAY_BITS = 0x2FFFE, 0x08F80  # dmask 15, unorm and r128; no d16, no cache bits, dimension 0


def decode(word: int, code: bytes, index: int, target: Target) -> Instruction | None:
    row = make_rows("graphics", "MIMG", target.generation).get(word >> 18 & 0xFF)
    nsa = word & 1
    if row is None or index + 8 + 4 * nsa > len(code):
        return None
    high = int.from_bytes(code[index + 4 : index + 8], "little")
    more = code[index + 8 : index + 12] if nsa else b""
    words = (word, high, int.from_bytes(more, "little")) if nsa else (word, high)
    registers = (high & 0xFF, *more)
    is_ray = "bvh" in row.flags
    resource = make_scalar((high >> 16 & 0x1F) << 2, 4 if is_ray else 8)
    sampler = high >> 26 & 0x1F
    is_sampled = row.counter == "samplecnt" and "nosampler" not in row.flags
    if resource is None or (sampler and not is_sampled):
        return None
    if is_ray:
        return _decode_ray(row, words, registers, resource)
    if word >> 17 & 1 and "nod16" in row.flags:
        return None
    operands = [*_make_data_and_addresses(row, word, high, registers), resource]
    if is_sampled:
        descriptor = make_scalar(sampler << 2, 4)
        if descriptor is None:
            return None
        operands.append(descriptor)
    return Instruction(row, tuple(operands), _make_modifiers(word, high), words)


def _make_modifiers(word: int, high: int) -> tuple[Modifier, ...]:
    dmask = word >> 8 & 15
    modifiers = [Modifier("dmask", f"dmask:{dmask:#x}", dmask)] if dmask else []
    modifiers.append(DIM[word >> 2 & 7])
    modifiers += (UNORM,) * (word >> 7 & 1)
    modifiers += decode_cache_bits(word >> 13 & 3 | (word >> 12 & 1) << 2)
    marks = (
        (word >> 15 & 1, R128),
        (word >> 16 & 1, A16),
        (high >> 21 & 1, TFE),
        (high >> 22 & 1, LWE),
        (word >> 17 & 1, D16),
    )
    return (*modifiers, *(modifier for is_set, modifier in marks if is_set))


def _make_data_and_addresses(
    row: InstructionRow, word: int, high: int, registers: tuple[int, ...]
) -> tuple[Operand, Operand]:
    """Return data and addresses. As in LLVM, a form that no instruction has, or a register beyond v255, shows the
    minimum amount of data, and the minimum number of consecutive or the maximum number of separate addresses.
    """
    data = count_data_dwords(row, word >> 8 & 15, word >> 17 & 1, high >> 21 & 1)
    used = count_address_dwords(row, word >> 2 & 7, word >> 16 & 1)
    counts = list_address_counts(row)
    minimum = min(list_data_counts(row))
    first, nsa = high >> 8 & 0xFF, len(registers) > 1
    # A sample has five separate addresses, other accesses four.
    places = (5 if row.counter == "samplecnt" and "nosampler" not in row.flags else 4) if nsa else 1
    is_invalid = (
        data not in list_data_counts(row)
        or used not in counts
        or (nsa and used == 1)
        or (data > minimum and first + data > 256)
        or registers[places - 1] + max(used - places, 0) > 255
    )
    if is_invalid:
        data, used = minimum, min(places, max(counts)) if nsa else min(counts)
    return make_vgpr(first, data), make_addresses(registers[:places], used) if nsa else make_vgpr(
        registers[0], used
    )


def _decode_ray(
    row: InstructionRow, words: tuple[int, ...], registers: tuple[int, ...], resource: Operand
) -> Instruction | None:
    """Decode a ray instruction (bounding volume hierarchies). The row's operands give the widths of data and
    addresses."""
    word, high = words[:2]
    if word & _RAY_MASK != _RAY_BITS or high >> 21:
        return None
    a16 = word >> 16 & 1
    widths = [int(width) for width in row.operands[:-2]] if a16 else [int(width) for width in row.operands]
    if a16:
        widths.append(3)  # direction and its inverse share three registers
    if len(registers) == 1:
        addresses = make_vgpr(registers[0], sum(widths[1:]))
    else:
        parts = zip(registers, widths[1:], strict=False)
        addresses = make_address_list(tuple(make_vgpr(register, width) for register, width in parts))
    return Instruction(row, (make_vgpr(high >> 8 & 0xFF, widths[0]), addresses, resource), (A16,) * a16, words)
