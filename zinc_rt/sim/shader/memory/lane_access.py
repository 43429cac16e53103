"""Out of line: loads and stores of lanes that are not simply side by side in one range, with all checks."""

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.chips import PAGE_BYTES
from zinc_rt.sim.shader.checks import initialised
from zinc_rt.sim.shader.checks.lane_checks import LANES, LaneAccesses
from zinc_rt.sim.shader.emit.emitter import Emitter
from zinc_rt.sim.shader.emit.routine import I1, I32, I64, POINTER, Routine
from zinc_rt.sim.shader.layout import CONTEXT, MEMORY_SITE, PLAIN, RANGE, WATCHED, WaveAccess
from zinc_rt.sim.shader.memory import lookup
from zinc_rt.sim.shader.memory.ranges import RangeFlag

_UNROLLED = 4
_SHORT_SPAN = 1 << 12  # bytes whose shadow is worth looking through at once


def lanes_load(e: Emitter, size_bytes: int) -> ir.Function:
    return e.helper(f"zrt.load{size_bytes}", LANES, lambda f: _Lanes(e, f, size_bytes, WaveAccess.READ).build())


def lanes_store(e: Emitter, size_bytes: int) -> ir.Function:
    return e.helper(f"zrt.store{size_bytes}", LANES, lambda f: _Lanes(e, f, size_bytes, WaveAccess.WRITE).build())


def scalar_load(e: Emitter, size_bytes: int) -> ir.Function:
    """Its "lanes" are the dwords of one scalar load (or one byte, or one half)."""
    kind = WaveAccess.SCALAR_READ
    return e.helper(f"zrt.scalar_load{size_bytes}", LANES, lambda f: _Lanes(e, f, size_bytes, kind).build())


def copy(r: Routine, to: ir.Value, source: ir.Value, size_bytes: int) -> None:
    """1 to 16 bytes, of any alignment."""
    at = 0
    while at < size_bytes:
        step = next(step for step in (16, 8, 4, 2, 1) if step <= size_bytes - at)
        of = ir.VectorType(I32, 4) if step == 16 else ir.IntType(8 * step)
        r.b.store(r.load(r.offset(source, at), of, 1), r.offset(to, at), align=1)
        at += step


