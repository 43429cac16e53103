"""DS: loads, stores and atomics of a workgroup's LDS."""

from __future__ import annotations

from functools import partial

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa import Instruction, Operand
from zinc_rt.sim.shader.checks import initialised
from zinc_rt.sim.shader.checks.lane_marks import find_first_site
from zinc_rt.sim.shader.checks.races import RETURNS, SCOPED
from zinc_rt.sim.shader.emit.emitter import EmitFunction, Emitter, nothing
from zinc_rt.sim.shader.emit.values import I32, I64, POINTER, constant, vector_of
from zinc_rt.sim.shader.layout import IN_LDS, M0
from zinc_rt.sim.shader.memory import access, lds_access
from zinc_rt.sim.shader.memory.access import Addresses
from zinc_rt.sim.shader.memory.loads_stores import LOADS, STORES, set_loaded, stored

STRIDE = 64


def rule_sites(e: Emitter) -> ir.Value:
    """Return the i32 number of the first site of lds_access.RULES."""
    returns = RETURNS * ("_rtn" in e.instruction.mnemonic) | SCOPED * e.guesses
    return e.b.or_(e.frame.numbered("site", find_first_site(e, lds_access.RULES, IN_LDS)), returns)


def second_buffer(e: Emitter) -> ir.Value:
    return e.frame.shared("second data", ir.VectorType(I32, 2 * e.wave))


def call_lanes(e: Emitter, helper: ir.Function, addresses: ir.Value, lanes: ir.Value | None = None) -> None:
    """Call an out-of-line access of `lanes` (i64, default EXEC's) at <W x i64> addresses."""
    memory, data = access.buffers(e)
    e.b.store(addresses, memory)
    if lanes is None:
        lanes = e.exec.wide()
    e.b.call(helper, [e.frame.state, e.frame.context, rule_sites(e), lanes, memory, data, second_buffer(e)])


