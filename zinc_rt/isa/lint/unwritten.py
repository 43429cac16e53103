"""Uses of registers that no path has written; branches on a VCC or SCC that some path leaves unwritten.

If all registers of a vector instruction are unwritten, its result counts as unwritten too, and the finding is at
the use of the result (compilers move and canonicalise values that no path defines).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from zinc_rt.isa.effects import (
    EXEC,
    NULL,
    SCC,
    SGPRS,
    TTMP,
    VCC,
    VGPR,
    VGPRS,
    format_registers,
    operand_registers,
    register_bit,
    register_span,
)
from zinc_rt.isa.effects import effects as effects_of
from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.lint.dataflow import solve_forward
from zinc_rt.isa.lint.finding import LintFinding, LintSubject
from zinc_rt.isa.operand import Kind

_ALWAYS = register_span(EXEC, 2) | register_bit(NULL) | register_span(TTMP, 16)
_KERNARG = register_span(0, 2)
_CONDITIONS = register_bit(SCC) | register_span(VCC, 2)


def check_kernarg(subject: LintSubject, kernarg_bytes: int) -> Iterator[LintFinding]:
    """Report scalar loads past the end of the arguments, while s[0:1] is still unmodified."""
    before = _find_written(subject, 0, every_path=False)
    for block_pc, written in before.items():
        for pc, instruction in subject.flow.blocks[block_pc].instructions:
            if instruction.row.operands[1:] == ("b2",) and not written & _KERNARG:
                base, offset = instruction.operands[1], instruction.operands[2]
                end = instruction.row.access_bytes + (offset.value if isinstance(offset.value, int) else 0)
                if operand_registers(base) == _KERNARG and offset.kind is Kind.IMMEDIATE and end > kernarg_bytes:
                    yield subject.finding(
                        "kernarg",
                        pc,
                        f"reads up to byte {end}, but the kernel has {kernarg_bytes} bytes of arguments",
                    )
            written |= subject.effects[pc].writes


def check_unwritten(subject: LintSubject, entry_sgprs: int) -> Iterator[LintFinding]:
    """Report reads of unwritten registers. Initially s0 up to `entry_sgprs` hold user data, v0 the thread ids."""
    start = register_span(0, entry_sgprs) | register_bit(VGPR) | _ALWAYS
    somewhere = _find_written(subject, start, every_path=False)
    everywhere = _find_written(subject, start, every_path=True)
    for block_pc, block in subject.flow.blocks.items():
        if block_pc not in somewhere:
            continue
        some, every = somewhere[block_pc], everywhere[block_pc]
        for pc, instruction in block.instructions:
            effects = subject.effects[pc]
            carried = _find_propagated(instruction, subject, some)
            if missing := effects.reads & ~some & ~_find_unused(instruction) & ~carried[0]:
                yield subject.finding(
                    "unwritten", pc, f"reads {format_registers(missing)}, which no path has written"
                )
                some |= missing  # report it once
            elif instruction.row.flow == "conditional" and (missing := effects.reads & _CONDITIONS & ~every):
                yield subject.finding(
                    "unwritten",
                    pc,
                    f"branches on {format_registers(missing)}, which some path to this branch leaves unwritten",
                )
            some |= (effects.writes | _find_indexed_registers(instruction)) & ~carried[1]
            every |= effects.writes


def _find_unused(instruction: Instruction) -> int:
    """Return the registers of an unused upper half: compilers leave it undefined in a 64-bit addend if only the
    low half of the result is used."""
    if instruction.row.name.startswith("v_mad_co_"):
        return operand_registers(
            replace(instruction.operands[-1], index=instruction.operands[-1].index + 1, width=1)
        )
    return 0


def _find_indexed_registers(instruction: Instruction) -> int:
    """Return the registers that an indexed write (v_movreld, v_movrelsd) may reach: from its operand upwards."""
    if not instruction.mnemonic.startswith(("v_movreld", "v_movrelsd")):
        return 0
    return VGPRS & -register_bit(VGPR + instruction.operands[0].index)


def _find_propagated(instruction: Instruction, subject: LintSubject, some: int) -> tuple[int, int]:
    """Return (registers read, registers written) of the halves that only propagate unwritten values."""
    if instruction.row.pipe != "valu" or "dpp" in instruction.text:
        return 0, 0
    taken = left = 0
    for half in (instruction,) if instruction.second is None else (instruction, instruction.second):
        of_half = effects_of(half, subject.target)
        sources = of_half.reads & (VGPRS | SGPRS)
        if sources and not sources & some and of_half.writes and not of_half.writes & ~VGPRS:
            taken, left = taken | sources, left | of_half.writes
    return taken, left


def _find_written(subject: LintSubject, start: int, *, every_path: bool) -> dict[int, int]:
    """Return the registers written before each block, on some path or on every path."""

    def transfer(block: int, written: int) -> int:
        for pc, instruction in subject.flow.blocks[block].instructions:
            writes = subject.effects[pc].writes | _find_indexed_registers(instruction)
            if not every_path and subject.effects[pc].reads & ~written & VGPRS:
                writes &= ~_find_propagated(instruction, subject, written)[1]
            written |= writes
        return written

    join = (lambda one, other: one & other) if every_path else (lambda one, other: one | other)
    return solve_forward(subject, start, transfer, join)
