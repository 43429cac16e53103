"""FLAT, GLOBAL and SCRATCH of gfx12: three dwords.

Operands of a row: `d` and `x`, the loaded and the stored data, each with its dwords (in
wave32/wave64 where they differ). Flags: load, store or atomic,
`addtid` (no vector address), `plain` (no operands at all).
"""

from __future__ import annotations

from zinc_rt.isa.encodings.cache_policy import SCALE_OFFSET, policy
from zinc_rt.isa.encodings.source import scalar
from zinc_rt.isa.instruction import Instruction, Modifier
from zinc_rt.isa.operand import Kind, Operand, vgpr
from zinc_rt.isa.rows import InstructionRow, rows
from zinc_rt.isa.target import Target

OFF = Operand(Kind.NAME, "off")
_NULL = 124
_SEGMENTS = {0xEC: "FLAT", 0xED: "SCRATCH", 0xEE: "GLOBAL"}


def decode(word: int, code: bytes, at: int, target: Target) -> Instruction | None:
    segment = _SEGMENTS.get(word >> 24)
    if segment is None or at + 12 > len(code):
        return None
    row = rows("memory", segment, target.generation).get(word >> 14 & 0xFF)
    if row is None:
        return None
    middle = int.from_bytes(code[at + 4 : at + 8], "little")
    high = int.from_bytes(code[at + 8 : at + 12], "little")
    words = (word, middle, high)
    hint, scope = middle >> 20 & 7, middle >> 18 & 3
    kind = row.flags[0]
    if segment != "SCRATCH" and middle >> 17 & 1:
        return None
    saddr = word & 0x7F
    policies = policy(kind, hint, scope, word >> 7 & 1)
    if middle >> 16 & 1:
        policies = (SCALE_OFFSET, *policies)
    if "plain" in row.flags:
        if saddr != _NULL:
            return None
        return Instruction(row, (), policies, words)
    data: dict[str, Operand] = {}
    for operand in row.operands:
        field = middle & 0xFF if operand[0] == "d" else middle >> 23 & 0xFF
        widths = operand[1:].split("/")
        data[operand[0]] = vgpr(field, int(widths[target.wave == 64 and len(widths) > 1]))
    returns = "d" in data and (kind != "atomic" or hint & 1)
    address = scalar_address(segment, saddr, row)
    if address is None:
        return None
    operands = [data["d"]] if returns else []
    if "addtid" not in row.flags:
        operands.append(_vector_address(segment, high & 0xFF, saddr, bool(middle >> 17 & 1)))
    if "x" in data:
        operands.append(data["x"])
    if segment != "FLAT":
        operands.append(address)
    modifiers = offset(high >> 8, 24) + policies
    return Instruction(row, tuple(operands), modifiers, words)


def offset(field: int, bits: int) -> tuple[Modifier, ...]:
    """offset:N, signed, nothing where it is 0."""
    value = field - (field >> bits - 1 << bits)
    return (Modifier("offset", f"offset:{value}", value),) if value else ()


def scalar_address(segment: str, saddr: int, row: InstructionRow) -> Operand | None:
    if saddr == _NULL:
        return OFF
    if segment == "FLAT":
        return None
    if segment == "GLOBAL":
        if "addtid" in row.flags:
            return scalar(saddr, 2)
        return scalar(saddr, 2, "SReg_64_XEXEC_XNULL" if saddr == 126 else "")
    return scalar(saddr, 1, "SReg_32_XEXEC_HI" if saddr == 127 else "")


def _vector_address(segment: str, register: int, saddr: int, used: bool) -> Operand:
    if segment == "SCRATCH":
        return vgpr(register) if used else OFF
    return vgpr(register, 2 if saddr == _NULL else 1)
