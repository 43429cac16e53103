"""Four registers in one: accumulators kept in the order of memory, so that 128-bit loads need no transposing.

A 128-bit load gives lane i dwords 4i to 4i+3: its four registers are every fourth element of what was loaded. A
loop that only multiplies and adds such registers, component by component, into four accumulators need not take
them apart: done on the whole load, the arithmetic is the same, element by element. `choose_quads` finds the
accumulators of such loops. Their four registers are one variable in memory order (a quad); `Quads` reads
components out of it, and joins what a block wrote, where it can by doing the block's arithmetic on whole loads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa import Instruction, Kind, Operand
from zinc_rt.isa.control_flow import Block, Flow

if TYPE_CHECKING:
    from zinc_rt.sim.shader.emit.registers import Registers

WORDS = 4
LOADS = frozenset({"global_load_b128", "buffer_load_b128", "ds_load_b128", "scratch_load_b128", "flat_load_b128"})
BY_ELEMENT = frozenset({"v_mul_f32", "v_add_f32", "v_sub_f32", "v_subrev_f32", "v_fma_f32", "v_fmac_f32"})
GAIN = 3  # of a loop's block that does arithmetic on a quad, in units of taking one apart or putting it together


# --- which registers

_APART = -1  # a component in no order: of no load


class _Components:
    """Of one block: which component of a quad each register holds, as far as one can tell."""

    def __init__(self) -> None:
        self.of: dict[int, int] = {}  # register: 0 to 3, _APART; absent: as at the block's start
        self.start: dict[int, int] = {}  # what that must have been
        self.apart: set[int] = set()  # read as they were at the start by what needs lanes in order

    def operation(self, instruction: Instruction, base: str) -> None:
        destination, *sources = instruction.operands
        if base == "v_fmac_f32":
            sources.append(destination)
        registers = [each.index for each in sources if each.kind is Kind.VGPR]
        known = {self.of[each] for each in registers if each in self.of}
        if len(known) != 1 or _APART in known:
            self.other(instruction)
            return
        [component] = known
        for each in registers:
            if each not in self.of and self.start.setdefault(each, component) != component:
                self.apart.add(each)
        self.of[destination.index] = component

    def load(self, instruction: Instruction) -> None:
        destination, *sources = instruction.operands
        self._reads(sources)
        for word in range(WORDS):
            self.of[destination.index + word] = word

    def other(self, instruction: Instruction) -> None:
        if not instruction.operands:
            return
        self._reads(instruction.operands)  # a store's first operand is a source
        destination = instruction.operands[0]
        if destination.kind is Kind.VGPR:
            for word in range(destination.width):
                self.of[destination.index + word] = _APART

    def _reads(self, operands: Iterable[Operand]) -> None:
        for each in operands:
            if each.kind is Kind.VGPR:
                self.apart.update(
                    index for index in range(each.index, each.index + each.width) if index not in self.of
                )


@dataclass(frozen=True, slots=True)
class QuadForms:
    """Per block (by its start) the first registers of quads. `whole`: kept in memory order while the block runs.
    `at_start`: in memory order where it begins; the block takes them apart there unless they are `whole` too."""

    whole: dict[int, frozenset[int]] = field(default_factory=dict)
    at_start: dict[int, frozenset[int]] = field(default_factory=dict)


def choose_quads(graph: Flow, exec_full: frozenset[tuple[int, int]]) -> QuadForms:
    """The quads worth having, and where."""
    loops = _in_loops(graph)
    found = {block.start: _of_block(block, exec_full) for block in graph.blocks.values()}
    candidates: dict[int, set[int]] = {}
    for start in loops:
        firsts = {register - component for register, component in found[start].start.items()}
        for first in firsts:
            if first >= 0 and _whole(found[start], first):
                candidates.setdefault(first, set()).add(start)
    whole: dict[int, set[int]] = {start: set() for start in graph.blocks}
    at_start: dict[int, set[int]] = {start: set() for start in graph.blocks}
    taken: set[int] = set()
    for first, inside in sorted(candidates.items()):
        members = range(first, first + WORDS)
        gain = GAIN * len(inside)
        _between(graph, loops, found, members, inside)
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


def _between(
    graph: Flow, loops: set[int], found: dict[int, _Components], members: range, inside: set[int]
) -> None:
    """Add blocks on the way from one of the loop's blocks to another that leave the registers alone."""
    grown = True
    while grown:
        reached = {after for start in inside for after in graph.blocks[start].successors}
        more = {
            start
            for start in reached & loops - inside
            if any(after in inside for after in graph.blocks[start].successors)
            and not any(each in found[start].apart or each in found[start].of for each in members)
        }
        inside |= more
        grown = bool(more)


def _whole(components: _Components, first: int) -> bool:
    """The block reads and writes all four as components of whole quads."""
    return all(
        components.start.get(first + word) == word
        and components.of.get(first + word) == word
        and first + word not in components.apart
        for word in range(WORDS)
    )


