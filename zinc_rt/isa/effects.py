"""What an instruction reads and writes, as sets of registers.

A set is an int, a bit a register: scalar codes as they are encoded (s0 to s105, VCC 106 and 107, TTMPs from 108,
M0 125, EXEC 126 and 127), SCC 128, vector registers from 256. Partial writes (under EXEC, v_writelane, half, DPP)
count as writes and not as reads. Registers reached by an index at run time (v_movrel, s_movrel) are not in the
sets. gfx12's instructions only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.operand import Kind, Operand
from zinc_rt.isa.rows import rows
from zinc_rt.isa.target import Target

VCC, TTMP, NULL, M0, EXEC, SCC, VGPR = 106, 108, 124, 125, 126, 128, 256
SGPRS = (1 << 106) - 1
VGPRS = (1 << 256) - 1 << VGPR
_SOURCE_SCC, _SOURCE_VCCZ, _SOURCE_EXECZ = 253, 251, 252


@dataclass(frozen=True, slots=True)
class Effects:
    """`unit`: salu, valu, smem, vmem (flat_, global_, scratch_, buffer_ and image instructions), ds, other."""

    reads: int
    writes: int
    unit: str


def bit(register: int) -> int:
    return 1 << register


def span(register: int, width: int) -> int:
    return (1 << width) - 1 << register


def registers(operand: Operand) -> int:
    """The set of registers an operand names."""
    kind = operand.kind
    if kind is Kind.VGPR:
        return span(VGPR + operand.index, operand.width)
    if kind is Kind.SGPR:
        return span(operand.index, operand.width)
    if kind is Kind.TTMP:
        return span(TTMP + operand.index, operand.width)
    if kind is Kind.SPECIAL:
        return _special(operand)
    if kind is Kind.VGPRS:
        return union(registers(part) for part in operand.parts)
    return 0


def _special(operand: Operand) -> int:
    code = operand.index
    if code in (VCC, EXEC):
        return span(code, operand.width)
    if code in (VCC + 1, M0, EXEC + 1):
        return bit(code)
    return {_SOURCE_SCC: bit(SCC), _SOURCE_VCCZ: span(VCC, 2), _SOURCE_EXECZ: span(EXEC, 2)}.get(code, 0)


def union(sets: Iterable[int]) -> int:
    whole = 0
    for one in sets:
        whole |= one
    return whole


def name(register: int) -> str:
    """`s5`, `vcc_lo`, `v17`, `scc`."""
    if register >= VGPR:
        return f"v{register - VGPR}"
    if register < VCC:
        return f"s{register}"
    special = {
        VCC: "vcc_lo", VCC + 1: "vcc_hi", NULL: "null", M0: "m0", EXEC: "exec_lo", EXEC + 1: "exec_hi", SCC: "scc",
    }  # fmt: skip
    return special.get(register, f"ttmp{register - TTMP}")


def names(registers: int) -> str:
    """`s[2:3], v7`: a set in the order of its registers, runs of SGPRs and VGPRs together."""
    found: list[str] = []
    at = 0
    while registers >> at:
        if not registers >> at & 1:
            at += 1
            continue
        end = at
        while registers >> end + 1 & 1 and (at >= VGPR or end + 1 < VCC):
            end += 1
        if end > at:
            found.append(f"{name(at)[0]}[{name(at)[1:]}:{name(end)[1:]}]")
        else:
            found.append(name(at))
        at = end + 1
    return ", ".join(found)


def effects(instruction: Instruction, target: Target) -> Effects:
    """Its registers. Of an encoding that compute kernels have no use for all operands are reads."""
    family = instruction.encoding.partition("_DPP")[0]
    found = _FAMILIES.get(family)
    if found is None:
        return Effects(_all(instruction.operands), 0, "other")
    return found(instruction, target)


def _all(operands: Iterable[Operand]) -> int:
    return union(map(registers, operands))


def _split(instruction: Instruction, destinations: int) -> tuple[int, int]:
    """(reads, writes), the first operands being what is written."""
    operands = instruction.operands
    return _all(operands[destinations:]), _all(operands[:destinations])


# --- scalar

_WRITE_SCC = frozenset((  # mnemonics without their types; of the integer ones only
    "s_abs", "s_bcnt0", "s_bcnt1", "s_quadmask", "s_wqm", "s_not", "s_barrier_signal_isfirst", "s_alloc_vgpr",
    "s_add_co", "s_sub_co", "s_add_co_ci", "s_sub_co_ci", "s_addk_co", "s_absdiff", "s_lshl", "s_lshr", "s_ashr",
    "s_lshl1_add", "s_lshl2_add", "s_lshl3_add", "s_lshl4_add", "s_min", "s_max", "s_and", "s_or", "s_xor",
    "s_nand", "s_nor", "s_xnor", "s_and_not1", "s_or_not1", "s_bfe",
))  # fmt: skip
_NO_DESTINATION = frozenset((
    "s_setpc_b64", "s_rfe_b64", "s_barrier_signal", "s_barrier_signal_isfirst", "s_barrier_init", "s_barrier_join",
    "s_alloc_vgpr", "s_sleep_var", "s_setreg_b32", "s_setreg_imm32_b32", "s_version",
))  # fmt: skip
_READ_SCC = (
    "s_cmov_", "s_cmovk", "s_cselect", "s_add_co_ci", "s_sub_co_ci",
)  # fmt: skip
_READ_DESTINATION = ("s_cmov_", "s_cmovk", "s_bitset", "s_fmac", "s_addk", "s_mulk")


def _stem(mnemonic: str) -> str:
    """The mnemonic without its types: s_and_b32 -> s_and, s_cvt_f32_i32 -> s_cvt."""
    parts = mnemonic.split("_")
    while len(parts) > 2 and parts[-1][0] in "biuf" and parts[-1][1:].isdigit():
        parts.pop()
    return "_".join(parts)


def _scalar(instruction: Instruction, target: Target) -> Effects:
    mnemonic = instruction.mnemonic
    reads, writes = _split(instruction, 0 if mnemonic in _NO_DESTINATION else 1)
    if mnemonic.startswith(_READ_SCC):
        reads |= bit(SCC)
    if mnemonic.startswith(_READ_DESTINATION):
        reads |= writes
    if mnemonic.startswith("s_movrel"):
        reads |= bit(M0)
    if "saveexec" in mnemonic or "wrexec" in mnemonic:
        reads |= span(EXEC, target.mask_width)
        writes |= span(EXEC, target.mask_width)
        writes |= bit(SCC)
    if _stem(mnemonic) in _WRITE_SCC and "_f" not in mnemonic:
        writes |= bit(SCC)
    return Effects(reads, writes, "salu")


def _compare(instruction: Instruction, target: Target) -> Effects:
    return Effects(_all(instruction.operands), bit(SCC), "salu")


_MESSAGES_WITH_M0 = (1, 9)  # INTERRUPT, GS_ALLOC_REQ


def _control(instruction: Instruction, target: Target) -> Effects:
    mnemonic = instruction.mnemonic
    reads = writes = 0
    if mnemonic.startswith("s_cbranch_scc"):
        reads = bit(SCC)
    elif mnemonic.startswith("s_cbranch_vcc"):
        reads = span(VCC, target.mask_width)
    elif mnemonic.startswith("s_cbranch_exec"):
        reads = span(EXEC, target.mask_width)
    elif mnemonic.startswith("s_sendmsg") and instruction.words[0] & 0xFF in _MESSAGES_WITH_M0:
        reads = bit(M0)
    elif mnemonic == "s_barrier_leave":
        writes = bit(SCC)
    return Effects(reads, writes, "salu")


def _scalar_memory(instruction: Instruction, target: Target) -> Effects:
    loads = instruction.mnemonic.startswith(("s_load", "s_buffer_load"))
    return Effects(*_split(instruction, 1 if loads else 0), "smem")


# --- vector

_ACCUMULATE = ("v_fmac", "v_dual_fmac", "v_pk_fmac", "v_dot2c", "v_dual_dot2acc", "v_swap")


def base(mnemonic: str) -> str:
    """Without the encoding's suffix: v_add_f32_e64_dpp -> v_add_f32."""
    for suffix in ("_dpp", "_e32", "_e64"):
        mnemonic = mnemonic.removesuffix(suffix)
    return mnemonic


