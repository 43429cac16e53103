"""Functions of instruction forms: the frame, registers and control flow of the code of one instruction.

A form is an instruction without what differs from place to place: register numbers, offsets, its position. Its
function is `i32 form(state, context, record)`. It reads its parameters from the record, reads and writes registers
in the wave's state, and jumps to the function of the next record, or returns the status with which the wave stops.
A record is the function's address followed by u32 parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.emit.builder import CodeBuilder
from zinc_rt.sim.shader.emit.frame import Frame
from zinc_rt.sim.shader.emit.reports import Reports
from zinc_rt.sim.shader.emit.slots import RegisterSlots, UnprovenReads, register_name
from zinc_rt.sim.shader.emit.values import I1, I32, I64, POINTER
from zinc_rt.sim.shader.layout import ALIGNMENT, CONTEXT, SCC, STATE, VGPR_LIMIT, Status

FORM_FUNCTION = ir.FunctionType(I32, [POINTER, POINTER, POINTER])
HEAD_BYTES = 8  # of a record: the function's address
PC = 1 << 24  # of the instruction while its form is emitted; parameters replace it
JUMP = 4  # u32 of an entry of a jump table: byte offset in the kernel, its record, its fuel, 0
FIXED_SGPRS = 106  # vcc, ttmp, m0, exec: SGPRs that are part of a form
_SCC_KEY = VGPR_LIMIT + SCC
_SCALARS, _UNDEFINED_SCALARS = STATE.fields["sgprs"].offset, STATE.fields["sgpr_undefined"].offset

Parameter = tuple[str, int]
"""Kind and number of a parameter. With register group n: ("register", n), ("undefined", n), offsets in the state.
With EDGES n: ("record", n), ("pc", n), ("cost", n). With the n-th such operand: ("literal", n). Others have number
0: "site", "memory", first numbers; "offset", "offset0", "offset1", modifiers; "immediate", "block", "jumps",
"jump table"."""

EDGES = ("self", "target", "following")


@dataclass(frozen=True, slots=True)
class RegisterGroup:
    """Consecutive registers of a form by key; in an instruction they begin at another key."""

    first: int
    count: int


class NotShared(Exception):
    """Raised where code depends on a register's number, so that the function holds for this instruction only."""


