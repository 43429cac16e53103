"""Out-of-line scratch accesses with all checks, for lanes with different offsets.

Dword d of a lane is at scratch_base + (d * wave + lane) * 4, swizzled as on hardware; its shadow byte is at
scratch_shadow + d * wave + lane. The lanes' byte offsets are i64s in `addresses`.
"""

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.checks.lane_marks import Marks
from zinc_rt.sim.shader.emit.builder import HelperBuilder
from zinc_rt.sim.shader.emit.emitter import Emitter
from zinc_rt.sim.shader.emit.values import I1, I8, I32, I64, POINTER, VOID
from zinc_rt.sim.shader.layout import STATE

SCRATCH_LANES = ir.FunctionType(VOID, [POINTER, POINTER, I32, I64, POINTER, POINTER])
"""(state, context, number of the first rule's site, lanes, addresses, data)"""
RULES = ("scratch-out-of-bounds", "uninitialised-scratch")
OUT_OF_BOUNDS, UNINITIALISED = range(2)


def scratch_load(e: Emitter, size_bytes: int) -> ir.Function:
    return e.b.helper(f"zrt.scratch_load{size_bytes}", SCRATCH_LANES, lambda f: _build(e, f, size_bytes, True))


def scratch_store(e: Emitter, size_bytes: int) -> ir.Function:
    return e.b.helper(f"zrt.scratch_store{size_bytes}", SCRATCH_LANES, lambda f: _build(e, f, size_bytes, False))


def _build(e: Emitter, function: ir.Function, size_bytes: int, loads: bool) -> None:
    b = HelperBuilder(function)
    state, context, rules, lanes, addresses, data = function.args
    base, known = b.get(state, STATE, "scratch_base"), b.get(state, STATE, "scratch_shadow")
    limit = b.zext(b.get(state, STATE, "scratch_bytes"), I64)
    marks = Marks(b, len(RULES))
    item = 4 if size_bytes % 4 == 0 else 1

    def move(lane: ir.Value, at: ir.Value, place: ir.Value, step: int) -> None:
        """Move `step` bytes between offset `at` in scratch, all in one dword, and `place` in the data."""
        of = ir.IntType(8 * step)
        row = b.add(b.mul(b.lshr(at, 2), e.wave), lane)
        byte = b.and_(at, 3)
        host = b.inttoptr(b.add(base, b.add(b.shl(row, 2), byte)), POINTER)
        shadow = b.inttoptr(b.add(known, row), POINTER)
        bits = b.shl((1 << step) - 1, b.trunc(byte, I8))
        if loads:
            if e.checks.fast:
                stored = b.load(shadow, typ=I8)
                have = b.and_(b.and_(stored, b.not_(b.lshr(stored, 4))), bits)
                with b.if_then(b.unequal(have, bits), likely=False):
                    marks.mark(UNINITIALISED, lane, at)
            b.store(b.load(host, typ=of, align=1), place, align=1)
        else:
            if e.checks.fast:
                stored = b.or_(b.load(shadow, typ=I8), bits)
                b.store(b.and_(stored, b.not_(b.shl(bits, 4))), shadow)
            b.store(b.load(place, typ=of, align=1), host, align=1)

    def one(lane: ir.Value) -> None:
        at = b.load(b.element(addresses, lane, I64), typ=I64)
        mine = b.offset(data, b.mul(lane, size_bytes))
        fits = b.at_most(b.add(at, size_bytes), limit)
        with b.if_else(fits, likely=True) as (yes, no):
            with yes:
                aligned = b.equal(b.and_(at, item - 1), 0) if item > 1 else I1(1)
                with b.if_else(aligned, likely=True) as (whole, bytewise):
                    with whole:
                        for offset in range(0, size_bytes, item):
                            move(lane, b.add(at, offset), b.offset(mine, offset), item)
                    with bytewise:
                        b.repeat(size_bytes, lambda k: move(lane, b.add(at, k), b.offset(mine, k), 1))
            with no:
                marks.mark(OUT_OF_BOUNDS, lane, at)
                if loads:
                    for offset in range(size_bytes):
                        b.store(I8(0), b.offset(mine, offset))

    b.each_lane(lanes, one)
    if e.checks.fast:
        marks.report(state, context, rules)
    b.ret_void()
    b.done()
