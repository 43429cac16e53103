"""Optional trace of the register writes per instruction of one wave or all, and execution counts of blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa import Target, decode
from zinc_rt.isa.control_flow import find_reading
from zinc_rt.sim.shader.emit.builder import CodeBuilder
from zinc_rt.sim.shader.emit.emitter import Emitter
from zinc_rt.sim.shader.emit.slots import Touched, register_name
from zinc_rt.sim.shader.emit.values import I1, I32, I64, POINTER, VOID, constant
from zinc_rt.sim.shader.layout import CONTEXT, EVERY_WAVE, NO_SLOT, SCC, STATE, TRACE, VGPR_LIMIT


@dataclass(frozen=True, slots=True)
class TracedStep:
    """A register after an instruction of the traced wave, or an instruction without a result, with `name` "".

    `exec` is the value before the instruction. `values` are [wave] uint32 for a vector register, [1] for a scalar
    one.
    """

    pc: int
    exec: int
    name: str
    values: np.ndarray


def steps(records: np.ndarray, count: int, wave: int) -> Iterator[TracedStep]:
    """Return steps from TRACE.dtype records; `count` is context.trace_count (records that did not fit are
    dropped).
    """
    for record in records[: min(count, len(records))]:
        slot = int(record["slot"])
        name = "" if slot == NO_SLOT else register_name(slot)
        length = 0 if slot == NO_SLOT else wave if slot < VGPR_LIMIT else 1
        yield TracedStep(int(record["pc"]), int(record["exec"]), name, record["values"][:length].copy())


def lines(records: np.ndarray, count: int, target: Target, code: bytes) -> Iterator[str]:
    """Return the trace as text: a line per instruction, and one per register it wrote."""
    last, target = -1, find_reading(code, target)
    for step in steps(records, count, target.wave):
        if step.pc != last or not step.name:
            instruction = decode(code, step.pc, target)
            text = "?" if instruction is None else instruction.text
            yield f"{step.pc:6x}  exec {step.exec:0{target.wave // 4}x}  {text}"
        last = step.pc
        if step.name:
            yield f"        {step.name:7s} {' '.join(f'{value:08x}' for value in step.values.tolist())}"
    if count > len(records):
        yield f"… {count - len(records)} further records did not fit"


# --- emitted code


class Tracer:
    """Records each instruction's register writes; emitted if the checks request a trace."""

    def __init__(self, e: Emitter) -> None:
        self.e = e
        self.active = e.b.local(I1, name="traced")
        self._exec = e.b.local(I64, name="exec.before")

    def start(self) -> None:
        """Emit the setup at the function's entry."""
        e = self.e
        chosen = e.frame.field("trace_wave")
        is_chosen = e.b.equal(e.frame.state_field("wave_index"), chosen)
        e.b.store(e.b.any(is_chosen, e.b.equal(chosen, EVERY_WAVE)), self.active)

    def before(self, *, last: bool) -> None:
        """Prepare an instruction. `last`: the instruction ends its block, so its record is written now."""
        e = self.e
        e.b.store(e.b.resize(e.exec.bits(), 64), self._exec)
        if last:
            with e.b.cold(e.b.load(self.active, typ=I1)):
                self._record(NO_SLOT, constant(0, e.b.lanes(I32)))

    def after(self, touched: Touched) -> None:
        """Record each written register, or add one record without a register if none was written."""
        e = self.e
        written = touched.writes | touched.masked
        keys = [key for key in range(written.bit_length()) if written >> key & 1]
        with e.b.cold(e.b.load(self.active, typ=I1)):
            for key in keys:
                value = e.slots.load(key)
                if key == VGPR_LIMIT + SCC:
                    value = e.b.zext(value, I32)
                self._record(key, value if key < VGPR_LIMIT else e.b.splat(value))
            if not keys:
                self._record(NO_SLOT, constant(0, e.b.lanes(I32)))

    def _record(self, slot: int, value: ir.Value) -> None:
        e = self.e
        kind = ir.FunctionType(VOID, [POINTER, POINTER, I32, I32, I64, e.b.lanes(I32)])
        helper = e.b.helper("zrt.trace", kind, _build)
        frame = e.frame
        execution = e.b.load(self._exec, typ=I64)
        e.b.call(helper, [frame.state, frame.context, frame.position(), constant(slot), execution, value])


def _build(function: ir.Function) -> None:
    function.attributes.add("cold")
    state, context, pc, slot, execution, value = function.args
    b = CodeBuilder(function.append_basic_block("entry"))
    index = b.get(context, CONTEXT, "trace_count")
    b.put(context, CONTEXT, "trace_count", b.add(index, 1))
    with b.if_then(b.below(index, b.get(context, CONTEXT, "trace_capacity"))):
        records = b.get(context, CONTEXT, "trace")
        record = b.offset(records, b.mul(b.zext(index, I64), TRACE.size_bytes))
        wave = b.get(state, STATE, "wave_index")
        for name, part in {"pc": pc, "slot": slot, "exec": execution, "values": value, "wave": wave}.items():
            b.store(part, b.at(record, TRACE, name), align=4)
    b.ret_void()


def count_block(e: Emitter) -> None:
    """Count an execution of the current block, for profiles."""
    if e.checks.profile:
        place = e.b.element(e.frame.field("profile"), e.b.zext(e.frame.block_number(), I64), I64)
        e.b.store(e.b.add(e.b.load(place, typ=I64), 1), place)