class FormFrame(Frame):
    """The frame of a form's function. `parameters` collects those that its code reads."""

    def __init__(self, module: ir.Module, name: str, wave: int) -> None:
        self.parameters: list[Parameter] = []
        self._loaded: dict[Parameter, ir.Value] = {}
        super().__init__(module, name, wave, FORM_FUNCTION)
        self.record = self.function.args[2]

    def _fuel(self) -> ir.Value:
        return self.b.at(self.context, CONTEXT, "fuel")

    def parameter(self, kind: str, number: int = 0) -> ir.Value:
        key = (kind, number)
        if key not in self._loaded:
            at = HEAD_BYTES + 4 * len(self.parameters)
            self.parameters.append(key)
            with self.b.goto_entry_block():
                self._loaded[key] = self.b.load(self.b.offset(self.record, at), typ=I32)
        return self._loaded[key]

    def position(self, distance: int = 0) -> ir.Value:
        return self.b.add(self.parameter("pc", EDGES.index("self")), distance)

    def following(self, size_bytes: int) -> ir.Value:
        return self.b.zext(self.parameter("pc", EDGES.index("following")), I64)

    def block_number(self) -> ir.Value:
        return self.parameter("block")

    def numbered(self, kind: str, number: int) -> ir.Value:
        return self.b.add(self.parameter(kind), number)

    def leave(self, status: Status) -> None:
        self.set_state_field("pc", self.position())
        self.stop(status)

    def stop(self, status: Status) -> None:
        """Return from the wave with the status, at the pc in its state."""
        self.set_state_field("status", int(status))
        self.b.ret(I32(int(status)))

    def suspend(self, record: ir.Value, pc: ir.Value, status: Status) -> None:
        """Return from the wave, which resumes at the record."""
        self.set_state_field("resume", record)
        self.set_state_field("pc", pc)
        self.stop(status)

    def go_on(self) -> None:
        """Go on with the record that follows this one."""
        size = HEAD_BYTES + 4 * len(self.parameters)
        self._jump(self.b.offset(self.record, -(-size // HEAD_BYTES) * HEAD_BYTES))

    def go_to(self, record: ir.Value) -> None:
        """Go on with the record at the byte offset, i32, in the kernel's records."""
        records = self.b.get(self.context, CONTEXT, "records")
        self._jump(self.b.offset(records, self.b.zext(record, I64)))

    def _jump(self, record: ir.Value) -> None:
        """Call the record's function in place of this one: a jump of its own for each instruction is predicted
        better than a loop that calls the functions of all.
        """
        self.b.ret(_call(self.b, self.state, self.context, record, tail="musttail"))

    def done(self) -> None:
        """Finish the function. Call once, at the end."""
        with self.b.goto_entry_block():
            self.b.branch(self.first)


class FormSlots(RegisterSlots):
    """Registers in the wave's state. `groups`: the registers that parameters place; None: all registers are as
    numbered. `vgprs`: the number that the wave's state has room for, where `groups` is None.
    """

    def __init__(
        self, frame: FormFrame, unproven: UnprovenReads, groups: tuple[RegisterGroup, ...] | None, vgprs: int
    ) -> None:
        super().__init__(frame, unproven)
        self._form, self._groups, self._vgprs = frame, groups, vgprs

    def load(self, key: int) -> ir.Value:
        if key == _SCC_KEY:
            return self.frame.b.trunc(self.frame.state_field("scc"), I1)
        return self.frame.b.load(self._value(key), typ=self.type_of(key), align=_alignment(key))

    def store(self, key: int, value: ir.Value) -> None:
        if key == _SCC_KEY:
            self.frame.set_state_field("scc", self.frame.b.zext(value, I32))
        else:
            self.frame.b.store(value, self._value(key), align=_alignment(key))

    def load_undefined(self, key: int) -> ir.Value:
        b, wide = self.frame.b, I32 if key == _SCC_KEY else self.type_of(key)
        bits = b.load(self._undefined_of(key), typ=wide, align=_alignment(key))
        return b.trunc(bits, I1) if key == _SCC_KEY else bits

    def store_undefined(self, key: int, bits: ir.Value) -> None:
        if key == _SCC_KEY:
            bits = self.frame.b.zext(bits, I32)
        self.frame.b.store(bits, self._undefined_of(key), align=_alignment(key))

    def name(self, key: int) -> str:
        """Return a name that `named` replaces by that of the register."""
        return register_name(key) if self._group(key) is None else f"\0{key}\0"

    def _value(self, key: int) -> ir.Value:
        group = self._group(key)
        if group is not None:
            return self._in_group("register", group, key)
        return self.frame.b.offset(self.frame.state, register_offset(key, self.frame.wave))

    def _undefined_of(self, key: int) -> ir.Value:
        group = self._group(key)
        if group is not None:
            return self._in_group("undefined", group, key)
        return self.frame.b.offset(self.frame.state, undefined_offset(key, self.frame.wave, self._vgprs))

    def _group(self, key: int) -> int | None:
        if self._groups is None or key >= VGPR_LIMIT + FIXED_SGPRS:
            return None
        for number, group in enumerate(self._groups):
            if group.first <= key < group.first + group.count:
                return number
        raise NotShared

    def _in_group(self, kind: str, number: int, key: int) -> ir.Value:
        assert self._groups is not None
        start = self.frame.b.zext(self._form.parameter(kind, number), I64)
        step = (key - self._groups[number].first) * register_bytes(key, self.frame.wave)
        return self.frame.b.offset(self.frame.b.offset(self.frame.state, start), step)


def register_bytes(key: int, wave: int) -> int:
    """Return the size of a register in the wave's state."""
    return 4 * wave if key < VGPR_LIMIT else 4


def register_offset(key: int, wave: int) -> int:
    """Return the offset of a VGPR or SGPR in the wave's state."""
    return _vector_offset(key, wave) if key < VGPR_LIMIT else _SCALARS + 4 * (key - VGPR_LIMIT)


def undefined_offset(key: int, wave: int, vgprs: int) -> int:
    """Return the offset of a register's undefined bits in the state of a wave with `vgprs` VGPRs."""
    if key < VGPR_LIMIT:
        return _vector_offset(vgprs + key, wave)
    return _UNDEFINED_SCALARS + 4 * (key - VGPR_LIMIT)


def _vector_offset(place: int, wave: int) -> int:
    return STATE.size_bytes + 4 * wave * place


def _alignment(key: int) -> int:
    return ALIGNMENT if key < VGPR_LIMIT else 4


class FormFlow:
    """The control flow of an instruction form, as emitter.ControlFlow. `target` is that of its branch."""

    def __init__(self, frame: FormFrame, reports: Reports, target: int | None, following: int) -> None:
        self._frame, self._reports, self._b = frame, reports, frame.b
        self._places = {PC: EDGES.index("self"), following: EDGES.index("following")}
        if target is not None:
            self._places[target] = EDGES.index("target")

    def edge(self, target: int, pc: int) -> ir.Block:
        edge, block = self._places[target], self._b.append_basic_block("to")
        with self._b.goto_block(block):
            record = self._frame.parameter("record", edge)
            if target <= pc:
                self._take_fuel(self._frame.parameter("cost", edge), record, self._frame.parameter("pc", edge))
            self._frame.go_to(record)
        return block

    def _take_fuel(self, cost: ir.Value, record: ir.Value, pc: ir.Value) -> None:
        """Take fuel for a backward branch, and suspend the wave at its target if none is left."""
        b = self._b
        left = b.sub(b.load(self._frame.fuel, typ=I64), b.zext(cost, I64))
        b.store(left, self._frame.fuel)
        with b.cold(b.icmp_signed("<", left, 0)):
            self._frame.suspend(record, pc, Status.FUEL)

    def suspension(self, target: int, status: Status) -> ir.Block:
        edge, block = self._places[target], self._b.append_basic_block("suspend")
        with self._b.goto_block(block):
            frame = self._frame
            frame.suspend(frame.parameter("record", edge), frame.parameter("pc", edge), status)
        return block

    def jump(self, offset: ir.Value, pc: int) -> None:
        """Look the byte offset up in the record's jump table."""
        b, frame = self._b, self._frame
        table = b.offset(frame.record, b.zext(frame.parameter("jump table"), I64))
        count = b.zext(frame.parameter("jumps"), I64)
        before = b.block
        test, look, matches, unknown = (b.append_basic_block(name) for name in ("test", "look", "jump", "unknown"))
        b.branch(test)
        b.position_at_end(test)
        index = b.phi(I64)
        index.add_incoming(I64(0), before)
        b.cbranch(b.below(index, count), look, unknown)
        b.position_at_end(look)
        entry = b.offset(table, b.mul(index, 4 * JUMP))
        place, record, cost = (b.load(b.offset(entry, 4 * at), typ=I32) for at in range(3))
        index.add_incoming(b.add(index, 1), look)
        b.cbranch(b.equal(b.zext(place, I64), offset), matches, test)
        b.position_at_end(matches)
        with b.if_then(b.unequal(cost, 0)):
            self._take_fuel(cost, record, place)
        frame.go_to(record)
        b.position_at_end(unknown)
        self._reports.illegal("jumps to an address that is neither a return address nor relative to s_getpc_b64")


def build_run(function: ir.Function) -> None:
    """Emit the wave function of kernels that consist of records: call the function of the record at which the wave
    begins or goes on.
    """
    state, context = function.args
    b = CodeBuilder(function.append_basic_block("entry"))
    resume = b.zext(b.get(state, STATE, "resume"), I64)
    b.ret(_call(b, state, context, b.offset(b.get(context, CONTEXT, "records"), resume)))


def _call(b: CodeBuilder, state: ir.Value, context: ir.Value, record: ir.Value, *, tail: str = "") -> ir.Value:
    form = b.inttoptr(b.load(record, typ=I64), FORM_FUNCTION.as_pointer())
    return b.call(form, [state, context, record], tail=tail)
