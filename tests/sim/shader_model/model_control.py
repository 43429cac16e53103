"""Branches, calls, barriers, messages, waits: SOPP and what SOP1 and SOPK have of it.

A step answers None to go on, or the byte offset to go on at, or one of the signals below.
"""

from __future__ import annotations

from collections.abc import Callable

from sim.shader_model.model_scalar import to_signed
from sim.shader_model.model_state import VCC, ModelWave, scalar_reader, scalar_writer

from zinc_rt.isa import Instruction

Step = Callable[[ModelWave], int | None]
END, BARRIER = -1, -2
_NOTHING = frozenset((
    "s_nop", "s_sleep", "s_sleep_var", "s_clause", "s_delay_alu", "s_wait_alu", "s_wait_idle", "s_wait_event",
    "s_setprio", "s_sendmsg", "s_icache_inv", "s_version", "s_wait_loadcnt", "s_wait_storecnt", "s_wait_dscnt",
    "s_wait_kmcnt", "s_wait_expcnt", "s_wait_samplecnt", "s_wait_bvhcnt", "s_wait_loadcnt_dscnt",
    "s_wait_storecnt_dscnt", "s_ttracedata", "s_ttracedata_imm", "s_incperflevel", "s_decperflevel", "s_wakeup",
    "s_code_end", "s_waitcnt",
))  # fmt: skip
_CONDITIONS: dict[str, Callable[[ModelWave], bool]] = {
    "s_branch": lambda wave: True,
    "s_cbranch_scc0": lambda wave: not wave.scc,
    "s_cbranch_scc1": lambda wave: bool(wave.scc),
    "s_cbranch_vccz": lambda wave: wave.mask(VCC) == 0,
    "s_cbranch_vccnz": lambda wave: wave.mask(VCC) != 0,
    "s_cbranch_execz": lambda wave: wave.exec_bits() == 0,
    "s_cbranch_execnz": lambda wave: wave.exec_bits() != 0,
}


def bind_control(instruction: Instruction, pc: int, code_va: int) -> Step | None:
    name = instruction.mnemonic
    following = pc + instruction.size_bytes
    if name in _NOTHING:
        return lambda wave: None
    if name in _CONDITIONS:
        target = following + 4 * to_signed(int(instruction.operands[0].value or 0), 16)
        condition = _CONDITIONS[name]
        return lambda wave: target if condition(wave) else None
    if name in ("s_endpgm", "s_endpgm_saved", "s_sendmsghalt"):
        return lambda wave: END
    if name in ("s_sethalt", "s_trap"):
        return None if int(instruction.operands[0].value or 0) else lambda wave: None
    if name in ("s_getpc_b64", "s_setpc_b64", "s_swappc_b64", "s_call_b64"):
        return bind_jump(instruction, following, code_va)
    if name.startswith("s_barrier_signal"):
        first = "isfirst" in name
        return lambda wave: signal_barrier(wave, first)
    if name == "s_barrier_wait":
        return lambda wave: BARRIER
    if name in ("s_sendmsg_rtn_b32", "s_sendmsg_rtn_b64"):
        write = scalar_writer(instruction.operands[0])
        return lambda wave: write(wave, 0)
    return None


def bind_jump(instruction: Instruction, following: int, code_va: int) -> Step:
    name, operands = instruction.mnemonic, instruction.operands
    if name == "s_getpc_b64":
        write = scalar_writer(operands[0])
        return lambda wave: write(wave, code_va + following)
    if name == "s_setpc_b64":
        read = scalar_reader(operands[0])
        return lambda wave: read(wave) - code_va
    write = scalar_writer(operands[0])
    if name == "s_call_b64":
        target = following + 4 * to_signed(int(operands[1].value or 0), 16)

        def call_target(wave: ModelWave) -> int:
            write(wave, code_va + following)
            return target

        return call_target
    read = scalar_reader(operands[1])

    def swap_pc(wave: ModelWave) -> int:
        to = read(wave) - code_va
        write(wave, code_va + following)
        return to

    return swap_pc


def signal_barrier(wave: ModelWave, first: bool) -> None:
    group = wave.group
    if first:
        wave.scc = int(group.arrived == 0)
    wave.signalled = group.phase
    group.arrived += 1
    group.check()
