"""The workgroup runner: machine code that takes workgroups from a job, one after another, and runs their waves.

`i32 run_groups(job, context, slot)` for wave32 and wave64, built here as LLVM IR and compiled once. Threads share
the JOB; each has a CONTEXT and a SLOT of its own. A slot holds one workgroup: LDS, states of its waves, barrier. A
workgroup whose fuel is used up stays in its slot, and the next call with that slot goes on with it.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from enum import IntEnum

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.object_cache import ObjectCache
from zinc_rt.sim.shader.layout import (
    CONTEXT,
    EXEC_HI,
    EXEC_LO,
    FINDING,
    NO_PHASE,
    STATE,
    TTMP0,
    RecordLayout,
    Status,
)
from zinc_rt.sim.shader.run.compile import Loaded, compile_ir, host_cpu

MAX_WAVES = 32  # of a workgroup: 1024 threads
SLICE_FUEL = 1 << 17  # of one wave before the next wave of its group has its turn
WAVE_FUEL = 64  # what calling a wave costs, so that a grid of empty waves comes to an end of its fuel too
SIMDS, SIMD_SHIFT = 4, 8  # of a workgroup processor; HW_ID1: WAVE_ID 4:0, SIMD_ID 9:8
SITE_BARRIER = 0xFFFFFFFE  # in a FINDING, `address` is then the pc: a barrier that not all waves came to

JOB = RecordLayout("""
u64 next                # the next workgroup, linear: taken by atomic addition
u64 apart 7             # so that taking one costs the others nothing: what follows is in another cache line
u64 count               # of workgroups
u32 stop                # not 0: another thread found a reason to stop
u32 groups_x
u32 groups_y
u32 groups_z
u32 start_x
u32 start_y
u32 start_z
u32 lds_bytes
u32 lds_shadow_bytes
u32 lds_shadow_fill     # what a fresh shadow's bytes are
u32 lds_fill            # what fresh LDS's bytes are
u32 state_bytes         # of one wave, registers included
u32 scratch_data_bytes  # of one wave
u32 scratch_wave_bytes  # of one wave, with the shadow behind it
u32 ids_x_mask          # of ttmp9: 0 where workgroup ids are not enabled and come out as 0
u32 ids_yz_mask         # of ttmp7
u32 places_count
ptr places              # u32[places_count]: HW_ID1 of each workgroup processor, given to workgroups by turns
u64 wave                # the kernel: i32 wave(state, context)
ptr template            # a state's header as every wave starts with it
ptr shapes 8            # SHAPE: bit 0, 1, 2 of the index: last workgroup in x, y, z
""")

SHAPE = RecordLayout(f"""
u32 waves
u32 threads
u64 exec {MAX_WAVES}    # lanes that exist
u32 v0 {MAX_WAVES * 64} # thread ids, x | y << 10 | z << 20, wave after wave
""")

SLOT = RecordLayout("""
u32 active              # 1: a workgroup is under way
u32 group
u32 waves
u32 failed              # the wave that stopped with FAULT, ILLEGAL or HALT
u32 group_waves         # as in CONTEXT, while the slot rests
u32 barrier_signals
u32 barrier_phase
u32 first_end           # the lowest barrier phase in which a wave ended, NO_PHASE: none yet
u32 hw_id1              # of its workgroup processor; the wave's SIMD and slot are added
u64 lds
u64 lds_shadow
u64 states
u64 scratch             # host address of wave 0's
u64 groups_done         # since the slot was made
u64 waves_done
""")


class Stop(IntEnum):
    """What run_groups returns: Status, and where that says too little."""

    DONE = Status.DONE  # no workgroup is left to take
    STUCK = Status.BARRIER  # every wave of the slot's group waits, and nobody is left to let them go
    FUEL = Status.FUEL
    FAULT = Status.FAULT
    ILLEGAL = Status.ILLEGAL
    HALT = Status.HALT


I1, I8, I32, I64 = ir.IntType(1), ir.IntType(8), ir.IntType(32), ir.IntType(64)
PTR = ir.PointerType()
WAVE_FUNCTION = ir.FunctionType(I32, [PTR, PTR])
_TYPES = {"u8": I8, "u32": I32, "i32": I32, "u64": I64, "i64": I64, "ptr": PTR}


class _Code:
    """A builder that knows fields by name."""

    def __init__(self, function: ir.Function) -> None:
        self.function = function
        self.b = ir.IRBuilder(function.append_basic_block("entry"))

    def at(self, base: ir.Value, layout: RecordLayout, name: str, index: ir.Value | int = 0) -> ir.Value:
        field = layout.fields[name]
        start = self.b.gep(base, [I64(field.offset)], source_etype=I8)
        if isinstance(index, int):
            index = I64(index)
        elif index.type != I64:
            index = self.b.zext(index, I64)
        return self.b.gep(start, [index], source_etype=_TYPES[field.type])

    def get(self, base: ir.Value, layout: RecordLayout, name: str, index: ir.Value | int = 0) -> ir.Value:
        return self.b.load(self.at(base, layout, name, index), typ=_TYPES[layout.fields[name].type])

    def put(
        self, base: ir.Value, layout: RecordLayout, name: str, value: ir.Value | int, index: ir.Value | int = 0
    ) -> None:
        kind = _TYPES[layout.fields[name].type]
        self.b.store(kind(value) if isinstance(value, int) else value, self.at(base, layout, name, index))

    def local(self, value: ir.Value) -> ir.Value:
        with self.b.goto_entry_block():
            slot = self.b.alloca(value.type)
        self.b.store(value, slot)
        return slot

    def load(self, slot: ir.Value) -> ir.Value:
        return self.b.load(slot, typ=slot.allocated_type)

    def forever(self, body: Callable[[ir.Block], None]) -> ir.Block:
        """Loop: `body(after)` branches out itself or falls through to the next turn. Leaves the builder after."""
        turn = self.function.append_basic_block("turn")
        after = self.function.append_basic_block("after")
        self.b.branch(turn)
        self.b.position_at_end(turn)
        body(after)
        if not self.b.block.is_terminated:
            self.b.branch(turn)
        self.b.position_at_end(after)
        return after

    def count(self, end: ir.Value, body: Callable[[ir.Value], None]) -> None:
        """body(index) for index in 0 .. end - 1, i32."""
        index = self.local(I32(0))

        def turn(after: ir.Block) -> None:
            now = self.load(index)
            inside = self.function.append_basic_block("inside")
            self.b.cbranch(self.b.icmp_unsigned("<", now, end), inside, after)
            self.b.position_at_end(inside)
            self.b.store(self.b.add(now, I32(1)), index)
            body(now)

        self.forever(turn)

    def call_intrinsic(self, name: str, kinds: list[ir.Type], *arguments: ir.Value) -> None:
        self.b.call(self.function.module.declare_intrinsic(name, kinds), arguments)

    def copy(self, to: ir.Value, source: ir.Value, size: ir.Value) -> None:
        self.call_intrinsic("llvm.memcpy", [PTR, PTR, I64], to, source, size, I1(0))

    def fill(self, to: ir.Value, byte: ir.Value, size: ir.Value) -> None:
        with self.b.if_then(self.b.icmp_unsigned("!=", size, I64(0)), likely=False):
            self.call_intrinsic("llvm.memset", [PTR, I64], to, byte, size, I1(0))

    def pointer(self, value: ir.Value) -> ir.Value:
        return self.b.inttoptr(value, PTR)


def _function(module: ir.Module, name: str, result: ir.Type, *kinds: ir.Type) -> ir.Function:
    return ir.Function(module, ir.FunctionType(result, kinds), name)


def _start_group(module: ir.Module, wave: int) -> ir.Function:
    """void(job, slot, group): the slot's group is this one, none of its waves has run."""
    function = _function(module, f"start_group{wave}", ir.VoidType(), PTR, PTR, I32)
    function.linkage = "internal"
    c = _Code(function)
    b = c.b
    job, slot, group = function.args
    ids, last = [], I64(0)
    rest = group
    for axis, name in enumerate("xyz"):
        dim = c.get(job, JOB, f"groups_{name}")
        at = rest if axis == 2 else b.urem(rest, dim)
        rest = b.udiv(rest, dim)
        is_last = b.zext(b.icmp_unsigned("==", b.add(at, I32(1)), dim), I64)
        last = b.or_(last, b.shl(is_last, I64(axis)))
        ids.append(b.add(at, c.get(job, JOB, f"start_{name}")))
    shape = c.get(job, JOB, "shapes", last)
    waves = c.get(shape, SHAPE, "waves")
    for name, value in {
        "active": 1,
        "group": group,
        "waves": waves,
        "group_waves": waves,
        "barrier_signals": 0,
        "barrier_phase": 0,
        "first_end": NO_PHASE,
    }.items():
        c.put(slot, SLOT, name, value)
    lds = c.get(slot, SLOT, "lds")
    shadow = c.get(slot, SLOT, "lds_shadow")
    size = b.zext(c.get(job, JOB, "lds_bytes"), I64)
    c.fill(c.pointer(lds), b.trunc(c.get(job, JOB, "lds_fill"), I8), size)
    shadow_size = b.zext(c.get(job, JOB, "lds_shadow_bytes"), I64)
    c.fill(c.pointer(shadow), b.trunc(c.get(job, JOB, "lds_shadow_fill"), I8), shadow_size)
    states = c.get(slot, SLOT, "states")
    template = c.get(job, JOB, "template")
    state_bytes = b.zext(c.get(job, JOB, "state_bytes"), I64)
    scratch = c.get(slot, SLOT, "scratch")
    scratch_step = b.zext(c.get(job, JOB, "scratch_wave_bytes"), I64)
    scratch_data = b.zext(c.get(job, JOB, "scratch_data_bytes"), I64)
    scratch_size = b.mul(b.zext(waves, I64), scratch_step)
    c.fill(c.pointer(scratch), I8(0), scratch_size)
    x = b.and_(ids[0], c.get(job, JOB, "ids_x_mask"))
    yz = b.or_(b.and_(ids[1], I32(0xFFFF)), b.shl(ids[2], I32(16)))
    yz = b.and_(yz, c.get(job, JOB, "ids_yz_mask"))
    turn = b.zext(b.urem(group, c.get(job, JOB, "places_count")), I64)
    place = b.gep(c.get(job, JOB, "places"), [turn], source_etype=I32)
    c.put(slot, SLOT, "hw_id1", b.load(place, typ=I32))
    full_waves = c.get(c.get(job, JOB, "shapes", 0), SHAPE, "waves")
    first_wave = b.mul(group, full_waves)

    def each(index: ir.Value) -> None:
        wide = b.zext(index, I64)
        state = c.pointer(b.add(states, b.mul(wide, state_bytes)))
        c.copy(state, template, I64(STATE.fields["sgpr_written"].offset))  # what follows needs no contents
        mine = b.add(scratch, b.mul(wide, scratch_step))
        for name, value in {
            "status": int(Status.FUEL),
            "wave_in_group": index,
            "group": group,
            "group_x": ids[0],
            "group_y": ids[1],
            "group_z": ids[2],
            "wave_index": b.add(first_wave, index),
            "lds_base": lds,
            "lds_shadow": shadow,
            "scratch_base": mine,
            "scratch_shadow": b.add(mine, scratch_data),
        }.items():
            c.put(state, STATE, name, value)
        lanes = c.get(shape, SHAPE, "exec", index)
        c.put(state, STATE, "sgprs", b.trunc(lanes, I32), EXEC_LO)
        c.put(state, STATE, "sgprs", b.trunc(b.lshr(lanes, I64(32)), I32), EXEC_HI)
        c.put(state, STATE, "sgprs", x, TTMP0 + 9)
        c.put(state, STATE, "sgprs", yz, TTMP0 + 7)
        c.put(state, STATE, "sgprs", b.shl(index, I32(25)), TTMP0 + 8)
        registers = b.gep(state, [I64(STATE.size_bytes)], source_etype=I8)
        c.copy(registers, c.at(shape, SHAPE, "v0", b.mul(wide, I64(wave))), I64(4 * wave))

    c.count(waves, each)
    b.ret_void()
    return function


