"""The workgroup runner: machine code that takes workgroups from a job, one after another, and runs their waves.

`i32 run_groups(job, context, slot)` exists for wave32 and wave64. It is built as LLVM IR and compiled once.
Threads share the JOB; each has its own CONTEXT and SLOT. A slot holds one workgroup: LDS, wave states, barrier. A
workgroup that exhausts its fuel stays in its slot, and the next call with that slot resumes it.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from enum import IntEnum

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.host.object_cache import ObjectCache
from zinc_rt.sim.shader.emit.frame import WAVE_FUNCTION
from zinc_rt.sim.shader.emit.helpers import KernelModule
from zinc_rt.sim.shader.emit.structured import Integer, RecordView, StructuredBuilder, define
from zinc_rt.sim.shader.emit.values import I1, I32, I64, VOID
from zinc_rt.sim.shader.layout import (
    ARRAY_CACHE,
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
from zinc_rt.sim.shader.run.compile import LoadedCode, compile_ir, detect_host_cpu

MAX_WAVES = 32  # of a workgroup: 1024 threads
SLICE_FUEL = 1 << 17  # of one wave before the next wave of its group has its turn
ORDERED_FUEL = 1 << 12  # the most where order_seed decides
POLL_FUEL = 1 << 8  # of a wave that spins, each time that another one has changed LDS by an atomic (mode full)
MIX = 0x9E3779B97F4A7C15
WAVE_FUEL = 64  # cost of running a wave, so that a grid of empty waves also runs out of fuel
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
u32 ids_in_sgprs        # 1: workgroup ids are in SGPRs
u32 id_sgprs 4          # those of x, y, z and the position in the workgroup; NULL: not enabled
u64 group_step          # the workgroup taken as number n is (n * group_step + group_first) % count
u64 group_first
u64 order_seed          # not 0: decides the order and the length of the turns of a workgroup's waves
u32 first_cache         # with caches: is added to workgroup numbers where they come to one
u32 wgp_mode            # 1: a workgroup's waves are on both compute units of its processor
u64 vector_caches       # of CACHE_PROCESSORS workgroup processors, one a compute unit; 0: none
u64 scalar_caches       # one a processor
u64 array_caches        # one a processor, which is the only one of its shader array; 0: none
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
u32 acquired_phase
u32 first_end           # the lowest barrier phase in which a wave ended, NO_PHASE: none yet
u32 mismatch            # 1: a barrier that an ended wave never came to was noted
u32 hw_id1              # of its workgroup processor; the wave's SIMD and slot are added
u64 lds
u64 lds_shadow
u64 states
u64 scratch             # host address of wave 0's
""")


class Stop(IntEnum):
    """The result of run_groups: Status, and the position if needed."""

    DONE = Status.DONE  # no workgroup is left to take
    STUCK = Status.BARRIER  # every wave of the slot's group waits, and no wave is left to signal
    FUEL = Status.FUEL
    FAULT = Status.FAULT
    ILLEGAL = Status.ILLEGAL
    HALT = Status.HALT


