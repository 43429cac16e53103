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

from zinc_rt.host.object_cache import ObjectCache
from zinc_rt.sim.shader.emit.builder import CodeBuilder
from zinc_rt.sim.shader.emit.frame import WAVE_FUNCTION
from zinc_rt.sim.shader.emit.helpers import KernelModule
from zinc_rt.sim.shader.emit.values import FIELD_TYPES, I1, I8, I32, I64, POINTER, VOID
from zinc_rt.sim.shader.layout import (
    CACHE_PROCESSORS,
    CONTEXT,
    EXEC_HI,
    EXEC_LO,
    FINDING,
    NO_PHASE,
    SCALAR_CACHE,
    SITE_BARRIER,
    STATE,
    TTMP0,
    VECTOR_CACHE,
    RecordLayout,
    Status,
)
from zinc_rt.sim.shader.run.compile import Loaded, compile_ir, host_cpu

MAX_WAVES = 32  # of a workgroup: 1024 threads
SLICE_FUEL = 1 << 17  # of one wave before the next wave of its group has its turn
WAVE_FUEL = 64  # what calling a wave costs, so that a grid of empty waves comes to an end of its fuel too
SIMDS, SIMD_SHIFT = 4, 8  # of a workgroup processor; HW_ID1: WAVE_ID 4:0, SIMD_ID 9:8

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
u32 first_cache         # with caches: is added to workgroup numbers where they come to one
u32 wgp_mode            # 1: a workgroup's waves are on both compute units of its processor
u64 vector_caches       # of CACHE_PROCESSORS workgroup processors, one a compute unit; 0: none
u64 scalar_caches       # one a processor
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
u32 mismatch            # 1: a barrier that an ended wave never came to was noted
u32 hw_id1              # of its workgroup processor; the wave's SIMD and slot are added
u64 lds
u64 lds_shadow
u64 states
u64 scratch             # host address of wave 0's
""")


class Stop(IntEnum):
    """What run_groups returns: Status, and where that says too little."""

    DONE = Status.DONE  # no workgroup is left to take
    STUCK = Status.BARRIER  # every wave of the slot's group waits, and nobody is left to let them go
    FUEL = Status.FUEL
    FAULT = Status.FAULT
    ILLEGAL = Status.ILLEGAL
    HALT = Status.HALT


class _GroupBuilder(CodeBuilder):
    """Writes a function of the runner from its entry."""

    def __init__(self, function: ir.Function) -> None:
        super().__init__(function.append_basic_block("entry"))

    def item(self, base: ir.Value, layout: RecordLayout, name: str, index: ir.Value | int) -> ir.Value:
        """Pointer to an element of a field that is an array."""
        if not isinstance(index, int) and index.type != I64:
            index = self.zext(index, I64)
        return self.element(self.at(base, layout, name), index, FIELD_TYPES[layout.fields[name].type])

    def get_item(self, base: ir.Value, layout: RecordLayout, name: str, index: ir.Value | int) -> ir.Value:
        return self.load(self.item(base, layout, name, index), typ=FIELD_TYPES[layout.fields[name].type])

    def forever(self, body: Callable[[ir.Block], None]) -> None:
        """Loop: `body(after)` branches out itself or falls through to the next turn. Leaves the builder after."""
        turn, after = self.append_basic_block("turn"), self.append_basic_block("after")
        self.branch(turn)
        self.position_at_end(turn)
        body(after)
        if not self.block.is_terminated:
            self.branch(turn)
        self.position_at_end(after)

    def count(self, end: ir.Value, body: Callable[[ir.Value], None]) -> None:
        """body(index) for index in 0 .. end - 1, i32."""
        index = self.local(I32, 0)

        def turn(after: ir.Block) -> None:
            now = self.load(index, typ=I32)
            inside = self.append_basic_block("inside")
            self.cbranch(self.below(now, end), inside, after)
            self.position_at_end(inside)
            self.store(self.add(now, 1), index)
            body(now)

        self.forever(turn)

    def copy(self, to: ir.Value, source: ir.Value, size: ir.Value) -> None:
        self.intrinsic("llvm.memcpy", VOID, to, source, size, I1(0), types=(POINTER, POINTER, I64))

    def fill(self, to: ir.Value, byte: ir.Value, size: ir.Value) -> None:
        with self.if_then(self.unequal(size, 0), likely=False):
            self.intrinsic("llvm.memset", VOID, to, byte, size, I1(0), types=(POINTER, I64))


def _function(module: ir.Module, name: str, result: ir.Type, *kinds: ir.Type) -> ir.Function:
    return ir.Function(module, ir.FunctionType(result, kinds), name)


def _start_group(module: ir.Module, wave: int) -> ir.Function:
    """void(job, slot, group): the slot's group is this one, none of its waves has run."""
    function = _function(module, f"start_group{wave}", ir.VoidType(), POINTER, POINTER, I32)
    function.linkage = "internal"
    b = _GroupBuilder(function)
    job, slot, group = function.args
    ids, last = [], I64(0)
    rest = group
    for axis, name in enumerate("xyz"):
        dim = b.get(job, JOB, f"groups_{name}")
        at = rest if axis == 2 else b.urem(rest, dim)
        rest = b.udiv(rest, dim)
        is_last = b.zext(b.equal(b.add(at, 1), dim), I64)
        last = b.or_(last, b.shl(is_last, axis))
        ids.append(b.add(at, b.get(job, JOB, f"start_{name}")))
    shape = b.get_item(job, JOB, "shapes", last)
    waves = b.get(shape, SHAPE, "waves")
    for name, value in {
        "active": 1,
        "group": group,
        "waves": waves,
        "group_waves": waves,
        "barrier_signals": 0,
        "barrier_phase": 0,
        "first_end": NO_PHASE,
        "mismatch": 0,
    }.items():
        b.put(slot, SLOT, name, value)
    lds = b.get(slot, SLOT, "lds")
    shadow = b.get(slot, SLOT, "lds_shadow")
    size = b.zext(b.get(job, JOB, "lds_bytes"), I64)
    b.fill(b.pointer(lds), b.trunc(b.get(job, JOB, "lds_fill"), I8), size)
    shadow_size = b.zext(b.get(job, JOB, "lds_shadow_bytes"), I64)
    b.fill(b.pointer(shadow), b.trunc(b.get(job, JOB, "lds_shadow_fill"), I8), shadow_size)
    states = b.get(slot, SLOT, "states")
    template = b.get(job, JOB, "template")
    state_bytes = b.zext(b.get(job, JOB, "state_bytes"), I64)
    scratch = b.get(slot, SLOT, "scratch")
    scratch_step = b.zext(b.get(job, JOB, "scratch_wave_bytes"), I64)
    scratch_data = b.zext(b.get(job, JOB, "scratch_data_bytes"), I64)
    scratch_size = b.mul(b.zext(waves, I64), scratch_step)
    b.fill(b.pointer(scratch), I8(0), scratch_size)
    x = b.and_(ids[0], b.get(job, JOB, "ids_x_mask"))
    yz = b.or_(b.and_(ids[1], 0xFFFF), b.shl(ids[2], 16))
    yz = b.and_(yz, b.get(job, JOB, "ids_yz_mask"))
    turn = b.zext(b.urem(group, b.get(job, JOB, "places_count")), I64)
    place = b.gep(b.get(job, JOB, "places"), [turn], source_etype=I32)
    b.put(slot, SLOT, "hw_id1", b.load(place, typ=I32))
    full_waves = b.get(b.get_item(job, JOB, "shapes", 0), SHAPE, "waves")
    first_wave = b.mul(group, full_waves)

    def each(index: ir.Value) -> None:
        wide = b.zext(index, I64)
        state = b.pointer(b.add(states, b.mul(wide, state_bytes)))
        b.copy(state, template, I64(STATE.fields["sgpr_undefined"].offset))  # what follows needs no contents
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
            b.put(state, STATE, name, value)
        lanes = b.get_item(shape, SHAPE, "exec", index)
        b.store(b.trunc(lanes, I32), b.item(state, STATE, "sgprs", EXEC_LO))
        b.store(b.trunc(b.lshr(lanes, 32), I32), b.item(state, STATE, "sgprs", EXEC_HI))
        b.store(x, b.item(state, STATE, "sgprs", TTMP0 + 9))
        b.store(yz, b.item(state, STATE, "sgprs", TTMP0 + 7))
        b.store(b.shl(index, 25), b.item(state, STATE, "sgprs", TTMP0 + 8))
        registers = b.gep(state, [I64(STATE.size_bytes)], source_etype=I8)
        b.copy(registers, b.item(shape, SHAPE, "v0", b.mul(wide, wave)), I64(4 * wave))

    b.count(waves, each)
    b.ret_void()
    return function


