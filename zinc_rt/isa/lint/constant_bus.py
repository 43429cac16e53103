"""The constant bus limit: a vector instruction may read two scalar values, 64-bit shifts one; a literal counts.

RDNA4 ISA guide, "Scalar operands of VALU instructions". VOPD has the same limit for both halves together: vopd.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from zinc_rt.isa.effects import NULL, VCC
from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.lint.finding import LintFinding, LintSubject
from zinc_rt.isa.operand import Kind

_LIMIT = 2
_REGISTERS = 128  # higher codes are values such as src_scc, equal in every width


def check_constant_bus(subject: LintSubject) -> Iterator[LintFinding]:
    for pc, instruction in subject.at.items():
        if instruction.row.pipe != "valu" or instruction.second is not None:
            continue
        read = list_scalar_sources(instruction)
        limit = 1 if "one_scalar" in instruction.row.limits else _LIMIT
        if len(read) > limit:
            yield subject.finding(
                "scalars", pc, f"{len(read)} scalar registers and literals read; at most {limit} are allowed"
            )


def list_scalar_sources(instruction: Instruction) -> set[tuple[str, int, int]]:
    """Return the distinct scalar values that an instruction, or half of a VOPD, reads."""
    result: set[tuple[str, int, int]] = set()
    for operand in instruction.operands[instruction.row.destinations :]:
        if operand.kind in (Kind.SGPR, Kind.TTMP) or (operand.kind is Kind.SPECIAL and operand.index != NULL):
            result.add((str(operand.kind), operand.index, operand.width if operand.index < _REGISTERS else 1))
        elif operand.kind is Kind.LITERAL:
            result.add(("literal", 0, 1))
    if "vcc" in instruction.row.reads:
        result.add((str(Kind.SPECIAL), VCC, 1))
    return result
