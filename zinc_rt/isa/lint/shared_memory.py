"""Memory that the waves of a group share through a barrier: conflicting accesses, and missing invalidations.

The rules apply only to code whose metadata marks the arguments that are buffers. Two accesses conflict if their
addresses are derived from the same argument.
"""

from __future__ import annotations

from collections.abc import Iterator

from zinc_rt.isa.encodings.cache_policy import find_scope
from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.lint.dataflow import solve_forward
from zinc_rt.isa.lint.finding import LintFinding, LintSubject
from zinc_rt.isa.lint.origins import UNKNOWN, AddressOrigins, Origin, Pointers

_MEMORY = ("GLOBAL", "FLAT", "VBUFFER", "MUBUF")
WRITES, READS = ("store", "atomic"), ("load", "atomic")
_NOTHING: Origin = frozenset()
_State = tuple[
    Origin, Origin
]  # buffers stored to so far; those of them with a later barrier and no invalidation since


class SharedMemory:
    """The accesses of a kernel by the buffers that they may touch."""

    def __init__(self, subject: LintSubject, pointers: Pointers) -> None:
        self._subject, self._origins = subject, AddressOrigins(subject, pointers)

    def of(self, pc: int) -> Origin:
        """Return the arguments that the access at `pc` may use; empty if unknown."""
        is_memory = self._subject.at[pc].encoding in _MEMORY
        return self._origins.of(pc) - {UNKNOWN} if is_memory else _NOTHING

    def find_later_arguments(self, pc: int, units: tuple[str, ...]) -> Origin:
        """Return the arguments that accesses of these units use on some path after `pc`."""
        flow = self._subject.flow
        home = next(block for block in flow.blocks.values() if block.start <= pc < block.end)
        result = [index for index, _ in home.instructions if index > pc]
        seen: set[int] = set()
        todo = list(home.successors)
        while todo:
            start = todo.pop()
            if start not in seen:
                seen.add(start)
                result += [index for index, _ in flow.blocks[start].instructions]
                todo += flow.blocks[start].successors
        touched = (self.of(at) for at in result if self._subject.at[at].row.unit in units)
        return _NOTHING.union(*touched)


def check_shared_memory(subject: LintSubject, memory: SharedMemory) -> Iterator[LintFinding]:
    """Report loads of data that the kernel stored before a barrier if there is no invalidation after the barrier.

    In WGP mode the waves of a group run on two CUs, each with its private cache (LLVM AMDGPUUsage, memory model of
    gfx12).
    """

    def transfer(block: int, state: _State) -> _State:
        for pc, instruction in subject.flow.blocks[block].instructions:
            state = _transfer_instruction(state, pc, instruction, memory)
        return state

    has_scopes = subject.target.rules.has_scopes
    before = solve_forward(
        subject, (_NOTHING, _NOTHING), transfer, lambda one, two: (one[0] | two[0], one[1] | two[1])
    )
    for start, state in before.items():
        for pc, instruction in subject.flow.blocks[start].instructions:
            if (
                instruction.row.unit == "load"
                and memory.of(pc) & state[1]
                and not find_scope(instruction, subject.target.rules)
            ):
                yield subject.finding(
                    "barrier-wait",
                    pc,
                    "may read data cached on this CU before the barrier: needs "
                    f"{'global_inv' if has_scopes else 'buffer_gl0_inv'} between the barrier and the load",
                )
            state = _transfer_instruction(state, pc, instruction, memory)


def _transfer_instruction(state: _State, pc: int, instruction: Instruction, memory: SharedMemory) -> _State:
    stored, stale = state
    if instruction.mnemonic in ("global_inv", "buffer_gl0_inv"):
        return stored, _NOTHING
    if instruction.row.flow == "barrier":
        return stored, stored
    return (stored | memory.of(pc), stale) if instruction.row.unit in WRITES else state