def _start_group(module: ir.Module, wave: int) -> ir.Function:
    """Define void(job, slot, group): initialise the slot with the workgroup, before any wave has run."""
    b, (job, slot, group) = define(module, f"start_group{wave}", VOID, job=JOB, slot=SLOT, group=I32)
    b.function.linkage = "internal"
    ids, shape = _place_of_group(b, job, group)
    waves = shape.waves
    slot.active, slot.group, slot.waves, slot.group_waves = 1, group, waves, waves
    slot.barrier_signals, slot.barrier_phase, slot.first_end, slot.mismatch = 0, 0, NO_PHASE, 0
    slot.acquired_phase = 0
    b.fill(slot.lds, job.lds_fill, job.lds_bytes)
    b.fill(slot.lds_shadow, job.lds_shadow_fill, job.lds_shadow_bytes)
    b.fill(slot.scratch, 0, waves.to(I64) * job.scratch_wave_bytes)
    places = b.element(job.places, (group % job.places_count).to(I64).ir, I32)
    slot.hw_id1 = Integer(b, b.load(places, typ=I32))
    ttmp9 = ids[0] & job.ids_x_mask
    ttmp7 = (ids[1] & 0xFFFF | ids[2] << 16) & job.ids_yz_mask
    first_wave = group * b.record(SHAPE, job.shapes[0]).waves
    lds, lds_shadow, scratch = slot.lds, slot.lds_shadow, slot.scratch
    states, state_bytes, template = slot.states, job.state_bytes, job.template
    scratch_wave_bytes, scratch_data_bytes = job.scratch_wave_bytes, job.scratch_data_bytes
    with b.count(waves) as (index, _):
        wide = index.to(I64)
        state = b.record(STATE, states + wide * state_bytes)
        # The following fields need no initial contents.
        b.copy(state.address, template, STATE.fields["sgpr_undefined"].offset)
        state.status = Status.FUEL
        state.wave_in_group, state.wave_index, state.group = index, first_wave + index, group
        state.group_x, state.group_y, state.group_z = ids
        state.lds_base, state.lds_shadow = lds, lds_shadow
        state.scratch_base = scratch + wide * scratch_wave_bytes
        state.scratch_shadow = scratch + wide * scratch_wave_bytes + scratch_data_bytes
        lanes = shape.exec[index]
        state.sgprs[EXEC_LO], state.sgprs[EXEC_HI] = lanes, lanes >> 32
        state.sgprs[TTMP0 + 9], state.sgprs[TTMP0 + 7], state.sgprs[TTMP0 + 8] = ttmp9, ttmp7, index << 25
        b.copy(b.offset(state.address, STATE.size_bytes), shape.v0.at(wide * wave), 4 * wave)
    with b.if_(job.ids_in_sgprs != 0, likely=False):
        id_sgprs = [job.id_sgprs[number] for number in range(4)]
        with b.count(waves) as (index, _):
            state = b.record(STATE, states + index.to(I64) * state_bytes)
            position = (index == 0).to(I32) << 31 | index << 20 | waves
            for register, value in zip(id_sgprs, (*ids, position), strict=True):
                state.sgprs[register] = value
    b.ret_void()
    return b.function


def _place_of_group(b: StructuredBuilder, job: RecordView, group: Integer) -> tuple[list[Integer], RecordView]:
    """Return the workgroup's ids x, y, z, and its SHAPE: the last group of an axis may be smaller."""
    ids, which, rest = [], Integer(b, I64(0)), group
    for axis, name in enumerate("xyz"):
        size = getattr(job, f"groups_{name}")
        index = rest if axis == 2 else rest % size
        rest = rest // size
        which = which | (index + 1 == size).to(I64) << axis
        ids.append(index + getattr(job, f"start_{name}"))
    return ids, b.record(SHAPE, job.shapes[which])


_KEPT = (
    "group_waves",
    "barrier_signals",
    "barrier_phase",
    "acquired_phase",
)  # of a group, in the context while it runs


def _run_turn(
    module: ir.Module, b: StructuredBuilder, records: tuple[RecordView, ...], index: Integer, slice_fuel: Integer
) -> tuple[Integer, Integer, Integer]:
    """Run a wave with a share of the fuel. `records`: job, context, slot. Return its status, whether it completed
    a barrier, and whether it yielded with fuel left.
    """
    job, context, slot = records
    states, state_bytes = slot.states, job.state_bytes.to(I64)
    state = b.record(STATE, states + index.to(I64) * state_bytes)
    phase, fuel = context.barrier_phase, context.fuel
    share = b.least(fuel, slice_fuel)
    context.fuel = share
    context.hw_id1 = slot.hw_id1 | (index & SIMDS - 1) << SIMD_SHIFT | index // SIMDS
    with b.if_(job.vector_caches != 0, likely=False):
        _use_caches(job, context, slot.group, index)
    outcome = b.invoke(b.inttoptr(job.wave.ir, WAVE_FUNCTION.as_pointer()), state, context)
    state.status = outcome
    left = context.fuel
    is_suspended = outcome == Status.FUEL
    state.spins = (is_suspended & (left < 0)).to(I32)
    context.fuel = fuel - (share - left) - WAVE_FUEL
    passed = context.barrier_phase != phase  # the barrier let go during this turn
    with b.if_(outcome == Status.DONE):
        _end_wave(b, context, slot, state)
    _note_mismatch(module, b, context, slot, states, state_bytes, index, passed)
    return outcome, passed, is_suspended & (left >= 0)


