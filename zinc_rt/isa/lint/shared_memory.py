"""Memory that the waves of a group share through a barrier: which accesses concern one another, and loads behind a
barrier without an invalidation.

Asked only of code whose metadata says which arguments are buffers: two accesses concern one another where their
addresses come from one argument.
"""

from __future__ import annotations

from collections.abc import Iterator

from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.lint.dataflow import forward
from zinc_rt.isa.lint.finding import LintFinding, Subject
from zinc_rt.isa.lint.origins import UNKNOWN, Origin, Origins, Pointers

_MEMORY = ("GLOBAL", "FLAT", "VBUFFER")
WRITES, READS = ("store", "atomic"), ("load", "atomic")
_NOTHING: Origin = frozenset()
_State = tuple[Origin, Origin]  # stored so far; of that, what a barrier has come behind and no invalidation yet


class SharedMemory:
    """The accesses of a kernel by the buffers that they may touch."""

    def __init__(self, subject: Subject, pointers: Pointers) -> None:
        self._subject, self._origins = subject, Origins(subject, pointers)

    def of(self, pc: int) -> Origin:
        """The arguments that the access at `pc` may go through; nothing where that is not known."""
        is_memory = self._subject.at[pc].encoding in _MEMORY
        return self._origins.of(pc) - {UNKNOWN} if is_memory else _NOTHING

    def behind(self, pc: int, units: tuple[str, ...]) -> Origin:
        """What accesses of these units touch on some path from `pc` on."""
        flow = self._subject.flow
        home = next(block for block in flow.blocks.values() if block.start <= pc < block.end)
        found = [at for at, _ in home.instructions if at > pc]
        seen: set[int] = set()
        todo = list(home.successors)
        while todo:
            start = todo.pop()
            if start not in seen:
                seen.add(start)
                found += [at for at, _ in flow.blocks[start].instructions]
                todo += flow.blocks[start].successors
        touched = (self.of(at) for at in found if self._subject.at[at].row.unit in units)
        return _NOTHING.union(*touched)


def check_shared_memory(subject: Subject, memory: SharedMemory) -> Iterator[LintFinding]:
    """Loads of what the kernel has stored before a barrier, without an invalidation behind that: in WGP mode the
    waves of a group run on two CUs, each with a cache of its own (LLVM AMDGPUUsage, memory model of gfx12)."""

    def over(block: int, state: _State) -> _State:
        for pc, instruction in subject.flow.blocks[block].instructions:
            state = _after(state, pc, instruction, memory)
        return state

    before = forward(subject, (_NOTHING, _NOTHING), over, lambda one, two: (one[0] | two[0], one[1] | two[1]))
    for start, state in before.items():
        for pc, instruction in subject.flow.blocks[start].instructions:
            if instruction.row.unit == "load" and memory.of(pc) & state[1] and not _scope(instruction):
                yield subject.finding(
                    "barrier-wait",
                    pc,
                    "it may read what this CU's cache has kept from before the barrier: wants global_inv between",
                )
            state = _after(state, pc, instruction, memory)


def _after(state: _State, pc: int, instruction: Instruction, memory: SharedMemory) -> _State:
    stored, stale = state
    if instruction.mnemonic == "global_inv":
        return stored, _NOTHING
    if instruction.row.flow == "barrier":
        return stored, stored
    return (stored | memory.of(pc), stale) if instruction.row.unit in WRITES else state


def _scope(instruction: Instruction) -> int:
    """SCOPE_CU 0, SCOPE_SE 1, SCOPE_DEV 2, SCOPE_SYS 3: bits 19:18 of the second word of vector memory."""
    return instruction.words[1] >> 18 & 3
