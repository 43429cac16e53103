"""Out-of-line LDS accesses with all checks, for lanes that are not contiguous.

The lanes' data are contiguous in `data`; their LDS byte addresses are i64s in `addresses`.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.checks import initialised
from zinc_rt.sim.shader.checks.lane_marks import Marks
from zinc_rt.sim.shader.checks.races import NO_RACE, RETURNS, WITH_STORES, emit_lds_race
from zinc_rt.sim.shader.emit.builder import HelperBuilder
from zinc_rt.sim.shader.emit.emitter import Emitter
from zinc_rt.sim.shader.emit.values import I1, I32, I64, POINTER, VOID
from zinc_rt.sim.shader.layout import STATE, WaveAccess
from zinc_rt.sim.shader.memory.atomic_operations import OPERATIONS
from zinc_rt.sim.shader.memory.lane_access import copy

LDS_LANES = ir.FunctionType(VOID, [POINTER, POINTER, I32, I64, POINTER, POINTER, POINTER])
"""(state, context, number of the first rule's site, lanes, addresses, data, second data)"""
RULES = ("lds-out-of-bounds", "uninitialised-lds", "misaligned", "lds-race", "lds-same-store")
OUT_OF_BOUNDS, UNINITIALISED, MISALIGNED, RACE, SAME_STORE = range(5)
_QUICK_SPAN = 1 << 12  # bytes whose shadow is worth looking through at once


def lds_load(e: Emitter, size_bytes: int) -> ir.Function:
    return e.b.helper(
        f"zrt.lds_load{size_bytes}", LDS_LANES, lambda f: _Lds(e, f, size_bytes, WaveAccess.READ).move()
    )


def lds_store(e: Emitter, size_bytes: int) -> ir.Function:
    return e.b.helper(
        f"zrt.lds_store{size_bytes}", LDS_LANES, lambda f: _Lds(e, f, size_bytes, WaveAccess.WRITE).move()
    )


def lds_atomic(e: Emitter, operation: str, size_bytes: int) -> ir.Function:
    name = f"zrt.lds_{operation}{size_bytes}"
    return e.b.helper(name, LDS_LANES, lambda f: _Lds(e, f, size_bytes, WaveAccess.ATOMIC).change(operation))


class _Lds:
    def __init__(self, e: Emitter, function: ir.Function, size_bytes: int, kind: WaveAccess) -> None:
        self.e, self.checks, self.wave = e, e.checks, e.wave
        self.size_bytes, self.kind = size_bytes, kind
        b = self.b = HelperBuilder(function)
        (
            self.state, self.context, self.rules, self.exec, self.addresses, self.data, self.second,
        ) = function.args  # fmt: skip
        self.base = b.get(self.state, STATE, "lds_base")
        self.shadow = b.get(self.state, STATE, "lds_shadow")
        self.limit = b.zext(b.get(self.state, STATE, "lds_bytes"), I64)
        self.marks = Marks(b, len(RULES), self.context, (RACE, SAME_STORE) if e.checks.full else ())

    def _finish(self) -> None:
        if self.checks.fast:
            self.marks.report(self.state, self.context, self.b.and_(self.rules, RETURNS - 1))
        self.b.ret_void()
        self.b.done()

    def _lane_data(self, data: ir.Value, lane: ir.Value) -> ir.Value:
        return self.b.offset(data, self.b.mul(lane, self.size_bytes))

    def _address(self, lane: ir.Value) -> ir.Value:
        return self.b.load(self.b.element(self.addresses, lane, I64), typ=I64)

    def _host(self, at: ir.Value) -> ir.Value:
        return self.b.inttoptr(self.b.add(self.base, at), POINTER)

    def _each(
        self, inside: Callable[[ir.Value, ir.Value], None], outside: Callable[[ir.Value, ir.Value], None]
    ) -> None:
        b = self.b

        def lane(lane: ir.Value) -> None:
            offset = self._address(lane)
            if self.checks.fast and self.kind is WaveAccess.ATOMIC:
                self._alignment(lane, offset)
            fits = b.at_most(b.add(offset, self.size_bytes), self.limit)
            with b.if_else(fits, likely=True) as (yes, no):
                with yes:
                    self._check_initialised(lane, offset)
                    inside(lane, offset)
                with no:
                    self.marks.mark(OUT_OF_BOUNDS, lane, offset)
                    outside(lane, offset)

        b.each_lane(self.exec, lane, descending=self.checks.reverse_lanes)

    def _alignment(self, lane: ir.Value, at: ir.Value) -> None:
        """Check the alignment of atomics only: KFD uses unaligned mode, in which loads and stores may have any
        address.
        """
        with self.b.if_then(self.b.unequal(self.b.and_(at, self.size_bytes - 1), 0), likely=False):
            self.marks.mark(MISALIGNED, lane, at)

    def _check_initialised(self, lane: ir.Value, at: ir.Value) -> None:
        b = self.b
        if self.checks.fast:
            if self.kind is not WaveAccess.WRITE:
                known = initialised.emit_is_known(b, self.shadow, at, self.size_bytes)
                with b.if_then(b.not_(known), likely=False):
                    self.marks.mark(UNINITIALISED, lane, at)
            if self.kind is not WaveAccess.READ:
                initialised.emit_mark(b, self.shadow, at, self.size_bytes, shared=False)
        if self.checks.full:
            race = emit_lds_race(b, (self.state, self.context), at, self.size_bytes, self.kind, self.rules)
            with b.if_then(b.unequal(race, NO_RACE), likely=False):
                if self.kind is WaveAccess.WRITE:
                    replicated = b.and_(b.equal(race, WITH_STORES), self._is_in_bounds(lane, at))
                    with b.if_else(replicated) as (same, other):
                        with same:
                            self.marks.mark(SAME_STORE, lane, at)
                        with other:
                            self.marks.mark(RACE, lane, at)
                else:
                    self.marks.mark(RACE, lane, at)

    def _is_in_bounds(self, lane: ir.Value, at: ir.Value) -> ir.Value:
        """Return i1: the LDS already holds the bytes that a lane stores."""
        of = ir.IntType(8 * self.size_bytes)
        new = self.b.load(self._lane_data(self.data, lane), typ=of, align=1)
        return self.b.equal(new, self.b.load(self._host(at), typ=of, align=1))

    # --- loads and stores

    def move(self) -> None:
        if not self.checks.full:
            self._move_fast()
        self._each(self._copy, self._access_out_of_bounds)
        self._finish()

    def _copy(self, lane: ir.Value, at: ir.Value) -> None:
        data, host = self._lane_data(self.data, lane), self._host(at)
        to, source = (data, host) if self.kind is WaveAccess.READ else (host, data)
        copy(self.b, to, source, self.size_bytes)

    def _access_out_of_bounds(self, lane: ir.Value, at: ir.Value) -> None:
        """Handle out-of-bounds accesses: dwords not wholly inside read 0; bytes that are inside are stored."""
        b = self.b
        data = self._lane_data(self.data, lane)
        item = min(self.size_bytes, 4) if self.kind is WaveAccess.READ else 1
        of = ir.IntType(8 * item)
        for offset in range(0, self.size_bytes, item):
            location = b.add(at, offset)
            fits = b.at_most(b.add(location, item), self.limit)
            if self.kind is WaveAccess.READ:
                b.store(of(0), b.offset(data, offset), align=1)
                with b.if_then(fits):
                    b.store(b.load(self._host(location), typ=of, align=1), b.offset(data, offset), align=1)
            else:
                with b.if_then(fits):
                    b.store(b.load(b.offset(data, offset), typ=of, align=1), self._host(location), align=1)
                    if self.checks.fast:
                        initialised.emit_mark(b, self.shadow, location, 1, shared=False)

    def _move_fast(self) -> None:
        """Move the data and return if all lanes are in bounds and on initialised bytes."""
        b, wave = self.b, self.wave
        of = ir.VectorType(I64, wave)
        mask = b.lane_mask(self.exec, wave)
        places = b.select(mask, b.load(self.addresses, typ=of), ir.Constant(of, None))
        last = b.reduced("umax", places)
        simple = b.and_(b.unequal(self.exec, 0), b.at_most(b.add(last, self.size_bytes), self.limit))
        if self.checks.fast and self.kind is WaveAccess.READ:
            simple = b.and_(simple, self._all_known(mask, last, simple))
        with b.if_then(simple):

            def move(lane: ir.Value) -> None:
                offset = self._address(lane)
                if self.kind is WaveAccess.WRITE and self.checks.fast:
                    initialised.emit_mark(b, self.shadow, offset, self.size_bytes, shared=False)
                self._copy(lane, offset)

            b.each_lane(self.exec, move, descending=self.checks.reverse_lanes)
            b.ret_void()

    def _all_known(self, mask: ir.Value, last: ir.Value, simple: ir.Value) -> ir.Value:
        """Return i1: every byte from the lowest to the highest address is initialised; false also if there are
        too many.
        """
        b, wave = self.b, self.wave
        of = ir.VectorType(I64, wave)
        ones = ir.Constant(of, [I64(-1)] * wave)
        places = b.select(mask, b.load(self.addresses, typ=of), ones)
        first = b.reduced("umin", places)
        result = b.local(I1, 0)
        short = b.below(b.sub(last, first), _QUICK_SPAN)
        with b.if_then(b.and_(simple, short)):
            end = b.add(last, self.size_bytes)
            b.store(initialised.emit_is_span_known(b, self.shadow, first, end), result)
        return b.load(result, typ=I1)

    # --- atomics

    def change(self, operation: str) -> None:
        """Apply an atomic; the old values replace `data`. The waves of a workgroup run on one thread, so no
        host atomic is needed.
        """
        b = self.b
        of = ir.IntType(8 * self.size_bytes)

        def inside(lane: ir.Value, at: ir.Value) -> None:
            host, data = self._host(at), self._lane_data(self.data, lane)
            old = b.load(host, typ=of, align=1)
            second = b.load(self._lane_data(self.second, lane), typ=of, align=1)
            new = OPERATIONS[operation](b, old, b.load(data, typ=of, align=1), second)
            b.store(new, host, align=1)
            b.store(old, data, align=1)

        def outside(lane: ir.Value, at: ir.Value) -> None:
            del at
            b.store(of(0), self._lane_data(self.data, lane), align=1)

        self._each(inside, outside)
        self._finish()