_KEPT = ("group_waves", "barrier_signals", "barrier_phase")  # of a group, in the context while it runs


def _run_group(module: ir.Module, wave: int) -> ir.Function:
    """i32(job, context, slot): the slot's waves by turns, until all have ended or something stops them."""
    function = _function(module, f"run_group{wave}", I32, PTR, PTR, PTR)
    function.linkage = "internal"
    c = _Code(function)
    b = c.b
    job, context, slot = function.args
    for name in _KEPT:
        c.put(context, CONTEXT, name, c.get(slot, SLOT, name))
    states = c.get(slot, SLOT, "states")
    state_bytes = b.zext(c.get(job, JOB, "state_bytes"), I64)
    waves = c.get(slot, SLOT, "waves")
    place = c.get(slot, SLOT, "hw_id1")
    entry = b.inttoptr(c.get(job, JOB, "wave"), WAVE_FUNCTION.as_pointer())
    result = c.local(I32(0))
    leave = function.append_basic_block("leave")

    def release_if_complete() -> None:
        """A wave that ends takes no part any more: those that wait may go on."""
        signals = c.get(context, CONTEXT, "barrier_signals")
        left = c.get(context, CONTEXT, "group_waves")
        complete = b.and_(b.icmp_unsigned("!=", signals, I32(0)), b.icmp_unsigned(">=", signals, left))
        with b.if_then(complete):
            c.put(context, CONTEXT, "barrier_signals", 0)
            phase = c.get(context, CONTEXT, "barrier_phase")
            c.put(context, CONTEXT, "barrier_phase", b.add(phase, I32(1)))

    def ended(state: ir.Value) -> None:
        phase = c.get(context, CONTEXT, "barrier_phase")
        signalled = b.icmp_unsigned("==", c.get(state, STATE, "barrier_phase"), phase)
        end = b.add(phase, b.zext(signalled, I32))
        first = c.get(slot, SLOT, "first_end")
        c.put(slot, SLOT, "first_end", b.select(b.icmp_unsigned("<", end, first), end, first))
        with b.if_then(signalled):  # it signalled this phase and ended before its wait: it still counts as one
            signals = c.get(context, CONTEXT, "barrier_signals")
            c.put(context, CONTEXT, "barrier_signals", b.sub(signals, I32(1)))
        left = b.sub(c.get(context, CONTEXT, "group_waves"), I32(1))
        c.put(context, CONTEXT, "group_waves", left)
        release_if_complete()

    def round_(_: ir.Block) -> None:
        live, moved = c.local(I32(0)), c.local(I1(0))
        b.store(I32(0), live)
        b.store(I1(0), moved)

        def each(index: ir.Value) -> None:
            wide = b.zext(index, I64)
            state = c.pointer(b.add(states, b.mul(wide, state_bytes)))
            status = c.get(state, STATE, "status")
            runs, next_ = function.append_basic_block("runs"), function.append_basic_block("next")
            b.cbranch(b.icmp_unsigned("==", status, I32(Status.DONE)), next_, runs)
            b.position_at_end(runs)
            b.store(b.add(c.load(live), I32(1)), live)
            phase = c.get(context, CONTEXT, "barrier_phase")
            same = b.icmp_unsigned("==", c.get(state, STATE, "barrier_phase"), phase)
            blocked = b.and_(b.icmp_unsigned("==", status, I32(Status.BARRIER)), same)
            free = function.append_basic_block("free")
            b.cbranch(blocked, next_, free)
            b.position_at_end(free)
            # its share of the fuel
            fuel = c.get(context, CONTEXT, "fuel")
            slice_ = b.select(b.icmp_signed("<", fuel, I64(SLICE_FUEL)), fuel, I64(SLICE_FUEL))
            c.put(context, CONTEXT, "fuel", slice_)
            simd = b.shl(b.and_(index, I32(SIMDS - 1)), I32(SIMD_SHIFT))
            wave_slot = b.udiv(index, I32(SIMDS))
            c.put(context, CONTEXT, "hw_id1", b.or_(b.or_(place, simd), wave_slot))
            outcome = b.call(entry, [state, context])
            c.put(state, STATE, "status", outcome)
            used = b.sub(slice_, c.get(context, CONTEXT, "fuel"))
            remaining = b.sub(b.sub(fuel, used), I64(WAVE_FUEL))
            c.put(context, CONTEXT, "fuel", remaining)
            waits = b.icmp_unsigned("==", outcome, I32(Status.BARRIER))
            later = b.icmp_unsigned("!=", c.get(context, CONTEXT, "barrier_phase"), phase)
            b.store(b.or_(c.load(moved), b.or_(b.not_(waits), later)), moved)
            with b.if_then(b.icmp_unsigned("==", outcome, I32(Status.DONE))):
                ended(state)
            stops = function.append_basic_block("stops")
            going = function.append_basic_block("going")
            b.cbranch(b.icmp_unsigned(">", outcome, I32(Status.FUEL)), stops, going)
            b.position_at_end(stops)
            c.put(slot, SLOT, "failed", index)
            b.store(outcome, result)
            b.branch(leave)
            b.position_at_end(going)
            empty = function.append_basic_block("empty")
            b.cbranch(b.icmp_signed("<=", remaining, I64(0)), empty, next_)
            b.position_at_end(empty)
            b.store(I32(Stop.FUEL), result)
            b.branch(leave)
            b.position_at_end(next_)

        c.count(waves, each)
        with b.if_then(b.icmp_unsigned("==", c.load(live), I32(0))):
            b.store(I32(Stop.DONE), result)
            b.branch(leave)
        with b.if_then(b.not_(c.load(moved))):
            b.store(I32(Stop.STUCK), result)
            b.branch(leave)

    c.forever(round_)
    b.unreachable()
    b.position_at_end(leave)
    for name in _KEPT:
        c.put(slot, SLOT, name, c.get(context, CONTEXT, name))
    b.ret(c.load(result))
    return function


