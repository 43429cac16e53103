"""Registers read that nothing has written on any path; branches on a VCC or SCC that a path leaves unwritten."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from zinc_rt.isa.effects import EXEC, NULL, SCC, TTMP, VCC, VGPR, bit, names, registers, span, union
from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.lint.dataflow import forward
from zinc_rt.isa.lint.finding import LintFinding, Subject
from zinc_rt.isa.operand import Kind

_ALWAYS = span(EXEC, 2) | bit(NULL) | span(TTMP, 16)
_KERNARG = span(0, 2)
_CONDITIONS = bit(SCC) | span(VCC, 2)


def check_kernarg(subject: Subject, kernarg_bytes: int) -> Iterator[LintFinding]:
    """Scalar loads beyond the arguments, as long as nothing has written s[0:1]."""
    before = _written(subject, 0, every_path=False)
    for block_pc, written in before.items():
        for pc, instruction in subject.flow.blocks[block_pc].instructions:
            if instruction.row.operands[1:] == ("b2",) and not written & _KERNARG:
                base, offset = instruction.operands[1], instruction.operands[2]
                end = instruction.row.access_bytes + (offset.value if isinstance(offset.value, int) else 0)
                if registers(base) == _KERNARG and offset.kind is Kind.IMMEDIATE and end > kernarg_bytes:
                    yield subject.finding(
                        "kernarg", pc, f"reads up to byte {end} of {kernarg_bytes} bytes of arguments"
                    )
            written |= subject.effects[pc].writes


def check_unwritten(subject: Subject, entry_sgprs: int) -> Iterator[LintFinding]:
    """Reads of what nothing has written: at the start s0 up to `entry_sgprs` hold user data, v0 the thread ids."""
    start = span(0, entry_sgprs) | bit(VGPR) | _ALWAYS
    somewhere = _written(subject, start, every_path=False)
    everywhere = _written(subject, start, every_path=True)
    for block_pc, block in subject.flow.blocks.items():
        if block_pc not in somewhere:
            continue
        some, every = somewhere[block_pc], everywhere[block_pc]
        for pc, instruction in block.instructions:
            effects = subject.effects[pc]
            if missing := effects.reads & ~some & ~_unused(instruction):
                yield subject.finding("unwritten", pc, f"reads {names(missing)}, which nothing has written")
                some |= missing  # say it once
            elif instruction.row.flow == "conditional" and (missing := effects.reads & _CONDITIONS & ~every):
                yield subject.finding(
                    "unwritten", pc, f"branches on {names(missing)}, which a path to here leaves unwritten"
                )
            some |= effects.writes
            every |= effects.writes


def _unused(instruction: Instruction) -> int:
    """Compilers leave the upper half of a 64-bit addend undefined where they want the lower half of the result."""
    if instruction.mnemonic.startswith("v_mad_co_"):
        return registers(replace(instruction.operands[-1], index=instruction.operands[-1].index + 1, width=1))
    return 0


def _written(subject: Subject, start: int, *, every_path: bool) -> dict[int, int]:
    """The registers written before each block, on some or on every path."""
    gains = {
        start: union(subject.effects[at].writes for at, _ in block.instructions)
        for start, block in subject.flow.blocks.items()
    }
    return forward(
        subject,
        start,
        lambda block, written: written | gains[block],
        (lambda one, other: one & other) if every_path else (lambda one, other: one | other),
    )
