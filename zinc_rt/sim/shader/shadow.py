"""Initialised bytes, as compiled code asks and notes them: a byte per dword, a bit per byte (sim/written.py)."""

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.routine import I8, I64, POINTER, Routine


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


def all_known(r: Routine, first: ir.Value, count: int) -> ir.Value:
    """i1: whether `count` dwords in a row are initialised; `first` is the first one's shadow byte."""
    of = ir.VectorType(I8, count)
    same = r.b.icmp_unsigned("==", r.load(first, of, 1), ir.Constant(of, [I8(15)] * count))
    return r.b.icmp_unsigned("==", r.b.bitcast(same, ir.IntType(count)), ir.IntType(count)(-1))
