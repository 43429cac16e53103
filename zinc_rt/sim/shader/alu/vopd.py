"""VOPD: two operations in one instruction (RDNA4 ISA 7.8). Both read their sources before either writes."""

from __future__ import annotations

from zinc_rt.isa import Instruction, Kind, Operand
from zinc_rt.sim.shader.alu import packed, vector_float, vector_integer
from zinc_rt.sim.shader.alu.vector import op
from zinc_rt.sim.shader.checks.carried import add_propagation
from zinc_rt.sim.shader.emit.emitter import EmitFunction, Emitter
from zinc_rt.sim.shader.layout import VCC_LO

_VCC = Operand(Kind.SPECIAL, "vcc_lo", VCC_LO, 1)


def _cndmask(e: Emitter, instruction: Instruction) -> None:
    a, b = (e.vector(operand) for operand in instruction.operands[1:])
    e.set_vector(instruction.operands[0], e.b.select(e.mask(_VCC), b, a))


_HALVES: dict[str, EmitFunction] = {
    **{
        f"v_dual_{name}": vector_float.OPS[f"v_{name}"]
        for name in (
            "fmac_f32", "fmaak_f32", "fmamk_f32", "mul_f32", "add_f32", "sub_f32", "subrev_f32",
            "mul_dx9_zero_f32", "max_num_f32", "min_num_f32", "max_f32", "min_f32",
        )
    },
    **{
        f"v_dual_{name}": vector_integer.OPS[f"v_{name}"]
        for name in ("add_nc_u32", "lshlrev_b32", "and_b32")
    },
    "v_dual_mov_b32": op("i=i", lambda e, value: value),
    "v_dual_cndmask_b32": _cndmask,
    "v_dual_dot2acc_f32_f16": packed.emit_dot2acc("f16"),
    "v_dual_dot2acc_f32_bf16": packed.emit_dot2acc("bf16"),
}  # fmt: skip
_HALVES = {name: add_propagation(name.replace("v_dual_", "v_"), emit) for name, emit in _HALVES.items()}


def _emit(e: Emitter, instruction: Instruction) -> None:
    with e.regs.deferred():
        _HALVES[instruction.mnemonic](e, instruction)
        if instruction.second is not None:
            _HALVES[instruction.second.mnemonic](e, instruction.second)


EMIT: dict[str, EmitFunction] = dict.fromkeys(_HALVES, _emit)
