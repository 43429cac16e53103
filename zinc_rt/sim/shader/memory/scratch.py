"""SCRATCH: private memory of a lane. Accesses are in line if all lanes use the same offset, as in register
spills.

Functions save registers that their caller may not have written, so whole undefined dwords may be stored in line; a
reload restores the undefined bits. In kernels with such stores, and where clang without optimisation reloads a
register of a whole wave before it writes the first lane, dwords that were never stored load as undefined. A shadow
byte has in bits 3:0 the stored bytes of the dword, in bits 7:4 those of them with undefined bits.
"""

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa import Instruction, Kind, Operand
from zinc_rt.sim.shader.checks.lane_marks import find_first_site
from zinc_rt.sim.shader.emit.emitter import EmitFunction, Emitter
from zinc_rt.sim.shader.emit.values import I1, I8, I32, I64, POINTER, constant
from zinc_rt.sim.shader.memory import access, scratch_access
from zinc_rt.sim.shader.memory.loads_stores import LOADS, STORES, loader, storer


def rule_sites(e: Emitter) -> ir.Value:
    """Return the i32 number of the first site of scratch_access.RULES."""
    return e.frame.numbered("site", find_first_site(e, scratch_access.RULES, "in scratch"))


def call_lanes(e: Emitter, helper: ir.Function, low: ir.Value, lanes: ir.Value) -> None:
    """Call an out-of-line access of `lanes` (i64) at <W x i32> offsets."""
    memory, data = access.buffers(e)
    e.b.store(e.b.zext(low, e.b.lanes(I64)), memory)
    e.b.call(helper, [e.frame.state, e.frame.context, rule_sites(e), lanes, memory, data])


def _offsets(e: Emitter, i: Instruction, vector: Operand, scalar: Operand) -> tuple[ir.Value, ir.Value]:
    """Return (i1: all active lanes use the same offset, that offset as i32, all offsets as <W x i32>)."""
    b = e.b
    base = e.offset()
    if scalar.kind is not Kind.NAME:
        base = b.add(e.scalar(scalar), base)
    if vector.kind is Kind.NAME:
        return base, b.splat(base)
    low = b.add(e.regs.read_vgpr(vector.index), b.splat(base))
    return b.first_lane(low, e.exec.bits()), low


def _uniform(e: Emitter, first: ir.Value, low: ir.Value, size_bytes: int) -> ir.Value:
    """Return i1: every active lane's offset is `first`, in bounds and aligned."""
    b = e.b
    same = b.bits(b.equal(low, b.splat(first)))
    others = b.not_(e.exec.bits())
    condition = b.equal(b.or_(same, others), -1)
    end = b.add(b.zext(first, I64), size_bytes)
    inside = b.at_most(end, b.zext(e.frame.state_field("scratch_bytes"), I64))
    aligned = b.equal(b.and_(first, 3), 0)
    return b.and_(condition, b.and_(inside, aligned))


def _rows(e: Emitter, first: ir.Value, field: str, bytes_each: int) -> ir.Value:
    """Return a pointer to the data in `field` of all lanes' dword at the offset."""
    row = e.b.lshr(e.b.zext(first, I64), 2)
    return e.b.inttoptr(e.b.add(e.frame.state_field(field), e.b.mul(row, bytes_each * e.wave)), POINTER)


def _load(e: Emitter, i: Instruction, size_bytes: int) -> list[ir.Value]:
    b = e.b
    first, low = _offsets(e, i, i.operands[1], i.operands[2])
    e.slots.touched.restores = size_bytes >= 4
    saved = False
    fast, slow, behind = b.append_basic_block("fast"), b.append_basic_block("slow"), b.append_basic_block()
    words = size_bytes // 4
    result: list[list[ir.Value]] = []
    ends = []
    if words:
        condition = _uniform(e, first, low, size_bytes)
        if e.checks.fast:
            look = b.append_basic_block("look")
            b.cbranch(condition, look, slow).set_weights([access.OFTEN, 1])
            b.position_at_end(look)
            of = ir.VectorType(I8, words * e.wave)
            have = b.load(_rows(e, first, "scratch_shadow", 1), typ=of, align=1)
            saved = e.slots.unproven.saved
            if saved:
                condition = I1(1)
            else:
                bits = ir.IntType(words * e.wave)
                others = b.not_(e.exec.mask()) if not e.exec.full else constant(0, b.lanes(I1))
                inactive = b.shuffled(others, (n % e.wave for n in range(words * e.wave)), others)
                condition = b.equal(b.bitcast(b.or_(b.equal(have, 15), inactive), bits), bits(-1))
        b.cbranch(condition, fast, slow).set_weights([access.OFTEN, 1])
        b.position_at_end(fast)
        rows = _rows(e, first, "scratch_base", 4)
        values = [b.load(b.offset(rows, 4 * e.wave * index), typ=b.lanes(I32), align=4) for index in range(words)]
        if saved:
            values += [_undefined(e, have, index) for index in range(words)]
        result.append(values)
        ends.append(b.block)
        b.branch(behind)
    else:
        b.branch(slow)
        b.position_at_end(fast)
        b.unreachable()
    b.position_at_end(slow)
    call_lanes(e, scratch_access.scratch_load(e, size_bytes), low, e.exec.wide())
    values = list(access.split_dwords(e, access.buffers(e)[1], size_bytes))
    result.append(values + [constant(0, b.lanes(I32))] * (words if saved else 0))
    ends.append(b.block)
    b.branch(behind)
    b.position_at_end(behind)
    dwords = []
    for parts in zip(*result, strict=True):
        phi = b.phi(b.lanes(I32))
        for value, block in zip(parts, ends, strict=True):
            phi.add_incoming(value, block)
        dwords.append(phi)
    if saved:
        e.regs.undefined.give(dwords[words:])
        return dwords[:words]
    return dwords


