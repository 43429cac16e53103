"""Vector instructions that must not be adjacent: dependent WMMAs, and a v_cmpx before a permlane.

Any other VALU instruction between them resolves both hazards; a v_nop resolves the WMMA hazard, not the permlane
hazard. Sources: RDNA4 ISA guide 7.9.1 and 5.7, and the instructions that LLVM 22 inserts for gfx12.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from zinc_rt.isa.effects import format_registers, operand_registers, unite
from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.lint.dataflow import solve_forward
from zinc_rt.isa.lint.finding import LintFinding, LintSubject


def check_vector_hazards(subject: LintSubject) -> Iterator[LintFinding]:
    if any(instruction.row.unit == "matrix" for instruction in subject.at.values()):
        for pc, last in _find_last_writers(subject, lambda instruction: True):
            yield from _check_matrix(subject, pc, last)
    if any(map(_is_cmpx, subject.at.values())):
        for pc, last in _find_last_writers(subject, lambda instruction: instruction.mnemonic != "v_nop"):
            yield from _check_permlane(subject, pc, last)


def _is_cmpx(instruction: Instruction) -> bool:
    """Return whether an instruction is v_cmpx."""
    return instruction.row.pipe == "valu" and "exec" in instruction.row.writes


def _check_matrix(subject: LintSubject, pc: int, last: frozenset[int]) -> Iterator[LintFinding]:
    instruction = subject.at[pc]
    if instruction.row.unit != "matrix":
        return
    # Matrices A and B, and the index of a sparse one. The hardware waits for C by itself.
    is_sparse = "k0" in instruction.row.flags or "k1" in instruction.row.flags
    sources = instruction.operands[1:4] if is_sparse else instruction.operands[1:3]
    read = unite(map(operand_registers, sources))
    for producer in sorted(last):
        other = subject.at[producer]
        if other.row.unit == "matrix" and (both := operand_registers(other.operands[0]) & read):
            yield subject.finding(
                "wmma",
                pc,
                f"reads {format_registers(both)} as A or B directly after the matrix instruction that "
                "writes it: needs v_nop "
                "or another VALU instruction between them",
                producer,
            )


def _check_permlane(subject: LintSubject, pc: int, last: frozenset[int]) -> Iterator[LintFinding]:
    if "permlane" not in subject.at[pc].row.limits:
        return
    for producer in sorted(last):
        if _is_cmpx(subject.at[producer]):
            yield subject.finding(
                "permlane",
                pc,
                "directly after a v_cmpx it may use the previous EXEC mask: needs a VALU instruction other than "
                "v_nop between them",
                producer,
            )


def _find_last_writers(
    subject: LintSubject, counts: Callable[[Instruction], bool]
) -> Iterator[tuple[int, frozenset[int]]]:
    """Yield (pc, pcs of the possible preceding VALU instructions) for instructions accepted by `counts`."""
    blocks = subject.flow.blocks

    def is_vector(pc: int) -> bool:
        return subject.at[pc].row.pipe == "valu" and counts(subject.at[pc])

    def transfer(block: int, last: frozenset[int]) -> frozenset[int]:
        inner = [pc for pc, _ in blocks[block].instructions if is_vector(pc)]
        return frozenset(inner[-1:]) or last

    nothing: frozenset[int] = frozenset()
    into = solve_forward(subject, nothing, transfer, lambda one, other: one | other)
    for start, last in into.items():
        for pc, _ in blocks[start].instructions:
            yield pc, last
            if is_vector(pc):
                last = frozenset((pc,))
