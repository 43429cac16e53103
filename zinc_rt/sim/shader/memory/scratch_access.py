"""Out of line: scratch accesses whose lanes use different offsets, with all checks.

A lane's dword d lies at scratch_base + (d * wave + lane) * 4, as the hardware swizzles it; its shadow byte at
scratch_shadow + d * wave + lane. The lanes' byte offsets are i64s in `addresses`.
"""

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.checks.lane_marks import Marks
from zinc_rt.sim.shader.emit.emitter import Emitter
from zinc_rt.sim.shader.emit.routine import I1, I8, I32, I64, POINTER, VOID, Routine
from zinc_rt.sim.shader.layout import STATE

SCRATCH_LANES = ir.FunctionType(VOID, [POINTER, POINTER, I32, I64, POINTER, POINTER])
"""(state, context, number of the first rule's site, lanes, addresses, data)"""
RULES = ("scratch-out-of-bounds", "uninitialised-scratch", "misaligned")
OUT_OF_BOUNDS, UNINITIALISED, MISALIGNED = range(3)


def scratch_load(e: Emitter, size_bytes: int) -> ir.Function:
    return e.helper(f"zrt.scratch_load{size_bytes}", SCRATCH_LANES, lambda f: _build(e, f, size_bytes, True))


def scratch_store(e: Emitter, size_bytes: int) -> ir.Function:
    return e.helper(f"zrt.scratch_store{size_bytes}", SCRATCH_LANES, lambda f: _build(e, f, size_bytes, False))


def _build(e: Emitter, function: ir.Function, size_bytes: int, loads: bool) -> None:
    r = Routine(function)
    b = r.b
    state, context, rules, lanes, addresses, data = function.args
    base, known = r.get(state, STATE, "scratch_base"), r.get(state, STATE, "scratch_shadow")
    limit = b.zext(r.get(state, STATE, "scratch_bytes"), I64)
    marks = Marks(e, r, len(RULES))
    each = 4 if size_bytes % 4 == 0 else 1

    def move(lane: ir.Value, at: ir.Value, place: ir.Value, step: int) -> None:
        """`step` bytes at offset `at` in scratch, all in one dword, and at `place` in the data."""
        of = ir.IntType(8 * step)
        row = b.add(b.mul(b.lshr(at, I64(2)), I64(e.wave)), lane)
        byte = b.and_(at, I64(3))
        host = b.inttoptr(b.add(base, b.add(b.shl(row, I64(2)), byte)), POINTER)
        shadow = b.inttoptr(b.add(known, row), POINTER)
        bits = b.shl(I8((1 << step) - 1), b.trunc(byte, I8))
        if loads:
            if e.checks.fast:
                have = b.and_(r.load(shadow, I8), bits)
                with r.when(b.icmp_unsigned("!=", have, bits), likely=False):
                    marks.mark(UNINITIALISED, lane, at)
            b.store(r.load(host, of, 1), place, align=1)
        else:
            if e.checks.fast:
                b.store(b.or_(r.load(shadow, I8), bits), shadow)
            b.store(r.load(place, of, 1), host, align=1)

    def one(lane: ir.Value) -> None:
        at = r.load(r.element(addresses, lane, I64), I64)
        mine = r.offset(data, b.mul(lane, I64(size_bytes)))
        fits = r.at_most(b.add(at, I64(size_bytes)), limit)
        with b.if_else(fits, likely=True) as (yes, no):
            with yes:
                aligned = r.equal(b.and_(at, I64(each - 1)), 0) if each > 1 else I1(1)
                with b.if_else(aligned, likely=True) as (whole, bytewise):
                    with whole:
                        for offset in range(0, size_bytes, each):
                            move(lane, b.add(at, I64(offset)), r.offset(mine, offset), each)
                    with bytewise:
                        if e.checks.full:
                            marks.mark(MISALIGNED, lane, at)
                        r.repeat(size_bytes, lambda k: move(lane, b.add(at, k), r.offset(mine, k), 1))
            with no:
                marks.mark(OUT_OF_BOUNDS, lane, at)
                if loads:
                    for offset in range(size_bytes):
                        b.store(I8(0), r.offset(mine, offset))

    r.each_lane(lanes, one)
    if e.checks.fast:
        marks.report(state, context, rules)
    b.ret_void()
    r.done()