def _use_caches(b: _GroupBuilder, job: ir.Value, context: ir.Value, group: ir.Value, wave: ir.Value) -> None:
    """Those of the workgroup's processor. In WGP mode SIMDs 0 and 1 are one compute unit, 2 and 3 the other; else
    workgroups have one each by turns."""
    numbered = b.add(group, b.get(job, JOB, "first_cache"))
    processor = b.urem(numbered, CACHE_PROCESSORS)
    by_simd = b.lshr(b.and_(wave, SIMDS - 1), 1)
    by_turn = b.and_(b.udiv(numbered, CACHE_PROCESSORS), 1)
    unit = b.select(b.unequal(b.get(job, JOB, "wgp_mode"), 0), by_simd, by_turn)
    number = b.zext(b.add(b.shl(processor, 1), unit), I64)
    vector = b.add(b.get(job, JOB, "vector_caches"), b.mul(number, VECTOR_CACHE.size_bytes))
    scalar = b.add(b.get(job, JOB, "scalar_caches"), b.mul(b.zext(processor, I64), SCALAR_CACHE.size_bytes))
    b.put(context, CONTEXT, "vector_cache", vector)
    b.put(context, CONTEXT, "scalar_cache", scalar)


_KEPT = ("group_waves", "barrier_signals", "barrier_phase")  # of a group, in the context while it runs


