"""VBUFFER: untyped loads, stores and atomics through a buffer resource.

Beyond the end of the resource, loads return 0 and stores are dropped, per dword. Compilers rely on this, so it is
not a finding. The offsets are added without wrapping (fact buffer_offset). Accesses inside are checked like global
accesses. Formats, swizzled and thread-indexed buffers are not implemented.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa import Instruction, Operand
from zinc_rt.isa.encodings.cache_policy import returns_previous
from zinc_rt.sim.shader.emit.emitter import EmitFunction, Emitter
from zinc_rt.sim.shader.emit.values import I32, I64, constant
from zinc_rt.sim.shader.layout import Status
from zinc_rt.sim.shader.memory import access, atomics, lane_access
from zinc_rt.sim.shader.memory.access import Addresses
from zinc_rt.sim.shader.memory.loads_stores import (
    LOADS,
    STORES,
    check_modifiers,
    loader,
    set_loaded,
    stored,
    storer,
)

_SELECT_STRUCTURED, _SELECT_INDEX, _SELECT_EMPTY = 0, 1, 2  # OOB_SELECT; 3 is raw


@dataclass
class _Resource:
    """The fields of a V# and the lanes' offsets into it. `base` is i64 and includes the SGPR offset; the others
    are i32.
    """

    base: ir.Value
    stride: ir.Value
    records: ir.Value
    select: ir.Value
    moved: ir.Value  # i32, the SGPR offset
    index: ir.Value | None  # <W x i32>
    inner: ir.Value  # <W x i64>: offset within the record, the instruction's included


def _resource(e: Emitter, i: Instruction, operands: list[Operand]) -> _Resource:
    _, address, descriptor, register = operands
    b = e.b
    words = [b.trunc(b.lshr(e.scalar(descriptor, 128), ir.IntType(128)(32 * index)), I32) for index in range(4)]
    special = b.or_(
        b.unequal(b.lshr(words[1], 30), 0),
        b.unequal(b.and_(words[3], 1 << 23), 0),
    )
    with b.cold(special):
        e.reports.stop(Status.ILLEGAL, "not-simulated", "the resource is swizzled or adds the thread id")
    high = b.ashr(b.shl(b.zext(words[1], I64), 48), 16)  # base[47:32]: bit 47 is the sign of a 64-bit address
    base = b.or_(b.zext(words[0], I64), high)
    moved = e.scalar(register)
    index = e.regs.read_vgpr(address.index) if i.modifier("idxen") else None
    inner = b.splat(b.sext(e.offset(), I64))
    if i.modifier("offen"):
        offset_register = address.index + (1 if index is not None else 0)
        inner = b.add(b.zext(e.regs.read_vgpr(offset_register), b.lanes(I64)), inner)
        if e.checks.buffer_offset == "wraps":
            inner = b.and_(inner, 0xFFFFFFFF)
    stride = b.and_(b.lshr(words[1], 16), 0x3FFF)
    select = b.and_(b.lshr(words[3], 28), 3)
    return _Resource(b.add(base, b.zext(moved, I64)), stride, words[2], select, moved, index, inner)


def _offsets(e: Emitter, r: _Resource) -> ir.Value:
    """Return the offsets from the base as <W x i64>."""
    if r.index is None:
        return r.inner
    of = e.b.lanes(I64)
    scaled = e.b.mul(e.b.zext(r.index, of), e.b.splat(e.b.zext(r.stride, I64)))
    return e.b.add(scaled, r.inner)


def _available(e: Emitter, r: _Resource) -> ir.Value:
    """Return the number of bytes of the buffer available from each lane's address, as <W x i64>."""
    b, of = e.b, e.b.lanes(I64)
    everything, nothing = constant(1 << 40, of), constant(0, of)
    records = b.zext(r.records, I64)
    raw = _bytes_from(e, b.splat(records), b.add(_offsets(e, r), b.splat(b.zext(r.moved, I64))))
    empty = b.splat(b.equal(r.records, 0))
    index = nothing if r.index is None else b.zext(r.index, of)
    by_index = b.below(index, b.splat(records))
    in_record = _bytes_from(e, b.splat(b.zext(r.stride, I64)), r.inner)

    def selected(number: int) -> ir.Value:
        return b.splat(b.equal(r.select, number))

    result = b.select(selected(_SELECT_EMPTY), b.select(empty, nothing, everything), raw)
    result = b.select(selected(_SELECT_INDEX), b.select(by_index, everything, nothing), result)
    return b.select(selected(_SELECT_STRUCTURED), b.select(by_index, in_record, nothing), result)