def _finished(c: _Code, context: ir.Value, slot: ir.Value) -> None:
    """Count the group, and note a barrier that some wave never came to."""
    b = c.b
    c.put(slot, SLOT, "active", 0)
    waves = c.get(slot, SLOT, "waves")
    c.put(slot, SLOT, "groups_done", b.add(c.get(slot, SLOT, "groups_done"), I64(1)))
    c.put(slot, SLOT, "waves_done", b.add(c.get(slot, SLOT, "waves_done"), b.zext(waves, I64)))
    phase, first = c.get(slot, SLOT, "barrier_phase"), c.get(slot, SLOT, "first_end")
    with b.if_then(b.icmp_unsigned("<", first, phase), likely=False):
        number = c.get(context, CONTEXT, "findings_count")
        c.put(context, CONTEXT, "findings_count", b.add(number, I32(1)))
        with b.if_then(b.icmp_unsigned("<", number, c.get(context, CONTEXT, "findings_capacity"))):
            offset = b.mul(b.zext(number, I64), I64(FINDING.size_bytes))
            record = b.gep(c.get(context, CONTEXT, "findings"), [offset], source_etype=I8)
            values = {"site": SITE_BARRIER, "wave": 0, "reserved": 0, "lanes": 0, "address": 0}
            for name, value in values.items():
                c.put(record, FINDING, name, value)
            c.put(record, FINDING, "group", c.get(slot, SLOT, "group"))