def _run_group(module: ir.Module, wave: int) -> ir.Function:
    """i32(job, context, slot): the slot's waves by turns, until all have ended or something stops them."""
    function = _function(module, f"run_group{wave}", I32, POINTER, POINTER, POINTER)
    function.linkage = "internal"
    b = _GroupBuilder(function)
    job, context, slot = function.args
    for name in _KEPT:
        b.put(context, CONTEXT, name, b.get(slot, SLOT, name))
    states = b.get(slot, SLOT, "states")
    state_bytes = b.zext(b.get(job, JOB, "state_bytes"), I64)
    waves = b.get(slot, SLOT, "waves")
    place = b.get(slot, SLOT, "hw_id1")
    entry = b.inttoptr(b.get(job, JOB, "wave"), WAVE_FUNCTION.as_pointer())
    result = b.local(I32, 0)
    leave = function.append_basic_block("leave")

    def release_if_complete() -> None:
        """A wave that ends takes no part any more: those that wait may go on."""
        signals = b.get(context, CONTEXT, "barrier_signals")
        left = b.get(context, CONTEXT, "group_waves")
        complete = b.and_(b.unequal(signals, 0), b.icmp_unsigned(">=", signals, left))
        with b.if_then(complete):
            b.put(context, CONTEXT, "barrier_signals", 0)
            phase = b.get(context, CONTEXT, "barrier_phase")
            b.put(context, CONTEXT, "barrier_phase", b.add(phase, 1))

    def ended(state: ir.Value) -> None:
        phase = b.get(context, CONTEXT, "barrier_phase")
        signalled = b.equal(b.get(state, STATE, "barrier_phase"), phase)
        end = b.add(phase, b.zext(signalled, I32))
        first = b.get(slot, SLOT, "first_end")
        b.put(slot, SLOT, "first_end", b.select(b.below(end, first), end, first))
        with b.if_then(signalled):  # it signalled this phase and ended before its wait: it still counts as one
            signals = b.get(context, CONTEXT, "barrier_signals")
            b.put(context, CONTEXT, "barrier_signals", b.sub(signals, 1))
        left = b.sub(b.get(context, CONTEXT, "group_waves"), 1)
        b.put(context, CONTEXT, "group_waves", left)
        release_if_complete()

    def note_mismatch(index: ir.Value, completed: ir.Value) -> None:
        """Once a workgroup, when a barrier let go: wave `index` `completed` it, or ended while others waited."""
        phase, first = b.get(context, CONTEXT, "barrier_phase"), b.get(slot, SLOT, "first_end")
        missed = b.and_(b.below(first, phase), b.equal(b.get(slot, SLOT, "mismatch"), 0))
        with b.if_then(missed, likely=False):
            b.put(slot, SLOT, "mismatch", 1)
            b.call(_noted(module), [context, slot, states, state_bytes, index, completed])

    def round_(_: ir.Block) -> None:
        live, moved = b.local(I32, 0), b.local(I1, 0)
        b.store(I32(0), live)
        b.store(I1(0), moved)

        def each(index: ir.Value) -> None:
            wide = b.zext(index, I64)
            state = b.pointer(b.add(states, b.mul(wide, state_bytes)))
            status = b.get(state, STATE, "status")
            runs, next_ = function.append_basic_block("runs"), function.append_basic_block("next")
            b.cbranch(b.equal(status, Status.DONE), next_, runs)
            b.position_at_end(runs)
            b.store(b.add(b.load(live, typ=I32), 1), live)
            phase = b.get(context, CONTEXT, "barrier_phase")
            same = b.equal(b.get(state, STATE, "barrier_phase"), phase)
            blocked = b.and_(b.equal(status, Status.BARRIER), same)
            free = function.append_basic_block("free")
            b.cbranch(blocked, next_, free)
            b.position_at_end(free)
            # its share of the fuel
            fuel = b.get(context, CONTEXT, "fuel")
            slice_ = b.select(b.icmp_signed("<", fuel, SLICE_FUEL), fuel, SLICE_FUEL)
            b.put(context, CONTEXT, "fuel", slice_)
            simd = b.shl(b.and_(index, SIMDS - 1), SIMD_SHIFT)
            wave_slot = b.udiv(index, SIMDS)
            b.put(context, CONTEXT, "hw_id1", b.or_(b.or_(place, simd), wave_slot))
            with b.if_then(b.unequal(b.get(job, JOB, "vector_caches"), 0), likely=False):
                _use_caches(b, job, context, b.get(slot, SLOT, "group"), index)
            outcome = b.call(entry, [state, context])
            b.put(state, STATE, "status", outcome)
            used = b.sub(slice_, b.get(context, CONTEXT, "fuel"))
            remaining = b.sub(b.sub(fuel, used), WAVE_FUEL)
            b.put(context, CONTEXT, "fuel", remaining)
            waits = b.equal(outcome, Status.BARRIER)
            later = b.unequal(b.get(context, CONTEXT, "barrier_phase"), phase)
            b.store(b.or_(b.load(moved, typ=I1), b.or_(b.not_(waits), later)), moved)
            with b.if_then(b.equal(outcome, Status.DONE)):
                ended(state)
            note_mismatch(index, later)
            stops = function.append_basic_block("stops")
            going = function.append_basic_block("going")
            b.cbranch(b.icmp_unsigned(">", outcome, Status.FUEL), stops, going)
            b.position_at_end(stops)
            b.put(slot, SLOT, "failed", index)
            b.store(outcome, result)
            b.branch(leave)
            b.position_at_end(going)
            empty = function.append_basic_block("empty")
            b.cbranch(b.icmp_signed("<=", remaining, 0), empty, next_)
            b.position_at_end(empty)
            b.store(I32(Stop.FUEL), result)
            b.branch(leave)
            b.position_at_end(next_)

        b.count(waves, each)
        with b.if_then(b.equal(b.load(live, typ=I32), 0)):
            b.store(I32(Stop.DONE), result)
            b.branch(leave)
        with b.if_then(b.not_(b.load(moved, typ=I1))):
            b.store(I32(Stop.STUCK), result)
            b.branch(leave)

    b.forever(round_)
    b.unreachable()
    b.position_at_end(leave)
    for name in _KEPT:
        b.put(slot, SLOT, name, b.get(context, CONTEXT, name))
    b.ret(b.load(result, typ=I32))
    return function


