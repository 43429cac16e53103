"""Out of line: loads and stores of lanes that are not simply side by side in one range, with all checks.

The lanes' data lie side by side in `data`, `size_bytes` each; each one's address is
the base and an offset: the dwords in `offsets` are the low halves, and if HIGH says so the high ones behind them.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.chips import PAGE_BYTES
from zinc_rt.sim.shader import lookup, reports, shadow, watch
from zinc_rt.sim.shader.emitter import Emitter
from zinc_rt.sim.shader.layout import CONTEXT, MEMORY_SITE, PLAIN, RANGE, WATCHED, Access
from zinc_rt.sim.shader.races import global_race
from zinc_rt.sim.shader.ranges import RangeFlag
from zinc_rt.sim.shader.routine import I1, I8, I32, I64, POINTER, VOID, Routine

LANES = ir.FunctionType(I1, [POINTER, POINTER, POINTER, I32, I64, I64, POINTER, POINTER])
"""(state, context, MEMORY_SITE, number of the first rule's site, lanes, base, offsets, data) -> faulted"""
RULES = ("out-of-bounds", "uninitialised-memory", "misaligned", "race")
"""Of a memory instruction; their sites are numbered in this order."""
OUT_OF_BOUNDS, UNINITIALISED, MISALIGNED, RACE = range(4)
HIGH = 1 << 30  # beside the number of the first rule's site: offsets have 64 bits
SYNCHRONISING = 1 << 31  # beside the number of the first rule's site: an access of device or system scope

_UNROLLED = 4
_SHORT_SPAN = 1 << 12  # bytes whose shadow is worth looking through at once
SAVE_PAGES = ir.FunctionType(VOID, [I64, I64])


def lanes_load(e: Emitter, size_bytes: int) -> ir.Function:
    return e.helper(f"zrt.load{size_bytes}", LANES, lambda f: _Lanes(e, f, size_bytes, Access.READ).build())


def lanes_store(e: Emitter, size_bytes: int) -> ir.Function:
    return e.helper(f"zrt.store{size_bytes}", LANES, lambda f: _Lanes(e, f, size_bytes, Access.WRITE).build())


def scalar_load(e: Emitter, size_bytes: int) -> ir.Function:
    """Its "lanes" are the dwords of one scalar load (or one byte, or one half)."""
    kind = Access.SCALAR_READ
    return e.helper(f"zrt.scalar_load{size_bytes}", LANES, lambda f: _Lanes(e, f, size_bytes, kind).build())


def copy(r: Routine, to: ir.Value, source: ir.Value, size_bytes: int) -> None:
    """1 to 16 bytes, of any alignment."""
    at = 0
    while at < size_bytes:
        step = next(step for step in (16, 8, 4, 2, 1) if step <= size_bytes - at)
        of = ir.VectorType(I32, 4) if step == 16 else ir.IntType(8 * step)
        r.b.store(r.load(r.offset(source, at), of, 1), r.offset(to, at), align=1)
        at += step


class Accesses:
    """What the lane loops of loads, stores and atomics have in common. `r` writes a function of type LANES or one
    with more arguments behind."""

    def __init__(self, e: Emitter, function: ir.Function, size_bytes: int, kind: Access) -> None:
        self.e, self.checks, self.wave = e, e.checks, e.wave
        self.size_bytes, self.kind = size_bytes, kind
        self.reads, self.stores = kind is not Access.WRITE, kind in lookup.STORES
        self.r = Routine(function)
        (
            self.state, self.context, self.site, self.rules, self.exec, base, offsets, self.data,
        ) = function.args  # fmt: skip
        self.addresses = self._addresses(base, offsets)
        self.find, self.refill = lookup.find(e), lookup.refill(e)
        self.found = [self.r.local(I64, 0) for _ in RULES]
        self.first_found = [self.r.local(I64, 0) for _ in RULES]
        self.faulted, self.fault_va = self.r.local(I64, 0), self.r.local(I64, 0)

    def _addresses(self, base: ir.Value, offsets: ir.Value) -> ir.Value:
        """Pointer to the lanes' VAs."""
        r, b, wave = self.r, self.r.b, self.wave
        half, whole = ir.VectorType(I32, wave), ir.VectorType(I64, wave)
        low = b.zext(r.load(offsets, half), whole)
        upper = b.zext(r.load(r.offset(offsets, 4 * wave), half), whole)
        upper = b.shl(upper, ir.Constant(whole, [I64(32)] * wave))
        has_upper = r.has(self.rules, HIGH)
        upper = b.select(has_upper, upper, ir.Constant(whole, None))
        one = b.insert_element(ir.Constant(whole, ir.Undefined), base, I32(0))
        bases = b.shuffle_vector(one, ir.Constant(whole, ir.Undefined), ir.Constant(half, None))
        return r.local(whole, b.add(bases, b.or_(low, upper)))

    def _refilled(self, first: ir.Value, end: ir.Value) -> ir.Value:
        """i1: lookup.refill for this access."""
        b = self.r.b
        wide: ir.Value = I64(self.size_bytes * self.wave)
        if self.kind is Access.SCALAR_READ:
            count = self.r.intrinsic("llvm.ctpop.i64", I64, self.exec)
            wide = b.mul(count, I64(self.size_bytes))
        return b.call(self.refill, [self.context, self.site, first, end, I32(self.kind), wide])

    def mark(self, rule: int, lane: ir.Value, address: ir.Value) -> None:
        """The lane broke the rule at that address."""
        r = self.r
        none = r.equal(r.load(self.found[rule], I64), 0)
        old = r.load(self.first_found[rule], I64)
        r.b.store(r.b.select(none, address, old), self.first_found[rule])
        r.note(self.found[rule], lane)

    def fault(self, lane: ir.Value, address: ir.Value) -> None:
        r = self.r
        none = r.equal(r.load(self.faulted, I64), 0)
        r.b.store(r.b.select(none, address, r.load(self.fault_va, I64)), self.fault_va)
        r.note(self.faulted, lane)

    def lane_va(self, lane: ir.Value) -> ir.Value:
        return self.r.load(self.r.element(self.addresses, lane, I64), I64)

    def lane_data(self, lane: ir.Value) -> ir.Value:
        return self.r.offset(self.data, self.r.b.mul(lane, I64(self.size_bytes)))

    def finish(self) -> None:
        """Report what was marked; return whether a lane faulted."""
        r, b = self.r, self.r.b
        if self.checks.fast:
            report = self.e.helper("zrt.report", reports.REPORT, reports.build)
            for rule in range(len(RULES)):
                lanes = r.load(self.found[rule], I64)
                with r.when(b.icmp_unsigned("!=", lanes, I64(0)), likely=False):
                    site = b.add(b.and_(self.rules, I32(HIGH - 1)), I32(rule))
                    address = r.load(self.first_found[rule], I64)
                    shown = I64(0) if self.kind is Access.SCALAR_READ else lanes
                    b.call(report, [self.state, self.context, site, shown, address])
        lanes = r.load(self.faulted, I64)
        faulted = b.icmp_unsigned("!=", lanes, I64(0))
        with r.when(faulted, likely=False):
            r.put(self.context, CONTEXT, "fault_va", r.load(self.fault_va, I64))
            shown = I64(0) if self.kind is Access.SCALAR_READ else lanes
            r.put(self.context, CONTEXT, "fault_lanes", shown)
            r.put(self.context, CONTEXT, "fault_access", int(self.kind))
        b.ret(faulted)
        r.done()

    def each(
        self, body: Callable[[ir.Value, ir.Value, ir.Value], None], bytewise: Callable[..., None] | None
    ) -> None:
        """body(lane, va, host pointer) for the lanes that may access; the others are marked or fault.
        `bytewise`(lane, byte, host pointer): for an access that straddles two mappings; without it such a one
        faults."""
        self.r.each_lane(self.exec, lambda lane: self._lane(lane, body, bytewise))

    def _lane(
        self,
        lane: ir.Value,
        body: Callable[[ir.Value, ir.Value, ir.Value], None],
        bytewise: Callable[..., None] | None,
    ) -> None:
        r, b, size = self.r, self.r.b, self.size_bytes
        va = self.lane_va(lane)
        end = b.add(va, I64(size))
        cached = lookup.inside(r, self.site, va, va, size)
        known = r.local(I1)
        b.store(cached, known)
        with r.when(b.not_(cached), likely=False):
            b.store(self._refilled(va, end), known)
        with b.if_else(r.load(known, I1), likely=True) as (yes, no):
            with yes:
                lookup.touch(r, self.site, va, end)
                host = b.inttoptr(b.add(va, r.get(self.site, MEMORY_SITE, "delta")), POINTER)
                self._checked(lane, va, host, body)
            with no:
                self._outside(lane, va, body, bytewise)

    def _checked(self, lane: ir.Value, va: ir.Value, host: ir.Value, body: Callable[..., None]) -> None:
        r, b = self.r, self.r.b
        where = r.get(self.site, MEMORY_SITE, "range")
        flags = r.get(self.site, MEMORY_SITE, "flags")
        if self.checks.full and self.size_bytes > 1:
            off = b.and_(va, I64(min(self.size_bytes, 4) - 1))
            with r.when(b.icmp_unsigned("!=", off, I64(0)), likely=False):
                self.mark(MISALIGNED, lane, va)
        if self.stores:
            self._before_store(lane, va, where, flags)
        if self.checks.fast:
            with r.when(b.not_(r.has(flags, RangeFlag.CLEAN))):
                base = r.get(where, RANGE, "shadow")
                if self.reads:
                    known = shadow.known(r, base, va, self.size_bytes)
                    with r.when(b.not_(known), likely=False):
                        self.mark(UNINITIALISED, lane, va)
                if self.stores:
                    shadow.mark(r, base, va, self.size_bytes)
        if self.checks.full:
            self._race(lane, va, where)
        body(lane, va, host)

    def _race(self, lane: ir.Value, va: ir.Value, where: ir.Value) -> None:
        """Level full: against what other waves did. Reads count once somebody has stored to the range."""
        r = self.r
        looked_at: ir.Value = I1(1)
        if not self.stores:
            looked_at = r.equal(r.get(where, RANGE, "stored"), r.get(self.context, CONTEXT, "serial"))
        with r.when(looked_at):
            synchronising = r.has(self.rules, SYNCHRONISING)
            place = (self.state, self.context, where)
            race = global_race(self.e, r, place, va, self.size_bytes, self.kind, synchronising)
            with r.when(race, likely=False):
                self.mark(RACE, lane, va)

    def _before_store(self, lane: ir.Value, va: ir.Value, where: ir.Value, flags: ir.Value) -> None:
        r, b = self.r, self.r.b
        with r.when(r.has(flags, RangeFlag.SAVED)):
            for at in (va, b.add(va, I64(self.size_bytes - 1))) if self.size_bytes > 1 else (va,):
                self._save(where, at)
        data = self.lane_data(lane)
        site = b.and_(self.rules, I32(HIGH - 1))
        watch.look(self.e, r, (self.state, self.context, site), lane, va, data, self.size_bytes)

    def _save(self, where: ir.Value, va: ir.Value) -> None:
        """See that the page has been saved before it is stored to."""
        r, b = self.r, self.r.b
        number = b.udiv(va, I64(PAGE_BYTES))
        saved = b.inttoptr(b.add(r.get(where, RANGE, "saved"), number), POINTER)
        with r.when(r.equal(b.load_atomic(saved, "acquire", 1, typ=I8), 0), likely=False):
            save = b.ptrtoint(r.get(self.context, CONTEXT, "save_pages"), I64)
            save = b.inttoptr(save, SAVE_PAGES.as_pointer())
            b.call(save, [b.mul(number, I64(PAGE_BYTES)), I64(PAGE_BYTES)])

    def _outside(
        self, lane: ir.Value, va: ir.Value, body: Callable[..., None], bytewise: Callable[..., None] | None
    ) -> None:
        """In no range: mapped all the same, straddling, or a fault."""
        r, b = self.r, self.r.b
        spans, count = r.get(self.context, CONTEXT, "spans"), r.get(self.context, CONTEXT, "spans_count")
        where = b.call(self.find, [spans, count, va, b.add(va, I64(self.size_bytes))])
        whole, parts, behind = r.block("whole"), r.block("parts"), r.block("behind")
        b.cbranch(r.equal(where, lookup.NOTHING), parts, whole)
        b.position_at_end(whole)
        allowed = lookup.permitted(r, r.get(where, RANGE, "flags"), I32(self.kind))
        with b.if_else(allowed) as (yes, no):
            with yes:
                self.mark(OUT_OF_BOUNDS, lane, va)
                if self.stores:
                    self._before_store(lane, va, where, r.get(where, RANGE, "flags"))
                body(lane, va, b.inttoptr(b.add(va, r.get(where, RANGE, "delta")), POINTER))
            with no:
                self.fault(lane, va)
        b.branch(behind)
        b.position_at_end(parts)
        if bytewise is None:
            self.fault(lane, va)
        else:
            straddles = r.local(I1, 1)

            def one(index: ir.Value) -> None:
                at = b.add(va, index)
                byte = b.call(self.find, [spans, count, at, b.add(at, I64(1))])
                allowed = r.local(I1, 0)
                with r.when(b.icmp_unsigned("!=", byte, lookup.NOTHING)):
                    b.store(lookup.permitted(r, r.get(byte, RANGE, "flags"), I32(self.kind)), allowed)
                with b.if_else(r.load(allowed, I1)) as (yes, no):
                    with yes:
                        host = b.inttoptr(b.add(at, r.get(byte, RANGE, "delta")), POINTER)
                        bytewise(lane, index, host)
                    with no, r.when(r.load(straddles, I1)):
                        b.store(I1(0), straddles)
                        self.fault(lane, at)

            r.repeat(self.size_bytes, one)
            with r.when(r.load(straddles, I1)):
                self.mark(OUT_OF_BOUNDS, lane, va)
        b.branch(behind)
        b.position_at_end(behind)


class _Lanes(Accesses):
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
            b.store(self._refilled(first, end), fits)
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
            b.store(shadow.span_known(r, r.get(where, RANGE, "shadow"), first, end), known)
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
                    r.each_lane(self.exec, lambda lane: shadow.mark(r, base, self.lane_va(lane), self.size_bytes))
                    b.branch(done)
                saved = b.and_(saved, clean)
            with r.when(b.and_(saved, near)):
                self._save(where, first)
                self._save(where, b.add(last, I64(self.size_bytes - 1)))
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