def _run_groups(module: ir.Module, wave: int) -> None:
    start, run = _start_group(module, wave), _run_group(module, wave)
    function = _function(module, f"run_groups{wave}", I32, PTR, PTR, PTR)
    c = _Code(function)
    b = c.b
    job, context, slot = function.args

    def turn(after: ir.Block) -> None:
        stop = b.load_atomic(c.at(job, JOB, "stop"), "monotonic", 4, typ=I32)
        with b.if_then(b.icmp_unsigned("!=", stop, I32(0))):
            b.ret(I32(Stop.FUEL))
        idle = b.icmp_unsigned("==", c.get(slot, SLOT, "active"), I32(0))
        with b.if_then(idle):
            with b.if_then(b.icmp_signed("<=", c.get(context, CONTEXT, "fuel"), I64(0))):
                b.ret(I32(Stop.FUEL))
            number = b.atomic_rmw("add", c.at(job, JOB, "next"), I64(1), "monotonic")
            with b.if_then(b.icmp_unsigned(">=", number, c.get(job, JOB, "count"))):
                b.ret(I32(Stop.DONE))
            b.call(start, [job, slot, b.trunc(number, I32)])
        outcome = b.call(run, [job, context, slot])
        with b.if_then(b.icmp_unsigned("!=", outcome, I32(Stop.DONE))):
            with b.if_then(b.icmp_unsigned(">", outcome, I32(Stop.FUEL))):
                b.atomic_rmw("xchg", c.at(job, JOB, "stop"), I32(1), "monotonic")
            b.ret(outcome)
        _finished(c, context, slot)
        del after

    c.forever(turn)
    b.unreachable()


def source() -> str:
    """The runner's IR, both wave sizes."""
    module = ir.Module("groups")
    for wave in (32, 64):
        _run_groups(module, wave)
    return str(module)


@functools.cache
def runners() -> Loaded:
    """The compiled runner: addresses of run_groups32 and run_groups64."""
    text, about, cache = source(), host_cpu(), ObjectCache()
    parts = (text, about.cpu, about.features, about.version)
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    code = cache.load(key)
    if code is None:
        code = compile_ir(text)
        cache.store(key, code)
    return Loaded(code, ["run_groups32", "run_groups64"])
