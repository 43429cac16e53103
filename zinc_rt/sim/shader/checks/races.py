"""Data race detection in mode full: unordered accesses of two waves to the same bytes, at least one of them a
store.

A RACE record per dword holds the last writer and the readers since. Waves of a workgroup are ordered by barriers
(the epoch of a wave is the number of barriers it has passed) and by acquire operations: a wave that reads another
wave's atomic store with an atomic access, then executes global_inv with workgroup scope or wider, is ordered after
that wave. In LDS it is ordered after the accesses before that store only, and after those that they follow
(lds_clocks.py); in global memory, and by a store to global memory, after that wave until the next barrier. Waves
of different workgroups are unordered unless the wave executed global_inv with device or system scope before, or
another wave of its workgroup did so before a barrier that both have passed (a lock that one wave takes for all),
or the access has such a scope; the synchronisation is then assumed to be correct.

Atomics do not race with atomics. Atomic accesses are the atomic instructions, and loads and stores with a scope
beyond the compute unit (LLVM AMDGPUUsage, memory model of gfx12: atomic loads and stores of workgroup scope have
SCOPE_SE, of agent scope SCOPE_DEV; plain ones have none). Accesses are compared by byte, so accesses to different
bytes of a dword do not race.

race_entry.py has the fields of an entry.
"""

from __future__ import annotations

from functools import partial

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.isa import Target
from zinc_rt.isa.control_flow import Flow
from zinc_rt.sim.shader.checks.compare_guesses import compare_guesses
from zinc_rt.sim.shader.checks.lds_clocks import DwordClocks, WaveClocks
from zinc_rt.sim.shader.checks.race_entry import (
    ATOMIC,
    EPOCH,
    EVERY_GROUP,
    GROUP,
    LDS_CLOCK,
    LDS_EPOCH,
    MANY,
    SERIAL,
    SITE_BITS,
    WAVE,
)  # fmt: skip
from zinc_rt.sim.shader.checks.spin_loads import find_spin_loads
from zinc_rt.sim.shader.emit.builder import CodeBuilder, HelperBuilder
from zinc_rt.sim.shader.emit.values import I1, I32, I64, POINTER
from zinc_rt.sim.shader.layout import CONTEXT, NO_PHASE, RACE, RANGE, READS, STATE, WaveAccess

RETURNS = 1 << 28  # flag next to the number of the first rule's site: the atomic returns the old value
SCOPED = 1 << 29  # an access of a scope that the first cache has not
SYNCHRONISING = 1 << 31  # an access of device or system scope
NO_RACE, WITH_STORES, WITH_READS = range(3)  # of an access to the LDS
LDS_RACE = ir.FunctionType(I32, [POINTER, POINTER, I64, I64, I32, I32])
"""(state, context, address in the LDS, size, WaveAccess, what is said beside the site's number) -> WITH_STORES: it
races with stores only"""
GLOBAL_RACE = ir.FunctionType(I1, [POINTER, POINTER, POINTER, I64, I64, I32, I32])
"""(state, context, RANGE, VA, size, WaveAccess, what is said beside the site's number) -> race"""


def find_atomic_loads(graph: Flow, target: Target) -> frozenset[int]:
    """Return the pcs of loads that count as atomic although their encoding does not show it."""
    return compare_guesses(graph, target) | find_spin_loads(graph, target)


def emit_lds_race(
    b: CodeBuilder,
    where: tuple[ir.Value, ir.Value],
    at: ir.Value,
    size_bytes: int,
    kind: WaveAccess,
    reported: ir.Value,
) -> ir.Value:
    """Record an LDS access and return i32: NO_RACE, WITH_STORES or WITH_READS. `where` is (state, context).
    `reported` contains the i32 flags RETURNS and SCOPED.
    """
    helper = b.helper("zrt.lds_race", LDS_RACE, _build_lds)
    return b.call(helper, [*where, at, I64(size_bytes), I32(kind), reported])


