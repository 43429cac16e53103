"""Control flow errors: branches out of the code, missing ends, endless loops."""

from __future__ import annotations

from collections.abc import Iterator

from zinc_rt.isa.control_flow import find_predecessors
from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.lint.finding import LintFinding, LintSubject

_FAULTS = {
    "outside": ("branch", "branches to {to:#x}, which is outside the code"),
    "inside": (
        "branch",
        "this instruction starts inside the previous one: a branch targets the middle of an instruction",
    ),
    "illegal": ("illegal", "not a valid instruction on this chip"),
    "past-end": ("end", "the code ends after this instruction without s_endpgm"),
    "padding": ("end", "execution reaches s_code_end at {to:#x}: needs s_endpgm"),
}


def check_structure(subject: LintSubject) -> Iterator[LintFinding]:
    for kind, pc, to in subject.flow.faults:
        rule, message = _FAULTS[kind]
        yield subject.finding(rule, pc, message.format(to=to))
    yield from _check_termination(subject)


def _check_termination(subject: LintSubject) -> Iterator[LintFinding]:
    """Report blocks from which no path leaves. There is only one finding, at the back edge of the first such
    loop. A loop after s_sethalt is no finding: compilers end the wave so where s_trap may have no effect.
    """
    blocks = subject.flow.blocks
    halting = {
        start
        for start, block in blocks.items()
        if any(_halts(instruction) for _, instruction in block.instructions)
    }
    running = _find_running(subject, halting) - halting
    before = find_predecessors(blocks)
    leaving = [
        pc
        for pc, block in blocks.items()
        if block.instructions and not any(blocks[to].instructions for to in block.successors)
    ]
    reaching = set(leaving)
    while leaving:
        for pc in before[leaving.pop()]:
            if pc not in reaching:
                reaching.add(pc)
                leaving.append(pc)
    for pc in subject.order:
        if pc in reaching or pc not in running:
            continue
        back = [to for to in blocks[pc].successors if to <= pc]
        if back:
            last = blocks[pc].instructions[-1][0]
            yield subject.finding("endless", last, f"loops back to {back[0]:#x}, and no path reaches s_endpgm")
            return


def _find_running(subject: LintSubject, halting: set[int]) -> set[int]:
    """Return the blocks that can be reached without leaving one that halts the wave."""
    blocks, todo = subject.flow.blocks, [subject.flow.entry]
    result = set(todo)
    while todo:
        start = todo.pop()
        if start not in halting:
            todo += [after for after in blocks[start].successors if after not in result]
            result.update(blocks[start].successors)
    return result


def _halts(instruction: Instruction) -> bool:
    return instruction.mnemonic == "s_sethalt" and bool(int(instruction.operands[0].value or 0) & 1)
