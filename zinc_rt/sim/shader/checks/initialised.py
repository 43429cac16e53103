"""Checks and updates of initialised bytes in compiled code, one shadow byte per dword
(sim/memory/initialised_bytes.py).
"""

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.emit.builder import CodeBuilder
from zinc_rt.sim.shader.emit.emitter import Emitter
from zinc_rt.sim.shader.emit.values import I1, I8, I64, POINTER


def _place(b: CodeBuilder, base: ir.Value, va: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return (shadow byte of the dword at `va`, byte number within the dword)."""
    return b.inttoptr(b.add(base, b.lshr(va, 2)), POINTER), b.and_(va, 3)


def emit_is_known(b: CodeBuilder, base: ir.Value, va: ir.Value, size_bytes: int) -> ir.Value:
    """Return i1: all bytes at `va` are initialised. The shadow byte is at `base` + va / 4."""
    first, skipped = _place(b, base, va)
    wanted = I64((1 << size_bytes) - 1)
    last = b.lshr(b.add(skipped, size_bytes - 1), 2)
    bits = b.zext(b.load(first, typ=I8), I64)
    for at in range(1, (size_bytes + 6) // 4):
        index = b.select(b.below(last, at), last, at)  # nothing past the last dword is read
        more = b.zext(b.load(b.offset(first, index), typ=I8), I64)
        bits = b.or_(bits, b.shl(b.and_(more, 15), 4 * at))
    return b.equal(b.and_(b.lshr(bits, skipped), wanted), wanted)


def emit_mark(b: CodeBuilder, base: ir.Value, va: ir.Value, size_bytes: int, *, shared: bool = True) -> None:
    """Mark the bytes at `va` as initialised. `shared`: other threads may mark other bytes of the same dword."""
    first, skipped = _place(b, base, va)
    bits = b.shl((1 << size_bytes) - 1, skipped)
    for index in range((size_bytes + 6) // 4):
        part = b.and_(b.lshr(bits, 4 * index), 15)
        offset = b.offset(first, index)
        with b.if_then(b.unequal(part, 0)), b.if_else(b.equal(part, 15)) as (whole, some):
            with whole:
                b.store(I8(15), offset)
            with some:
                b.atomic_rmw("or", offset, b.trunc(part, I8), "monotonic")


KNOWN_CHUNK = 16  # dwords looked at in one go


def emit_is_chunk_known(b: CodeBuilder, place: ir.Value) -> ir.Value:
    """Return i1: KNOWN_CHUNK dwords are initialised; `place` is the shadow byte of the first."""
    of, bits = ir.VectorType(I8, KNOWN_CHUNK), ir.IntType(KNOWN_CHUNK)
    same = b.equal(b.load(place, typ=of, align=1), ir.Constant(of, [I8(15)] * KNOWN_CHUNK))
    return b.equal(b.bitcast(same, bits), bits(-1))


def emit_is_span_known(b: CodeBuilder, base: ir.Value, first: ir.Value, end: ir.Value) -> ir.Value:
    """Return i1: all dwords that overlap [first, end) are fully initialised."""
    of, bits = ir.VectorType(I8, KNOWN_CHUNK), ir.IntType(KNOWN_CHUNK)
    constant = ir.Constant(of, [I8(15)] * KNOWN_CHUNK)
    start, stop = b.lshr(first, 2), b.lshr(b.add(end, 3), 2)
    count = b.sub(stop, start)
    seen, result = b.local(of, constant), b.local(I1, 1)
    with b.if_else(b.at_most(KNOWN_CHUNK, count)) as (many, few):
        with many:
            furthest = b.sub(stop, KNOWN_CHUNK)

            def check_chunk(index: ir.Value) -> None:
                position = b.add(start, b.mul(index, KNOWN_CHUNK))
                position = b.select(b.below(furthest, position), furthest, position)  # the last one overlaps
                have = b.load(b.inttoptr(b.add(base, position), POINTER), typ=of, align=1)
                b.store(b.and_(b.load(seen, typ=of), have), seen)

            b.repeat(b.udiv(b.add(count, KNOWN_CHUNK - 1), KNOWN_CHUNK), check_chunk)
            same = b.equal(b.load(seen, typ=of), constant)
            b.store(b.equal(b.bitcast(same, bits), bits(-1)), result)
        with few:

            def check_one(index: ir.Value) -> None:
                have = b.load(b.inttoptr(b.add(base, b.add(start, index)), POINTER), typ=I8)
                b.store(b.and_(b.load(result, typ=I1), b.equal(have, 15)), result)

            b.repeat(count, check_one)
    return b.load(result, typ=I1)


def emit_are_all_known(e: Emitter, first: ir.Value, count: int) -> ir.Value:
    """Return i1: `count` consecutive dwords are initialised; `first` is the shadow byte of the first."""
    of = ir.VectorType(I8, count)
    same = e.b.equal(e.b.load(first, typ=of, align=1), 15)
    return e.b.equal(e.b.bitcast(same, ir.IntType(count)), ir.IntType(count)(-1))
