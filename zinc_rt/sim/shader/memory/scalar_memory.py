"""SMEM: scalar loads, plain and through a buffer resource; prefetches (no operation); scalar cache operations."""

from __future__ import annotations

from functools import partial

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa import Instruction, Kind
from zinc_rt.sim.shader.emit.emitter import EmitFunction, Emitter, nothing
from zinc_rt.sim.shader.emit.values import I32, I64, constant
from zinc_rt.sim.shader.layout import ARRAY_CACHE, SCALAR_CACHE, Status
from zinc_rt.sim.shader.memory import access, cached_access, lane_access
from zinc_rt.sim.shader.memory.loads_stores import check_modifiers
from zinc_rt.sim.shader.memory.touched import extend_to, follows

# name after the underscore: bytes, sign extension
_LOADS: dict[str, tuple[int, bool]] = {
    "u8": (1, False),
    "i8": (1, True),
    "u16": (2, False),
    "i16": (2, True),
    "b32": (4, False),
    "b64": (8, False),
    "b96": (12, False),
    "b128": (16, False),
    "b256": (32, False),
    "b512": (64, False),
}


def _moved(e: Emitter, i: Instruction) -> ir.Value:
    """Return the sum of the signed immediate offset and the unsigned register offset, as i64."""
    last = i.operands[-1]
    if last.kind is Kind.IMMEDIATE:
        moved = e.frame.parameter("immediate") if last.value is None else constant(int(last.value))
        return e.b.sext(moved, I64)
    return e.b.add(e.b.zext(e.scalar(last), I64), e.b.sext(e.offset(), I64))


def _aligned(e: Emitter, va: ir.Value, size_bytes: int) -> ir.Value:
    """Return the address with its low bits cleared, as on hardware; report a finding if they are set."""
    low = min(size_bytes, 4) - 1
    if not low:
        return va
    bits = e.b.and_(va, low)
    if e.checks.fast:
        wrong = e.b.unequal(bits, 0)
        e.reports.report_if("misaligned", wrong, f"the lowest {low.bit_length()} address bits are ignored")
    return e.b.and_(va, ~low)


def _read(e: Emitter, va: ir.Value, size_bytes: int) -> ir.Value:
    """Read an integer of `size_bytes` at an aligned VA."""
    b = e.b
    site = access.memory_site(e)
    end = b.add(va, size_bytes)
    condition = b.and_(access.plain(e, site, va), follows(b, site, va))
    if e.checks.full:
        condition = access.undefined_sites(e, site, condition)
    item = min(size_bytes, 4)

    def fast() -> ir.Value:
        extend_to(b, site, end)
        return access.host_pointer(e, site, va)

    def slow() -> ir.Value:
        """Read in a separate function, which handles each dword as a lane."""
        count = size_bytes // item
        offsets, data = access.buffers(e)
        for index in range(count):
            b.store(constant(index * item), b.offset(offsets, 4 * index))
        helper, lanes = lane_access.scalar_load(e, item), constant((1 << count) - 1, I64)
        arguments = [e.frame.state, e.frame.context, site, access.rule_sites(e), lanes, va, offsets, data]
        with b.cold(b.call(helper, arguments)):
            e.reports.leave(Status.FAULT)
        return data

    return b.load(access.fast_or_slow(b, condition, fast, slow), typ=ir.IntType(8 * size_bytes), align=item)


def _set(e: Emitter, i: Instruction, value: ir.Value, signed: bool) -> None:
    if value.type.width < 32:
        value = e.b.sext(value, I32) if signed else e.b.zext(value, I32)
    e.set_scalar(i.operands[0], value)


def _load(e: Emitter, i: Instruction, *, size_bytes: int, signed: bool) -> None:
    check_modifiers(i)
    va = e.b.add(e.scalar(i.operands[1], 64), _moved(e, i))
    _set(e, i, _read(e, _aligned(e, va, size_bytes), size_bytes), signed)


def _buffer_load(e: Emitter, i: Instruction, *, size_bytes: int, signed: bool) -> None:
    """Emit a buffer load; dwords beyond the end of the resource are 0."""
    check_modifiers(i)
    b = e.b
    resource = e.scalar(i.operands[1], 128)
    base = b.ashr(b.shl(b.trunc(resource, I64), 16), 16)  # bit 47 is the sign of a 64-bit address
    stride = b.and_(b.trunc(b.lshr(resource, 48), I64), 0x3FFF)
    records = b.zext(b.trunc(b.lshr(resource, 64), I32), I64)
    plain_buffer = b.equal(stride, 0)
    limit = b.select(plain_buffer, records, b.mul(records, stride))
    start = _aligned(e, _moved(e, i), size_bytes)
    item = min(size_bytes, 4)
    of = ir.IntType(8 * size_bytes)
    slot = e.frame.shared("resource data", ir.IntType(512))
    whole = b.at_most(b.add(start, size_bytes), limit)
    with b.if_else(whole) as (inside, partly):
        with inside:
            b.store(_read(e, b.add(base, start), size_bytes), slot)
        with partly:
            for index in range(size_bytes // item):
                offset = b.offset(slot, index * item)
                b.store(constant(0, ir.IntType(8 * item)), offset)
                moved = b.add(start, index * item)
                fits = b.at_most(b.add(moved, item), limit)
                with b.if_then(fits):
                    b.store(_read(e, b.add(base, moved), item), offset)
    _set(e, i, b.load(slot, typ=of, align=item), signed)


_NOTHING = (
    "s_prefetch_data", "s_prefetch_data_pc_rel", "s_prefetch_inst", "s_prefetch_inst_pc_rel",
    "s_buffer_prefetch_data",
)  # fmt: skip


def _invalidate(e: Emitter, i: Instruction) -> None:
    cached_access.invalidate(e, "scalar_cache", SCALAR_CACHE)


def _invalidate_array(e: Emitter, i: Instruction) -> None:
    cached_access.invalidate(e, "array_cache", ARRAY_CACHE)


EMIT: dict[str, EmitFunction] = {
    **{f"s_load_{n}": partial(_load, size_bytes=size, signed=signed) for n, (size, signed) in _LOADS.items()},
    **{
        f"s_buffer_load_{n}": partial(_buffer_load, size_bytes=size, signed=signed)
        for n, (size, signed) in _LOADS.items()
    },
    "s_dcache_inv": _invalidate,
    "s_gl1_inv": _invalidate_array,
    **dict.fromkeys(_NOTHING, nothing),
}
