"""Builders of LLVM functions, based on llvmlite's: accept Python numbers as operands and add record fields,
loops and helpers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.emit.helpers import BuildFunction
from zinc_rt.sim.shader.emit.values import (
    FIELD_TYPES,
    I1,
    I8,
    I32,
    I64,
    POINTER,
    constant,
    mangled,
    splat_constant,
    type_bits,
    vector_of,
)
from zinc_rt.sim.shader.layout import RecordLayout

_NEVER = 1 << 20  # branch weight of the likely path


def _typed(one: Any, other: Any) -> tuple[ir.Value, ir.Value]:
    """Return two operands of one type; a number becomes a constant of the other operand's type."""
    if not isinstance(other, ir.Value):
        return one, constant(other, one.type)
    return (one, other) if isinstance(one, ir.Value) else (constant(one, other.type), other)


def _taking_numbers(name: str, leading: int = 0) -> Callable[..., ir.Value]:
    """Wrap the builder's method `name`, which has two operands after `leading` other arguments."""
    plain = getattr(ir.IRBuilder, name)

    def method(self: CodeBuilder, *arguments: Any, **named: Any) -> ir.Value:
        return plain(self, *arguments[:leading], *_typed(*arguments[leading:]), **named)

    return method


class WeightedBranch(ir.instructions.ConditionalBranch):
    """An llvmlite branch with the branch weights of its module."""

    def set_weights(self, weights: Sequence[int]) -> None:
        self.set_metadata("prof", self.module.weights(tuple(weights)))


