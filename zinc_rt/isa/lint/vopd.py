"""Restrictions on the two halves of a VOPD instruction. RDNA4 ISA guide 7.6; decoders do not check them.

Vector registers are in four banks, by register number mod 4, and each source position reads one register per bank
in a cycle. Both halves read before either writes, so compilers let one half write a register that the other reads.
"""

from __future__ import annotations

from collections.abc import Iterator

from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.lint.constant_bus import list_scalar_sources
from zinc_rt.isa.lint.finding import LintFinding, LintSubject
from zinc_rt.isa.operand import Kind, Operand


def check_vopd(subject: LintSubject) -> Iterator[LintFinding]:
    for pc, instruction in subject.at.items():
        if instruction.second is not None:
            for message in find_violations(instruction, instruction.second):
                yield subject.finding("vopd", pc, message)


def find_violations(x: Instruction, y: Instruction) -> Iterator[str]:
    """Return the violations of these halves, one sentence each."""
    both_move = x.mnemonic == y.mnemonic == "v_dual_mov_b32"  # Y then reads through the third position
    for location, (one, other) in enumerate(zip(_list_sources(x), _list_sources(y), strict=True)):
        if one is None or other is None or one == other or (location == 0 and both_move):
            continue
        if location == 2:
            if one % 2 == other % 2:
                yield f"third sources v{one} and v{other} are both {'odd' if one % 2 else 'even'}"
        elif one % 4 == other % 4:
            yield f"sources {location} v{one} and v{other} are in the same bank"
    written = x.operands[0].index, y.operands[0].index
    if written[0] % 2 == written[1] % 2:
        yield f"destinations v{written[0]} and v{written[1]} are both {'odd' if written[0] % 2 else 'even'}"
    scalars = list_scalar_sources(x) | list_scalar_sources(y)
    if len(scalars) > 2:
        yield f"{len(scalars)} scalar registers and literals read; at most 2 are allowed"


def _list_sources(half: Instruction) -> tuple[int | None, int | None, int | None]:
    """Return the vector registers read in the three source positions."""
    vectors = [
        operand for operand in half.operands[1:] if operand.kind is not Kind.LITERAL or half.operands[1] is operand
    ]
    first = _vgpr_index(vectors[0]) if vectors else None
    second = _vgpr_index(vectors[1]) if len(vectors) > 1 else None
    if half.row.operands[2:3] == ("K",):  # v_dual_fmamk: the register after K is the third source
        return first, None, second
    return first, second, half.operands[0].index if "dst" in half.row.reads else None


def _vgpr_index(operand: Operand) -> int | None:
    return operand.index if operand.kind is Kind.VGPR else None
