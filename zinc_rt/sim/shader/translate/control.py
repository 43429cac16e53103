"""Control instructions: branches, calls, barriers, waits, messages, hardware registers, program end.

Sources: RDNA4 ISA guide, 16.2, 16.3, 16.5; for gfx11 the RDNA3 ISA guide, 3.4, 5.5, 16.

Waits and hints do nothing, because the results of an instruction are available immediately. The static lint
detects missing waits.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa import Instruction
from zinc_rt.isa.control_flow import Block, Flow, find_branch_target, is_lds_atomic
from zinc_rt.sim.shader.emit.emitter import EmitFunction, Emitter, NotSimulated, nothing
from zinc_rt.sim.shader.emit.float_mode import find_float_mode_bits
from zinc_rt.sim.shader.emit.trace import count_block
from zinc_rt.sim.shader.emit.values import I32, constant
from zinc_rt.sim.shader.layout import EXEC_LO, M0, NO_PHASE, VCC_LO, Checks, Status
from zinc_rt.sim.shader.translate.float_modes import MODE, decode_hardware_field, find_mode_write

MESSAGE_INTERRUPT, MESSAGE_DEALLOCATE_VGPRS, MESSAGE_REALTIME = 1, 3, 131
SCHEDULING, HW_ID1, HW_ID2, CYCLES_LO, CYCLES_HI = 26, 23, 24, 29, 30
CYCLES_BITS = 20  # of SHADER_CYCLES without an upper half
TICKS = 100  # SHADER_CYCLES and REALTIME go on by as much at each read, so loops that wait for them end
WORKGROUP_BARRIER, TRAP_BARRIER = -1, -2


def _end(e: Emitter, i: Instruction) -> None:
    e.reports.leave(Status.DONE)


def _branch(e: Emitter, i: Instruction) -> None:
    e.b.branch(e.flow.edge(find_branch_target(e.frame.pc, i), e.frame.pc))


_CONDITIONS: dict[str, Callable[[Emitter], ir.Value]] = {
    "scc1": lambda e: e.regs.scc,
    "scc0": lambda e: e.b.not_(e.regs.scc),
    "vccz": lambda e: e.regs.is_zero(VCC_LO),
    "vccnz": lambda e: e.b.not_(e.regs.is_zero(VCC_LO)),
    "execz": lambda e: e.regs.is_zero(EXEC_LO),
    "execnz": lambda e: e.b.not_(e.regs.is_zero(EXEC_LO)),
}


def _conditional(condition: Callable[[Emitter], ir.Value]) -> EmitFunction:
    def emit(e: Emitter, i: Instruction) -> None:
        taken = condition(e)
        target, following = find_branch_target(e.frame.pc, i), e.frame.pc + i.size_bytes
        e.b.cbranch(taken, e.flow.edge(target, e.frame.pc), e.flow.edge(following, e.frame.pc))

    return emit


# --- calls and jumps by address


def _return_address(e: Emitter, i: Instruction) -> ir.Value:
    return e.b.add(e.frame.field("program_va"), e.frame.following(i.size_bytes))


def _jump(e: Emitter, address: ir.Value) -> None:
    e.flow.jump(e.b.sub(address, e.frame.field("program_va")), e.frame.pc)


def _set_pc(e: Emitter, i: Instruction) -> None:
    _jump(e, e.scalar(i.operands[0], 64))


def _swap_pc(e: Emitter, i: Instruction) -> None:
    address = e.scalar(i.operands[1], 64)
    e.set_scalar(i.operands[0], _return_address(e, i))
    _jump(e, address)


def _call(e: Emitter, i: Instruction) -> None:
    e.set_scalar(i.operands[0], _return_address(e, i))
    e.b.branch(e.flow.edge(find_branch_target(e.frame.pc, i), e.frame.pc))


def _get_pc(e: Emitter, i: Instruction) -> None:
    e.set_scalar(i.operands[0], _return_address(e, i))


# --- barriers: a phase ends with the last wave's signal; a wave waits while its signal's phase is the current one


def _signal(e: Emitter, i: Instruction) -> None:
    operand = i.operands[0]
    if operand.value is None:
        if operand.index != M0:
            raise NotSimulated(f"cannot signal a barrier selected by {operand.text}")
        number = e.b.and_(e.regs.read_sgpr(M0), 31)  # there are no named barriers; 0 is a no-op
        with e.b.cold(e.b.unequal(number, 0)):
            e.reports.illegal("signals a named barrier, which this chip does not have")
        first = constant(0, ir.IntType(1))
    elif operand.value in (0, TRAP_BARRIER):  # the latter is for trap handlers: a no-op elsewhere
        first = constant(0, ir.IntType(1))
    elif operand.value == WORKGROUP_BARRIER:
        first = _signal_workgroup(e)
    else:
        raise NotSimulated("signals a named barrier, which this chip does not have")
    if i.mnemonic == "s_barrier_signal_isfirst":
        e.regs.scc = first


def _signal_workgroup(e: Emitter) -> ir.Value:
    phase, signals = e.frame.field("barrier_phase"), e.frame.field("barrier_signals")
    if e.checks.full:
        second = e.b.equal(e.frame.state_field("barrier_phase"), phase)
        e.reports.report_if("barrier-misuse", second, "signals the barrier twice in one phase")
    e.frame.set_state_field("barrier_phase", phase)
    e.frame.set_state_field("barrier_pc", e.frame.position())
    count = e.b.add(signals, 1)
    complete = e.b.icmp_unsigned(">=", count, e.frame.field("group_waves"))
    e.frame.set_field("barrier_signals", e.b.select(complete, 0, count))
    e.frame.set_field("barrier_phase", e.b.add(phase, e.b.zext(complete, I32)))
    return e.b.equal(signals, 0)


def _whole_barrier(e: Emitter, i: Instruction) -> None:
    """Emit s_barrier of gfx11, a signal and a wait. A wave that resumes has signalled before."""
    with e.b.if_then(e.b.equal(e.frame.state_field("barrier_phase"), NO_PHASE)):
        _signal_workgroup(e)
    _wait_workgroup(e, e.frame.pc + i.size_bytes)


def _wait(e: Emitter, i: Instruction) -> None:
    number = int(i.operands[0].value or 0)
    following = e.frame.pc + i.size_bytes
    if number >> 15 and number != 0xFFFF:
        raise NotSimulated("waits at the trap handler's barrier")
    if not number >> 15:  # barrier 0 and the named ones: complete at once
        count_block(e)
        e.b.branch(e.flow.edge(following, e.frame.pc))
        return
    _wait_workgroup(e, following)


def _wait_workgroup(e: Emitter, following: int) -> None:
    mine, phase = e.frame.state_field("barrier_phase"), e.frame.field("barrier_phase")
    if e.checks.full:
        none = e.b.equal(mine, NO_PHASE)
        e.reports.report_if("barrier-misuse", none, "waits at the barrier without a preceding signal")
    incomplete = e.b.equal(mine, phase)
    go_on = e.b.append_basic_block("")
    e.b.cbranch(incomplete, e.flow.suspension(e.frame.pc, Status.BARRIER), go_on)
    e.b.position_at_end(go_on)
    count_block(e)
    e.frame.set_state_field("barrier_phase", NO_PHASE)
    if e.checks.full:  # the barrier orders earlier accesses
        e.frame.set_state_field("waves_seen", 0)
        e.frame.set_state_field("waves_acquired", 0)
        e.frame.set_state_field("memory_waves_seen", 0)
        e.frame.set_state_field("memory_waves_acquired", 0)
    e.b.branch(e.flow.edge(following, e.frame.pc))


def waits_at_barrier(block: Block) -> bool:
    """Return whether a block is an s_barrier_wait or s_barrier, which counts executions after the wait."""
    return bool(block.instructions) and block.instructions[0][1].row.flow == "barrier"


def yields_after(graph: Flow, block: Block, checks: Checks) -> bool:
    """Return whether a wave is suspended between a block and the one that follows it: in mode full before and
    after an LDS atomic, by which waves synchronise. So the other waves run between the accesses that it separates.
    """
    following = graph.blocks.get(block.end)
    if not checks.full or following is None or not block.instructions or not following.instructions:
        return False
    return is_lds_atomic(block.instructions[-1][1]) or is_lds_atomic(following.instructions[0][1])


def _named_barrier(e: Emitter, i: Instruction) -> None:
    """Emit s_barrier_init or s_barrier_join. The chip has no named barriers; 0 names none, which has no effect."""
    operand = i.operands[0]
    if operand.value is None:
        if operand.index != M0:
            raise NotSimulated(f"does not support a barrier selected by {operand.text}")
        with e.b.cold(e.b.unequal(e.b.and_(e.regs.read_sgpr(M0), 31), 0)):
            e.reports.illegal("uses a named barrier, which this chip does not have")
    elif operand.value != 0:
        raise NotSimulated("uses a named barrier, which this chip does not have")


def _leave_barrier(e: Emitter, i: Instruction) -> None:
    """Emit s_barrier_leave. No wave has joined a named barrier, so none is left and SCC is 0."""
    e.regs.scc = constant(0, ir.IntType(1))


def _barrier_state(e: Emitter, i: Instruction) -> None:
    """Emit s_get_barrier_state: signals in bits 22:16, members in bits 10:4, and bit 0 if the barrier exists."""
    destination, operand = i.operands
    if operand.value == WORKGROUP_BARRIER:
        signals = e.b.shl(e.b.and_(e.frame.field("barrier_signals"), 127), 16)
        members = e.b.shl(e.b.and_(e.frame.field("group_waves"), 127), 4)
        e.set_scalar(destination, e.b.or_(e.b.or_(signals, members), 1))
    elif operand.value == TRAP_BARRIER or (operand.value is None and operand.index != M0):
        raise NotSimulated(f"cannot read the state of barrier {operand.text}")
    else:
        e.set_scalar(destination, constant(0))


# --- messages, hardware registers


def _clock(e: Emitter, name: str) -> ir.Value:
    now = e.b.add(e.frame.field(name), TICKS)
    e.frame.set_field(name, now)
    return now


def _message(e: Emitter, i: Instruction) -> None:
    number = int(i.operands[0].value or 0) & 0xFF
    if number not in (MESSAGE_INTERRUPT, MESSAGE_DEALLOCATE_VGPRS):
        raise NotSimulated("sends a graphics message")
    if number == MESSAGE_DEALLOCATE_VGPRS and e.regs.dynamic:
        raise NotSimulated("releases VGPRs with a message, which is not allowed with dynamic VGPRs")


def _message_return(e: Emitter, i: Instruction) -> None:
    if int(i.operands[1].value or 0) & 0xFF != MESSAGE_REALTIME:
        raise NotSimulated("can only request the real-time counter")
    now = _clock(e, "realtime")
    e.set_scalar(i.operands[0], now if i.operands[0].width == 2 else e.b.trunc(now, I32))


def _get_register(e: Emitter, i: Instruction) -> None:
    register, offset, size = decode_hardware_field(int(i.operands[1].value or 0))
    cycles = (CYCLES_LO, CYCLES_HI) if e.rules.has_shader_cycles_high else (CYCLES_LO,)
    if register in cycles:
        now = _clock(e, "cycles") if register == CYCLES_LO else e.frame.field("cycles")
        shifted = e.b.lshr(now, 32 if register == CYCLES_HI else 0)
        value = e.b.trunc(shifted, I32)
        if not e.rules.has_shader_cycles_high:
            value = e.b.and_(value, (1 << CYCLES_BITS) - 1)
    elif register in (MODE, HW_ID1, HW_ID2):
        value = e.frame.field({MODE: "mode", HW_ID1: "hw_id1", HW_ID2: "hw_id2"}[register])
    else:
        raise NotSimulated(f"cannot read {i.operands[1].text}")
    if register == MODE and e.mode != e.launch_mode:
        bits = find_float_mode_bits(e.rules)
        value = e.b.or_(e.b.and_(value, ~bits), e.mode.bits & bits)
    value = e.b.and_(e.b.lshr(value, offset), (1 << size) - 1)
    e.set_scalar(i.operands[0], value)


def _set_register(e: Emitter, i: Instruction) -> None:
    register, _, _ = decode_hardware_field(int(i.operands[0].value or 0))
    if register == SCHEDULING:
        return
    if register != MODE:
        raise NotSimulated(f"cannot write {i.operands[0].text}")
    _set_mode(e, i)


def _set_mode(e: Emitter, i: Instruction) -> None:
    """Emit a write to MODE. Rounding, denormals and FP16_OVFL are handled by translate/float_modes.py; the rest of
    MODE keeps the launch's value.
    """
    write = find_mode_write(i)
    assert write is not None
    have = e.b.and_(e.b.lshr(e.frame.field("mode"), write.offset), (1 << write.size) - 1)
    if write.value is None:
        wanted = e.b.and_(e.scalar(i.operands[1]), (1 << write.size) - 1)
        reason = "sets MODE from a register to a value other than the launch's, which is not simulated"
    else:
        bits = find_float_mode_bits(e.rules)
        floats = bits >> write.offset  # of the field
        if not write.mask & ~bits:
            return
        have, wanted = e.b.and_(have, ~floats), constant(write.value & ~floats)
        reason = "changes MODE beyond rounding, denormals and FP16_OVFL, which is not simulated"
    with e.b.cold(e.b.unequal(wanted, have)):
        e.reports.illegal(reason)


# --- stops


def _set_halt(e: Emitter, i: Instruction) -> None:
    if int(i.operands[0].value or 0) & 1:
        e.reports.stop(Status.HALT, "halt", "halts the wave")


def _trap(e: Emitter, i: Instruction) -> None:
    e.reports.stop(Status.HALT, "trap", f"raises trap {int(i.operands[0].value or 0)}: trap handlers do not run")


def _set_kill(e: Emitter, i: Instruction) -> None:
    if int(i.operands[0].value or 0) & 1:
        e.reports.leave(Status.DONE)


def _code_end(e: Emitter, i: Instruction) -> None:
    e.reports.illegal("marks the end of the code: the kernel ran past its s_endpgm")


def _message_halt(e: Emitter, i: Instruction) -> None:
    e.reports.stop(Status.HALT, "halt", "sends a message and halts the wave")


def _wait_for_counter(e: Emitter, i: Instruction) -> None:
    """Emit a wait of gfx11 for one counter. Compilers add no register to its count."""
    if i.operands[0].text != "null":
        raise NotSimulated("adds a register to its count")


def _scalar_operand_only(e: Emitter, i: Instruction) -> None:
    """Emit s_sleep_var, which only reads its operand."""
    e.scalar(i.operands[0])


EMIT: dict[str, EmitFunction] = {
    **{f"s_cbranch_{name}": _conditional(condition) for name, condition in _CONDITIONS.items()},
    **dict.fromkeys(
        (
            "s_nop", "s_sleep", "s_clause", "s_delay_alu", "s_wait_alu", "s_waitcnt", "s_wait_idle",
            "s_wait_loadcnt", "s_wait_storecnt", "s_wait_samplecnt", "s_wait_bvhcnt", "s_wait_expcnt",
            "s_wait_dscnt", "s_wait_kmcnt", "s_wait_loadcnt_dscnt", "s_wait_storecnt_dscnt", "s_setprio",
            "s_version", "s_icache_inv", "s_incperflevel", "s_decperflevel", "s_ttracedata", "s_ttracedata_imm",
            "s_wakeup", "s_wait_event", "s_waitcnt_depctr", "s_set_inst_prefetch_distance", "s_singleuse_vdst",
        ),
        nothing,
    ),
    "s_endpgm": _end,
    "s_branch": _branch,
    "s_setpc_b64": _set_pc,
    "s_swappc_b64": _swap_pc,
    "s_call_b64": _call,
    "s_getpc_b64": _get_pc,
    "s_barrier_signal": _signal,
    "s_barrier_signal_isfirst": _signal,
    "s_barrier_wait": _wait,
    "s_barrier": _whole_barrier,
    **{f"s_waitcnt_{name}": _wait_for_counter for name in ("vscnt", "vmcnt", "expcnt", "lgkmcnt")},
    "s_barrier_init": _named_barrier,
    "s_barrier_join": _named_barrier,
    "s_barrier_leave": _leave_barrier,
    "s_get_barrier_state": _barrier_state,
    "s_sendmsg": _message,
    "s_sendmsg_rtn_b32": _message_return,
    "s_sendmsg_rtn_b64": _message_return,
    "s_getreg_b32": _get_register,
    "s_setreg_b32": _set_register,
    "s_setreg_imm32_b32": _set_register,
    "s_round_mode": _set_mode,
    "s_denorm_mode": _set_mode,
    "s_sethalt": _set_halt,
    "s_setkill": _set_kill,
    "s_trap": _trap,
    "s_code_end": _code_end,
    "s_sendmsghalt": _message_halt,
    "s_sleep_var": _scalar_operand_only,
}  # fmt: skip
