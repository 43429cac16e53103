"""Scalar instructions that save EXEC and those that index registers through M0. Source: RDNA4 ISA guide, 16.3."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa import Instruction, Operand
from zinc_rt.sim.shader.alu.scalar import BITWISE, Binary
from zinc_rt.sim.shader.emit.emitter import EmitFunction, Emitter
from zinc_rt.sim.shader.emit.values import I32, I64
from zinc_rt.sim.shader.layout import EXEC_LO, M0, TTMP0

EMIT: dict[str, EmitFunction] = {}

MOVREL_SGPRS = 106  # s_movrel reaches s0 to s105

_EXEC_RESULTS: dict[str, Binary] = BITWISE | {
    "and_not0": lambda e, a, execution: e.b.and_(e.b.not_(a), execution),
    "or_not0": lambda e, a, execution: e.b.or_(e.b.not_(a), execution),
}


def _save_exec(function: Binary, bits: int, *, saves_result: bool = False) -> EmitFunction:
    """Return the emitter of an EXEC-saving operation. In wave64 the 32-bit forms access EXEC_LO only."""

    def emit(e: Emitter, i: Instruction) -> None:
        source = e.scalar(i.operands[1], bits)
        parts = [e.regs.read_sgpr(EXEC_LO + index) for index in range(bits // 32)]
        before = e.b.join(parts)
        result = function(e, source, before)
        e.set_scalar(i.operands[0], result if saves_result else before)
        for index, part in enumerate(e.b.split(result)):
            e.regs.write_sgpr(EXEC_LO + index, part)
        e.regs.scc = e.b.unequal(result, 0)

    return emit


for _width in (32, 64):
    for _name, _function in _EXEC_RESULTS.items():
        EMIT[f"s_{_name}_saveexec_b{_width}"] = _save_exec(_function, _width)
    for _name in ("and_not0", "and_not1"):
        EMIT[f"s_{_name}_wrexec_b{_width}"] = _save_exec(_EXEC_RESULTS[_name], _width, saves_result=True)


# --- registers by index: all of them go through memory, which is slow but rare


def _file(e: Emitter) -> ir.Value:
    """Store the SGPRs in memory and return a pointer to MOVREL_SGPRS dwords."""
    memory = e.b.local(ir.ArrayType(I32, MOVREL_SGPRS), name="indexed")
    for index in range(MOVREL_SGPRS):
        e.b.store(e.regs.read_sgpr(index, check=False), e.b.offset(memory, 4 * index))
    return memory


def _element(e: Emitter, memory: ir.Value, base: Operand, offset: ir.Value, dwords: int) -> ir.Value:
    """Return a pointer to register `base` + `offset`; an out-of-range index ends the wave."""
    index = e.b.add(offset, base.index + (TTMP0 if base.text.startswith("ttmp") else 0))
    with e.b.cold(e.b.icmp_unsigned(">", index, MOVREL_SGPRS - dwords)):
        e.reports.illegal("moves to or from an SGPR beyond s105")
    return e.b.offset(memory, e.b.zext(e.b.shl(index, 2), I64))


def _move_relative(bits: int, *, source: Callable | None, destination: Callable | None) -> EmitFunction:
    """Return the emitter of an indexed move. `source` and `destination` map M0 to the index of that side, or
    None if it is not indexed.
    """

    def emit(e: Emitter, i: Instruction) -> None:
        to, what = i.operands
        offsets = e.regs.read_sgpr(M0)
        of = ir.IntType(bits)
        memory = _file(e)
        if source is None:
            value = e.scalar(what, bits)
        else:
            value = e.b.load(_element(e, memory, what, source(e, offsets), bits // 32), typ=of, align=4)
        if destination is None:
            e.set_scalar(to, value)
            return
        e.b.store(value, _element(e, memory, to, destination(e, offsets), bits // 32), align=4)
        for index in range(MOVREL_SGPRS):
            e.regs.write_sgpr(index, e.b.load(e.b.offset(memory, 4 * index), typ=I32))

    return emit


def _all(e: Emitter, value: ir.Value) -> ir.Value:
    return value


for _width in (32, 64):
    EMIT[f"s_movrels_b{_width}"] = _move_relative(_width, source=_all, destination=None)
    EMIT[f"s_movreld_b{_width}"] = _move_relative(_width, source=None, destination=_all)
EMIT["s_movrelsd_2_b32"] = _move_relative(
    32,
    source=lambda e, m0: e.b.and_(m0, 0x3FF),
    destination=lambda e, m0: e.b.and_(e.b.lshr(m0, 16), 0x3FF),
)