def _vector(instruction: Instruction, target: Target) -> Effects:
    if instruction.second is not None:
        first, second = _vector_half(instruction), _vector_half(instruction.second)
        reads, writes = first[0] | second[0], first[1] | second[1]
    else:
        reads, writes = _vector_half(instruction)
    return Effects(reads | span(EXEC, target.mask_width), writes, "valu")


def _vector_half(instruction: Instruction) -> tuple[int, int]:
    mnemonic = instruction.mnemonic
    carries = "_co_" in mnemonic or mnemonic.startswith(("v_div_scale", "v_mad_u64_u32", "v_mad_i64_i32"))
    reads, writes = _split(instruction, 2 if carries else 1)
    if mnemonic.startswith(_ACCUMULATE):
        reads |= writes
    if mnemonic.startswith("v_swap"):
        writes |= reads
    if mnemonic.startswith(("v_div_fmas", "v_dual_cndmask")):
        reads |= bit(VCC)
    if mnemonic.startswith(("v_movrel", "v_swaprel")):
        reads |= bit(M0)
    return reads, writes


def _vector_compare(instruction: Instruction, target: Target) -> Effects:
    exec_mask = span(EXEC, target.mask_width)
    if "cmpx" in instruction.mnemonic:
        return Effects(_all(instruction.operands) | exec_mask, exec_mask, "valu")
    reads, writes = _split(instruction, 1)
    return Effects(reads | exec_mask, writes, "valu")


