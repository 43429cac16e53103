"""Checks for registers that are nonexistent, undeclared or misaligned, undeclared memory, and invalid lanes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from zinc_rt.isa.effects import SGPRS, VGPR, VGPRS, format_registers
from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.lint.finding import LintFinding, LintSubject
from zinc_rt.isa.lint.origins import Pointers
from zinc_rt.isa.operand import Kind, Operand

_VECTOR_REGISTERS = 256


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that the kernel's header declares; None if unknown.

    `entry_sgprs` SGPRs hold user data at the start. If `kernarg_bytes` is known, s[0:1] is the address of the
    arguments; `pointers` are the arguments that are buffer addresses.
    """

    vgprs: int | None = None
    sgprs: int | None = None
    lds_bytes: int | None = None
    scratch_bytes: int | None = None
    entry_sgprs: int = 16
    kernarg_bytes: int | None = None
    pointers: Pointers | None = None


def check_operands(subject: LintSubject, limits: Limits) -> Iterator[LintFinding]:
    for pc, instruction in subject.at.items():
        halves = (instruction,) if instruction.second is None else (instruction, instruction.second)
        for message in (message for half in halves for message in _check_existence(half)):
            yield subject.finding("register", pc, message)
        for message in _check_alignment(instruction):
            yield subject.finding("alignment", pc, message)
        for message in _check_limits(subject, pc, limits):
            yield subject.finding("header", pc, message)
        if (lane := _check_lane(instruction, subject.target.wave)) is not None:
            yield subject.finding("lane", pc, lane)
        if instruction.row.pipe == "graphics":
            yield subject.finding("graphics", pc, "graphics instructions are not allowed in a compute kernel")


def _check_existence(instruction: Instruction) -> Iterator[str]:
    for operand in _flatten_operands(instruction.operands):
        if operand.kind is Kind.VGPR and operand.index + operand.width > _VECTOR_REGISTERS:
            yield f"v[{operand.index}:{operand.index + operand.width - 1}] extends past v255"
        elif "/*Invalid" in operand.text:
            yield f"{operand.text.partition('/*')[0]} is not allowed in this operand"


def _flatten_operands(operands: tuple[Operand, ...]) -> Iterator[Operand]:
    for operand in operands:
        yield from operand.parts or (operand,)


# Where an encoding holds scalar register codes: (word, low bit, bits).
_SCALAR_FIELDS = {
    "SOP1": ((0, 16, 7), (0, 0, 8)),
    "SOP2": ((0, 16, 7), (0, 0, 8), (0, 8, 8)),
    "SOPC": ((0, 0, 8), (0, 8, 8)),
    "SOPK": ((0, 16, 7),),
    "SMEM": ((0, 6, 7),),
    "VOP1": ((0, 0, 9),),
    "VOP2": ((0, 0, 9),),
    "VOPC": ((0, 0, 9),),
    "VOP3": ((0, 0, 8), (0, 8, 7), (1, 0, 9), (1, 9, 9), (1, 18, 9)),
    "GLOBAL": ((0, 0, 7),),
    "VBUFFER": ((1, 9, 9),),
}


def _check_alignment(instruction: Instruction) -> Iterator[str]:
    """Report misaligned scalar tuples: a tuple starts at a multiple of its size, at most 4. Decoders round it
    down."""
    fields = _SCALAR_FIELDS.get(instruction.row.encoding, ())
    codes = [instruction.words[word] >> low & (1 << bits) - 1 for word, low, bits in fields]
    if instruction.encoding == "SMEM":
        codes.append((instruction.words[0] & 0x3F) << 1)  # the base
    for operand in instruction.operands:
        if operand.kind is not Kind.SGPR or operand.width < 2 or operand.index in codes:
            continue
        align = 2 if operand.width == 2 else 4
        for code in codes:
            if code < 106 and code - code % align == operand.index:
                yield f"{operand.width} registers starting at s{code}: the first must be a multiple of {align}"
                break


def _check_limits(subject: LintSubject, pc: int, limits: Limits) -> Iterator[str]:
    instruction, effects = subject.at[pc], subject.effects[pc]
    used = effects.reads | effects.writes
    if limits.vgprs is not None and (beyond := (used & VGPRS) >> VGPR + limits.vgprs):
        yield (
            f"{format_registers(beyond << VGPR + limits.vgprs)} used, but the header declares {limits.vgprs} VGPRs"
        )
    if limits.sgprs is not None and (beyond := (used & SGPRS) >> limits.sgprs):
        yield f"{format_registers(beyond << limits.sgprs)} used, but the header declares {limits.sgprs} SGPRs"
    if limits.lds_bytes is not None and instruction.row.pipe == "lds" and "nolds" not in instruction.row.flags:
        end = _find_lds_end(instruction)
        if not limits.lds_bytes:
            yield "uses LDS, but the header declares none"
        elif end > limits.lds_bytes:
            yield f"the offset alone reaches LDS byte {end}, but the header declares {limits.lds_bytes} bytes"
    if limits.scratch_bytes == 0 and instruction.encoding == "SCRATCH":
        yield "uses scratch, but the header declares none"


def _find_lds_end(instruction: Instruction) -> int:
    """Return the end (exclusive) of the bytes that an LDS access at address 0 touches."""
    size = instruction.row.access_bytes
    if "two" not in instruction.row.flags:
        offset = instruction.modifier("offset")
        return size + (offset.value if offset is not None and isinstance(offset.value, int) else 0)
    size //= 2
    step = size * (64 if "stride64" in instruction.row.flags else 1)
    field = instruction.words[0] & 0xFFFF
    return size + step * max(field & 0xFF, field >> 8)


def _check_lane(instruction: Instruction, wave: int) -> str | None:
    """Report v_readlane and v_writelane with a constant lane outside the wave."""
    if instruction.mnemonic not in ("v_readlane_b32", "v_writelane_b32"):
        return None
    lane = instruction.operands[2]
    if lane.kind in (Kind.INTEGER, Kind.LITERAL) and isinstance(lane.value, int) and not 0 <= lane.value < wave:
        return f"lane {lane.value} is outside a wave of {wave} lanes"
    return None