def _noted(module: ir.Module) -> ir.Function:
    """void(context, slot, states, state_bytes, index, completed): the FINDING of note_mismatch."""
    name = "zrt.mismatch"
    if name in module.globals:
        return module.globals[name]
    function = _function(module, name, VOID, POINTER, POINTER, I64, I64, I32, I1)
    function.attributes.add("cold")
    b = _GroupBuilder(function)
    context, slot, states, state_bytes, index, completed = function.args
    over = b.sub(b.get(context, CONTEXT, "barrier_phase"), 1)
    waiter, mask, end_pc = b.local(I32, 0), b.local(I64, 0), b.local(I32, 0)
    b.store(index, waiter)
    b.store(I64(0), mask)
    b.store(I32(0), end_pc)

    def each(wave: ir.Value) -> None:
        state = b.pointer(b.add(states, b.mul(b.zext(wave, I64), state_bytes)))
        ended = b.equal(b.get(state, STATE, "status"), Status.DONE)
        same = b.and_(completed, b.equal(wave, index))  # it may have ended behind the barrier
        came = b.or_(same, b.equal(b.get(state, STATE, "barrier_phase"), over))
        with b.if_then(b.and_(came, b.not_(ended))):
            b.store(wave, waiter)
        with b.if_then(b.and_(ended, b.not_(came))):
            known = b.load(mask, typ=I64)
            with b.if_then(b.equal(known, 0)):
                b.store(b.get(state, STATE, "pc"), end_pc)
            b.store(b.or_(known, b.shl(I64(1), b.zext(wave, I64))), mask)

    b.count(b.get(slot, SLOT, "waves"), each)
    number = b.get(context, CONTEXT, "findings_count")
    b.put(context, CONTEXT, "findings_count", b.add(number, 1))
    with b.if_then(b.below(number, b.get(context, CONTEXT, "findings_capacity"))):
        offset = b.mul(b.zext(number, I64), FINDING.size_bytes)
        record = b.gep(b.get(context, CONTEXT, "findings"), [offset], source_etype=I8)
        who = b.load(waiter, typ=I32)
        state = b.pointer(b.add(states, b.mul(b.zext(who, I64), state_bytes)))
        for field, value in {
            "site": SITE_BARRIER,
            "wave": who,
            "group": b.get(slot, SLOT, "group"),
            "end_pc": b.load(end_pc, typ=I32),
            "lanes": b.load(mask, typ=I64),
            "address": b.zext(b.get(state, STATE, "barrier_pc"), I64),
        }.items():
            b.put(record, FINDING, field, value)
    b.ret_void()
    return function


