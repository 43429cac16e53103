"""Out-of-line loads and stores with all checks, for lanes that are not contiguous in one range."""

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.chips import PAGE_BYTES
from zinc_rt.sim.shader.checks import initialised
from zinc_rt.sim.shader.checks.races import SCOPED
from zinc_rt.sim.shader.emit.builder import CodeBuilder
from zinc_rt.sim.shader.emit.emitter import Emitter
from zinc_rt.sim.shader.emit.values import I1, I32, I64, POINTER
from zinc_rt.sim.shader.layout import (
    CONTEXT,
    MEMORY_SITE,
    PLAIN,
    RANGE,
    SCALAR_CACHE,
    VECTOR_CACHE,
    WATCHED,
    WaveAccess,
)
from zinc_rt.sim.shader.memory import cached_access, lookup, touched
from zinc_rt.sim.shader.memory.lane_checks import LANES, STALE, LaneAccesses
from zinc_rt.sim.shader.memory.ranges import RangeFlag

_UNROLLED = 4
_SHORT_SPAN = 1 << 12  # bytes whose shadow is worth looking through at once


def lanes_load(e: Emitter, size_bytes: int) -> ir.Function:
    return e.b.helper(f"zrt.load{size_bytes}", LANES, lambda f: _Lanes(e, f, size_bytes, WaveAccess.READ).build())


def lanes_store(e: Emitter, size_bytes: int) -> ir.Function:
    return e.b.helper(
        f"zrt.store{size_bytes}", LANES, lambda f: _Lanes(e, f, size_bytes, WaveAccess.WRITE).build()
    )


def scalar_load(e: Emitter, size_bytes: int) -> ir.Function:
    """Return the helper of a scalar load. The "lanes" are the dwords of the load (or one byte, or one half)."""
    kind = WaveAccess.SCALAR_READ
    return e.b.helper(f"zrt.scalar_load{size_bytes}", LANES, lambda f: _Lanes(e, f, size_bytes, kind).build())


def copy(b: CodeBuilder, to: ir.Value, source: ir.Value, size_bytes: int) -> None:
    """Copy 1 to 16 bytes of any alignment."""
    index = 0
    while index < size_bytes:
        step = next(step for step in (16, 8, 4, 2, 1) if step <= size_bytes - index)
        of = ir.VectorType(I32, 4) if step == 16 else ir.IntType(8 * step)
        b.store(b.load(b.offset(source, index), typ=of, align=1), b.offset(to, index), align=1)
        index += step