class CodeBuilder(ir.IRBuilder):
    """A builder whose arithmetic, comparison and `select` operands may be Python numbers, as constants of the
    other operand's type.
    """

    for _name in ("add", "sub", "mul", "udiv", "urem", "and_", "or_", "xor", "shl", "lshr", "ashr"):
        locals()[_name] = _taking_numbers(_name)
    for _name in ("fadd", "fsub", "fmul", "fdiv"):
        locals()[_name] = _taking_numbers(_name)
    for _name in ("icmp_signed", "icmp_unsigned", "fcmp_ordered", "fcmp_unordered", "select"):
        locals()[_name] = _taking_numbers(_name, 1)

    # --- conditions

    def equal(self, one: ir.Value, other: ir.Value | int) -> ir.Value:
        return self.icmp_unsigned("==", one, other)

    def unequal(self, one: ir.Value, other: ir.Value | int) -> ir.Value:
        return self.icmp_unsigned("!=", one, other)

    def below(self, one: ir.Value, other: ir.Value | int) -> ir.Value:
        return self.icmp_unsigned("<", one, other)

    def at_most(self, one: ir.Value, other: ir.Value | int) -> ir.Value:
        return self.icmp_unsigned("<=", one, other)

    def has(self, flags: ir.Value, bits: int) -> ir.Value:
        """Return i1: any of `bits` is set."""
        return self.unequal(self.and_(flags, bits), 0)

    def any(self, *conditions: ir.Value) -> ir.Value:
        result = conditions[0]
        for condition in conditions[1:]:
            result = self.or_(result, condition)
        return result

    def all(self, *conditions: ir.Value) -> ir.Value:
        result = conditions[0]
        for condition in conditions[1:]:
            result = self.and_(result, condition)
        return result

    def cbranch(self, condition: ir.Value, one: ir.Block, other: ir.Block) -> WeightedBranch:
        return self._set_terminator(WeightedBranch(self.block, "br", [condition, one, other]))

    # --- floats

    def bitcast(self, value: ir.Value, typ: ir.Type, name: str = "") -> ir.Value:
        result = super().bitcast(value, typ, name)
        if not isinstance(value.type, ir.HalfType):
            return result
        # Where an f16 becomes a mask of lanes by way of i16, LLVM for AVX-512 makes one bitcast of both and then
        # cannot select it. It does not look through inline assembly, which is empty here.
        return self.asm(ir.FunctionType(result.type, [result.type]), "", "=r,0", [result], False)

    # --- memory

    def local(self, of: ir.Type, value: ir.Value | int | None = None, name: str = "") -> ir.Value:
        """Allocate a local of the function, which LLVM promotes to a register. Return a pointer."""
        with self.goto_entry_block():
            slot = self.alloca(of, name=name)
        slot.type = POINTER
        if value is not None:
            self.store(of(value) if isinstance(value, int) else value, slot)
        return slot

    def offset(self, pointer: ir.Value, size_bytes: int | ir.Value) -> ir.Value:
        return self.element(pointer, size_bytes, I8)

    def element(self, pointer: ir.Value, index: ir.Value | int, of: ir.Type) -> ir.Value:
        return self.gep(pointer, [I64(index) if isinstance(index, int) else index], source_etype=of)

    def pointer(self, address: ir.Value) -> ir.Value:
        return self.inttoptr(address, POINTER)

    def at(self, base: ir.Value, layout: RecordLayout, name: str) -> ir.Value:
        """Return a pointer to a field of the record at `base`."""
        return self.offset(base, layout.fields[name].offset)

    def get(self, base: ir.Value, layout: RecordLayout, name: str) -> ir.Value:
        return self.load(self.at(base, layout, name), typ=FIELD_TYPES[layout.fields[name].type])

    def put(self, base: ir.Value, layout: RecordLayout, name: str, value: ir.Value | int) -> None:
        of = FIELD_TYPES[layout.fields[name].type]
        self.store(of(value) if isinstance(value, int) else value, self.at(base, layout, name))

    def shuffled(self, value: ir.Value, order: Iterable[int], other: ir.Value | None = None) -> ir.Value:
        """Return a vector whose element i is element order[i] of `value`, or of `other` for indices beyond the
        end of `value`.
        """
        other = ir.Constant(value.type, ir.Undefined) if other is None else other
        return self.shuffle_vector(value, other, vector_of(order))

    # --- calls

    def intrinsic(
        self, name: str, result: ir.Type, *arguments: ir.Value, types: Sequence[ir.Type] | None = None
    ) -> ir.Value:
        """Call an LLVM intrinsic overloaded on `types`, or on its result type."""
        name = ".".join((name, *(mangled(of) for of in types or (result,))))
        function = self.module.globals.get(name)
        if function is None:
            kind = ir.FunctionType(result, [argument.type for argument in arguments])
            function = ir.Function(self.module, kind, name)
        return self.call(function, list(arguments))

    def helper(self, name: str, of: ir.FunctionType, build: BuildFunction) -> ir.Function:
        """Return the out-of-line function `name`; `build` writes its body on first use. The name must include
        everything the body depends on, except the generation, the wave size and the checks.
        """
        return self.module.helper(name, of, build)

    # --- blocks

    @contextmanager
    def cold(self, condition: ir.Value) -> Iterator[None]:
        """Open a block for a condition (i1) expected to be false; both paths continue after it."""
        inside, behind = self.append_basic_block("cold"), self.append_basic_block("")
        self.cbranch(condition, inside, behind).set_weights([1, _NEVER])
        self.position_at_end(inside)
        yield
        if not self.block.is_terminated:
            self.branch(behind)
        self.position_at_end(behind)

    def repeat(self, count: int | ir.Value, body: Callable[[ir.Value], None]) -> None:
        """Emit a loop of body(index) for index in 0 .. count - 1, i64; runs at least once."""
        end = I64(count) if isinstance(count, int) else count
        before, turn, after = self.block, self.append_basic_block("turn"), self.append_basic_block("after")
        self.branch(turn)
        self.position_at_end(turn)
        index = self.phi(I64)
        index.add_incoming(I64(0), before)
        body(index)
        following = self.add(index, 1)
        index.add_incoming(following, self.block)
        self.cbranch(self.below(following, end), turn, after)
        self.position_at_end(after)

    def each_lane(self, lanes: ir.Value, body: Callable[[ir.Value], None], *, descending: bool = False) -> None:
        """Emit a loop of body(lane) over the set bits of the i64 `lanes`."""
        before = self.block
        test, turn, after = (self.append_basic_block(name) for name in ("test", "turn", "after"))
        self.branch(test)
        self.position_at_end(test)
        rest = self.phi(I64)
        rest.add_incoming(lanes, before)
        self.cbranch(self.equal(rest, 0), after, turn)
        self.position_at_end(turn)
        if descending:
            lane = self.sub(63, self.intrinsic("llvm.ctlz", I64, rest, I1(1)))
            remaining = self.and_(rest, self.not_(self.shl(I64(1), lane)))
        else:
            lane = self.intrinsic("llvm.cttz", I64, rest, I1(1))
            remaining = self.and_(rest, self.sub(rest, 1))
        body(lane)
        rest.add_incoming(remaining, self.block)
        self.branch(test)
        self.position_at_end(after)

    def lane_mask(self, lanes: ir.Value, wave: int) -> ir.Value:
        """Return the lowest bits of the i64 `lanes` as <W x i1>."""
        bits = lanes if wave == 64 else self.trunc(lanes, ir.IntType(wave))
        return self.bitcast(bits, ir.VectorType(I1, wave))

    def reduced(self, operation: str, vector: ir.Value) -> ir.Value:
        """Reduce an integer vector to one element: "umin", "umax", "or"."""
        return self.intrinsic(f"llvm.vector.reduce.{operation}", vector.type.element, vector, types=(vector.type,))

    def set_bit(self, masks: ir.Value, lane: ir.Value) -> None:
        """Set the lane's bit in the i64 at `masks`."""
        bit = self.shl(I64(1), lane)
        self.store(self.or_(self.load(masks, typ=I64), bit), masks)


