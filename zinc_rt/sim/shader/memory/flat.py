"""FLAT: the upper half of each lane's address selects global memory, LDS or scratch."""

from __future__ import annotations

from functools import partial

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa import Instruction, Operand
from zinc_rt.isa.encodings.cache_policy import returns_previous
from zinc_rt.sim.shader.emit.emitter import EmitFunction, Emitter
from zinc_rt.sim.shader.emit.values import I32, I64
from zinc_rt.sim.shader.layout import WaveAccess
from zinc_rt.sim.shader.memory import access, atomics, lds, lds_access, lds_atomics, scratch, scratch_access
from zinc_rt.sim.shader.memory.access import Addresses
from zinc_rt.sim.shader.memory.loads_stores import (
    LOADS,
    STORES,
    check_modifiers,
    global_addresses,
    loader,
    set_loaded,
    stored,
    storer,
)


def _apertures(e: Emitter, at: Addresses) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return i64 lane masks within EXEC: global, LDS, scratch. The aperture is that of the base address without
    the offset.
    """
    b = e.b
    assert at.high is not None
    result = []
    for name in ("shared_base", "private_base"):
        top = b.trunc(b.lshr(e.frame.field(name), 32), I32)
        mask = b.resize(b.bits(b.equal(at.high, b.splat(top))), 64)
        result.append(b.and_(mask, e.exec.wide()))
    elsewhere = b.and_(e.exec.wide(), b.not_(b.or_(result[0], result[1])))
    return elsewhere, result[0], result[1]


def _low(e: Emitter, i: Instruction, at: Addresses) -> ir.Value:
    """Return the offsets in the aperture as <W x i32>."""
    return e.b.add(at.low, e.b.splat(e.offset()))


def _some(e: Emitter, lanes: ir.Value) -> ir.Value:
    return e.b.unequal(lanes, 0)


def _out_of_line(
    e: Emitter, helper: ir.Function, at: Addresses, site: ir.Value, *, size_bytes: int, stores: bool
) -> None:
    """Call the helper of each aperture for its lanes; all use the same data buffer."""
    elsewhere, shared, private = _apertures(e, at)
    low = _low(e, e.instruction, at)
    access.call_lanes(e, helper, at, site, elsewhere)
    with e.b.cold(_some(e, shared)):
        make = lds_access.lds_store if stores else lds_access.lds_load
        lds.call_lanes(e, make(e, size_bytes), e.b.zext(low, e.b.lanes(I64)), shared)
    with e.b.cold(_some(e, private)):
        build = scratch_access.scratch_store if stores else scratch_access.scratch_load
        scratch.call_lanes(e, build(e, size_bytes), low, private)


def _load(e: Emitter, i: Instruction, size_bytes: int) -> list[ir.Value]:
    offset = global_addresses(e, i, i.operands[1], None)
    return access.load(e, offset, size_bytes, partial(_out_of_line, size_bytes=size_bytes, stores=False))


def _store(e: Emitter, i: Instruction, dwords: list[ir.Value], size_bytes: int) -> None:
    offset = global_addresses(e, i, i.operands[0], None)
    access.store(e, offset, dwords, size_bytes, partial(_out_of_line, size_bytes=size_bytes, stores=True))


def _atomic(e: Emitter, i: Instruction, *, operation: str, size_bytes: int) -> None:
    check_modifiers(i)
    b = e.b
    operands: list[Operand] = list(i.operands)
    destination = operands.pop(0) if returns_previous(i) else None
    words = size_bytes // 4
    data = stored(e, operands[1], size_bytes * (2 if operation in atomics.TWO else 1), False)
    offset = global_addresses(e, i, operands[0], None)
    elsewhere, shared, private = _apertures(e, offset)
    with b.cold(_some(e, private)):
        e.reports.fault(b.trunc(private, b.mask_bits), offset.vector(e), WaveAccess.ATOMIC)
    result = [e.frame.shared(f"old {at_}", b.lanes(I32)) for at_ in range(words)]
    old = atomics.change(e, operation, offset, data, size_bytes, elsewhere)
    for location, value in zip(result, old, strict=True):
        b.store(value, location)
    with b.cold(_some(e, shared)):
        low = _low(e, i, offset)
        mine = lds_atomics.change_lanes(e, operation, low, data[:words], data[words:], size_bytes, shared)
        chosen = b.bitcast(b.resize(shared, e.wave), b.lanes(ir.IntType(1)))
        for location, value in zip(result, mine, strict=True):
            b.store(b.select(chosen, value, b.load(location, typ=b.lanes(I32))), location)
    if destination is not None:
        loaded = [b.load(location, typ=b.lanes(I32)) for location in result]
        set_loaded(e, destination, loaded, size_bytes, False, None)


EMIT: dict[str, EmitFunction] = {
    **{f"flat_load_{name}": loader(_load, *row) for name, row in LOADS.items()},
    **{f"flat_store_{name}": storer(_store, *row) for name, row in STORES.items()},
    **{
        f"flat_atomic_{name}": partial(_atomic, operation=operation, size_bytes=size)
        for name, (operation, size) in atomics.ATOMICS.items()
    },
}
