"""Instrumentation for a debugger (Checks.debug): a call before each instruction, which can stop the wave there.

Registers live in the wave's state instead of in locals of the function, so they are current at each stop. The
semantics of instructions and the sanitizer's checks are those of other launches.
"""

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.emit.emitter import Emitter
from zinc_rt.sim.shader.emit.slots import Touched
from zinc_rt.sim.shader.emit.structured import Integer, LoopVariable, RecordView, StructuredBuilder
from zinc_rt.sim.shader.emit.values import I1, I8, I16, I32, I64, POINTER, VOID, constant
from zinc_rt.sim.shader.layout import CONTEXT, EXEC_LO, SCC, STATE, VGPR_LIMIT, RecordLayout, Status

ANY = 0xFFFFFFFF  # of a wave or workgroup: whichever
STOP_AT_PC, STOP_AT_STEP, STOP_AT_FINDING, STOP_OF_GROUP, STOP_OF_WATCH = 1, 2, 4, 8, 16
IN_MEMORY, IN_STATE, IN_LDS = 0, 1, 2  # what WATCHED.offset is relative to: nothing, the wave's state, its LDS

DEBUG = RecordLayout("""
u64 hook                # i32(state, context, pc): called at a stop; not 0 ends the wave
u64 steps               # instructions executed before this one, of all waves
u64 limit               # stop from this step on: STOP_AT_STEP
u32 limit_wave          # but only in this wave (STATE.wave_index), or ANY
u32 findings            # stop if context.findings_count is another: STOP_AT_FINDING
u32 group               # stop outside of this workgroup and barrier phase: STOP_OF_GROUP; ANY: never
u32 phase
u32 end                 # 1: each wave ends at its next instruction
u32 reasons             # of the present stop: bits STOP_*
u32 watch_count
u32 watch_hit           # index of the last watch that changed
u64 history_mask        # entries of `history` - 1
ptr history             # HISTORY: the entry of step s is at s & history_mask
ptr stops               # u8 per dword of the code: not 0 stops there: STOP_AT_PC
ptr watches             # WATCHED[watch_count]
""")

HISTORY = RecordLayout(
    """
u32 pc
u32 wave                # STATE.wave_index
""",
    padded=8,
)

WATCHED = RecordLayout(
    """
u64 offset
u64 value               # at the last step
u64 before              # the value that the last change replaced
u32 base                # IN_MEMORY, IN_STATE, IN_LDS
u32 size_bytes          # 1, 2, 4 or 8
u32 wave                # compared in this wave only, or ANY
u32 group               # in this workgroup only, or ANY
u32 armed               # 0: `value` is not yet loaded
""",
    padded=16,
)

HOOK = ir.FunctionType(I32, [POINTER, POINTER, I32])
"""(state, context, pc); also of the helper that waves call before each instruction."""


