"""What out-of-line helper functions are written with: fields by name, loops over lanes, blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.layout import RecordLayout

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
POINTER, VOID = ir.PointerType(), ir.VoidType()
FIELD_TYPES = {"u8": I8, "u32": I32, "i32": I32, "u64": I64, "i64": I64, "ptr": POINTER}


class Routine:
    """A function under construction; `b` is its builder."""

    def __init__(self, function: ir.Function) -> None:
        self.function = function
        self._allocas = ir.IRBuilder(function.append_basic_block("locals"))
        self._first = function.append_basic_block("entry")
        self.b = ir.IRBuilder(self._first)

    def done(self) -> None:
        """To be called once, at the end."""
        self._allocas.branch(self._first)

    def block(self, name: str = "") -> ir.Block:
        return self.function.append_basic_block(name)

    def local(self, of: ir.Type, value: ir.Value | int | None = None) -> ir.Value:
        slot = self._allocas.alloca(of)
        slot.type = POINTER
        if value is not None:
            self.b.store(of(value) if isinstance(value, int) else value, slot)
        return slot

    def load(self, pointer: ir.Value, of: ir.Type, align: int | None = None) -> ir.Value:
        return self.b.load(pointer, typ=of, align=align)

    def offset(self, pointer: ir.Value, size_bytes: ir.Value | int) -> ir.Value:
        index = I64(size_bytes) if isinstance(size_bytes, int) else size_bytes
        return self.b.gep(pointer, [index], source_etype=I8)

    def element(self, pointer: ir.Value, index: ir.Value, of: ir.Type) -> ir.Value:
        return self.b.gep(pointer, [index], source_etype=of)

    def at(self, base: ir.Value, layout: RecordLayout, name: str) -> ir.Value:
        return self.offset(base, layout.fields[name].offset)

    def get(self, base: ir.Value, layout: RecordLayout, name: str) -> ir.Value:
        return self.load(self.at(base, layout, name), FIELD_TYPES[layout.fields[name].type])

    def put(self, base: ir.Value, layout: RecordLayout, name: str, value: ir.Value | int) -> None:
        of = FIELD_TYPES[layout.fields[name].type]
        self.b.store(of(value) if isinstance(value, int) else value, self.at(base, layout, name))

    def any(self, *conditions: ir.Value) -> ir.Value:
        result = conditions[0]
        for each in conditions[1:]:
            result = self.b.or_(result, each)
        return result

    def all(self, *conditions: ir.Value) -> ir.Value:
        result = conditions[0]
        for each in conditions[1:]:
            result = self.b.and_(result, each)
        return result

    def below(self, one: ir.Value, other: ir.Value) -> ir.Value:
        return self.b.icmp_unsigned("<", one, other)

    def at_most(self, one: ir.Value, other: ir.Value) -> ir.Value:
        return self.b.icmp_unsigned("<=", one, other)

    def equal(self, one: ir.Value, other: ir.Value | int) -> ir.Value:
        return self.b.icmp_unsigned("==", one, one.type(other) if isinstance(other, int) else other)

    def has(self, flags: ir.Value, bits: int) -> ir.Value:
        """i1: whether one of `bits` is set."""
        return self.b.icmp_unsigned("!=", self.b.and_(flags, flags.type(bits)), flags.type(0))

    def either(self, condition: ir.Value, yes: ir.Value, no: ir.Value) -> ir.Value:
        return self.b.select(condition, yes, no)

    @contextmanager
    def when(self, condition: ir.Value, likely: bool | None = None) -> Iterator[None]:
        with self.b.if_then(condition, likely=likely):
            yield

    def intrinsic(self, name: str, of: ir.Type, *arguments: ir.Value) -> ir.Value:
        """`name` as LLVM spells it, with its type suffix."""
        module = self.function.module
        found = module.globals.get(name)
        if found is None:
            found = ir.Function(module, ir.FunctionType(of, [each.type for each in arguments]), name)
        return self.b.call(found, list(arguments))

    def repeat(self, count: int | ir.Value, body: Callable[[ir.Value], None]) -> None:
        """body(index) for index in 0 .. count - 1, i64; at least once."""
        end = I64(count) if isinstance(count, int) else count
        before, turn, after = self.b.block, self.block("turn"), self.block("after")
        self.b.branch(turn)
        self.b.position_at_end(turn)
        index = self.b.phi(I64)
        index.add_incoming(I64(0), before)
        body(index)
        following = self.b.add(index, I64(1))
        index.add_incoming(following, self.b.block)
        self.b.cbranch(self.below(following, end), turn, after)
        self.b.position_at_end(after)

    def each_lane(self, lanes: ir.Value, body: Callable[[ir.Value], None]) -> None:
        """body(lane) for the bits of the i64 `lanes`, ascending."""
        before, test, turn, after = self.b.block, self.block("test"), self.block("turn"), self.block("after")
        self.b.branch(test)
        self.b.position_at_end(test)
        rest = self.b.phi(I64)
        rest.add_incoming(lanes, before)
        self.b.cbranch(self.equal(rest, 0), after, turn)
        self.b.position_at_end(turn)
        lane = self.intrinsic("llvm.cttz.i64", I64, rest, I1(1))
        body(lane)
        rest.add_incoming(self.b.and_(rest, self.b.sub(rest, I64(1))), self.b.block)
        self.b.branch(test)
        self.b.position_at_end(after)

    def note(self, masks: ir.Value, lane: ir.Value) -> None:
        """Set the lane's bit in the i64 at `masks`."""
        bit = self.b.shl(I64(1), lane)
        self.b.store(self.b.or_(self.load(masks, I64), bit), masks)
