"""Initialised bytes as compiled code asks and notes them, a byte per dword (sim/memory/initialised_bytes.py)."""

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.emit.emitter import Emitter
from zinc_rt.sim.shader.emit.routine import I1, I8, I64, POINTER, Routine


def _place(r: Routine, base: ir.Value, va: ir.Value) -> tuple[ir.Value, ir.Value]:
    """(the shadow byte of the dword at `va`, the byte number in it)"""
    return r.b.inttoptr(r.b.add(base, r.b.lshr(va, I64(2))), POINTER), r.b.and_(va, I64(3))


def known(r: Routine, base: ir.Value, va: ir.Value, size_bytes: int) -> ir.Value:
    """i1: whether all bytes at `va` are initialised. `base` + va / 4 is the shadow's address."""
    b = r.b
    first, skipped = _place(r, base, va)
    wanted = I64((1 << size_bytes) - 1)
    last = b.lshr(b.add(skipped, I64(size_bytes - 1)), I64(2))
    bits = b.zext(r.load(first, I8), I64)
    for at in range(1, (size_bytes + 6) // 4):
        index = b.select(r.below(last, I64(at)), last, I64(at))  # nothing past the last dword is read
        more = b.zext(r.load(r.offset(first, index), I8), I64)
        bits = b.or_(bits, b.shl(b.and_(more, I64(15)), I64(4 * at)))
    return r.equal(b.and_(b.lshr(bits, skipped), wanted), wanted)


def mark(r: Routine, base: ir.Value, va: ir.Value, size_bytes: int, *, shared: bool = True) -> None:
    """The bytes at `va` are initialised from now on. `shared`: other threads may mark others of the same dword."""
    b = r.b
    first, skipped = _place(r, base, va)
    bits = b.shl(I64((1 << size_bytes) - 1), skipped)
    for at in range((size_bytes + 6) // 4):
        part = b.and_(b.lshr(bits, I64(4 * at)), I64(15))
        place = r.offset(first, at)
        with r.when(b.icmp_unsigned("!=", part, I64(0))), b.if_else(r.equal(part, 15)) as (whole, some):
            with whole:
                b.store(I8(15), place)
            with some:
                b.atomic_rmw("or", place, b.trunc(part, I8), "monotonic")


KNOWN_CHUNK = 16  # dwords looked at in one go


def chunk_known(r: Routine, place: ir.Value) -> ir.Value:
    """i1: whether KNOWN_CHUNK dwords are initialised; `place` is the first one's shadow byte."""
    of, bits = ir.VectorType(I8, KNOWN_CHUNK), ir.IntType(KNOWN_CHUNK)
    same = r.b.icmp_unsigned("==", r.load(place, of, 1), ir.Constant(of, [I8(15)] * KNOWN_CHUNK))
    return r.b.icmp_unsigned("==", r.b.bitcast(same, bits), bits(-1))


def span_known(r: Routine, base: ir.Value, first: ir.Value, end: ir.Value) -> ir.Value:
    """i1: whether all dwords that have a byte of [first, end) are wholly initialised."""
    b = r.b
    of, bits = ir.VectorType(I8, KNOWN_CHUNK), ir.IntType(KNOWN_CHUNK)
    whole = ir.Constant(of, [I8(15)] * KNOWN_CHUNK)
    start, stop = b.lshr(first, I64(2)), b.lshr(b.add(end, I64(3)), I64(2))
    count = b.sub(stop, start)
    seen, result = r.local(of, whole), r.local(I1, 1)
    with b.if_else(r.at_most(I64(KNOWN_CHUNK), count)) as (many, few):
        with many:
            furthest = b.sub(stop, I64(KNOWN_CHUNK))

            def chunk(index: ir.Value) -> None:
                at = b.add(start, b.mul(index, I64(KNOWN_CHUNK)))
                at = b.select(r.below(furthest, at), furthest, at)  # the last one overlaps
                have = r.load(b.inttoptr(b.add(base, at), POINTER), of, 1)
                b.store(b.and_(r.load(seen, of), have), seen)

            r.repeat(b.udiv(b.add(count, I64(KNOWN_CHUNK - 1)), I64(KNOWN_CHUNK)), chunk)
            same = b.icmp_unsigned("==", r.load(seen, of), whole)
            b.store(b.icmp_unsigned("==", b.bitcast(same, bits), bits(-1)), result)
        with few:

            def one(index: ir.Value) -> None:
                have = r.load(b.inttoptr(b.add(base, b.add(start, index)), POINTER), I8)
                b.store(b.and_(r.load(result, I1), r.equal(have, 15)), result)

            r.repeat(count, one)
    return r.load(result, I1)


def all_known(e: Emitter, first: ir.Value, count: int) -> ir.Value:
    """i1: whether `count` dwords in a row are initialised; `first` is the first one's shadow byte."""
    of = ir.VectorType(I8, count)
    same = e.b.icmp_unsigned("==", e.load(first, of, 1), e.constant(15, of))
    return e.b.icmp_unsigned("==", e.b.bitcast(same, ir.IntType(count)), ir.IntType(count)(-1))