def _vector_long(instruction: Instruction, target: Target) -> Effects:
    compares = instruction.mnemonic.startswith("v_cmp")
    return (_vector_compare if compares else _vector)(instruction, target)


# --- memory

_RETURNS = 1  # of the temporal hint of gfx12's atomics


def _flat(instruction: Instruction, target: Target) -> Effects:
    row = rows("memory", instruction.encoding, target.generation)[instruction.opcode]
    loads = any(operand[0] == "d" for operand in row.operands)
    if loads and row.flags[0] == "atomic" and not instruction.words[1] >> 20 & _RETURNS:
        loads = False
    reads, writes = _split(instruction, 1 if loads else 0)
    return Effects(reads | span(EXEC, target.mask_width), writes, "vmem")


def _buffer(instruction: Instruction, target: Target) -> Effects:
    kind = rows("memory", "VBUFFER", target.generation)[instruction.opcode].flags[0]
    return _data_first(instruction, kind, bool(instruction.words[1] >> 20 & _RETURNS), target)


def _image(instruction: Instruction, target: Target) -> Effects:
    flags = rows("image", instruction.encoding, target.generation)[instruction.opcode].flags
    kind = next((flag for flag in flags if flag in ("load", "store", "atomic")), "load")
    return _data_first(instruction, kind, bool(instruction.words[1] >> 20 & _RETURNS), target)


def _data_first(instruction: Instruction, kind: str, returns: bool, target: Target) -> Effects:
    """The data operand is the result of a load, a source of a store, both of an atomic that returns."""
    reads, data = _split(instruction, 1)
    writes = 0
    if kind == "load" or (kind == "atomic" and returns):
        writes = data
    if kind != "load":
        reads |= data
    return Effects(reads | span(EXEC, target.mask_width), writes, "vmem")


def _lds(instruction: Instruction, target: Target) -> Effects:
    row = rows("memory", "DS", target.generation)[instruction.opcode]
    returns = bool(row.operands) and row.operands[0][0] == "d"
    reads, writes = _split(instruction, 1 if returns else 0)
    if instruction.mnemonic.startswith("ds_bvh_stack"):  # the stack address comes back too
        writes |= registers(instruction.operands[1])
    if "addtid" in instruction.mnemonic:
        reads |= bit(M0)
    return Effects(reads | span(EXEC, target.mask_width), writes, "ds")


_FAMILIES: dict[str, Callable[[Instruction, Target], Effects]] = {
    "SOP1": _scalar,
    "SOP2": _scalar,
    "SOPK": _scalar,
    "SOPC": _compare,
    "SOPP": _control,
    "SMEM": _scalar_memory,
    "VOP1": _vector,
    "VOP2": _vector,
    "VOPC": _vector_compare,
    "VOP3": _vector_long,
    "VOP3P": _vector,
    "VOPD": _vector,
    "FLAT": _flat,
    "GLOBAL": _flat,
    "SCRATCH": _flat,
    "VBUFFER": _buffer,
    "VIMAGE": _image,
    "VSAMPLE": _image,
    "DS": _lds,
}
