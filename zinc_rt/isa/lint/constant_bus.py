"""How many scalar values a vector instruction may read: two, and one for 64-bit shifts; a literal is one too.

RDNA4 ISA guide, "Scalar operands of VALU instructions". VOPD has the same limit for both halves together: vopd.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from zinc_rt.isa.effects import NULL, VCC
from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.lint.finding import LintFinding, Subject
from zinc_rt.isa.operand import Kind

_LIMIT = 2
_REGISTERS = 128  # from here on codes are values like src_scc, the same in any width
_ONE = ("v_lshlrev_b64", "v_lshrrev_b64", "v_ashrrev_i64")
_NO_DESTINATION = ("v_cmpx", "v_nop")


def check_constant_bus(subject: Subject) -> Iterator[LintFinding]:
    for pc, made in subject.at.items():
        if subject.effects[pc].unit != "valu" or made.second is not None:
            continue
        read = scalar_sources(made)
        limit = 1 if made.mnemonic.startswith(_ONE) else _LIMIT
        if len(read) > limit:
            yield subject.finding("scalars", pc, f"{len(read)} scalar registers and literals, at most {limit}")


def scalar_sources(made: Instruction) -> set[tuple[str, int, int]]:
    """The scalar values an instruction, or half of a VOPD, reads; the same one twice is one."""
    found: set[tuple[str, int, int]] = set()
    for operand in made.operands[_destinations(made) :]:
        if operand.kind in (Kind.SGPR, Kind.TTMP) or (operand.kind is Kind.SPECIAL and operand.index != NULL):
            found.add((str(operand.kind), operand.index, operand.width if operand.index < _REGISTERS else 1))
        elif operand.kind is Kind.LITERAL:
            found.add(("literal", 0, 1))
    if made.mnemonic.startswith(("v_dual_cndmask", "v_div_fmas")):
        found.add((str(Kind.SPECIAL), VCC, 1))
    return found


def _destinations(made: Instruction) -> int:
    if made.mnemonic.startswith(_NO_DESTINATION):
        return 0
    return 2 if "_co_" in made.mnemonic or made.mnemonic.startswith("v_div_scale") else 1
