"""FLAT, GLOBAL and SCRATCH of gfx12: three dwords.

Operands of a row: `d` for loaded data and `x` for stored data, each with its size in dwords (wave32/wave64 if they
differ). Flags: load, store or atomic, `lo` or `hi` for the accessed half of the data register, `addtid` (no vector
address), `plain` (no operands).
"""

from __future__ import annotations

from zinc_rt.isa.encodings.cache_policy import SCALE_OFFSET, format_policy
from zinc_rt.isa.encodings.source import make_scalar
from zinc_rt.isa.instruction import Instruction, Modifier
from zinc_rt.isa.operand import Kind, Operand, make_data, make_vgpr
from zinc_rt.isa.rows import InstructionRow, make_rows
from zinc_rt.isa.target import Target

OFF = Operand(Kind.NAME, "off")
_NULL = 124
_SEGMENTS = {0xEC: "FLAT", 0xED: "SCRATCH", 0xEE: "GLOBAL"}


def decode(word: int, code: bytes, index: int, target: Target) -> Instruction | None:
    segment = _SEGMENTS.get(word >> 24)
    if segment is None or index + 12 > len(code):
        return None
    row = make_rows("memory", segment, target.generation).get(word >> 14 & 0xFF)
    if row is None:
        return None
    middle = int.from_bytes(code[index + 4 : index + 8], "little")
    high = int.from_bytes(code[index + 8 : index + 12], "little")
    words = (word, middle, high)
    hint, scope = middle >> 20 & 7, middle >> 18 & 3
    kind = row.flags[0]
    if segment != "SCRATCH" and middle >> 17 & 1:
        return None
    saddr = word & 0x7F
    policies = format_policy(kind, hint, scope, word >> 7 & 1)
    if middle >> 16 & 1:
        policies = (SCALE_OFFSET, *policies)
    if "plain" in row.flags:
        if saddr != _NULL:
            return None
        return Instruction(row, (), policies, words)
    registers = (middle & 0xFF, middle >> 23 & 0xFF, high & 0xFF, saddr)
    operands = make_flat_operands(
        row, registers, target, offset_used=bool(middle >> 17 & 1), returns=bool(hint & 1)
    )
    if operands is None:
        return None
    return Instruction(row, operands, make_offset(high >> 8, 24) + policies, words)


def make_flat_operands(
    row: InstructionRow, registers: tuple[int, int, int, int], target: Target, *, offset_used: bool, returns: bool
) -> tuple[Operand, ...] | None:
    """Return the operands of an access, or None if its scalar address is invalid.

    `registers` are the fields for the result, the stored data, the vector address and the scalar address.
    `offset_used`: a scratch access uses a vector address. `returns`: an atomic returns the previous value.
    """
    loaded, stored, vaddr, saddr = registers
    address = _make_scalar_address(row, saddr)
    if address is None:
        return None
    result: dict[str, Operand] = {}
    for operand in row.operands:
        widths = operand[1:].split("/")
        width = int(widths[target.wave == 64 and len(widths) > 1])
        result[operand[0]] = make_data(loaded if operand[0] == "d" else stored, width, row.data_half)
    operands = [result["d"]] if "d" in result and (row.unit != "atomic" or returns) else []
    if "addtid" not in row.flags:
        if row.encoding == "SCRATCH":
            operands.append(make_vgpr(vaddr) if offset_used else OFF)
        else:
            operands.append(make_vgpr(vaddr, 2 if saddr == _NULL else 1))
    if "x" in result:
        operands.append(result["x"])
    if row.encoding != "FLAT":
        operands.append(address)
    return tuple(operands)


def make_offset(field: int, bits: int) -> tuple[Modifier, ...]:
    """Return the modifier offset:N, signed; empty if the offset is 0."""
    value = field - (field >> bits - 1 << bits)
    return (Modifier("offset", f"offset:{value}", value),) if value else ()


def _make_scalar_address(row: InstructionRow, saddr: int) -> Operand | None:
    if saddr == _NULL:
        return OFF
    if row.encoding == "FLAT":
        return None
    if row.encoding == "GLOBAL":
        if "addtid" in row.flags:
            return make_scalar(saddr, 2)
        return make_scalar(saddr, 2, "SReg_64_XEXEC_XNULL" if saddr == 126 else "")
    return make_scalar(saddr, 1, "SReg_32_XEXEC_HI" if saddr == 127 else "")