def emit_global_race(
    b: CodeBuilder,
    where: tuple[ir.Value, ir.Value, ir.Value],
    va: ir.Value,
    size_bytes: int,
    kind: WaveAccess,
    reported: ir.Value,
    *,
    marked_stores: bool,
) -> ir.Value:
    """Record a global access and return i1: it races. `where` is (state, context, RANGE). `reported` contains
    the i32 flags RETURNS, SCOPED and SYNCHRONISING. `marked_stores`: the scope of a store shows whether it
    is atomic.
    """
    helper = b.helper("zrt.race", GLOBAL_RACE, partial(_build_global, marked_stores=marked_stores))
    return b.call(helper, [*where, va, I64(size_bytes), I32(kind), reported])


def _load_epoch(b: CodeBuilder, state: ir.Value, context: ir.Value) -> ir.Value:
    """Return the number of barriers the wave has passed (i64). Between signal and wait, the signalled barrier
    is not counted.
    """
    signalled = b.get(state, STATE, "barrier_phase")
    now = b.get(context, CONTEXT, "barrier_phase")
    return b.zext(b.select(b.equal(signalled, NO_PHASE), now, signalled), I64)


class _Check:
    """A check of one access against the records of the dwords it touches."""

    epoch_shift = EPOCH
    marked_stores = True  # otherwise a store is plain or atomic, whichever the other access is
    acquired_field = "waves_acquired"
    seen_fields: tuple[str, ...] = ("waves_seen", "memory_waves_seen")

    def __init__(
        self,
        b: CodeBuilder,
        where: tuple[ir.Value, ir.Value],
        kind: ir.Value,
        reported: ir.Value,
        mine: ir.Value,
        wave: ir.Value,
    ) -> None:
        self.b, self.mine, self.wave, self.kind = b, mine, wave, kind
        self.state, self.context = where
        self.site = b.and_(reported, SITE_BITS)
        self.reads = b.any(b.equal(kind, WaveAccess.READ), b.equal(kind, WaveAccess.SCALAR_READ))
        changes = b.equal(kind, WaveAccess.ATOMIC)
        self.atomic = b.or_(changes, b.has(reported, SCOPED))
        self.sees = b.or_(b.and_(changes, b.has(reported, RETURNS)), b.and_(self.reads, b.has(reported, SCOPED)))
        self.race, self.with_reads = b.local(I1, 0), b.local(I1, 0)

    def has_overlap(self, entry: ir.Value, mask: ir.Value) -> ir.Value:
        return self.b.and_(self.b.and_(entry, mask), 15)

    def extract_wave(self, entry: ir.Value) -> ir.Value:
        return self.b.and_(self.b.lshr(entry, WAVE), 63)

    def is_current(self, entry: ir.Value) -> ir.Value:
        """Return i1: the entry has the same dispatch, workgroup and epoch as `mine`, whatever its wave, bytes and
        atomic bit.
        """
        shift = I64(self.epoch_shift)
        return self.b.equal(self.b.lshr(entry, shift), self.b.lshr(self.mine, shift))

    def is_other_wave(self, entry: ir.Value) -> ir.Value:
        """Return i1: the entry is from another wave of the workgroup since the last barrier."""
        return self.b.all(self.is_current(entry), self.b.unequal(self.extract_wave(entry), self.wave))

    def is_unordered(self, entry: ir.Value) -> ir.Value:
        """Return i1: the entry is from another wave and is not ordered before this access."""
        acquired = self.b.lshr(self.b.get(self.state, STATE, self.acquired_field), self.extract_wave(entry))
        return self.b.and_(self.is_other_wave(entry), self.b.equal(self.b.and_(acquired, 1), 0))

    def record_read_wave(self, stored: ir.Value, touched: ir.Value) -> None:
        """Record the wave whose atomic store an atomic access reads."""
        b = self.b
        is_atomic = b.has(stored, 1 << ATOMIC) if self.marked_stores else I1(1)
        with b.if_then(b.all(self.sees, touched, self.is_other_wave(stored), is_atomic)):
            wave = self.extract_wave(stored)
            seen = b.select(b.equal(wave, MANY), I64(-1), b.shl(I64(1), wave))
            for name in self.seen_fields:
                b.put(self.state, STATE, name, b.or_(b.get(self.state, STATE, name), seen))

    def mark_many(self, entry: ir.Value) -> ir.Value:
        """Return the entry with its wave set to MANY."""
        return self.b.or_(entry, MANY << WAVE)

    def begin_dword(self, number: ir.Value) -> None:
        """Prepare the check of a dword."""

    def is_unordered_store(self, stored: ir.Value) -> ir.Value:
        return self.is_unordered(stored)

    def is_unordered_read(self, read: ir.Value) -> ir.Value:
        return self.is_unordered(read)

    def has_same_time(self, entry: ir.Value) -> ir.Value:
        """Return i1: an entry of this wave has the time of this access, so that one entry can be of both."""
        del entry
        return I1(1)

    def note_read(self, fresh: ir.Value) -> None:
        """Record the time of a read. `fresh`: no earlier read of the record counts any more."""

    def note_store(self) -> None:
        """Record the time of a store or an atomic."""

    def check_dword(self, record: ir.Value, mask: ir.Value) -> None:
        b = self.b
        stored, read = b.get(record, RACE, "stored"), b.get(record, RACE, "read")
        atomic_bit = I64(1 << ATOMIC)
        both_atomic = b.and_(self.atomic, b.has(stored, 1 << ATOMIC))
        by_others, read_by_others = self.is_unordered_store(stored), self.is_unordered_read(read)
        touched = b.unequal(self.has_overlap(stored, mask), 0)
        self.record_read_wave(stored, touched)
        flag = b.select(self.atomic, atomic_bit, 0)
        also_atomic = b.or_(I64(~(1 << ATOMIC)), flag)  # one plain access makes it plain
        stored_atomically, atomic = both_atomic, self.atomic
        if not self.marked_stores:
            atomic = b.or_(self.atomic, b.equal(self.kind, WaveAccess.WRITE))
            stored_atomically = b.or_(self.atomic, b.and_(atomic, b.has(stored, 1 << ATOMIC)))
        with_store = b.all(by_others, touched, b.not_(stored_atomically))
        read_touched = b.unequal(self.has_overlap(read, mask), 0)
        read_atomically = b.and_(atomic, b.has(read, 1 << ATOMIC))
        with_read = b.all(read_by_others, read_touched, b.not_(self.reads), b.not_(read_atomically))
        with b.if_then(b.or_(with_store, with_read), likely=False):
            site = b.or_(b.get(record, RACE, "read_site"), I32(READS - (1 << 32)))
            site = b.select(with_store, b.get(record, RACE, "stored_site"), site)
            b.put(self.context, CONTEXT, "race_entry", b.select(with_store, stored, read))
            b.put(self.context, CONTEXT, "race_site", site)
        b.store(b.any(b.load(self.race, typ=I1), with_store, with_read), self.race)
        b.store(b.or_(b.load(self.with_reads, typ=I1), with_read), self.with_reads)
        with b.if_else(self.reads) as (yes, no):
            with yes:
                own = b.any(self.mine, mask, flag)
                kept = b.and_(read, also_atomic)
                same = b.all(self.is_current(read), b.equal(self.extract_wave(read), self.wave))
                several = b.and_(read_by_others, read_touched)
                common = b.and_(self.mark_many(kept), b.or_(I64(~15), mask))
                self.note_read(b.not_(b.or_(same, several)))
                again = b.select(self.has_same_time(read), b.or_(kept, mask), own)
                self._note(record, "read", read, b.select(same, again, b.select(several, common, own)))
            with no:
                own = b.any(self.mine, mask, flag)
                kept = b.and_(stored, also_atomic)
                several = b.all(b.or_(by_others, self.is_other_wave(stored)), both_atomic)
                same = b.all(self.is_current(stored), b.equal(self.extract_wave(stored), self.wave))
                same = b.and_(same, self.has_same_time(stored))
                merged = b.select(same, b.or_(kept, mask), own)
                joined = b.or_(self.mark_many(stored), mask)
                self.note_store()
                self._note(record, "stored", stored, b.select(several, joined, merged))

    def _note(self, record: ir.Value, name: str, before: ir.Value, now: ir.Value) -> None:
        """Store an entry only if it changes, because otherwise threads would contend for lines that many
        workgroups read.
        """
        with self.b.if_then(self.b.unequal(now, before)):
            self.b.put(record, RACE, name, now)
            self.b.put(record, RACE, f"{name}_site", self.site)

    def check_each(self, at: ir.Value, size: ir.Value, records: ir.Value) -> None:
        """Check each dword. The RACE record of a dword is at `records` + dword number * RACE.size_bytes."""
        b = self.b
        end = b.add(at, size)
        first = b.lshr(at, 2)
        count = b.sub(b.lshr(b.add(end, 3), 2), first)

        def check_one(index: ir.Value) -> None:
            number = b.add(first, index)
            start = b.shl(number, 2)
            below = b.select(b.below(start, at), b.sub(at, start), 0)
            above = b.sub(end, start)
            high = b.select(b.below(above, 4), b.sub(b.shl(1, above), 1), 15)
            mask = b.and_(b.shl(15, below), high)
            location = b.add(records, b.mul(number, RACE.size_bytes))
            self.begin_dword(number)
            self.check_dword(b.inttoptr(location, POINTER), mask)

        b.repeat(count, check_one)