def _run_groups(module: ir.Module, wave: int) -> None:
    start, run = _start_group(module, wave), _run_group(module, wave)
    function = _function(module, f"run_groups{wave}", I32, POINTER, POINTER, POINTER)
    b = _GroupBuilder(function)
    job, context, slot = function.args

    def turn(after: ir.Block) -> None:
        stop = b.load_atomic(b.at(job, JOB, "stop"), "monotonic", 4, typ=I32)
        with b.if_then(b.unequal(stop, 0)):
            b.ret(I32(Stop.FUEL))
        idle = b.equal(b.get(slot, SLOT, "active"), 0)
        with b.if_then(idle):
            with b.if_then(b.icmp_signed("<=", b.get(context, CONTEXT, "fuel"), 0)):
                b.ret(I32(Stop.FUEL))
            number = b.atomic_rmw("add", b.at(job, JOB, "next"), I64(1), "monotonic")
            with b.if_then(b.icmp_unsigned(">=", number, b.get(job, JOB, "count"))):
                b.ret(I32(Stop.DONE))
            b.call(start, [job, slot, b.trunc(number, I32)])
        outcome = b.call(run, [job, context, slot])
        with b.if_then(b.unequal(outcome, Stop.DONE)):
            with b.if_then(b.icmp_unsigned(">", outcome, Stop.FUEL)):
                b.atomic_rmw("xchg", b.at(job, JOB, "stop"), I32(1), "monotonic")
            b.ret(outcome)
        b.put(slot, SLOT, "active", 0)
        del after

    b.forever(turn)
    b.unreachable()


def source() -> str:
    """The runner's IR, both wave sizes."""
    module = KernelModule("groups")
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