def _bytes_from(e: Emitter, limit: ir.Value, at: ir.Value) -> ir.Value:
    inside = e.b.below(at, limit)
    return e.b.select(inside, e.b.sub(limit, at), 0)


def _has(e: Emitter, available: ir.Value, size_bytes: int) -> ir.Value:
    """Return <W x i1>: the lane has `size_bytes` available."""
    return e.b.icmp_unsigned(">=", available, size_bytes)


def _addresses(e: Emitter, r: _Resource, moved: int = 0) -> Addresses:
    b = e.b
    offsets = _offsets(e, r)
    if moved:
        offsets = b.add(offsets, moved)
    high = b.trunc(b.lshr(offsets, 32), b.lanes(I32))
    return Addresses(r.base, b.trunc(offsets, b.lanes(I32)), high)


def _lanes(e: Emitter, mask: ir.Value) -> ir.Value:
    """Return the lanes of EXEC that are set in <W x i1>, as i64."""
    return e.b.and_(e.b.resize(e.b.bits(mask), 64), e.exec.wide())


def _are_all_inside(e: Emitter, inside: ir.Value) -> ir.Value:
    return e.b.equal(_lanes(e, inside), e.exec.wide())


def _load(e: Emitter, i: Instruction, size_bytes: int) -> list[ir.Value]:
    b = e.b
    r = _resource(e, i, list(i.operands))
    words = max(1, size_bytes // 4)
    item = min(size_bytes, 4)
    results = [e.frame.shared(f"buffer {index}", b.lanes(I32)) for index in range(words)]
    available = _available(e, r)
    with b.if_else(_are_all_inside(e, _has(e, available, size_bytes)), likely=True) as (whole, parts):
        with whole:
            for result, dword in zip(results, access.load(e, _addresses(e, r), size_bytes), strict=True):
                b.store(dword, result)
        with parts:
            for index, result in enumerate(results):
                mask = _has(e, available, 4 * index + item)
                site = access.memory_site(e)
                helper = lane_access.lanes_load(e, item)
                access.call_lanes(e, helper, _addresses(e, r, 4 * index), site, _lanes(e, mask))
                [dword] = access.split_dwords(e, access.buffers(e)[1], item)
                b.store(b.select(mask, dword, 0), result)
    return [b.load(result, typ=b.lanes(I32)) for result in results]


def _store(e: Emitter, i: Instruction, dwords: list[ir.Value], size_bytes: int) -> None:
    b = e.b
    r = _resource(e, i, list(i.operands))
    item = min(size_bytes, 4)
    available = _available(e, r)
    with b.if_else(_are_all_inside(e, _has(e, available, size_bytes)), likely=True) as (whole, parts):
        with whole:
            access.store(e, _addresses(e, r), dwords, size_bytes)
        with parts:
            for index, dword in enumerate(dwords):
                mask = _has(e, available, 4 * index + item)
                b.store(access.join_dwords(e, [dword], item), access.buffers(e)[1], align=1)
                site = access.memory_site(e)
                helper = lane_access.lanes_store(e, item)
                access.call_lanes(e, helper, _addresses(e, r, 4 * index), site, _lanes(e, mask))


def _atomic(e: Emitter, i: Instruction, *, operation: str, size_bytes: int) -> None:
    """Emit an atomic; the data register is also the destination."""
    check_modifiers(i)
    r = _resource(e, i, list(i.operands))
    mask = _has(e, _available(e, r), size_bytes)
    data = stored(e, i.operands[0], size_bytes * (2 if operation in atomics.TWO else 1), False)
    old = atomics.change(e, operation, _addresses(e, r), data, size_bytes, _lanes(e, mask))
    if returns_previous(i):
        old = [e.b.select(mask, item, 0) for item in old]
        set_loaded(e, i.operands[0], old, size_bytes, False, None)


EMIT: dict[str, EmitFunction] = {
    **{f"buffer_load_{name}": loader(_load, *row) for name, row in LOADS.items()},
    **{f"buffer_store_{name}": storer(_store, *row, data=0) for name, row in STORES.items()},
    **{
        f"buffer_atomic_{name}": partial(_atomic, operation=operation, size_bytes=size)
        for name, (operation, size) in atomics.ATOMICS.items()
    },
}
