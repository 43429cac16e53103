"""Common parts of out-of-line accesses to global memory: addresses, bounds, initialised bytes, races.

A lane's address is the base plus an offset. `offsets` contains the low halves and, if HIGH is set, the high halves
after them. The lanes' data are contiguous in `data`.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.chips import PAGE_BYTES
from zinc_rt.sim.shader.checks import initialised, watchpoints
from zinc_rt.sim.shader.checks.lane_marks import Marks
from zinc_rt.sim.shader.checks.races import RETURNS, emit_global_race
from zinc_rt.sim.shader.emit.builder import HelperBuilder
from zinc_rt.sim.shader.emit.emitter import Emitter
from zinc_rt.sim.shader.emit.values import I1, I8, I32, I64, POINTER, VOID
from zinc_rt.sim.shader.layout import ARRAY_CACHE, CONTEXT, MEMORY_SITE, RANGE, WaveAccess
from zinc_rt.sim.shader.memory import cached_access, lookup, touched
from zinc_rt.sim.shader.memory.ranges import RangeFlag

LANES = ir.FunctionType(I1, [POINTER, POINTER, POINTER, I32, I64, I64, POINTER, POINTER])
"""(state, context, MEMORY_SITE, number of the first rule's site, lanes, base, offsets, data) -> faulted"""
RULES = ("out-of-bounds", "uninitialised-memory", "misaligned", "race", "stale-line")
"""Rules of a memory instruction; their sites are numbered in this order."""
OUT_OF_BOUNDS, UNINITIALISED, MISALIGNED, RACE, STALE = range(5)
HIGH = 1 << 30  # flag next to the number of the first rule's site: offsets have 64 bits
SITE_BITS = RETURNS - 1
SAVE_PAGES = ir.FunctionType(VOID, [I64, I64])


class LaneAccesses:
    """The common part of the lane loops of loads, stores and atomics. `r` builds a function of type LANES,
    possibly with more arguments at the end.
    """

    def __init__(self, e: Emitter, function: ir.Function, size_bytes: int, kind: WaveAccess) -> None:
        self.e, self.checks, self.wave = e, e.checks, e.wave
        self.size_bytes, self.kind = size_bytes, kind
        self.reads, self.stores = kind is not WaveAccess.WRITE, kind in lookup.STORES
        self.b = HelperBuilder(function)
        (
            self.state, self.context, self.site, self.rules, self.exec, base, offsets, self.data,
        ) = function.args  # fmt: skip
        self.addresses = self._addresses(base, offsets)
        scalar = kind is WaveAccess.SCALAR_READ
        self.cache = self.b.get(self.context, CONTEXT, "scalar_cache" if scalar else "vector_cache")
        has_array = e.rules.has_array_caches
        self.array = self.b.get(self.context, CONTEXT, "array_cache") if has_array else I64(0)
        self.find, self.refill = lookup.find(self.b), lookup.refill(self.b, e.checks)
        self.marks = Marks(self.b, len(RULES), self.context, (RACE,) if e.checks.full else ())
        self._faults = Marks(self.b, 1)

    def _addresses(self, base: ir.Value, offsets: ir.Value) -> ir.Value:
        """Return a pointer to the lanes' VAs."""
        b, wave = self.b, self.wave
        half, whole = ir.VectorType(I32, wave), ir.VectorType(I64, wave)
        low = b.zext(b.load(offsets, typ=half), whole)
        upper = b.zext(b.load(b.offset(offsets, 4 * wave), typ=half), whole)
        upper = b.shl(upper, ir.Constant(whole, [I64(32)] * wave))
        has_upper = b.has(self.rules, HIGH)
        upper = b.select(has_upper, upper, ir.Constant(whole, None))
        one = b.insert_element(ir.Constant(whole, ir.Undefined), base, I32(0))
        bases = b.shuffle_vector(one, ir.Constant(whole, ir.Undefined), ir.Constant(half, None))
        return b.local(whole, b.add(bases, b.or_(low, upper)))

    def refilled(self, first: ir.Value, end: ir.Value) -> ir.Value:
        """Return lookup.refill for this access (i1)."""
        arguments = [self.context, self.site, first, end, I32(self.kind), self.wide()]
        return self.b.call(self.refill, arguments)

    def wide(self) -> ir.Value:
        """Return the bytes of a wide access (i64): those of all lanes, or of a scalar load."""
        if self.kind is not WaveAccess.SCALAR_READ:
            return I64(self.size_bytes * self.wave)
        count = self.b.intrinsic("llvm.ctpop", I64, self.exec)
        return self.b.mul(count, self.size_bytes)

    def drop_in_array(self, va: ir.Value) -> None:
        """Drop the line of GL1 that a store or an atomic changes."""
        if self.e.rules.has_array_caches:
            self.b.call(cached_access.drop_helper(self.b, ARRAY_CACHE), [self.array, va])

    def lane_va(self, lane: ir.Value) -> ir.Value:
        return self.b.load(self.b.element(self.addresses, lane, I64), typ=I64)

    def lane_data(self, lane: ir.Value) -> ir.Value:
        return self.b.offset(self.data, self.b.mul(lane, self.size_bytes))

    def finish(self) -> None:
        """Report the marked violations; return whether a lane faulted."""
        b = self.b
        scalar = self.kind is WaveAccess.SCALAR_READ
        if self.checks.fast:
            site = b.and_(self.rules, SITE_BITS)
            self.marks.report(self.state, self.context, site, scalar=scalar)
        faulted = self._faults.any(0)
        with b.if_then(faulted, likely=False):
            b.put(self.context, CONTEXT, "fault_va", self._faults.first(0))
            b.put(self.context, CONTEXT, "fault_lanes", I64(0) if scalar else self._faults.lanes(0))
            b.put(self.context, CONTEXT, "fault_access", int(self.kind))
        b.ret(faulted)
        b.done()

    def each(
        self, body: Callable[[ir.Value, ir.Value, ir.Value], None], bytewise: Callable[..., None] | None
    ) -> None:
        """Emit body(lane, va, host pointer) for lanes whose access is permitted; other lanes are marked or
        fault. `bytewise`(lane, byte, host pointer) handles an access that straddles two mappings; without it
        such an access faults.
        """
        self.b.each_lane(
            self.exec, lambda lane: self._lane(lane, body, bytewise), descending=self.checks.reverse_lanes
        )

    def _lane(
        self,
        lane: ir.Value,
        body: Callable[[ir.Value, ir.Value, ir.Value], None],
        bytewise: Callable[..., None] | None,
    ) -> None:
        b, size = self.b, self.size_bytes
        va = self.lane_va(lane)
        end = b.add(va, size)
        cached = lookup.inside(b, self.site, va, va, size)
        known = b.local(I1)
        b.store(cached, known)
        with b.if_then(b.not_(cached), likely=False):
            b.store(self.refilled(va, end), known)
        with b.if_else(b.load(known, typ=I1), likely=True) as (yes, no):
            with yes:
                touched.touch(b, self.context, self.site, va, end)
                host = b.inttoptr(b.add(va, b.get(self.site, MEMORY_SITE, "delta")), POINTER)
                self._checked(lane, va, host, body)
            with no:
                self._outside(lane, va, body, bytewise)

    def _checked(self, lane: ir.Value, va: ir.Value, host: ir.Value, body: Callable[..., None]) -> None:
        b = self.b
        where = b.get(self.site, MEMORY_SITE, "range")
        flags = b.get(self.site, MEMORY_SITE, "flags")
        if self.stores:
            self._before_store(lane, va, where, flags)
        if self.checks.fast:
            with b.if_then(b.not_(b.has(flags, RangeFlag.CLEAN))):
                base = b.get(where, RANGE, "shadow")
                if self.reads:
                    known = initialised.emit_is_known(b, base, va, self.size_bytes)
                    with b.if_then(b.not_(known), likely=False):
                        self.marks.mark(UNINITIALISED, lane, va)
                if self.stores:
                    initialised.emit_mark(b, base, va, self.size_bytes)
        if self.checks.full:
            self._race(lane, va, where)
        body(lane, va, host)

    def _race(self, lane: ir.Value, va: ir.Value, where: ir.Value) -> None:
        """Check a lane for races in mode full. Reads are recorded once the range has been stored to."""
        b = self.b
        looked_at: ir.Value = I1(1)
        if not self.stores:
            looked_at = b.equal(b.get(where, RANGE, "stored"), b.get(self.context, CONTEXT, "serial"))
        with b.if_then(looked_at):
            location = (self.state, self.context, where)
            race = emit_global_race(
                b, location, va, self.size_bytes, self.kind, self.rules, marked_stores=self.e.rules.has_scopes
            )
            with b.if_then(race, likely=False):
                self.marks.mark(RACE, lane, va)

    def _before_store(self, lane: ir.Value, va: ir.Value, where: ir.Value, flags: ir.Value) -> None:
        b = self.b
        with b.if_then(b.has(flags, RangeFlag.SAVED)):
            for index in (va, b.add(va, self.size_bytes - 1)) if self.size_bytes > 1 else (va,):
                self.save(where, index)
        data = self.lane_data(lane)
        site = b.and_(self.rules, SITE_BITS)
        watchpoints.record_if_watched(b, (self.state, self.context, site), lane, va, data, self.size_bytes)

    def save(self, where: ir.Value, va: ir.Value) -> None:
        """Ensure that the page has been saved before it is stored to."""
        b = self.b
        number = b.udiv(va, PAGE_BYTES)
        saved = b.inttoptr(b.add(b.get(where, RANGE, "saved"), number), POINTER)
        with b.if_then(b.equal(b.load_atomic(saved, "acquire", 1, typ=I8), 0), likely=False):
            save = b.ptrtoint(b.get(self.context, CONTEXT, "save_pages"), I64)
            save = b.inttoptr(save, SAVE_PAGES.as_pointer())
            b.call(save, [b.mul(number, PAGE_BYTES), I64(PAGE_BYTES)])

    def _outside(
        self, lane: ir.Value, va: ir.Value, body: Callable[..., None], bytewise: Callable[..., None] | None
    ) -> None:
        """Handle an access outside all ranges: mapped anyway, straddling mappings, or a fault."""
        b = self.b
        spans, count = b.get(self.context, CONTEXT, "spans"), b.get(self.context, CONTEXT, "spans_count")
        where = b.call(self.find, [spans, count, va, b.add(va, self.size_bytes)])
        whole, parts, behind = (
            b.append_basic_block("whole"),
            b.append_basic_block("parts"),
            b.append_basic_block("behind"),
        )
        b.cbranch(b.equal(where, lookup.NOTHING), parts, whole)
        b.position_at_end(whole)
        allowed = lookup.permitted(b, b.get(where, RANGE, "flags"), I32(self.kind))
        with b.if_else(allowed) as (yes, no):
            with yes:
                self.marks.mark(OUT_OF_BOUNDS, lane, va)
                if self.stores:
                    self._before_store(lane, va, where, b.get(where, RANGE, "flags"))
                body(lane, va, b.inttoptr(b.add(va, b.get(where, RANGE, "delta")), POINTER))
            with no:
                self._faults.mark(0, lane, va)
        b.branch(behind)
        b.position_at_end(parts)
        if bytewise is None:
            self._faults.mark(0, lane, va)
        else:
            straddles = b.local(I1, 1)

            def one(index: ir.Value) -> None:
                position = b.add(va, index)
                byte = b.call(self.find, [spans, count, position, b.add(position, 1)])
                allowed = b.local(I1, 0)
                with b.if_then(b.unequal(byte, lookup.NOTHING)):
                    b.store(lookup.permitted(b, b.get(byte, RANGE, "flags"), I32(self.kind)), allowed)
                with b.if_else(b.load(allowed, typ=I1)) as (yes, no):
                    with yes:
                        host = b.inttoptr(b.add(position, b.get(byte, RANGE, "delta")), POINTER)
                        if self.stores:
                            with b.if_then(b.has(b.get(byte, RANGE, "flags"), RangeFlag.SAVED)):
                                self.save(byte, position)
                        bytewise(lane, index, host)
                    with no, b.if_then(b.load(straddles, typ=I1)):
                        b.store(I1(0), straddles)
                        self._faults.mark(0, lane, position)

            b.repeat(self.size_bytes, one)
            with b.if_then(b.load(straddles, typ=I1)):
                self.marks.mark(OUT_OF_BOUNDS, lane, va)
        b.branch(behind)
        b.position_at_end(behind)
