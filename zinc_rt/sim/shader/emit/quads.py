"""Quads: four registers kept as one variable in memory order, so that 128-bit loads need no transposition.

A 128-bit load gives lane i dwords 4i to 4i+3, so each of its four registers is every fourth element of the loaded
data. A loop that only multiplies and adds such registers, component by component, into four accumulators does not
have to separate them: arithmetic on the whole load gives the same elements. Four such registers (selected by
translate/quad_choice.py) are one variable in memory order, a quad. `Quads` extracts components, and combines the
results of a block, where possible by repeating the block's arithmetic on whole loads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.emit.slots import RegisterSlots
from zinc_rt.sim.shader.emit.values import I32, VectorConstant

WORDS = 4


@dataclass(frozen=True, slots=True)
class QuadForms:
    """First registers of quads, per block (by start). `whole`: kept in memory order while the block runs.
    `at_start`: in memory order at the block's start; the block splits them there unless they are also `whole`.
    """

    whole: dict[int, frozenset[int]] = field(default_factory=dict)
    at_start: dict[int, frozenset[int]] = field(default_factory=dict)


_BINARY = {
    name: name + "_" * (name in ("and", "or"))
    for name in ("fmul", "fadd", "fsub", "add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr")
}
"""LLVM's name of the builder."""
_FMA = "llvm.fma."