class _Lanes(LaneAccesses):
    """The lane loops of a load or a store."""

    def build(self) -> None:
        b, size = self.b, self.size_bytes
        with b.if_then(b.equal(self.exec, 0)):
            b.ret(I1(0))
        first, last = self._first_and_last()
        end = b.add(last, size)
        fits = b.local(I1)
        cached = lookup.inside(b, self.site, first, last, size)
        b.store(cached, fits)
        with b.if_then(b.not_(cached)):
            b.store(self.refilled(first, end), fits)
        simple = b.load(fits, typ=I1)
        simple = b.and_(simple, b.equal(self.cache, 0))
        if self.checks.full:
            simple = b.and_(simple, self._is_silent())
        with b.if_then(simple, likely=True):
            flags = b.get(self.site, MEMORY_SITE, "flags")
            result = b.append_basic_block("done")
            with b.if_then(b.has(flags, PLAIN), likely=True):
                b.branch(result)
            if self.reads and self.checks.fast:
                with b.if_then(self._known(first, end)):
                    b.call(lookup.widen(b), [self.site, first, end, self.wide()])
                    b.branch(result)
            if self.stores and not self.checks.full:
                self._prepare_store(flags, first, last, result)
            behind = b.append_basic_block("careful")
            b.branch(behind)
            b.position_at_end(result)
            self._touch(first, end)
            self._move_fast()
            b.ret(I1(0))
            b.position_at_end(behind)
        self.each(self._move, self._move_byte)
        self.finish()

    def _touch(self, first: ir.Value, end: ir.Value) -> None:
        """Record the accesses of all lanes: as one interval if they are dense or their gaps are recorded already,
        otherwise one by one.
        """
        b, site = self.b, self.site
        dense_bytes = b.mul(b.intrinsic("llvm.ctpop", I64, self.exec), self.size_bytes)
        recorded = touched.is_inside(b, site, first, end)
        with b.if_else(b.or_(recorded, b.at_most(b.sub(end, first), dense_bytes)), likely=True) as (whole, each):
            with whole:
                touched.touch(b, self.context, site, first, end)
            with each:

                def touch_lane(lane: ir.Value) -> None:
                    va = self.lane_va(lane)
                    touched.touch(b, self.context, site, va, b.add(va, self.size_bytes))

                b.each_lane(self.exec, touch_lane)

    def _known(self, first: ir.Value, end: ir.Value) -> ir.Value:
        """Return i1: all bytes from the first to the last lane are initialised; false if there are too many to
        check.
        """
        b = self.b
        known = b.local(I1, 0)
        with b.if_then(b.below(b.sub(end, first), _SHORT_SPAN)):
            where = b.get(self.site, MEMORY_SITE, "range")
            b.store(initialised.emit_is_span_known(b, b.get(where, RANGE, "shadow"), first, end), known)
        return b.load(known, typ=I1)

    def _prepare_store(self, flags: ir.Value, first: ir.Value, last: ir.Value, done: ir.Block) -> None:
        """Save pages or mark bytes for all lanes at once, then branch to `done`; does nothing if stores are
        watched.
        """
        b = self.b
        where = b.get(self.site, MEMORY_SITE, "range")
        saved, clean = b.has(flags, RangeFlag.SAVED), b.has(flags, RangeFlag.CLEAN)
        near = b.below(b.sub(last, first), PAGE_BYTES - self.size_bytes)
        with b.if_then(b.not_(b.has(flags, WATCHED))):
            if self.checks.fast:
                with b.if_then(b.not_(b.or_(saved, clean))):
                    base = b.get(where, RANGE, "shadow")
                    b.each_lane(
                        self.exec, lambda lane: initialised.emit_mark(b, base, self.lane_va(lane), self.size_bytes)
                    )
                    b.branch(done)
                saved = b.and_(saved, clean)
            with b.if_then(b.and_(saved, near)):
                self.save(where, first)
                self.save(where, b.add(last, self.size_bytes - 1))
                b.branch(done)

    def _is_silent(self) -> ir.Value:
        """Return i1: in mode full, this access needs no check except bounds."""
        b = self.b
        where = b.get(self.site, MEMORY_SITE, "range")
        serial = b.get(self.context, CONTEXT, "serial")
        flag = b.local(I1, 0)
        with b.if_then(b.unequal(where, lookup.NOTHING)):
            b.store(b.unequal(b.get(where, RANGE, "stored"), serial), flag)
        quiet = b.load(flag, typ=I1)
        if self.size_bytes > 1:
            low = b.and_(self._combined, min(self.size_bytes, 4) - 1)
            quiet = b.and_(quiet, b.equal(low, 0))
        return quiet

    def _first_and_last(self) -> tuple[ir.Value, ir.Value]:
        b, wave = self.b, self.wave
        of = ir.VectorType(I64, wave)
        vas = b.load(self.addresses, typ=of)
        mask = b.lane_mask(self.exec, wave)
        ones, zeros = ir.Constant(of, [I64(-1)] * wave), ir.Constant(of, None)
        low, high = b.select(mask, vas, ones), b.select(mask, vas, zeros)
        if self.checks.full:
            self._combined = b.reduced("or", high)
        return b.reduced("umin", low), b.reduced("umax", high)

    def _move_fast(self) -> None:
        b = self.b
        delta = b.get(self.site, MEMORY_SITE, "delta")

        def move(lane: ir.Value) -> None:
            self._move(lane, None, b.inttoptr(b.add(self.lane_va(lane), delta), POINTER))

        def several(index: ir.Value) -> None:
            start = b.mul(index, _UNROLLED)
            for at in range(_UNROLLED):
                move(b.add(start, at))

        everyone = b.equal(self.exec, (1 << self.wave) - 1) if not self.checks.reverse_lanes else I1(0)
        with b.if_else(everyone) as (yes, no):
            with yes:
                b.repeat(self.wave // _UNROLLED, several)
            with no:
                b.each_lane(self.exec, move, descending=self.checks.reverse_lanes)

    def _move(self, lane: ir.Value, va: ir.Value | None, host: ir.Value) -> None:
        data = self.lane_data(lane)
        if va is None:
            self._copy(data, host, self.size_bytes)
            return
        with self.b.if_else(self.b.equal(self.cache, 0)) as (plain, cached):
            with plain:
                self._copy(data, host, self.size_bytes)
            with cached:
                self._through_cache(lane, va, host, data)

    def _copy(self, data: ir.Value, host: ir.Value, size_bytes: int) -> None:
        to, source = (data, host) if self.reads else (host, data)
        copy(self.b, to, source, size_bytes)

    def _through_cache(self, lane: ir.Value, va: ir.Value, host: ir.Value, data: ir.Value) -> None:
        b, size = self.b, I64(self.size_bytes)
        if self.stores:
            self._copy(data, host, self.size_bytes)
            b.call(cached_access.update_helper(b), [self.cache, va, data, size])
            self.drop_in_array(va)
            self.drop_in_array(b.add(va, self.size_bytes - 1))
            return
        shape = SCALAR_CACHE if self.kind is WaveAccess.SCALAR_READ else VECTOR_CACHE
        past = b.has(self.rules, SCOPED)
        serial = b.zext(b.get(self.context, CONTEXT, "serial"), I64)
        stale = b.call(
            cached_access.load_helper(b, shape), [self.cache, self.array, va, host, data, size, past, serial]
        )
        with b.if_then(stale, likely=False):
            self.marks.mark(STALE, lane, va)

    def _move_byte(self, lane: ir.Value, byte: ir.Value, host: ir.Value) -> None:
        self._copy(self.b.offset(self.lane_data(lane), byte), host, 1)
