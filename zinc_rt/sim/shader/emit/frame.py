"""A wave function under construction: its blocks, its frame, the memory it shares with Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.emit.values import (
    FIELD_TYPES,
    I1,
    I8,
    I32,
    I64,
    POINTER,
    SplatConstant,
    mangled,
    type_bits,
)
from zinc_rt.sim.shader.layout import CONTEXT, FIXED, STATE

WAVE_FUNCTION = ir.FunctionType(I32, [POINTER, POINTER])
_NEVER = 1 << 20  # branch weight of what is expected


class Frame:
    """`b` is the builder. `allocas` builds the block before all others, `first` is the one behind it."""

    def __init__(self, module: ir.Module, name: str, wave: int) -> None:
        self.module, self.wave = module, wave
        self.function = ir.Function(module, WAVE_FUNCTION, name)
        self.state, self.context = self.function.args
        self.state.name, self.context.name = "state", "context"
        for argument in self.function.args:
            argument.add_attribute("noalias")
        self.allocas = ir.IRBuilder(self.function.append_basic_block("registers"))
        self.first = self.function.append_basic_block("start")
        self.b = ir.IRBuilder(self.first)
        self.mask_bits = ir.IntType(wave)
        self._first_lane = ir.Constant(self.lanes(I32), None)
        self._shared: dict[str, ir.Value] = {}
        self._fixed: dict[str, ir.Value] = {}

    # --- constants and memory

    def lanes(self, of: ir.Type) -> ir.VectorType:
        return ir.VectorType(of, self.wave)

    def constant(self, value: int | float, of: ir.Type = I32) -> ir.Constant:
        """A constant of a scalar type, or of a vector type with the same value in each lane."""
        if isinstance(of, ir.VectorType):
            return SplatConstant(self.constant(value, of.element), of.count)
        if isinstance(of, ir.IntType):
            value = int(value) & (1 << of.width) - 1
        return ir.Constant(of, value)

    def splat(self, value: ir.Value) -> ir.Value:
        """A scalar in every lane."""
        if isinstance(value, ir.Constant):
            return SplatConstant(value, self.wave)
        undefined = ir.Constant(self.lanes(value.type), ir.Undefined)
        one = self.b.insert_element(undefined, value, self.constant(0))
        return self.b.shuffle_vector(one, undefined, self._first_lane)

    def local(self, of: ir.Type, name: str = "") -> ir.Value:
        """Memory of the function's frame, which LLVM promotes: a pointer for load and store."""
        slot = self.allocas.alloca(of, name=name)
        slot.type = POINTER
        return slot

    def shared(self, name: str, of: ir.Type) -> ir.Value:
        """Memory of the frame that every instruction may use for its own while: a pointer."""
        if name not in self._shared:
            self._shared[name] = self.local(of, name)
        return self._shared[name]

    def load(self, pointer: ir.Value, of: ir.Type, align: int | None = None) -> ir.Value:
        return self.b.load(pointer, typ=of, align=align)

    def offset(self, pointer: ir.Value, size_bytes: int | ir.Value) -> ir.Value:
        index = self.constant(size_bytes, I64) if isinstance(size_bytes, int) else size_bytes
        return self.b.gep(pointer, [index], source_etype=I8)

    # --- fields of the context and of the state

    def field_pointer(self, name: str) -> ir.Value:
        return self.offset(self.context, CONTEXT.fields[name].offset)

    def field(self, name: str) -> ir.Value:
        """A field of the context; those that no wave changes are loaded once, at the function's beginning."""
        if name not in FIXED:
            return self.load(self.field_pointer(name), FIELD_TYPES[CONTEXT.fields[name].type])
        found = self._fixed.get(name)
        if found is None:
            row = CONTEXT.fields[name]
            place = self.allocas.gep(self.context, [self.constant(row.offset, I64)], source_etype=I8)
            found = self._fixed[name] = self.allocas.load(place, name, typ=FIELD_TYPES[row.type])
        return found

    def set_field(self, name: str, value: ir.Value) -> None:
        self.b.store(value, self.field_pointer(name))

    def state_pointer(self, name: str, index: int = 0) -> ir.Value:
        row = STATE.fields[name]
        return self.offset(self.state, row.offset + index * type_bits(FIELD_TYPES[row.type]) // 8)

    def state_field(self, name: str, index: int = 0) -> ir.Value:
        return self.load(self.state_pointer(name, index), FIELD_TYPES[STATE.fields[name].type])

    def set_state_field(self, name: str, value: ir.Value | int, index: int = 0) -> None:
        if isinstance(value, int):
            value = self.constant(value, FIELD_TYPES[STATE.fields[name].type])
        self.b.store(value, self.state_pointer(name, index))

    # --- dwords, masks

    def join(self, parts: Sequence[ir.Value]) -> ir.Value:
        """Dwords (i32 or <W x i32>), lowest first, as one wide integer (or vector of them)."""
        if len(parts) == 1:
            return parts[0]
        vector = isinstance(parts[0].type, ir.VectorType)
        wide = ir.IntType(32 * len(parts))
        of = self.lanes(wide) if vector else wide
        result = self.b.zext(parts[0], of)
        for at, part in enumerate(parts[1:], 1):
            high = self.b.shl(self.b.zext(part, of), self.constant(32 * at, of))
            result = self.b.or_(result, high)
        return result

    def split(self, value: ir.Value) -> list[ir.Value]:
        """The reverse of join; what is narrower than a dword is zero-extended."""
        vector = isinstance(value.type, ir.VectorType)
        bits = type_bits(value.type.element if vector else value.type)
        word = self.lanes(I32) if vector else I32
        if bits <= 32:
            return [value if bits == 32 else self.b.zext(value, word)]
        parts = [self.b.trunc(value, word)]
        for at in range(1, bits // 32):
            parts.append(self.b.trunc(self.b.lshr(value, self.constant(32 * at, value.type)), word))
        return parts

    def resize(self, value: ir.Value, bits: int) -> ir.Value:
        """An iN truncated or zero-extended."""
        have = value.type.width
        if have == bits:
            return value
        return self.b.trunc(value, ir.IntType(bits)) if have > bits else self.b.zext(value, ir.IntType(bits))

    def bits(self, mask: ir.Value) -> ir.Value:
        """<W x i1> as an iW."""
        return self.b.bitcast(mask, self.mask_bits)

    def any(self, mask: ir.Value) -> ir.Value:
        """i1: whether any lane of <W x i1> is set."""
        return self.b.icmp_unsigned("!=", self.bits(mask), self.constant(0, self.mask_bits))

    def first_lane(self, values: ir.Value, bits: ir.Value) -> ir.Value:
        """The element of <W x T> in the lowest lane set in `bits` (iW), lane 0 without any."""
        lane = self.call("llvm.cttz", self.mask_bits, bits, self.constant(0, I1))
        lane = self.b.and_(self.resize(lane, 32), self.constant(self.wave - 1))
        return self.b.extract_element(values, lane)

    # --- blocks and functions

    def block(self, name: str = "") -> ir.Block:
        return self.function.append_basic_block(name)

    @contextmanager
    def cold(self, condition: ir.Value) -> Iterator[None]:
        """A block for a condition (i1) that is expected to be false; both ways go on behind it."""
        inside, behind = self.block("cold"), self.block("")
        self.b.cbranch(condition, inside, behind).set_weights([1, _NEVER])
        self.b.position_at_end(inside)
        yield
        if not self.b.block.is_terminated:
            self.b.branch(behind)
        self.b.position_at_end(behind)

    def helper(
        self, name: str, of: ir.FunctionType, build: Callable[[ir.Function], None], *, inline: bool = False
    ) -> ir.Function:
        """The module's function `name`; `build` writes its body the first time. Out of line unless `inline`."""
        found = self.module.globals.get(name)
        if found is not None:
            return found
        function = ir.Function(self.module, of, name)
        function.linkage = "internal"
        function.attributes.add("alwaysinline" if inline else "noinline")
        build(function)
        return function

    def call(self, intrinsic: str, of: ir.Type, *arguments: ir.Value) -> ir.Value:
        """An LLVM intrinsic that is overloaded on `of` alone (llvm.ctpop, llvm.fma, …) and returns it."""
        return self._call(f"{intrinsic}.{mangled(of)}", of, arguments)

    def convert(self, intrinsic: str, to: ir.Type, value: ir.Value) -> ir.Value:
        """An LLVM intrinsic that is overloaded on its result and its argument (llvm.fptosi.sat, …)."""
        return self._call(f"{intrinsic}.{mangled(to)}.{mangled(value.type)}", to, (value,))

    def _call(self, name: str, of: ir.Type, arguments: Sequence[ir.Value]) -> ir.Value:
        function = self.module.globals.get(name)
        if function is None:
            kind = ir.FunctionType(of, [argument.type for argument in arguments])
            function = ir.Function(self.module, kind, name)
        return self.b.call(function, list(arguments))
