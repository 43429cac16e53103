"""Construction of LLVM functions in a C-like notation: integers with operators, records with fields, `if`,
loops.

    b, (job, slot) = define(module, "sum", I64, job=JOB, slot=SLOT)
    total = b.variable(I64, 0)
    with b.count(slot.waves) as (index, turn):
        turn.continue_if(job.sizes[index] == 0)
        total.value += job.sizes[index]
    b.give(total.value)

The body of a `with` is executed once, here; how often the code that it writes runs is decided by the condition or
loop. Reading a field writes a load at that point, so a Python name for it keeps the value that the field had then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.emit.builder import CodeBuilder
from zinc_rt.sim.shader.emit.values import FIELD_TYPES, I1, I8, I32, I64, POINTER, VOID
from zinc_rt.sim.shader.layout import RecordField, RecordLayout


def _operator(write: Callable[[CodeBuilder, ir.Value, ir.Value, bool], ir.Value]) -> Any:
    """Return an operator method that calls `write(builder, one, other, signed)` with operands extended to one
    width.
    """

    def method(self: Integer, other: Any) -> Integer:
        one, two = self.of_one_type(other)
        signed = one.signed and two.signed
        return Integer(self.b, write(self.b, one.ir, two.ir, signed), signed)

    return method


def _comparison(sign: str) -> Any:
    return _operator(
        lambda b, one, two, signed: (b.icmp_signed if signed else b.icmp_unsigned)(sign, one, two),
    )


class Integer:
    """An integer of the function. As in C the narrower operand is extended, and a comparison is signed if both
    operands are signed (fields of type i32 and i64; Python numbers take the signedness of the other operand).
    """

    __hash__ = None  # type: ignore[assignment]
    __slots__ = ("b", "ir", "signed")

    def __init__(self, b: CodeBuilder, value: ir.Value, signed: bool = False) -> None:
        self.b, self.ir, self.signed = b, value, signed

    def of_one_type(self, other: Any) -> tuple[Integer, Integer]:
        if not isinstance(other, Integer):
            return self, Integer(self.b, self.ir.type(int(other)), self.signed)
        width = max(self.ir.type.width, other.ir.type.width)
        return self.to(ir.IntType(width)), other.to(ir.IntType(width))

    def to(self, of: ir.IntType) -> Integer:
        """Truncate, or extend according to the signedness."""
        have = self.ir.type.width
        if have == of.width:
            return self
        convert = self.b.trunc if have > of.width else self.b.sext if self.signed else self.b.zext
        return Integer(self.b, convert(self.ir, of), self.signed)

    __add__ = _operator(lambda b, one, two, _: b.add(one, two))
    __sub__ = _operator(lambda b, one, two, _: b.sub(one, two))
    __mul__ = _operator(lambda b, one, two, _: b.mul(one, two))
    __floordiv__ = _operator(lambda b, one, two, _: b.udiv(one, two))
    __mod__ = _operator(lambda b, one, two, _: b.urem(one, two))
    __and__ = _operator(lambda b, one, two, _: b.and_(one, two))
    __or__ = _operator(lambda b, one, two, _: b.or_(one, two))
    __lshift__ = _operator(lambda b, one, two, _: b.shl(one, two))
    __rshift__ = _operator(lambda b, one, two, _: b.lshr(one, two))
    __eq__ = _comparison("==")
    __ne__ = _comparison("!=")
    __lt__ = _comparison("<")
    __le__ = _comparison("<=")
    __gt__ = _comparison(">")
    __ge__ = _comparison(">=")

    def __invert__(self) -> Integer:
        return Integer(self.b, self.b.not_(self.ir))

    def __bool__(self) -> bool:
        raise TypeError("this value is only known when the generated code runs: use b.if_(...), &, | and ~")


def _plain(value: Any) -> ir.Value:
    """Convert to a value that llvmlite accepts."""
    return value.ir if isinstance(value, Integer) else value.address if isinstance(value, RecordView) else value


class RecordView:
    """A record in memory. `record.name` loads a field and `record.name = value` stores to it. An array field is
    indexed: `record.name[index]`.
    """

    address: ir.Value

    def __init__(self, b: CodeBuilder, layout: RecordLayout, address: ir.Value | Integer) -> None:
        pointer = b.pointer(address.ir) if isinstance(address, Integer) else address
        for name, value in (("b", b), ("layout", layout), ("address", pointer)):
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        field, location = self.layout.fields[name], self.b.at(self.address, self.layout, name)
        return Elements(self.b, field, location) if field.count > 1 else _load(self.b, field, location)

    def __setattr__(self, name: str, value: Any) -> None:
        _store(self.b, self.layout.fields[name], self.b.at(self.address, self.layout, name), value)


class Elements:
    """An array field of a record."""

    def __init__(self, b: CodeBuilder, field: RecordField, address: ir.Value) -> None:
        self._b, self._field, self._address = b, field, address

    def at(self, index: Integer | int) -> ir.Value:
        """Return a pointer to an element."""
        index = index.to(I64).ir if isinstance(index, Integer) else index
        return self._b.element(self._address, index, FIELD_TYPES[self._field.type])

    def __getitem__(self, index: Integer | int) -> Any:
        return _load(self._b, self._field, self.at(index))

    def __setitem__(self, index: Integer | int, value: Any) -> None:
        _store(self._b, self._field, self.at(index), value)


def _load(b: CodeBuilder, field: RecordField, place: ir.Value) -> Any:
    """Load a field as an Integer, or as an llvmlite pointer."""
    value = b.load(place, typ=FIELD_TYPES[field.type])
    return value if field.type == "ptr" else Integer(b, value, signed=field.type.startswith("i"))


def _store(b: CodeBuilder, field: RecordField, place: ir.Value, value: Any) -> None:
    of = FIELD_TYPES[field.type]
    if isinstance(value, Integer):
        value = value.to(of).ir
    b.store(of(int(value)) if isinstance(value, int) else value, place)


class LoopVariable:
    """A local variable; `variable.value` reads and sets it."""

    def __init__(self, b: CodeBuilder, of: ir.IntType, value: Any) -> None:
        self._b, self._of, self._slot = b, of, b.local(of)
        self.value = value

    @property
    def value(self) -> Integer:
        return Integer(self._b, self._b.load(self._slot, typ=self._of))

    @value.setter
    def value(self, value: Any) -> None:
        number = value.to(self._of).ir if isinstance(value, Integer) else self._of(int(value))
        self._b.store(number, self._slot)


class LoopControl:
    """Control of a loop body: continue and break."""

    def __init__(self, b: CodeBuilder, head: ir.Block, after: ir.Block) -> None:
        self._b, self._head, self._after = b, head, after

    def break_(self) -> None:
        self._b.branch(self._after)

    def continue_if(self, condition: Integer) -> None:
        self._leave_if(condition, self._head)

    def break_if(self, condition: Integer) -> None:
        self._leave_if(condition, self._after)

    def _leave_if(self, condition: Integer, target: ir.Block) -> None:
        following = self._b.append_basic_block("following")
        self._b.cbranch(condition.ir, target, following)
        self._b.position_at_end(following)


class StructuredBuilder(CodeBuilder):
    """A builder of one function, starting at its entry."""

    def variable(self, of: ir.IntType, value: Any) -> LoopVariable:
        return LoopVariable(self, of, value)

    def record(self, layout: RecordLayout, address: ir.Value | Integer) -> RecordView:
        return RecordView(self, layout, address)

    @contextmanager
    def if_(self, condition: Integer, likely: bool | None = None) -> Iterator[None]:
        with self.if_then(condition.ir, likely):
            yield

    def choose(self, condition: Integer, one: Integer, other: Any) -> Integer:
        """Return `condition ? one : other`."""
        yes, no = one.of_one_type(other)
        return Integer(self, self.select(condition.ir, yes.ir, no.ir), yes.signed)

    def least(self, integer: Integer, other: Any) -> Integer:
        return self.choose(integer < other, integer, other)

    @contextmanager
    def loop(self) -> Iterator[LoopControl]:
        """Emit `while (true)`."""
        head, after = self.append_basic_block("turn"), self.append_basic_block("after")
        self.branch(head)
        self.position_at_end(head)
        yield LoopControl(self, head, after)
        if not self.block.is_terminated:
            self.branch(head)
        self.position_at_end(after)

    @contextmanager
    def count(self, end: Integer) -> Iterator[tuple[Integer, LoopControl]]:
        """Emit `for (index = 0; index < end; index++)`."""
        index = self.variable(end.ir.type, 0)
        with self.loop() as loop:
            now = index.value
            loop.break_if(~(now < end))
            index.value = now + 1
            yield now, loop

    def invoke(self, function: ir.Function, *arguments: Any) -> Integer:
        """Call a function and return its result."""
        return Integer(self, self.call(function, [_plain(argument) for argument in arguments]))

    def give(self, value: Any) -> None:
        """Return a number."""
        of = self.function.function_type.return_type
        self.ret(value.to(of).ir if isinstance(value, Integer) else of(int(value)))

    def fetch_add(self, record: RecordView, name: str, amount: int) -> Integer:
        """Add atomically to a field shared by threads. Return the previous value."""
        of = FIELD_TYPES[record.layout.fields[name].type]
        location = self.at(record.address, record.layout, name)
        return Integer(self, self.atomic_rmw("add", location, of(amount), "monotonic"))

    def load_shared(self, record: RecordView, name: str) -> Integer:
        """Load a field that other threads store to."""
        location = self.at(record.address, record.layout, name)
        return Integer(self, self.load_atomic(location, "monotonic", 4, typ=I32))

    def store_shared(self, record: RecordView, name: str, value: int) -> None:
        self.atomic_rmw("xchg", self.at(record.address, record.layout, name), I32(value), "monotonic")

    def copy(self, to: ir.Value, source: ir.Value, size_bytes: int) -> None:
        self.intrinsic("llvm.memcpy", VOID, to, source, I64(size_bytes), I1(0), types=(POINTER, POINTER, I64))

    def fill(self, address: Integer, byte: Integer | int, size_bytes: Integer) -> None:
        """Set every byte of a range, which is usually empty."""
        value = byte.to(I8).ir if isinstance(byte, Integer) else I8(byte)
        size = size_bytes.to(I64)
        with self.if_(size != 0, likely=False):
            to = self.pointer(address.ir)
            self.intrinsic("llvm.memset", VOID, to, value, size.ir, I1(0), types=(POINTER, I64))


def define(
    module: ir.Module, name: str, result: ir.Type, **parameters: RecordLayout | ir.IntType
) -> tuple[StructuredBuilder, list[Any]]:
    """Define a function. Its parameters are records, by address, and integers."""
    kinds = [POINTER if isinstance(parameter, RecordLayout) else parameter for parameter in parameters.values()]
    function = ir.Function(module, ir.FunctionType(result, kinds), name)
    b = StructuredBuilder(function.append_basic_block("entry"))
    values = [
        RecordView(b, kind, argument) if isinstance(kind, RecordLayout) else Integer(b, argument)
        for kind, argument in zip(parameters.values(), function.args, strict=True)
    ]
    return b, values