class _LdsCheck(_Check):
    """A check of LDS, whose waves are ordered access by access (lds_clocks.py)."""

    epoch_shift = LDS_EPOCH
    acquired_field = "memory_waves_acquired"
    seen_fields = ("waves_seen",)

    def __init__(
        self,
        b: CodeBuilder,
        where: tuple[ir.Value, ir.Value],
        kind: ir.Value,
        reported: ir.Value,
        mine: ir.Value,
        wave: ir.Value,
        clocks: WaveClocks,
    ) -> None:
        super().__init__(b, where, kind, reported, mine, wave)
        self.clocks = clocks
        self.changes = b.equal(kind, WaveAccess.ATOMIC)

    def begin_dword(self, number: ir.Value) -> None:
        self.dword = DwordClocks(self.clocks, number)

    def is_unordered_store(self, stored: ir.Value) -> ir.Value:
        b, wave = self.b, self.extract_wave(stored)
        many = b.equal(wave, MANY)
        one_wave = b.select(many, 0, wave)
        time = b.and_(b.lshr(stored, LDS_CLOCK), (1 << LDS_EPOCH - LDS_CLOCK) - 1)
        later = b.select(many, self.dword.has_unobserved_release(), self.clocks.is_unobserved(one_wave, time))
        return b.and_(self.is_unordered(stored), later)

    def is_unordered_read(self, read: ir.Value) -> ir.Value:
        b = self.b
        return b.all(
            self.is_current(read), self.is_unordered(self.mark_other(read)), self.dword.has_unobserved_read()
        )

    def mark_other(self, read: ir.Value) -> ir.Value:
        """Return the entry, as if of several waves if it is this wave's: others may have read before it."""
        mine = self.b.equal(self.extract_wave(read), self.wave)
        return self.b.select(mine, self.mark_many(read), read)

    def record_read_wave(self, stored: ir.Value, touched: ir.Value) -> None:
        super().record_read_wave(stored, touched)
        b = self.b
        with b.if_then(b.all(self.sees, touched, self.is_current(stored), b.has(stored, 1 << ATOMIC))):
            self.dword.see_releases()

    def has_same_time(self, entry: ir.Value) -> ir.Value:
        both = self.b.lshr(self.b.xor(entry, self.mine), LDS_CLOCK)
        return self.b.equal(self.b.and_(both, (1 << LDS_EPOCH - LDS_CLOCK) - 1), 0)

    def note_read(self, fresh: ir.Value) -> None:
        self.dword.note_read(fresh)

    def note_store(self) -> None:
        with self.b.if_then(self.changes):
            self.dword.release()