def _of_block(block: Block, exec_full: frozenset[tuple[int, int]]) -> _Components:
    found = _Components()
    for pc, instruction in block.instructions:
        full = (block.start, pc) in exec_full
        halves = [instruction] if instruction.second is None else [instruction, instruction.second]
        for half in halves:
            base = "" if half.dpp else half.row.name.replace("v_dual_", "v_")
            if full and base in BY_ELEMENT:
                found.operation(half, base)
            elif full and base in LOADS:
                found.load(half)
            else:
                found.other(half)
    return found


def _in_loops(graph: Flow) -> set[int]:
    """Blocks from which control may come back to them."""
    found = set()
    for start in graph.blocks:
        waiting, reached = list(graph.blocks[start].successors), set()
        while waiting:
            block = waiting.pop()
            if block in reached or block not in graph.blocks:
                continue
            reached.add(block)
            waiting += graph.blocks[block].successors
        if start in reached:
            found.add(start)
    return found


# --- their IR

_BINARY = {
    name: name + "_" * (name in ("and", "or"))
    for name in ("fmul", "fadd", "fsub", "add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr")
}
"""Of LLVM: the builder's name."""
_FMA = "llvm.fma."
_I32 = ir.IntType(32)


class Quads:
    """The registers of a kernel's quads while its IR is written; what other registers hold of whole loads."""

    def __init__(self, e: Registers, forms: QuadForms) -> None:
        self.e, self._forms = e, forms
        self.whole = ir.VectorType(_I32, WORDS * e.wave)
        self._place: dict[int, tuple[int, int]] = {}  # registers of this block's whole quads: first one, word
        self._variables: dict[int, ir.Value] = {}
        self._loaded: dict[int, ir.Value] = {}  # first register: the quad as it was at the block's start
        self._dirty: set[int] = set()  # members whose value is in their own variable
        self._last: dict[int, ir.Value] = {}  # register: what this block wrote last
        self._fresh: list[tuple[int, ir.Value, ir.Block]] = []  # what the instruction wrote so far, and where
        self._same: dict[int, tuple[ir.Value, ir.Value]] = {}  # id of what was read: what was written; itself
        self._known: dict[int, tuple[ir.Value, int, ir.Value]] = {}  # id of a value: quad, word; and itself
        self._made: dict[tuple[object, ...], ir.Value] = {}  # arithmetic on quads
        self._orders = [[WORDS * lane + word for lane in range(e.wave)] for word in range(WORDS)]

    # --- within a block

    def begin_block(self, start: int) -> None:
        for each in (self._loaded, self._dirty, self._last, self._fresh, self._same, self._known, self._made):
            each.clear()
        whole = self._forms.whole.get(start, frozenset())
        self._place = {first + word: (first, word) for first in whole for word in range(WORDS)}
        for first in sorted(self._forms.at_start.get(start, frozenset()) - whole):
            for word in range(WORDS):
                self.e.b.store(self._component(first, word), self.e.register(first + word))

    def read(self, register: int) -> ir.Value:
        """<W x i32>, where the builder stands."""
        if register in self._place and register not in self._dirty:
            return self.component(register)
        value = self._own(register)
        if self._place and register in self._last:
            self._same[id(value)] = self._last[register], value
        return value

    def component(self, register: int) -> ir.Value:
        """A member that is not dirty, out of its quad."""
        first, word = self._place[register]
        return self._component(first, word, self._loaded.get(first))

    def before_instruction(self, writes: int) -> None:
        """`writes`: bit set of registers it may write. Members have their own variable from then on."""
        for register in self._place:
            if writes >> register & 1 and register not in self._dirty:
                first = self._place[register][0]
                if first not in self._loaded:
                    self._loaded[first] = self.e.load(self._variable(first), self.whole)
                self._last[register] = self.component(register)
                self.e.b.store(self._last[register], self.e.register(register))
                self._dirty.add(register)

    def wrote(self, register: int, value: ir.Value) -> None:
        if self._place:
            self._last.pop(register, None)
            self._fresh.append((register, value, self.e.b.block))

    def after_instruction(self) -> None:
        """What was written under a condition only is not known to be the register's value."""
        for register, value, block in self._fresh:
            if block is self.e.b.block:
                self._last[register] = value
        self._fresh.clear()

    def flush(self, successors: Iterable[int]) -> None:
        """At the end of a block: quads have the form in which the next blocks expect them."""
        whole = {first for first, _ in self._place.values()}
        for first in sorted({self._place[register][0] for register in self._dirty}):
            self.e.b.store(self._joined(first), self._variable(first))
        expected = {first for start in successors for first in self._forms.at_start.get(start, ())}
        for first in sorted(expected - whole):
            self.store(first, [self._own(first + word) for word in range(WORDS)])
        self._dirty.clear()
        self._loaded.clear()

    # --- between blocks

    def at_start(self, start: int) -> frozenset[int]:
        """First registers of the quads that are in memory order where the block begins."""
        return self._forms.at_start.get(start, frozenset())

    def held(self, start: int, register: int) -> ir.Value:
        """<W x i32> of a register as it is at a block's start, after a `flush` for that block."""
        for first in self.at_start(start):
            if first <= register < first + WORDS:
                return self._component(first, register - first)
        return self._own(register)

    def store(self, first: int, values: list[ir.Value]) -> None:
        """A quad from four <W x i32>."""
        self.e.b.store(self._interleaved(values), self._variable(first))

    # --- details

    def _own(self, register: int) -> ir.Value:
        return self.e.load(self.e.register(register), self.e.lanes(_I32))

    def _component(self, first: int, word: int, whole: ir.Value | None = None) -> ir.Value:
        if whole is None:
            whole = self.e.load(self._variable(first), self.whole)
        value = self.e.b.shuffle_vector(whole, ir.Constant(self.whole, ir.Undefined), _mask(self._orders[word]))
        self._known[id(value)] = whole, word, value
        return value

    def _variable(self, first: int) -> ir.Value:
        found = self._variables.get(first)
        if found is None:
            found = self._variables[first] = self.e.local(self.whole, f"quad{first}")
        return found

    def _joined(self, first: int) -> ir.Value:
        wholes, inside = [], True
        for word in range(WORDS):
            register = first + word
            value = self._last.get(register) if register in self._dirty else self.component(register)
            found = None if value is None else self._of(value)
            inside = inside and found is not None and found[1] == word
            wholes.append(None if found is None else found[0])
        if inside and wholes[0] is not None and all(whole is wholes[0] for whole in wholes):
            return wholes[0] if wholes[0].type == self.whole else self.e.b.bitcast(wholes[0], self.whole)
        return self._interleaved([self.read(first + word) for word in range(WORDS)])

    def _interleaved(self, parts: list[ir.Value]) -> ir.Value:
        wave, b = self.e.wave, self.e.b
        pair = _mask(range(2 * wave))
        low, high = (b.shuffle_vector(parts[at], parts[at + 1], pair) for at in (0, 2))
        order = [word * wave + lane for lane in range(wave) for word in range(WORDS)]
        return b.shuffle_vector(low, high, _mask(order))

    def _of(self, value: ir.Value) -> tuple[ir.Value, int] | None:
        """(quad, word) such that `value` is that component of it; arithmetic on quads is written here and now."""
        if id(value) in self._same:
            return self._of(self._same[id(value)][0])
        known = self._known.get(id(value))
        if known is None:
            found = self._derived(value)
            if found is None:
                return None
            known = self._known[id(value)] = (*found, value)
        return known[0], known[1]

    def _derived(self, value: ir.Value) -> tuple[ir.Value, int] | None:
        if not isinstance(value, ir.Instruction):
            return None
        name, operands = value.opname, value.operands
        if name == "shufflevector" and operands[0].type == self.whole:
            order = [each.constant for each in operands[2].constant]
            return (operands[0], self._orders.index(order)) if order in self._orders else None
        if name == "bitcast" and operands[0].type in (self.e.lanes(_I32), self.e.lanes(ir.FloatType())):
            inner = self._of(operands[0])
            if inner is None or value.type.element not in (_I32, ir.FloatType()):
                return None
            of = ir.VectorType(value.type.element, WORDS * self.e.wave)
            if inner[0].type == of:
                return inner
            key = ("bitcast", id(inner[0]))
            return self._once(key, lambda: self.e.b.bitcast(inner[0], of)), inner[1]
        if name in _BINARY:
            return self._operation(name, operands)
        if name == "call" and operands[0].name.startswith(_FMA):
            return self._operation(_FMA, operands[1:])
        return None

    def _operation(self, name: str, operands: Iterable[ir.Value]) -> tuple[ir.Value, int] | None:
        found = [self._of(operand) for operand in operands]
        wholes = [each[0] for each in found if each is not None]
        words = {each[1] for each in found if each is not None}
        if len(words) != 1 or len(wholes) != len(found):
            return None
        key = (name, *(id(whole) for whole in wholes))
        if name == _FMA:
            return self._once(key, lambda: self.e.call("llvm.fma", wholes[0].type, *wholes)), words.pop()
        return self._once(key, lambda: getattr(self.e.b, _BINARY[name])(*wholes)), words.pop()

    def _once(self, key: tuple[object, ...], make: Callable[[], ir.Value]) -> ir.Value:
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = make()
        return found


def _mask(order: Iterable[int]) -> ir.Constant:
    elements = [_I32(index) for index in order]
    return ir.Constant(ir.VectorType(_I32, len(elements)), elements)
