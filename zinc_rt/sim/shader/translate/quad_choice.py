"""Selection of registers to keep as quads (emit/quads.py): accumulators of loops over 128-bit loads."""

from __future__ import annotations

from collections.abc import Iterable

from zinc_rt.isa import Instruction, Kind, Operand
from zinc_rt.isa.control_flow import Block, Flow
from zinc_rt.sim.shader.emit.quads import WORDS, QuadForms

LOADS = frozenset({"global_load_b128", "buffer_load_b128", "ds_load_b128", "scratch_load_b128", "flat_load_b128"})
BY_ELEMENT = frozenset({"v_mul_f32", "v_add_f32", "v_sub_f32", "v_subrev_f32", "v_fma_f32", "v_fmac_f32"})
GAIN = 3  # of a loop's block that does arithmetic on a quad, in units of taking one apart or putting it together
_APART = -1  # a component in no order: of no load


class _Components:
    """The components of quads held by each register in one block, as far as can be determined."""

    def __init__(self) -> None:
        self.of: dict[int, int] = {}  # register: 0 to 3, _APART; absent: as at the block's start
        self.start: dict[int, int] = {}  # the required value
        self.apart: set[int] = set()  # their initial values are read by operations that need lanes in order

    def operation(self, instruction: Instruction, base: str) -> None:
        destination, *sources = instruction.operands
        if base == "v_fmac_f32":
            sources.append(destination)
        registers = [source.index for source in sources if source.kind is Kind.VGPR]
        known = {self.of[register] for register in registers if register in self.of}
        if len(known) != 1 or _APART in known:
            self.other(instruction)
            return
        [component] = known
        for register in registers:
            if register not in self.of and self.start.setdefault(register, component) != component:
                self.apart.add(register)
        self.of[destination.index] = component

    def load(self, instruction: Instruction) -> None:
        destination, *sources = instruction.operands
        self._record_reads(sources)
        for word in range(WORDS):
            self.of[destination.index + word] = word

    def other(self, instruction: Instruction) -> None:
        if not instruction.operands:
            return
        self._record_reads(instruction.operands)  # a store's first operand is a source
        destination = instruction.operands[0]
        if destination.kind is Kind.VGPR:
            for word in range(destination.width):
                self.of[destination.index + word] = _APART

    def _record_reads(self, operands: Iterable[Operand]) -> None:
        for operand in operands:
            if operand.kind is Kind.VGPR:
                self.apart.update(
                    index for index in range(operand.index, operand.index + operand.width) if index not in self.of
                )


def choose_quads(graph: Flow, exec_full: frozenset[tuple[int, int]]) -> QuadForms:
    """Return the profitable quads and the blocks in which to use them."""
    loops = _find_loop_blocks(graph)
    result = {block.start: _find_components(block, exec_full) for block in graph.blocks.values()}
    candidates: dict[int, set[int]] = {}
    for start in loops:
        firsts = {register - component for register, component in result[start].start.items()}
        for first in firsts:
            if first >= 0 and _is_whole(result[start], first):
                candidates.setdefault(first, set()).add(start)
    whole: dict[int, set[int]] = {start: set() for start in graph.blocks}
    at_start: dict[int, set[int]] = {start: set() for start in graph.blocks}
    taken: set[int] = set()
    for first, inside in sorted(candidates.items()):
        members = range(first, first + WORDS)
        gain = GAIN * len(inside)
        _add_blocks_between(graph, loops, result, members, inside)
        entered = inside | {after for start in inside for after in graph.blocks[start].successors}
        for start in loops - inside:
            gain -= start in entered
            gain -= any(after in entered for after in graph.blocks[start].successors)
        if gain > 0 and taken.isdisjoint(members):
            taken.update(members)
            for start in inside:
                whole[start].add(first)
            for start in entered & graph.blocks.keys():
                at_start[start].add(first)
    return QuadForms(
        {start: frozenset(firsts) for start, firsts in whole.items()},
        {start: frozenset(firsts) for start, firsts in at_start.items()},
    )


def _add_blocks_between(
    graph: Flow, loops: set[int], found: dict[int, _Components], members: range, inside: set[int]
) -> None:
    """Add blocks on paths between the loop's blocks that do not access the registers."""
    grown = True
    while grown:
        reached = {after for start in inside for after in graph.blocks[start].successors}
        more = {
            start
            for start in reached & loops - inside
            if any(after in inside for after in graph.blocks[start].successors)
            and not any(member in found[start].apart or member in found[start].of for member in members)
        }
        inside |= more
        grown = bool(more)


def _is_whole(components: _Components, first: int) -> bool:
    """Return whether the block reads and writes all four registers as components of whole quads."""
    return all(
        components.start.get(first + word) == word
        and components.of.get(first + word) == word
        and first + word not in components.apart
        for word in range(WORDS)
    )


def _find_components(block: Block, exec_full: frozenset[tuple[int, int]]) -> _Components:
    components = _Components()
    for pc, instruction in block.instructions:
        full = (block.start, pc) in exec_full
        halves = [instruction] if instruction.second is None else [instruction, instruction.second]
        for half in halves:
            base = "" if half.dpp else half.row.name.replace("v_dual_", "v_")
            if full and base in BY_ELEMENT:
                components.operation(half, base)
            elif full and base in LOADS:
                components.load(half)
            else:
                components.other(half)
    return components


def _find_loop_blocks(graph: Flow) -> set[int]:
    """Return the blocks that are part of a cycle."""
    result = set()
    for start in graph.blocks:
        waiting, reached = list(graph.blocks[start].successors), set()
        while waiting:
            block = waiting.pop()
            if block in reached or block not in graph.blocks:
                continue
            reached.add(block)
            waiting += graph.blocks[block].successors
        if start in reached:
            result.add(start)
    return result