def _build_lds(function: ir.Function) -> None:
    b = HelperBuilder(function)
    state, context, index, size, kind, output = function.args
    wave = b.zext(b.get(state, STATE, "wave_in_group"), I64)
    epoch = b.add(_load_epoch(b, state, context), 1)
    clocks = WaveClocks(b, state)
    time = b.and_(clocks.time(), (1 << LDS_EPOCH - LDS_CLOCK) - 1)
    mine = b.or_(b.or_(b.shl(epoch, LDS_EPOCH), b.shl(wave, WAVE)), b.shl(time, LDS_CLOCK))
    records = clocks.records
    check = _LdsCheck(b, (state, context), kind, output, mine, wave, clocks)
    check.check_each(index, size, records)
    kind_of_race = b.select(b.load(check.with_reads, typ=I1), I32(WITH_READS), I32(WITH_STORES))
    b.ret(b.select(b.load(check.race, typ=I1), kind_of_race, I32(NO_RACE)))
    b.done()


class _GlobalCheck(_Check):
    """A check of global memory, which also considers other workgroups in any epoch."""

    def __init__(
        self,
        b: CodeBuilder,
        where: tuple[ir.Value, ir.Value],
        kind: ir.Value,
        reported: ir.Value,
        mine: ir.Value,
        wave: ir.Value,
        trusted: ir.Value,
        marked_stores: bool,
    ) -> None:
        super().__init__(b, where, kind, reported, mine, wave)
        self.trusted, self.marked_stores = trusted, marked_stores

    def _has_same_bits(self, entry: ir.Value, shift: int, bits: int) -> ir.Value:
        both = self.b.xor(entry, self.mine)
        return self.b.equal(self.b.and_(self.b.lshr(both, shift), (1 << bits) - 1), 0)

    def is_unordered(self, entry: ir.Value) -> ir.Value:
        b = self.b
        elsewhere = b.all(b.not_(self._has_same_bits(entry, GROUP, 24)), b.not_(self.trusted))
        return b.all(self._has_same_bits(entry, SERIAL, 16), b.any(elsewhere, super().is_unordered(entry)))

    def mark_many(self, entry: ir.Value) -> ir.Value:
        """Return the entry marked as several waves, and as several workgroups if this wave is in a different
        one.
        """
        b = self.b
        elsewhere = b.or_(entry, MANY << WAVE | EVERY_GROUP << GROUP)
        return b.select(self._has_same_bits(entry, GROUP, 24), super().mark_many(entry), elsewhere)


