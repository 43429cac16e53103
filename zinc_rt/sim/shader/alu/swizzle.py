"""ds_swizzle, ds_permute, ds_bpermute: cross-lane moves through the LDS crossbar, without LDS memory."""

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa import Instruction
from zinc_rt.sim.shader.emit.builder import HelperBuilder
from zinc_rt.sim.shader.emit.emitter import EmitFunction, Emitter
from zinc_rt.sim.shader.emit.values import I1, I32, I64, POINTER, VOID, constant, vector_of
from zinc_rt.sim.shader.memory import access

MOVE = ir.FunctionType(VOID, [POINTER, POINTER, POINTER, I64])
"""(source, lane numbers, result, lanes): dwords; the lane numbers i32"""

_FFT, _ROTATE, _QUAD = 0xE000, 0xC000, 0x8000


def source_lanes(field: int, wave: int) -> list[int]:
    """Return the source lane of each lane under a ds_swizzle_b32 pattern; groups of 32 are independent."""
    result = []
    for lane in range(wave):
        i = lane & 31
        if field >= _FFT:
            mask = field & 31
            j = int(f"{i:05b}"[::-1], 2) >> mask.bit_count() | i & mask
        elif field >= _ROTATE:
            mask, distance = field & 31, field >> 5 & 31
            turned = i - distance if field >> 10 & 1 else i + distance
            j = (i & mask) | (turned & ~mask & 31)
        elif field & _QUAD:
            j = (i & ~3) | (field >> 2 * (i & 3) & 3)
        else:
            j = ((i & field & 31) | (field >> 5 & 31)) ^ (field >> 10 & 31)
        result.append(j | lane & 32)
    return result


def _swizzle(e: Emitter, i: Instruction) -> None:
    """Emit a swizzle; inactive source lanes give 0."""
    destination, data = i.operands
    value = e.regs.read_vgpr(data.index)
    zero = constant(0, value.type)
    if not e.exec.full:
        value = e.b.select(e.exec.mask(), value, zero)
    found = i.modifier("offset")
    pattern = found.value if found is not None and isinstance(found.value, int) else 0
    order = vector_of(lane for lane in source_lanes(pattern, e.wave))
    if e.checks.full and not e.exec.full:
        there = e.b.shuffle_vector(e.exec.mask(), constant(0, e.b.lanes(I1)), order)
        _report_inactive(e, there)
    e.regs.write_vgpr(destination.index, e.b.shuffle_vector(value, zero, order))


def _numbers(e: Emitter, i: Instruction) -> ir.Value:
    """Return the source lane of each lane's byte index as <W x i32>."""
    index = e.regs.read_vgpr(i.operands[1].index)
    index = e.b.add(index, e.b.splat(e.offset()))
    return e.b.and_(e.b.lshr(index, 2), e.wave - 1)


def _report_inactive(e: Emitter, there: ir.Value) -> None:
    """Report reads of inactive lanes. `there` (<W x i1>) is set for lanes whose source lane is active."""
    off = e.b.and_(e.exec.mask(), e.b.not_(there))
    e.reports.report("inactive-lane", off, text="reads a lane disabled by EXEC, which gives 0")


def _move_lanes(e: Emitter, helper: ir.Function, value: ir.Value, numbers: ir.Value) -> ir.Value:
    indices, source = access.buffers(e)
    result = e.b.offset(source, 4 * e.wave)
    e.b.store(numbers, indices)
    e.b.store(value, source)
    e.b.store(constant(0, e.b.lanes(I32)), result, align=4)
    e.b.call(helper, [source, indices, result, e.exec.wide()])
    return e.b.load(result, typ=e.b.lanes(I32), align=4)


def _backward(e: Emitter, i: Instruction) -> None:
    value = e.regs.read_vgpr(i.operands[2].index)
    if not e.exec.full:
        value = e.b.select(e.exec.mask(), value, 0)
        if e.checks.full:
            of = e.b.lanes(I64)
            wide = e.b.splat(e.exec.wide())
            bit = e.b.lshr(wide, e.b.zext(_numbers(e, i), of))
            _report_inactive(e, e.b.trunc(bit, e.b.lanes(I1)))
    _set(e, i, e.b.helper("zrt.bpermute", MOVE, _build_gather), value)


def _backward_all(e: Emitter, i: Instruction) -> None:
    """Emit a backward permute that reads inactive lanes too."""
    _set(e, i, e.b.helper("zrt.bpermute", MOVE, _build_gather), e.regs.read_vgpr(i.operands[2].index))


def _forward(e: Emitter, i: Instruction) -> None:
    """Emit a forward permute. If several lanes have the same destination, the highest one wins; lanes without a
    source get 0.
    """
    _set(e, i, e.b.helper("zrt.permute", MOVE, _build_scatter), e.regs.read_vgpr(i.operands[2].index))


def _set(e: Emitter, i: Instruction, helper: ir.Function, value: ir.Value) -> None:
    e.regs.write_vgpr(i.operands[0].index, _move_lanes(e, helper, value, _numbers(e, i)))


def _build_gather(function: ir.Function) -> None:
    b = HelperBuilder(function)
    source, numbers, result, lanes = function.args

    def lane(lane: ir.Value) -> None:
        number = b.zext(b.load(b.element(numbers, lane, I32), typ=I32), I64)
        b.store(b.load(b.element(source, number, I32), typ=I32), b.element(result, lane, I32))

    b.each_lane(lanes, lane)
    b.ret_void()
    b.done()


def _build_scatter(function: ir.Function) -> None:
    b = HelperBuilder(function)
    source, numbers, result, lanes = function.args

    def lane(lane: ir.Value) -> None:
        number = b.zext(b.load(b.element(numbers, lane, I32), typ=I32), I64)
        b.store(b.load(b.element(source, lane, I32), typ=I32), b.element(result, number, I32))

    b.each_lane(lanes, lane)
    b.ret_void()
    b.done()


EMIT: dict[str, EmitFunction] = {
    "ds_swizzle_b32": _swizzle,
    "ds_permute_b32": _forward,
    "ds_bpermute_b32": _backward,
    "ds_bpermute_fi_b32": _backward_all,
}