class HelperBuilder(CodeBuilder):
    """A builder of a helper function; its locals are in a block before the entry."""

    def __init__(self, function: ir.Function) -> None:
        function.append_basic_block("locals")
        self._first = function.append_basic_block("entry")
        super().__init__(self._first)

    def done(self) -> None:
        """Finish the function. Call once, at the end."""
        with self.goto_entry_block():
            self.branch(self._first)


class LaneBuilder(CodeBuilder):
    """A builder that knows the wave size: vectors with one element per lane, masks with one bit per lane."""

    def __init__(self, block: ir.Block, wave: int) -> None:
        super().__init__(block)
        self.wave = wave
        self.mask_bits = ir.IntType(wave)

    def lanes(self, of: ir.Type) -> ir.VectorType:
        return ir.VectorType(of, self.wave)

    def numbers(self) -> ir.Value:
        """Return the number of each lane as <W x i32>."""
        return ir.Constant(self.lanes(I32), list(range(self.wave)))

    def splat(self, value: ir.Value) -> ir.Value:
        """Return a vector with the scalar in every lane."""
        if isinstance(value, ir.Constant):
            return splat_constant(value, self.wave)
        undefined = ir.Constant(self.lanes(value.type), ir.Undefined)
        one = self.insert_element(undefined, value, I32(0))
        return self.shuffle_vector(one, undefined, ir.Constant(self.lanes(I32), None))

    def join(self, parts: Sequence[ir.Value]) -> ir.Value:
        """Join dwords (i32 or <W x i32>), lowest first, to one wide integer (or a vector of them)."""
        if len(parts) == 1:
            return parts[0]
        vector = isinstance(parts[0].type, ir.VectorType)
        wide = ir.IntType(32 * len(parts))
        of = self.lanes(wide) if vector else wide
        result = self.zext(parts[0], of)
        for index, part in enumerate(parts[1:], 1):
            high = self.shl(self.zext(part, of), 32 * index)
            result = self.or_(result, high)
        return result

    def split(self, value: ir.Value) -> list[ir.Value]:
        """Split a value into dwords, the inverse of join; values narrower than a dword are zero-extended."""
        vector = isinstance(value.type, ir.VectorType)
        bits = type_bits(value.type.element if vector else value.type)
        word = self.lanes(I32) if vector else I32
        if bits <= 32:
            return [value if bits == 32 else self.zext(value, word)]
        parts = [self.trunc(value, word)]
        for index in range(1, bits // 32):
            parts.append(self.trunc(self.lshr(value, 32 * index), word))
        return parts

    def resize(self, value: ir.Value, bits: int) -> ir.Value:
        """Truncate or zero-extend an integer."""
        have = value.type.width
        if have == bits:
            return value
        return self.trunc(value, ir.IntType(bits)) if have > bits else self.zext(value, ir.IntType(bits))

    def bits(self, mask: ir.Value) -> ir.Value:
        """Convert <W x i1> to iW; an iW is returned unchanged."""
        return mask if mask.type == self.mask_bits else self.bitcast(mask, self.mask_bits)

    def first_lane(self, values: ir.Value, bits: ir.Value) -> ir.Value:
        """Return the element of <W x T> in the lowest lane set in `bits` (iW), or in lane 0 if none is set."""
        lane = self.intrinsic("llvm.cttz", self.mask_bits, bits, I1(0))
        lane = self.and_(self.resize(lane, 32), self.wave - 1)
        return self.extract_element(values, lane)