class DebugCalls:
    """Emits the call before each instruction. It also marks registers written by instructions as defined, if the
    checks do not.
    """

    def __init__(self, e: Emitter, vgprs: int) -> None:
        self.e, self._vgprs = e, vgprs
        self._ended: ir.Block | None = None

    def start(self, defined: int) -> None:
        """Emit the setup at the function's entry. `defined`: the registers that the launch initialises."""
        e = self.e
        with e.b.if_then(e.b.equal(e.frame.state_field("resume"), 0)):
            wave_bytes = e.wave * 4
            vgprs = e.b.offset(e.frame.state, STATE.size_bytes)
            self._fill(e.b.offset(vgprs, wave_bytes), 0, (self._vgprs - 1) * wave_bytes)  # the same in each run
            self._fill(e.b.offset(vgprs, self._vgprs * wave_bytes), 0xFF, self._vgprs * wave_bytes)
            self._fill(e.b.at(e.frame.state, STATE, "sgpr_undefined"), 0xFF, 4 * (SCC + 1))
            for key in range(VGPR_LIMIT, VGPR_LIMIT + SCC):
                if defined >> key & 1:
                    e.slots.store_undefined(key, constant(0))
            self._define(0, masked=True)

    def before(self, touched: Touched | None, *, exec_full: bool) -> None:
        """Emit the call, and the marks for the registers that the instruction will write, if known."""
        e = self.e
        helper = e.b.helper("zrt.debug", HOOK, _build)
        answer = e.b.call(helper, [e.frame.state, e.frame.context, constant(e.frame.pc)])
        go_on = e.b.append_basic_block("")
        e.b.cbranch(e.b.unequal(answer, 0), self._end_block(), go_on).set_weights([1, 1 << 20])
        e.b.position_at_end(go_on)
        written = 0 if touched is None else (touched.writes | touched.masked) & ~e.slots.unproven.tracked
        for key in range(written.bit_length()):
            if written >> key & 1 and (key >= VGPR_LIMIT or key < self._vgprs):
                assert touched is not None
                self._define(key, masked=not exec_full and bool(touched.masked >> key & 1))

    def _define(self, key: int, *, masked: bool) -> None:
        """Mark a register as defined; `masked`: in the lanes of EXEC."""
        e, of = self.e, self.e.slots.type_of(key)
        if not masked:
            e.slots.store_undefined(key, constant(0, of))
            return
        words = [e.slots.load(VGPR_LIMIT + EXEC_LO + index) for index in range(e.wave // 32)]
        lanes = e.b.bitcast(e.b.join(words), e.b.lanes(I1))
        e.slots.store_undefined(key, e.b.select(lanes, constant(0, of), e.slots.load_undefined(key)))

    def _fill(self, place: ir.Value, byte: int, size_bytes: int) -> None:
        if size_bytes:
            arguments = (place, I8(byte), I64(size_bytes), I1(0))
            self.e.b.intrinsic("llvm.memset", VOID, *arguments, types=(POINTER, I64))

    def _end_block(self) -> ir.Block:
        if self._ended is None:
            self._ended = self.e.b.append_basic_block("ended")
            with self.e.b.goto_block(self._ended):
                self.e.reports.leave(Status.DONE)
        return self._ended


def _build(function: ir.Function) -> None:
    """Emit the helper that counts the step and calls the hook if there is a reason to stop."""
    b = StructuredBuilder(function.append_basic_block("entry"))
    state, context = b.record(STATE, function.args[0]), b.record(CONTEXT, function.args[1])
    pc = Integer(b, function.args[2])
    debug = b.record(DEBUG, context.debug)
    with b.if_(debug.end != 0, likely=False):
        b.give(1)
    steps, wave, reasons = debug.steps, state.wave_index, b.variable(I32, 0)
    stop = Integer(b, b.load(b.offset(debug.stops, (pc // 4).to(I64).ir), typ=I8))
    limited = (steps >= debug.limit) & ((debug.limit_wave == ANY) | (debug.limit_wave == wave))
    elsewhere = (state.group != debug.group) | (context.barrier_phase != debug.phase)
    _note(b, reasons, stop != 0, STOP_AT_PC)
    _note(b, reasons, limited, STOP_AT_STEP)
    _note(b, reasons, context.findings_count != debug.findings, STOP_AT_FINDING)
    _note(b, reasons, (debug.group != ANY) & elsewhere, STOP_OF_GROUP)
    with b.count(debug.watch_count) as (index, _):
        watched = b.record(WATCHED, b.offset(debug.watches, (index.to(I64) * WATCHED.size_bytes).ir))
        here = (watched.wave == ANY) | (watched.wave == wave)
        with b.if_(here & ((watched.group == ANY) | (watched.group == state.group))):
            _compare(b, state, debug, watched, index, reasons)
    with b.if_(reasons.value != 0, likely=False):
        debug.reasons = reasons.value
        hook = b.inttoptr(debug.hook.ir, HOOK.as_pointer())
        answer = b.call(hook, list(function.args))
        with b.if_(Integer(b, answer) != 0):
            b.give(1)
    position = (steps & debug.history_mask) * HISTORY.size_bytes
    entry = b.record(HISTORY, b.offset(debug.history, position.ir))
    entry.pc, entry.wave = pc, wave
    debug.steps = steps + 1
    b.give(0)


def _note(b: StructuredBuilder, reasons: LoopVariable, condition: Integer, bit: int) -> None:
    reasons.value = reasons.value | condition.to(I32) * bit


def _compare(
    b: StructuredBuilder,
    state: RecordView,
    debug: RecordView,
    watched: RecordView,
    index: Integer,
    reasons: LoopVariable,
) -> None:
    """Emit the comparison of one watch with its value at the last step."""
    here, zero = Integer(b, b.ptrtoint(state.address, I64)), Integer(b, I64(0))
    lds = b.choose(watched.base == IN_LDS, state.lds_base, zero)
    address = watched.offset + b.choose(watched.base == IN_STATE, here, lds)
    value = b.variable(I64, 0)
    for of in (I8, I16, I32, I64):
        with b.if_(watched.size_bytes == of.width // 8):
            value.value = Integer(b, b.load(b.pointer(address.ir), typ=of, align=1)).to(I64)
    with b.if_((watched.armed != 0) & (value.value != watched.value)):
        watched.before, debug.watch_hit = watched.value, index
        _note(b, reasons, Integer(b, I1(1)), STOP_OF_WATCH)
    watched.value, watched.armed = value.value, 1
