"""Which memory may depend on the results of an instruction: a data flow analysis over machine code.

It is a may-analysis, an over-approximation: what it reports may depend, what it does not report does not, as long
as every access stays in the memory that it is known to use. Values flow through registers (halves of vector
registers, with the lanes that EXEC disables apart), memory (a buffer, all LDS or all scratch is one place, in any
order), addresses and branches: what a branch on a dependent value decides about is dependent too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from zinc_rt.isa.control_flow import Block, Flow, order_blocks
from zinc_rt.isa.effects import (
    EXEC,
    NULL,
    SGPRS,
    UPPER,
    VGPR,
    effects,
    operand_registers,
    register_bit,
    register_span,
    to_halves,
    unite,
)
from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.lane_masks import LaneMasks, is_exec

LDS, SCRATCH = 1, 2  # places in memory: bits; the buffers follow
_BUFFERS = 2  # bit of the first
_VECTORS = (1 << 2 * UPPER) - (1 << VGPR)
_EXECS = register_span(EXEC, 2)
_EVERY_VECTOR = to_halves(register_span(VGPR, 256))
_OTHER_LANES = ("v_readlane", "v_readfirstlane", "v_permlane", "v_wmma", "v_swmmac", "ds_swizzle", "ds_bpermute",
                "ds_permute", "ds_load_tr", "global_load_tr", "v_writelane")  # fmt: skip
_NO_MEMORY = ("ds_swizzle", "ds_bpermute", "ds_permute", "ds_nop")
_NARROWS = ("s_and_saveexec_", "s_and_not0_saveexec_")


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """The executed code: `executed` are the starts of executed blocks; `ranges` are the buffers that a memory
    instruction accessed, by pc, as (VA, VA after the last byte).
    """

    executed: Collection[int]
    ranges: Mapping[int, Collection[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class _Step:
    """An instruction. `reads`, `writes`: sets of halves. `sources`, `targets`: the places
    that it loads from and stores to, None if any. `partly`: it leaves lanes as they are. `others`: it reads
    disabled lanes. `narrows`: EXEC only loses lanes. `saved`: the register that gets a copy of EXEC from
    before. `second`: the other half of a dual instruction, which runs at the same time."""

    instruction: Instruction
    reads: int
    writes: int
    sources: int | None = 0
    targets: int | None = 0
    partly: bool = False
    others: bool = False
    narrows: bool = False
    saved: int = 0
    second: _Step | None = None


def find_dependent_memory(
    flow: Flow, instructions: Collection[str], use: MemoryUse, buffers: Mapping[str, tuple[int, int]]
) -> dict[str, frozenset[str]]:
    """Return which of the instructions with these names the final contents of each buffer may depend on.

    `buffers`: (VA, VA after the last byte) by name. `flow`: of a running wave (control_flow(..., running=True)).
    """
    places = _Places(use, buffers)
    steps = {start: _list_steps(block, flow, places) for start, block in flow.blocks.items()}
    graph = _Graph(flow, steps, set(use.executed))
    result: dict[str, set[str]] = {name: set() for name in buffers}
    for instruction in instructions:
        memory = _Search(instruction, steps, graph, places).memory()
        for name, bits in places.of_buffers.items():
            if memory & bits:
                result[name].add(instruction)
    return {name: frozenset(names) for name, names in result.items()}


class _Places:
    """Buffers as bits."""

    def __init__(self, use: MemoryUse, buffers: Mapping[str, tuple[int, int]]) -> None:
        known = sorted({*buffers.values(), *(item for ranges in use.ranges.values() for item in ranges)})
        self._known = known
        self.every = (1 << _BUFFERS + len(known)) - 1
        self._of_pc = {pc: self._to_bits(ranges) for pc, ranges in use.ranges.items()}
        self.of_buffers = {name: self._to_bits([location]) for name, location in buffers.items()}

    def _to_bits(self, ranges: Collection[tuple[int, int]]) -> int:
        overlapping = (
            1 << _BUFFERS + index
            for index, (low, high) in enumerate(self._known)
            if any(low < end and start < high for start, end in ranges)
        )
        return sum(overlapping)

    def of(self, pc: int, name: str) -> int | None:
        """Return the locations that the memory instruction at `pc` accesses; None if it accessed none."""
        if name.startswith("ds_"):
            return LDS
        if name.startswith("scratch_"):
            return SCRATCH
        at_run = self._of_pc.get(pc)
        if name.startswith("flat_"):
            return LDS | SCRATCH | (at_run or 0)
        return at_run


def _list_steps(block: Block, flow: Flow, places: _Places) -> list[_Step]:
    steps = []
    for pc, instruction in block.instructions:
        step = _step(pc, replace(instruction, second=None), flow, places)
        if instruction.second is not None:
            step = replace(step, second=_step(pc, instruction.second, flow, places))
        steps.append(step)
    return steps


def _step(pc: int, instruction: Instruction, flow: Flow, places: _Places) -> _Step:
    row, known = instruction.row, effects(instruction, flow.target)
    name = row.name
    reads, writes = known.read_halves, known.written_halves & ~register_bit(NULL)
    if "movrel" in name or "swaprel" in name:  # registers numbered by M0
        reads |= _EVERY_VECTOR if name[0] == "v" else SGPRS
        writes |= _EVERY_VECTOR if name[0] == "v" else SGPRS
    dpp = bool(instruction.dpp)
    partly = dpp or name.startswith("v_writelane") or "rel" in name
    sources: int | None = 0
    targets: int | None = 0
    if row.pipe in ("vmem", "smem", "lds") and not name.startswith(_NO_MEMORY):
        is_store, is_atomic = "store" in name, "atomic" in name or row.unit == "atomic"
        is_atomic |= row.pipe == "lds" and not is_store and "load" not in name
        location = places.of(pc, name)
        sources = 0 if is_store else location
        targets = location if is_store or is_atomic else 0
    return _Step(
        instruction,
        reads, writes, sources, targets, partly,
        others=dpp or name.startswith(_OTHER_LANES),
        narrows=_is_narrowing(instruction),
        saved=operand_registers(instruction.operands[0]) if "_saveexec_" in name else 0,
    )  # fmt: skip


def _is_narrowing(instruction: Instruction) -> bool:
    """Return whether this instruction only removes lanes from EXEC."""
    name, operands = instruction.row.name, instruction.operands
    if name.startswith(("v_cmpx_", *_NARROWS)):
        return True
    if name.startswith(("s_and_b32", "s_and_b64")):
        return is_exec(operands[0]) and any(map(is_exec, operands[1:]))
    return name.startswith("s_and_not1_b") and is_exec(operands[0]) and is_exec(operands[1])


class _Graph:
    """The blocks and which of them ran, the regions controlled by branches, and copies of EXEC."""

    def __init__(self, flow: Flow, steps: dict[int, list[_Step]], executed: set[int]) -> None:
        self.flow, self.executed = flow, executed
        self._steps, self._order = steps, order_blocks(flow)
        self._end = self._post_dominators()
        self._regions: dict[int, frozenset[int]] = {}
        self.restores = self._find_restores()

    def _post_dominators(self) -> dict[int, int]:
        """Return the post-dominators of each block as a set of bits, 0 if it cannot reach an end."""
        index = {start: number for number, start in enumerate(self._order)}
        every = (1 << len(index)) - 1
        result = dict.fromkeys(self._order, every)
        changed = True
        while changed:
            changed = False
            for start in reversed(self._order):
                after = [result[successor] for successor in self.flow.blocks[start].successors]
                common = every if after else 0
                for item in after:
                    common &= item
                common |= 1 << index[start]
                changed |= common != result[start]
                result[start] = common
        return {start: 0 if bits == every and len(index) > 1 else bits for start, bits in result.items()}

    def find_region(self, start: int) -> frozenset[int]:
        """Return the blocks controlled by the branch at the end of this block: those on a path from it to the
        first block that every path reaches.
        """
        if start not in self._regions:
            inside: set[int] = set()
            todo = list(self.flow.blocks[start].successors)
            index = {item: number for number, item in enumerate(self._order)}
            always = self._end[start] & ~(1 << index[start])
            while todo:
                position = todo.pop()
                if position not in inside and not always >> index[position] & 1:
                    inside.add(position)
                    todo += self.flow.blocks[position].successors
            self._regions[start] = frozenset(inside)
        return self._regions[start]

    def find_unexecuted(self, start: int) -> set[int]:
        """Return the blocks that did not run and that a wave would reach if the branch at the end of `start` went
        the other way, up to blocks that did run.
        """
        result: set[int] = set()
        todo = list(self.flow.blocks[start].successors)
        while todo:
            index = todo.pop()
            if index not in result and index not in self.executed:
                result.add(index)
                todo += self.flow.blocks[index].successors
        return result

    def _find_restores(self) -> set[tuple[int, int]]:
        """Return the (block, index) of each `s_or exec, exec, X` that makes EXEC equal to X: X is a copy of EXEC
        from before lanes were removed.
        """
        states: dict[int, LaneMasks | None] = dict.fromkeys(self._order)
        states[self.flow.entry] = LaneMasks(self.flow.target.mask_width)
        todo, result = [self.flow.entry], set()
        while todo:
            start = todo.pop()
            state = states[start]
            assert state is not None
            state = state.copy()
            for index, step in enumerate(self._steps[start]):
                location = (start, index)
                if state.step(step.instruction, step.writes):
                    result.add(location)
                else:
                    result.discard(location)
            for successor in self.flow.blocks[start].successors:
                before = states[successor]
                after = state.copy() if before is None else before.intersect(state)
                if before is None or after != before:
                    states[successor] = after
                    todo.append(successor)
        return result


@dataclass
class _State:
    """Dependent halves of registers: in the lanes that EXEC enables, and in the others."""

    enabled: int = 0
    disabled: int = 0


class _Search:
    """The search for everything that depends on one instruction."""

    def __init__(self, instruction: str, steps: dict[int, list[_Step]], graph: _Graph, places: _Places) -> None:
        self._instruction, self._steps, self._graph, self._places = instruction, steps, graph, places
        self._states: dict[int, _State] = {}
        self._memory = 0
        self._decided: set[int] = set()  # blocks that a dependent branch decides about
        self._live = set(graph.executed)

    def memory(self) -> int:
        """Return the dependent places."""
        flow = self._graph.flow
        while True:
            before = (self._memory, len(self._decided), len(self._live))
            self._states = {flow.entry: _State()}
            todo = [flow.entry]
            while todo:
                start = todo.pop()
                after = self._visit_block(start)
                for successor in flow.blocks[start].successors:
                    if successor in self._live and self._join(successor, after):
                        todo.append(successor)
            if before == (self._memory, len(self._decided), len(self._live)):
                return self._memory

    def _join(self, start: int, more: _State) -> bool:
        known = self._states.get(start)
        if known is None:
            self._states[start] = _State(more.enabled, more.disabled)
            return True
        both = _State(known.enabled | more.enabled, known.disabled | more.disabled)
        changed = both != known
        self._states[start] = both
        return changed

    def _visit_block(self, start: int) -> _State:
        known = self._states[start]
        state = _State(known.enabled, known.disabled)
        decided, executed = start in self._decided, start in self._graph.executed
        for index, step in enumerate(self._steps[start]):
            self._step(state, step, decided, executed, (start, index) in self._graph.restores)
        block = self._graph.flow.blocks[start]
        if len(block.successors) > 1 and (decided or self._is_dependent_branch(state, block)):
            self._decided |= self._graph.find_region(start)
            self._live |= self._graph.find_unexecuted(start)
        return state

    def _is_dependent_branch(self, state: _State, block: Block) -> bool:
        return bool(self._steps[block.start] and self._steps[block.start][-1].reads & state.enabled)

    def _step(self, state: _State, step: _Step, decided: bool, executed: bool, restores: bool) -> None:
        parts = (step,) if step.second is None else (step, step.second)
        dependent = [self._is_dependent(state, part, decided, executed, restores) for part in parts]
        saved = step.saved if decided or state.enabled & _EXECS else 0
        for part, is_dependent in zip(parts, dependent, strict=True):
            if is_dependent:
                self._memory |= self._find_reached(part.targets, state, decided, executed)
                state.enabled |= part.writes
            elif part.partly:
                state.enabled &= ~(part.writes & ~_VECTORS)
            else:
                state.enabled &= ~part.writes
        if step.saved:
            state.enabled = state.enabled & ~step.saved | saved
        if step.writes & _EXECS:
            vectors = state.enabled & _VECTORS
            state.disabled |= vectors
            if not step.narrows:
                state.enabled |= state.disabled

    def _is_dependent(self, state: _State, step: _Step, decided: bool, executed: bool, restores: bool) -> bool:
        if decided or step.instruction.row.name == self._instruction:
            return True
        lanes = state.enabled | (state.disabled if step.others else 0)
        reads = step.reads
        if restores:
            reads = unite(
                operand_registers(operand) for operand in step.instruction.operands[1:] if not is_exec(operand)
            )
        return bool(reads & lanes or self._find_reached(step.sources, state, decided, executed) & self._memory)

    def _find_reached(self, places: int | None, state: _State, decided: bool, executed: bool) -> int:
        """Return the locations of an access; an access that did not run may use any buffer."""
        if not executed or (places is None and (decided or state.enabled & _EXECS)):
            return self._places.every if places != 0 else 0
        return places or 0