def _poll_group(module: ir.Module, wave: int) -> ir.Function:
    """Define i32(job, context, slot): give a short turn to each wave that spins, since another one has changed
    LDS. So a wave that waits for too little goes on as early as it can.
    """
    b, records = define(module, f"poll_group{wave}", I32, job=JOB, context=CONTEXT, slot=SLOT)
    b.function.linkage = "internal"
    b.function.attributes.add("cold")
    job, _, slot = records
    with b.count(slot.waves) as (index, turns):
        state = b.record(STATE, slot.states + index.to(I64) * job.state_bytes.to(I64))
        turns.continue_if((state.status != Status.FUEL) | (state.spins == 0))
        outcome, _, _ = _run_turn(module, b, tuple(records), index, Integer(b, I64(POLL_FUEL), signed=True))
        with b.if_(outcome > Status.FUEL):
            slot.failed = index
            b.give(outcome)
    b.give(Status.FUEL)
    return b.function


def _run_group(module: ir.Module, wave: int) -> ir.Function:
    """Define i32(job, context, slot): run the slot's waves in turn until all have ended or one stops."""
    poll = _poll_group(module, wave)
    b, (job, context, slot) = define(module, f"run_group{wave}", I32, job=JOB, context=CONTEXT, slot=SLOT)
    b.function.linkage = "internal"
    for name in _KEPT:
        setattr(context, name, getattr(slot, name))
    states, state_bytes, waves = slot.states, job.state_bytes.to(I64), slot.waves
    result = b.variable(I32, 0)
    seed, number = job.order_seed, b.variable(I64, slot.group.to(I64) << 32)
    with b.loop() as rounds:
        live, moved = b.variable(I32, 0), b.variable(I1, False)
        first, slice_fuel = b.variable(I32, 0), b.variable(I64, SLICE_FUEL)
        with b.if_(seed != 0, likely=False):
            number.value = number.value + 1
            mixed = (seed + number.value) * MIX
            mixed = (mixed + (mixed >> 29)) * MIX
            first.value = (mixed >> 33).to(I32) % waves
            slice_fuel.value = (mixed >> 20 & ORDERED_FUEL - 1) + 1
        with b.count(waves) as (turn, turns):
            index = (turn + first.value) % waves
            state = b.record(STATE, states + index.to(I64) * state_bytes)
            status = state.status
            turns.continue_if(status == Status.DONE)
            live.value += 1
            turns.continue_if((status == Status.BARRIER) & (state.barrier_phase == context.barrier_phase))
            outcome, passed, yielded = _run_turn(module, b, (job, context, slot), index, slice_fuel.value)
            moved.value = moved.value | (outcome != Status.BARRIER) | passed
            with b.if_(outcome > Status.FUEL):
                slot.failed, result.value = index, outcome
                rounds.break_()
            with b.if_(yielded, likely=False):
                polled = b.invoke(poll, job, context, slot)
                with b.if_(polled > Status.FUEL):
                    result.value = polled
                    rounds.break_()
            with b.if_(context.fuel <= 0):
                result.value = Stop.FUEL
                rounds.break_()
        with b.if_(live.value == 0):
            result.value = Stop.DONE
            rounds.break_()
        with b.if_(~moved.value):
            result.value = Stop.STUCK
            rounds.break_()
    for name in _KEPT:
        setattr(slot, name, getattr(context, name))
    b.give(result.value)
    return b.function


def _use_caches(job: RecordView, context: RecordView, group: Integer, wave: Integer) -> None:
    """Set the caches of the wave's compute unit. In WGP mode SIMDs 0 and 1 are one compute unit of the
    processor, 2 and 3 the other; otherwise workgroups are assigned to compute units in turn.
    """
    numbered = group + job.first_cache
    processor = numbered % CACHE_PROCESSORS
    by_simd, by_turn = (wave & SIMDS - 1) >> 1, numbered // CACHE_PROCESSORS & 1
    unit = context.b.choose(job.wgp_mode != 0, by_simd, by_turn)
    number = (processor << 1) + unit
    context.vector_cache = job.vector_caches + number.to(I64) * VECTOR_CACHE.size_bytes
    context.scalar_cache = job.scalar_caches + processor.to(I64) * SCALAR_CACHE.size_bytes
    context.array_cache = job.array_caches + processor.to(I64) * ARRAY_CACHE.size_bytes


def _end_wave(b: StructuredBuilder, context: RecordView, slot: RecordView, state: RecordView) -> None:
    """Remove an ended wave from barriers, which may release the waiting waves."""
    phase = context.barrier_phase
    signalled = state.barrier_phase == phase
    slot.first_end = b.least(phase + signalled.to(I32), slot.first_end)
    with b.if_(signalled):  # it signalled this phase and ended before its wait: it still counts as one
        context.barrier_signals -= 1
    context.group_waves -= 1
    signals = context.barrier_signals
    with b.if_((signals != 0) & (signals >= context.group_waves)):
        context.barrier_signals = 0
        context.barrier_phase += 1