def _undefined(e: Emitter, have: ir.Value, index: int) -> ir.Value:
    """Return the bytes of dword `index` that were stored undefined or not at all, from the shadow bytes, as
    <W x i32>.
    """
    b = e.b
    mine = b.zext(b.shuffled(have, range(index * e.wave, (index + 1) * e.wave)), b.lanes(I32))
    bits = constant(0, b.lanes(I32))
    for byte in range(4):
        is_defined = b.equal(b.and_(mine, 17 << byte), 1 << byte)
        bits = b.or_(bits, b.select(is_defined, 0, constant(0xFF << 8 * byte, bits.type)))
    return bits


def _shadow(e: Emitter, register: int) -> ir.Value:
    """Return the shadow bytes of a dword stored from the register, as <W x i8>."""
    b, undefined = e.b, e.regs.undefined
    known = constant(15, b.lanes(I8))
    if not undefined.unproven(register):
        return known
    bits = undefined.of(register)
    for byte in range(4):
        flagged = b.unequal(b.and_(bits, 0xFF << 8 * byte), 0)
        known = b.or_(known, b.select(flagged, constant(16 << byte, known.type), 0))
    return known


def _storing(emit: EmitFunction, size_bytes: int) -> EmitFunction:
    """Wrap a store so that undefined data of whole dwords are stored without a finding."""
    if size_bytes < 4:
        return emit

    def store(e: Emitter, i: Instruction) -> None:
        data, address = i.operands[1], i.operands[0]
        used = {address.index} if address.kind is Kind.VGPR else set()
        known = frozenset(range(data.index, data.index + size_bytes // 4)) - used
        with e.regs.undefined.carrying(known, {}):
            e.slots.touched.saves = True
            emit(e, i)

    return store


def _store(e: Emitter, i: Instruction, dwords: list[ir.Value], size_bytes: int) -> None:
    b = e.b
    first, low = _offsets(e, i, i.operands[0], i.operands[2])
    slow, behind = b.append_basic_block("slow"), b.append_basic_block()
    if size_bytes >= 4:
        fast = b.append_basic_block("fast")
        condition = _uniform(e, first, low, size_bytes)
        b.cbranch(condition, fast, slow).set_weights([access.OFTEN, 1])
        b.position_at_end(fast)
        rows, known = _rows(e, first, "scratch_base", 4), _rows(e, first, "scratch_shadow", 1)
        for index, dword in enumerate(dwords):
            _masked_store(e, b.offset(rows, 4 * e.wave * index), dword, 4)
            if e.checks.fast:
                _masked_store(e, b.offset(known, e.wave * index), _shadow(e, i.operands[1].index + index), 1)
        b.branch(behind)
    else:
        b.branch(slow)
    b.position_at_end(slow)
    for register in sorted(e.regs.undefined.carried):
        e.regs.check_vgpr(register)
    b.store(access.join_dwords(e, dwords, size_bytes), access.buffers(e)[1], align=1)
    call_lanes(e, scratch_access.scratch_store(e, size_bytes), low, e.exec.wide())
    b.branch(behind)
    b.position_at_end(behind)


def _masked_store(e: Emitter, place: ir.Value, value: ir.Value, align: int) -> None:
    if not e.exec.full:  # no other thread reads it meanwhile
        value = e.b.select(e.exec.mask(), value, e.b.load(place, typ=value.type, align=align))
    e.b.store(value, place, align=align)


EMIT: dict[str, EmitFunction] = {
    **{f"scratch_load_{name}": loader(_load, *row) for name, row in LOADS.items()},
    **{f"scratch_store_{name}": _storing(storer(_store, *row), row[0]) for name, row in STORES.items()},
}
