"""SCRATCH: a lane's private memory. In line where all lanes use the same offset, as register spills do."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa import Instruction, Kind, Operand
from zinc_rt.sim.shader.checks.lane_marks import first_site
from zinc_rt.sim.shader.emit.emitter import I1, I8, I32, I64, POINTER, Emitter
from zinc_rt.sim.shader.memory import access, scratch_access
from zinc_rt.sim.shader.memory.loads_stores import LOADS, STORES, loader, offset, storer


def rule_sites(e: Emitter) -> ir.Value:
    """i32: the number of the first of scratch_access.RULES' sites."""
    return e.constant(first_site(e, scratch_access.RULES, "in scratch"))


def call_lanes(e: Emitter, helper: ir.Function, low: ir.Value, lanes: ir.Value) -> None:
    """An out-of-line access of `lanes` (i64) at <W x i32> offsets."""
    memory, data = access.buffers(e)
    e.b.store(e.b.zext(low, e.lanes(I64)), memory)
    e.b.call(helper, [e.state, e.context, rule_sites(e), lanes, memory, data])


def _offsets(e: Emitter, i: Instruction, vector: Operand, scalar: Operand) -> tuple[ir.Value, ir.Value]:
    """(i1: all active lanes use the same, i32 it; <W x i32> all of them)"""
    b = e.b
    base = e.constant(offset(i))
    if scalar.kind is not Kind.NAME:
        base = b.add(e.scalar(scalar), base)
    if vector.kind is Kind.NAME:
        return base, e.splat(base)
    low = b.add(e.read_vgpr(vector.index), e.splat(base))
    return e.first_lane(low, e.exec_bits()), low


def _uniform(e: Emitter, first: ir.Value, low: ir.Value, size_bytes: int) -> ir.Value:
    """i1: every active lane's offset is `first`, inside and aligned."""
    b = e.b
    same = e.bits(b.icmp_unsigned("==", low, e.splat(first)))
    others = b.not_(e.exec_bits())
    condition = b.icmp_unsigned("==", b.or_(same, others), e.constant(-1, same.type))
    end = b.add(b.zext(first, I64), e.constant(size_bytes, I64))
    inside = b.icmp_unsigned("<=", end, b.zext(e.state_field("scratch_bytes"), I64))
    aligned = b.icmp_unsigned("==", b.and_(first, e.constant(3)), e.constant(0))
    return b.and_(condition, b.and_(inside, aligned))


def _rows(e: Emitter, first: ir.Value, field: str, bytes_each: int) -> ir.Value:
    """Pointer to what `field` has of all lanes' dword at the offset."""
    row = e.b.lshr(e.b.zext(first, I64), e.constant(2, I64))
    return e.b.inttoptr(e.b.add(e.state_field(field), e.b.mul(row, e.constant(bytes_each * e.wave, I64))), POINTER)


def _load(e: Emitter, i: Instruction, size_bytes: int) -> list[ir.Value]:
    b = e.b
    first, low = _offsets(e, i, i.operands[1], i.operands[2])
    fast, slow, behind = e.block("fast"), e.block("slow"), e.block()
    words = size_bytes // 4
    found: list[list[ir.Value]] = []
    ends = []
    if words:
        condition = _uniform(e, first, low, size_bytes)
        if e.checks.fast:
            look = e.block("look")
            b.cbranch(condition, look, slow).set_weights([access.OFTEN, 1])
            b.position_at_end(look)
            of = ir.VectorType(I8, words * e.wave)
            have = e.load(_rows(e, first, "scratch_shadow", 1), of, 1)
            known = b.icmp_unsigned("==", have, e.constant(15, of))
            bits = ir.IntType(words * e.wave)
            others = b.not_(e.exec_mask()) if not e.exec_full else e.constant(0, e.lanes(I1))
            order = ir.Constant(
                ir.VectorType(I32, words * e.wave), [I32(n % e.wave) for n in range(words * e.wave)]
            )
            inactive = b.shuffle_vector(others, others, order)
            condition = b.icmp_unsigned("==", b.bitcast(b.or_(known, inactive), bits), bits(-1))
        b.cbranch(condition, fast, slow).set_weights([access.OFTEN, 1])
        b.position_at_end(fast)
        rows = _rows(e, first, "scratch_base", 4)
        found.append([e.load(e.offset(rows, 4 * e.wave * at), e.lanes(I32), 4) for at in range(words)])
        ends.append(b.block)
        b.branch(behind)
    else:
        b.branch(slow)
        b.position_at_end(fast)
        b.unreachable()
    b.position_at_end(slow)
    call_lanes(e, scratch_access.scratch_load(e, size_bytes), low, access.active(e))
    found.append(access.apart(e, access.buffers(e)[1], size_bytes))
    ends.append(b.block)
    b.branch(behind)
    b.position_at_end(behind)
    dwords = []
    for values in zip(*found, strict=True):
        phi = b.phi(e.lanes(I32))
        for value, block in zip(values, ends, strict=True):
            phi.add_incoming(value, block)
        dwords.append(phi)
    return dwords


def _store(e: Emitter, i: Instruction, dwords: list[ir.Value], size_bytes: int) -> None:
    b = e.b
    first, low = _offsets(e, i, i.operands[0], i.operands[2])
    slow, behind = e.block("slow"), e.block()
    if size_bytes >= 4:
        fast = e.block("fast")
        condition = _uniform(e, first, low, size_bytes)
        b.cbranch(condition, fast, slow).set_weights([access.OFTEN, 1])
        b.position_at_end(fast)
        rows, known = _rows(e, first, "scratch_base", 4), _rows(e, first, "scratch_shadow", 1)
        for at, dword in enumerate(dwords):
            _masked_store(e, e.offset(rows, 4 * e.wave * at), dword, 4)
            if e.checks.fast:
                _masked_store(e, e.offset(known, e.wave * at), e.constant(15, e.lanes(I8)), 1)
        b.branch(behind)
    else:
        b.branch(slow)
    b.position_at_end(slow)
    b.store(access.together(e, dwords, size_bytes), access.buffers(e)[1], align=1)
    call_lanes(e, scratch_access.scratch_store(e, size_bytes), low, access.active(e))
    b.branch(behind)
    b.position_at_end(behind)


def _masked_store(e: Emitter, place: ir.Value, value: ir.Value, align: int) -> None:
    if not e.exec_full:  # nobody else looks at it meanwhile
        value = e.b.select(e.exec_mask(), value, e.load(place, value.type, align))
    e.b.store(value, place, align=align)


EMIT: dict[str, Callable[[Emitter, Instruction], None]] = {
    **{f"scratch_load_{name}": loader(_load, *row) for name, row in LOADS.items()},
    **{f"scratch_store_{name}": storer(_store, *row) for name, row in STORES.items()},
}