def _note_mismatch(
    module: ir.Module, b: StructuredBuilder, context: RecordView, slot: RecordView, states: Integer,
    state_bytes: Integer, index: Integer, completed: Integer,
) -> None:  # fmt: skip
    """Record a mismatch, once per workgroup, when a barrier is released: wave `index` `completed` it, or ended
    while others waited.
    """
    missed = (slot.first_end < context.barrier_phase) & (slot.mismatch == 0)
    with b.if_(missed, likely=False):
        slot.mismatch = 1
        b.call(
            _mismatch_recorder(module),
            [context.address, slot.address, states.ir, state_bytes.ir, index.ir, completed.ir],
        )


def _mismatch_recorder(module: ir.Module) -> ir.Function:
    """Define void(context, slot, states, state_bytes, index, completed): record the FINDING of _note_mismatch."""
    name = "zrt.mismatch"
    if name in module.globals:
        return module.globals[name]
    b, (context, slot, states, state_bytes, index, completed) = define(
        module, name, VOID, context=CONTEXT, slot=SLOT, states=I64, state_bytes=I64, index=I32, completed=I1
    )
    b.function.attributes.add("cold")
    over = context.barrier_phase - 1
    waiter, ended_waves, end_pc = b.variable(I32, index), b.variable(I64, 0), b.variable(I32, 0)
    with b.count(slot.waves) as (wave, _):
        state = b.record(STATE, states + wave.to(I64) * state_bytes)
        ended = state.status == Status.DONE
        came = completed & (wave == index) | (state.barrier_phase == over)  # it may have ended after the barrier
        with b.if_(came & ~ended):
            waiter.value = wave
        with b.if_(ended & ~came):
            with b.if_(ended_waves.value == 0):
                end_pc.value = state.pc
            ended_waves.value = ended_waves.value | Integer(b, I64(1)) << wave
    number = context.findings_count
    context.findings_count = number + 1
    with b.if_(number < context.findings_capacity):
        position = number.to(I64) * FINDING.size_bytes
        finding = b.record(FINDING, b.offset(context.findings, position.ir))
        state = b.record(STATE, states + waiter.value.to(I64) * state_bytes)
        finding.site, finding.wave, finding.group = SITE_BARRIER, waiter.value, slot.group
        finding.end_pc, finding.lanes, finding.address = end_pc.value, ended_waves.value, state.barrier_pc
    b.ret_void()
    return b.function


def _run_groups(module: ir.Module, wave: int) -> None:
    """Define i32(job, context, slot): take and run workgroups until none is left or one stops."""
    start, run = _start_group(module, wave), _run_group(module, wave)
    b, (job, context, slot) = define(module, f"run_groups{wave}", I32, job=JOB, context=CONTEXT, slot=SLOT)
    with b.loop():
        with b.if_(b.load_shared(job, "stop") != 0):
            b.give(Stop.FUEL)
        with b.if_(slot.active == 0):
            with b.if_(context.fuel <= 0):
                b.give(Stop.FUEL)
            number = b.fetch_add(job, "next", 1)
            with b.if_(number >= job.count):
                b.give(Stop.DONE)
            b.invoke(start, job, slot, ((number * job.group_step + job.group_first) % job.count).to(I32))
        outcome = b.invoke(run, job, context, slot)
        with b.if_(outcome != Stop.DONE):
            with b.if_(outcome > Stop.FUEL):
                b.store_shared(job, "stop", 1)
            b.give(outcome)
        slot.active = 0
    b.unreachable()


def source() -> str:
    """Return the runner's IR for both wave sizes."""
    module = KernelModule("groups")
    for wave in (32, 64):
        _run_groups(module, wave)
    return str(module)


_lock = threading.Lock()


def runners() -> LoadedCode:
    """Return the addresses of the compiled run_groups32 and run_groups64: the same in all threads. functools.cache
    alone does not ensure that: it calls the function once for each thread that asks before the first result, and
    keeps the last one.
    """
    with _lock:
        return _load_runners()


@functools.cache
def _load_runners() -> LoadedCode:
    text, about, cache = source(), detect_host_cpu(), ObjectCache()
    parts = (text, about.cpu, about.features, about.version)
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    code = cache.load(key)
    if code is None:
        code = compile_ir(text)
        cache.store(key, code)
    return LoadedCode(code, ["run_groups32", "run_groups64"])