def _build_global(function: ir.Function, *, marked_stores: bool) -> None:
    b = HelperBuilder(function)
    state, context, where, va, size, kind, output = function.args
    records = b.get(where, RANGE, "races")
    serial = b.get(context, CONTEXT, "serial")
    reads = b.any(b.equal(kind, WaveAccess.READ), b.equal(kind, WaveAccess.SCALAR_READ))
    # All threads read this record at every access; once it is set, it is never written again.
    first = b.unequal(b.get(where, RANGE, "stored"), serial)
    with b.if_then(b.and_(b.not_(reads), first), likely=False):
        b.put(where, RANGE, "stored", serial)
    with b.if_then(b.equal(records, 0)):
        b.ret(I1(0))
    wave = b.zext(b.get(state, STATE, "wave_in_group"), I64)
    group = b.and_(b.zext(b.get(state, STATE, "group"), I64), EVERY_GROUP)
    epoch = b.and_(_load_epoch(b, state, context), (1 << GROUP - EPOCH) - 1)
    mine = b.shl(b.and_(b.zext(serial, I64), 0xFFFF), SERIAL)
    for value, shift in ((group, GROUP), (epoch, EPOCH), (wave, WAVE)):
        mine = b.or_(mine, b.shl(value, shift))
    acquired = b.unequal(b.get(state, STATE, "acquired"), 0)
    since = b.zext(b.get(context, CONTEXT, "acquired_phase"), I64)
    by_barrier = b.and_(b.unequal(since, 0), b.not_(b.below(_load_epoch(b, state, context), since)))
    trusted = b.any(acquired, by_barrier, b.has(output, SYNCHRONISING))
    check = _GlobalCheck(b, (state, context), kind, output, mine, wave, trusted, marked_stores)
    check.check_each(va, size, records)
    b.ret(b.load(check.race, typ=I1))
    b.done()