def _simple(e: Emitter, low: ir.Value, size_bytes: int) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return (i1: all lanes active, contiguous, aligned and in bounds; lane 0's address; its host address), the
    latter i64.
    """
    b = e.b
    condition, first = Addresses(constant(0, I64), low).side_by_side(e, size_bytes)
    limit = b.zext(e.frame.state_field("lds_bytes"), I64)
    end = b.add(first, e.wave * size_bytes)
    condition = b.and_(condition, e.exec.is_full())
    condition = b.and_(condition, b.at_most(end, limit))
    if e.checks.fast and size_bytes > 1:
        off = b.and_(first, min(size_bytes, 4) - 1)
        condition = b.and_(condition, b.equal(off, 0))
    return condition, first, b.add(e.frame.state_field("lds_base"), first)


def _shadow_place(e: Emitter, first: ir.Value) -> ir.Value:
    dword = e.b.lshr(first, 2)
    return e.b.inttoptr(e.b.add(e.frame.state_field("lds_shadow"), dword), POINTER)


def load_lanes(e: Emitter, low: ir.Value, size_bytes: int) -> list[ir.Value]:
    """Load the lanes' dwords at <W x i32> LDS addresses, in the format of access.load."""
    b = e.b
    slow, behind = b.append_basic_block("slow"), b.append_basic_block()
    ends = []
    wide = size_bytes >= 4 and not e.checks.full
    if wide:  # narrower accesses, and those checked for races, go lane by lane
        fast = b.append_basic_block("fast")
        condition, first, host = _simple(e, low, size_bytes)
        if e.checks.fast:
            look = b.append_basic_block("look")
            b.cbranch(condition, look, slow).set_weights([access.OFTEN, 1])
            b.position_at_end(look)
            condition = initialised.emit_are_all_known(e, _shadow_place(e, first), e.wave * size_bytes // 4)
        b.cbranch(condition, fast, slow).set_weights([access.OFTEN, 1])
        b.position_at_end(fast)
        ends.append((b.inttoptr(host, POINTER), b.block))
        b.branch(behind)
    else:
        b.branch(slow)
    b.position_at_end(slow)
    call_lanes(e, lds_access.lds_load(e, size_bytes), b.zext(low, b.lanes(I64)))
    ends.append((access.buffers(e)[1], b.block))
    b.branch(behind)
    b.position_at_end(behind)
    source = b.phi(POINTER)
    for pointer, block in ends:
        source.add_incoming(pointer, block)
    return access.split_dwords(e, source, size_bytes)


def store_lanes(e: Emitter, low: ir.Value, dwords: list[ir.Value], size_bytes: int) -> None:
    b = e.b
    value = access.join_dwords(e, dwords, size_bytes)
    slow, behind = b.append_basic_block("slow"), b.append_basic_block()
    if size_bytes >= 4 and not e.checks.full:
        fast = b.append_basic_block("fast")
        condition, first, host = _simple(e, low, size_bytes)
        b.cbranch(condition, fast, slow).set_weights([access.OFTEN, 1])
        b.position_at_end(fast)
        b.store(value, b.inttoptr(host, POINTER), align=1)
        if e.checks.fast:
            known = ir.VectorType(ir.IntType(8), e.wave * size_bytes // 4)
            b.store(constant(15, known), _shadow_place(e, first), align=1)
        b.branch(behind)
    else:
        b.branch(slow)
    b.position_at_end(slow)
    b.store(value, access.buffers(e)[1], align=1)
    call_lanes(e, lds_access.lds_store(e, size_bytes), b.zext(low, b.lanes(I64)))
    b.branch(behind)
    b.position_at_end(behind)


def lds_address(e: Emitter, operand: Operand, moved: ir.Value) -> ir.Value:
    return e.b.add(e.regs.read_vgpr(operand.index), e.b.splat(moved))


def _load(e: Emitter, i: Instruction, *, size_bytes: int, signed: bool, half: int | None) -> None:
    dwords = load_lanes(e, lds_address(e, i.operands[1], e.offset()), size_bytes)
    set_loaded(e, i.operands[0], dwords, size_bytes, signed, half)


def _store(e: Emitter, i: Instruction, *, size_bytes: int, upper: bool) -> None:
    dwords = stored(e, i.operands[1], size_bytes, upper)
    store_lanes(e, lds_address(e, i.operands[0], e.offset()), dwords, size_bytes)


def offsets(e: Emitter, size_bytes: int, stride: int) -> list[ir.Value]:
    """Return the two offsets in bytes, as i32."""
    return [e.b.mul(e.offset(name), size_bytes * stride) for name in ("offset0", "offset1")]


def _load_two(e: Emitter, i: Instruction, *, size_bytes: int, stride: int) -> None:
    destination, address = i.operands
    places = [lds_address(e, address, moved) for moved in offsets(e, size_bytes, stride)]
    dwords = [dword for location in places for dword in load_lanes(e, location, size_bytes)]
    set_loaded(e, destination, dwords, size_bytes, False, None)


def _store_two(e: Emitter, i: Instruction, *, size_bytes: int, stride: int) -> None:
    address, *data = i.operands
    values = [stored(e, item, size_bytes, False) for item in data]
    places = [lds_address(e, address, moved) for moved in offsets(e, size_bytes, stride)]
    for location, dwords in zip(places, values, strict=True):
        store_lanes(e, location, dwords, size_bytes)


def _addtid(e: Emitter, i: Instruction) -> ir.Value:
    base = e.b.add(e.regs.read_sgpr(M0), e.offset())
    lanes = vector_of(4 * lane for lane in range(e.wave))
    return e.b.add(e.b.splat(base), lanes)


def _load_addtid(e: Emitter, i: Instruction) -> None:
    set_loaded(e, i.operands[0], load_lanes(e, _addtid(e, i), 4), 4, False, None)


def _store_addtid(e: Emitter, i: Instruction) -> None:
    store_lanes(e, _addtid(e, i), stored(e, i.operands[0], 4, False), 4)


_LOADS = {
    **{name: row for name, row in LOADS.items() if not name.startswith("d16")},  # the halves have other names here
    "u8_d16": (1, False, 0),
    "u8_d16_hi": (1, False, 1),
    "i8_d16": (1, True, 0),
    "i8_d16_hi": (1, True, 1),
    "u16_d16": (2, False, 0),
    "u16_d16_hi": (2, False, 1),
}
_STORES = {
    **{name: row for name, row in STORES.items() if not name.startswith("d16")},
    "b8_d16_hi": (1, True),
    "b16_d16_hi": (2, True),
}

EMIT: dict[str, EmitFunction] = {
    **{
        f"ds_load_{name}": partial(_load, size_bytes=size, signed=signed, half=half)
        for name, (size, signed, half) in _LOADS.items()
    },
    **{
        f"ds_store_{name}": partial(_store, size_bytes=size, upper=upper)
        for name, (size, upper) in _STORES.items()
    },
    **{
        f"ds_{verb}_2addr_{stride}{kind}": partial(function, size_bytes=size, stride=STRIDE if stride else 1)
        for verb, function in (("load", _load_two), ("store", _store_two))
        for stride in ("", "stride64_")
        for kind, size in (("b32", 4), ("b64", 8))
    },
    "ds_load_addtid_b32": _load_addtid,
    "ds_store_addtid_b32": _store_addtid,
    "ds_nop": nothing,
}