class Quads:
    """The quads of a kernel while its IR is written, and the components of whole loads in other registers."""

    def __init__(self, slots: RegisterSlots, forms: QuadForms) -> None:
        self._slots, self._forms, self._b = slots, forms, slots.frame.b
        self.whole = ir.VectorType(I32, WORDS * self._b.wave)
        self._place: dict[int, tuple[int, int]] = {}  # registers of this block's whole quads: first one, word
        self._variables: dict[int, ir.Value] = {}
        self._loaded: dict[int, ir.Value] = {}  # first register: the quad as it was at the block's start
        self._dirty: set[int] = set()  # members whose value is in their own variable
        self._last: dict[int, ir.Value] = {}  # register: the value that this block wrote last
        self._fresh: list[tuple[int, ir.Value, ir.Block]] = []  # the instruction's writes so far
        self._same: dict[int, tuple[ir.Value, ir.Value]] = {}  # id of a read value: written value, read value
        self._known: dict[int, tuple[ir.Value, int, ir.Value]] = {}  # id of a value: quad, word; and itself
        self._made: dict[tuple[object, ...], ir.Value] = {}  # arithmetic on quads
        self._sources: dict[int, tuple[ir.Value, ir.Value]] = {}  # id of a whole load: where it still is; itself
        self._orders = [tuple(WORDS * lane + word for lane in range(self._b.wave)) for word in range(WORDS)]

    # --- within a block

    def begin_block(self, start: int) -> None:
        for item in (self._loaded, self._dirty, self._last, self._fresh, self._same, self._known, self._made):
            item.clear()
        self._sources.clear()
        whole = self._forms.whole.get(start, frozenset())
        self._place = {first + word: (first, word) for first in whole for word in range(WORDS)}
        for first in sorted(self._forms.at_start.get(start, frozenset()) - whole):
            for word in range(WORDS):
                self._slots.store(first + word, self._component(first, word))

    def read(self, register: int) -> ir.Value:
        """Return a register as <W x i32> at the builder's position."""
        if register in self._place and register not in self._dirty:
            return self.component(register)
        value = self._own(register)
        if self._place and register in self._last:
            self._same[id(value)] = self._last[register], value
        return value

    def component(self, register: int) -> ir.Value:
        """Extract a clean member from its quad."""
        first, word = self._place[register]
        return self._component(first, word, self._loaded.get(first))

    def before_instruction(self, writes: int) -> None:
        """Prepare an instruction. `writes` is the bit set of registers it may write; members are in separate
        variables from then on.
        """
        for register in self._place:
            if writes >> register & 1 and register not in self._dirty:
                first = self._place[register][0]
                if first not in self._loaded:
                    self._loaded[first] = self._b.load(self._variable(first), typ=self.whole)
                self._last[register] = self.component(register)
                self._slots.store(register, self._last[register])
                self._dirty.add(register)

    def wrote(self, register: int, value: ir.Value) -> None:
        if self._place:
            self._last.pop(register, None)
            self._fresh.append((register, value, self._b.block))

    def after_instruction(self) -> None:
        """Invalidate information about registers that were only written conditionally."""
        for register, value, block in self._fresh:
            if block is self._b.block:
                self._last[register] = value
        self._fresh.clear()

    def flush(self, successors: Iterable[int]) -> None:
        """Store quads at the end of a block in the form that the successors expect."""
        whole = {first for first, _ in self._place.values()}
        for first in sorted({self._place[register][0] for register in self._dirty}):
            self._b.store(self._joined(first), self._variable(first))
        expected = {first for start in successors for first in self._forms.at_start.get(start, ())}
        for first in sorted(expected - whole):
            self.store(first, [self._own(first + word) for word in range(WORDS)])
        self._dirty.clear()
        self._loaded.clear()

    # --- loads, which arithmetic may do once more where it is written: the host's operands may be memory, and its
    # registers are for the accumulators

    @property
    def active(self) -> bool:
        """Return whether the block has quads."""
        return bool(self._place)

    def loaded_from(self, whole: ir.Value, pointer: ir.Value) -> None:
        """Record a whole load. Memory at `pointer` is unchanged until `memory_changes` or the end of the block."""
        self._sources[id(whole)] = pointer, whole

    def memory_changes(self) -> None:
        self._sources.clear()

    # --- between blocks

    def at_start(self, start: int) -> frozenset[int]:
        """Return the first registers of the quads that are in memory order at the block's start."""
        return self._forms.at_start.get(start, frozenset())

    def held(self, start: int, register: int) -> ir.Value:
        """Return a register at a block's start as <W x i32>, after a `flush` for that block."""
        for first in self.at_start(start):
            if first <= register < first + WORDS:
                return self._component(first, register - first)
        return self._own(register)

    def store(self, first: int, values: list[ir.Value]) -> None:
        """Write a quad from four <W x i32>."""
        self._b.store(self._interleaved(values), self._variable(first))

    # --- details

    def _own(self, register: int) -> ir.Value:
        return self._slots.load(register)

    def _component(self, first: int, word: int, whole: ir.Value | None = None) -> ir.Value:
        if whole is None:
            whole = self._b.load(self._variable(first), typ=self.whole)
        value = self._b.shuffled(whole, self._orders[word])
        self._known[id(value)] = whole, word, value
        return value

    def _variable(self, first: int) -> ir.Value:
        variable = self._variables.get(first)
        if variable is None:
            variable = self._variables[first] = self._b.local(self.whole, name=f"quad{first}")
        return variable

    def _joined(self, first: int) -> ir.Value:
        wholes, inside = [], True
        for word in range(WORDS):
            register = first + word
            value = self._last.get(register) if register in self._dirty else self.component(register)
            result = None if value is None else self._of(value)
            inside = inside and result is not None and result[1] == word
            wholes.append(None if result is None else result[0])
        if inside and wholes[0] is not None and all(whole is wholes[0] for whole in wholes):
            return wholes[0] if wholes[0].type == self.whole else self._b.bitcast(wholes[0], self.whole)
        return self._interleaved([self.read(first + word) for word in range(WORDS)])

    def _interleaved(self, parts: list[ir.Value]) -> ir.Value:
        wave, b = self._b.wave, self._b
        low, high = (b.shuffled(parts[at], range(2 * wave), parts[at + 1]) for at in (0, 2))
        return b.shuffled(low, (word * wave + lane for lane in range(wave) for word in range(WORDS)), high)

    def _of(self, value: ir.Value) -> tuple[ir.Value, int] | None:
        """Return (quad, word) such that `value` is that component of the quad; arithmetic on quads is emitted
        at this point.
        """
        if id(value) in self._same:
            return self._of(self._same[id(value)][0])
        known = self._known.get(id(value))
        if known is None:
            result = self._derived(value)
            if result is None:
                return None
            known = self._known[id(value)] = (*result, value)
        return known[0], known[1]

    def _derived(self, value: ir.Value) -> tuple[ir.Value, int] | None:
        if not isinstance(value, ir.Instruction):
            return None
        name, operands = value.opname, value.operands
        if name == "shufflevector" and operands[0].type == self.whole and isinstance(operands[2], VectorConstant):
            order = operands[2].elements
            return (self._again(operands[0]), self._orders.index(order)) if order in self._orders else None
        if name == "bitcast" and operands[0].type in (self._b.lanes(I32), self._b.lanes(ir.FloatType())):
            inner = self._of(operands[0])
            if inner is None or value.type.element not in (I32, ir.FloatType()):
                return None
            of = ir.VectorType(value.type.element, WORDS * self._b.wave)
            if inner[0].type == of:
                return inner
            key = ("bitcast", id(inner[0]))
            return self._once(key, lambda: self._b.bitcast(inner[0], of)), inner[1]
        if name in _BINARY:
            return self._operation(name, operands)
        if name == "call" and operands[0].name.startswith(_FMA):
            return self._operation(_FMA, operands[1:])
        return None

    def _again(self, whole: ir.Value) -> ir.Value:
        """Reload the value from memory if memory has not changed."""
        if id(whole) not in self._sources:
            return whole
        pointer = self._sources[id(whole)][0]
        return self._once(("load", id(whole)), lambda: self._b.load(pointer, typ=self.whole, align=1))

    def _operation(self, name: str, operands: Iterable[ir.Value]) -> tuple[ir.Value, int] | None:
        sources = [self._of(operand) for operand in operands]
        wholes = [source[0] for source in sources if source is not None]
        words = {source[1] for source in sources if source is not None}
        if len(words) != 1 or len(wholes) != len(sources):
            return None
        key = (name, *(id(whole) for whole in wholes))
        if name == _FMA:
            return self._once(key, lambda: self._b.intrinsic("llvm.fma", wholes[0].type, *wholes)), words.pop()
        return self._once(key, lambda: getattr(self._b, _BINARY[name])(*wholes)), words.pop()

    def _once(self, key: tuple[object, ...], make: Callable[[], ir.Value]) -> ir.Value:
        result = self._made.get(key)
        if result is None:
            result = self._made[key] = make()
        return result