class _Lanes(LaneAccesses):
    """A load or a store."""

    def build(self) -> None:
        r, b, size = self.r, self.r.b, self.size_bytes
        with r.when(r.equal(self.exec, 0)):
            b.ret(I1(0))
        first, last = self._first_and_last()
        end = b.add(last, I64(size))
        fits = r.local(I1)
        cached = lookup.inside(r, self.site, first, last, size)
        b.store(cached, fits)
        with r.when(b.not_(cached)):
            b.store(self.refilled(first, end), fits)
        simple = r.load(fits, I1)
        if self.checks.full:
            simple = b.and_(simple, self._quiet())
        with r.when(simple, likely=True):
            flags = r.get(self.site, MEMORY_SITE, "flags")
            done = r.block("done")
            with r.when(r.has(flags, PLAIN), likely=True):
                b.branch(done)
            if self.reads and self.checks.fast:
                with r.when(self._known(first, end)):
                    b.call(lookup.widen(self.e), [self.site, first, end, self.wide()])
                    b.branch(done)
            if self.stores and not self.checks.full:
                self._prepare_store(flags, first, last, done)
            behind = r.block("careful")
            b.branch(behind)
            b.position_at_end(done)
            lookup.touch(r, self.site, first, end)
            self._quick()
            b.ret(I1(0))
            b.position_at_end(behind)
        self.each(self._move, self._move_byte)
        self.finish()

    def _known(self, first: ir.Value, end: ir.Value) -> ir.Value:
        """i1: all bytes from the first lane's to the last one's are initialised; false where they are many."""
        r, b = self.r, self.r.b
        known = r.local(I1, 0)
        with r.when(r.below(b.sub(end, first), I64(_SHORT_SPAN))):
            where = r.get(self.site, MEMORY_SITE, "range")
            b.store(initialised.span_known(r, r.get(where, RANGE, "shadow"), first, end), known)
        return r.load(known, I1)

    def _prepare_store(self, flags: ir.Value, first: ir.Value, last: ir.Value, done: ir.Block) -> None:
        """Save pages or mark bytes for all lanes at once, then go to `done`; nothing where stores are watched."""
        r, b = self.r, self.r.b
        where = r.get(self.site, MEMORY_SITE, "range")
        saved, clean = r.has(flags, RangeFlag.SAVED), r.has(flags, RangeFlag.CLEAN)
        near = r.below(b.sub(last, first), I64(PAGE_BYTES - self.size_bytes))
        with r.when(b.not_(r.has(flags, WATCHED))):
            if self.checks.fast:
                with r.when(b.not_(b.or_(saved, clean))):
                    base = r.get(where, RANGE, "shadow")
                    r.each_lane(
                        self.exec, lambda lane: initialised.mark(r, base, self.lane_va(lane), self.size_bytes)
                    )
                    b.branch(done)
                saved = b.and_(saved, clean)
            with r.when(b.and_(saved, near)):
                self.save(where, first)
                self.save(where, b.add(last, I64(self.size_bytes - 1)))
                b.branch(done)

    def _quiet(self) -> ir.Value:
        """At level full: nothing but the bounds to look at."""
        r, b = self.r, self.r.b
        where = r.get(self.site, MEMORY_SITE, "range")
        serial = r.get(self.context, CONTEXT, "serial")
        flag = r.local(I1, 0)
        with r.when(b.icmp_unsigned("!=", where, lookup.NOTHING)):
            b.store(b.icmp_unsigned("!=", r.get(where, RANGE, "stored"), serial), flag)
        quiet = r.load(flag, I1)
        if self.size_bytes > 1:
            low = b.and_(self._combined, I64(min(self.size_bytes, 4) - 1))
            quiet = b.and_(quiet, r.equal(low, 0))
        return quiet

    def _first_and_last(self) -> tuple[ir.Value, ir.Value]:
        r, b, wave = self.r, self.r.b, self.wave
        of = ir.VectorType(I64, wave)
        vas = r.load(self.addresses, of)
        bits = self.exec if wave == 64 else b.trunc(self.exec, ir.IntType(wave))
        mask = b.bitcast(bits, ir.VectorType(I1, wave))
        ones, zeros = ir.Constant(of, [I64(-1)] * wave), ir.Constant(of, None)
        low, high = b.select(mask, vas, ones), b.select(mask, vas, zeros)
        if self.checks.full:
            self._combined = r.intrinsic(f"llvm.vector.reduce.or.v{wave}i64", I64, high)
        return (
            r.intrinsic(f"llvm.vector.reduce.umin.v{wave}i64", I64, low),
            r.intrinsic(f"llvm.vector.reduce.umax.v{wave}i64", I64, high),
        )

    def _quick(self) -> None:
        r, b = self.r, self.r.b
        delta = r.get(self.site, MEMORY_SITE, "delta")

        def move(lane: ir.Value) -> None:
            self._move(lane, None, b.inttoptr(b.add(self.lane_va(lane), delta), POINTER))

        def several(index: ir.Value) -> None:
            start = b.mul(index, I64(_UNROLLED))
            for at in range(_UNROLLED):
                move(b.add(start, I64(at)))

        everyone = r.equal(self.exec, (1 << self.wave) - 1)
        with b.if_else(everyone) as (yes, no):
            with yes:
                r.repeat(self.wave // _UNROLLED, several)
            with no:
                r.each_lane(self.exec, move)

    def _move(self, lane: ir.Value, va: ir.Value | None, host: ir.Value) -> None:
        data = self.lane_data(lane)
        to, source = (data, host) if self.reads else (host, data)
        copy(self.r, to, source, self.size_bytes)

    def _move_byte(self, lane: ir.Value, byte: ir.Value, host: ir.Value) -> None:
        data = self.r.offset(self.lane_data(lane), byte)
        to, source = (data, host) if self.reads else (host, data)
        copy(self.r, to, source, 1)
