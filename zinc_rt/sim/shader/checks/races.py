"""Races at level full: two waves touch the same bytes, one of them stores, and nothing orders them.

Of each dword a RACE record keeps who stored last and who read since. Waves of a workgroup are ordered by barriers
(a wave's epoch is how many it has passed). Waves of different workgroups are ordered by nothing, unless the wave
has executed global_inv of device or system scope before, or the access itself has such a scope: what they wait for
is then taken to be right. Atomics do not race with atomics. Bytes count, so neighbours in a dword are no race.

An entry, 64 bits: bytes 3:0, wave 9:4 (MANY: several), atomic 10, then for LDS epoch + 1; for global memory epoch
23:11, workgroup 47:24, dispatch 63:48.
"""

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.emit.emitter import Emitter
from zinc_rt.sim.shader.emit.routine import I1, I32, I64, POINTER, Routine
from zinc_rt.sim.shader.layout import CONTEXT, NO_PHASE, RACE, RANGE, STATE, WaveAccess

MANY = 63
_WAVE, _ATOMIC, _EPOCH = 4, 10, 11
_GROUP, _SERIAL = 24, 48
_EVERY_GROUP = (1 << 24) - 1
LDS_RACE = ir.FunctionType(I1, [POINTER, POINTER, I64, I64, I32])
"""(state, context, address in the LDS, size, WaveAccess) -> race"""
GLOBAL_RACE = ir.FunctionType(I1, [POINTER, POINTER, POINTER, I64, I64, I32, I1])
"""(state, context, RANGE, VA, size, WaveAccess, synchronising) -> race"""


def lds_race(
    e: Emitter, r: Routine, state: ir.Value, context: ir.Value, at: ir.Value, size_bytes: int, kind: WaveAccess
) -> ir.Value:
    """i1; the access is noted."""
    helper = e.helper("zrt.lds_race", LDS_RACE, _build_lds)
    return r.b.call(helper, [state, context, at, I64(size_bytes), I32(kind)])


def global_race(
    e: Emitter,
    r: Routine,
    where: tuple[ir.Value, ir.Value, ir.Value],
    va: ir.Value,
    size_bytes: int,
    kind: WaveAccess,
    synchronising: ir.Value,
) -> ir.Value:
    """i1; the access is noted. `where`: (state, context, RANGE)."""
    helper = e.helper("zrt.race", GLOBAL_RACE, _build_global)
    return r.b.call(helper, [*where, va, I64(size_bytes), I32(kind), synchronising])


def _epoch(r: Routine, state: ir.Value, context: ir.Value) -> ir.Value:
    """i64: barriers the wave has passed. Between signal and wait it has not passed the one it signalled."""
    signalled = r.get(state, STATE, "barrier_phase")
    now = r.get(context, CONTEXT, "barrier_phase")
    return r.b.zext(r.b.select(r.equal(signalled, NO_PHASE), now, signalled), I64)


class _Check:
    """One access against the records of the dwords it touches."""

    def __init__(self, r: Routine, kind: ir.Value, mine: ir.Value, wave: ir.Value) -> None:
        self.r, self.mine, self.wave = r, mine, wave
        self.reads = r.any(r.equal(kind, WaveAccess.READ), r.equal(kind, WaveAccess.SCALAR_READ))
        self.atomic = r.equal(kind, WaveAccess.ATOMIC)
        self.race = r.local(I1, 0)

    def overlap(self, entry: ir.Value, mask: ir.Value) -> ir.Value:
        return self.r.b.and_(self.r.b.and_(entry, mask), I64(15))

    def wave_of(self, entry: ir.Value) -> ir.Value:
        return self.r.b.and_(self.r.b.lshr(entry, I64(_WAVE)), I64(63))

    def current(self, entry: ir.Value) -> ir.Value:
        """i1: of this dispatch, this workgroup, this epoch: what `mine` says but for wave, bytes and atomic."""
        shift = I64(_EPOCH)
        return self.r.equal(self.r.b.lshr(entry, shift), self.r.b.lshr(self.mine, shift))

    def unordered(self, entry: ir.Value) -> ir.Value:
        """i1: by another wave, with nothing between that orders it."""
        return self.r.all(self.current(entry), self.r.b.icmp_unsigned("!=", self.wave_of(entry), self.wave))

    def many(self, entry: ir.Value) -> ir.Value:
        """The entry, of several waves from now on."""
        return self.r.b.or_(entry, I64(MANY << _WAVE))

    def dword(self, record: ir.Value, mask: ir.Value) -> None:
        r, b = self.r, self.r.b
        stored, read = r.get(record, RACE, "stored"), r.get(record, RACE, "read")
        atomic_bit = I64(1 << _ATOMIC)
        both_atomic = b.and_(self.atomic, r.has(stored, 1 << _ATOMIC))
        by_others, read_by_others = self.unordered(stored), self.unordered(read)
        touched = b.icmp_unsigned("!=", self.overlap(stored, mask), I64(0))
        with_store = r.all(by_others, touched, b.not_(both_atomic))
        read_touched = b.icmp_unsigned("!=", self.overlap(read, mask), I64(0))
        with_read = r.all(read_by_others, read_touched, b.not_(self.reads))
        b.store(r.any(r.load(self.race, I1), with_store, with_read), self.race)
        with b.if_else(self.reads) as (yes, no):
            with yes:
                own = b.or_(self.mine, mask)
                same = b.and_(self.current(read), b.not_(read_by_others))
                several = b.and_(read_by_others, read_touched)
                common = b.and_(self.many(read), b.or_(I64(~15), mask))
                r.put(record, RACE, "read", b.select(same, b.or_(read, mask), b.select(several, common, own)))
            with no:
                flag = b.select(self.atomic, atomic_bit, I64(0))
                own = r.any(self.mine, mask, flag)
                kept = b.and_(stored, b.or_(I64(~(1 << _ATOMIC)), flag))  # a plain store makes it plain
                same = b.and_(self.current(stored), b.not_(by_others))
                several = r.all(by_others, both_atomic)
                merged = b.select(same, b.or_(kept, mask), own)
                joined = b.or_(self.many(stored), mask)
                r.put(record, RACE, "stored", b.select(several, joined, merged))

    def each(self, at: ir.Value, size: ir.Value, records: ir.Value) -> None:
        """`records` + dword number * 16 is a RACE record's address."""
        r, b = self.r, self.r.b
        end = b.add(at, size)
        first = b.lshr(at, I64(2))
        count = b.sub(b.lshr(b.add(end, I64(3)), I64(2)), first)

        def one(index: ir.Value) -> None:
            number = b.add(first, index)
            start = b.shl(number, I64(2))
            below = b.select(r.below(start, at), b.sub(at, start), I64(0))
            above = b.sub(end, start)
            high = b.select(r.below(above, I64(4)), b.sub(b.shl(I64(1), above), I64(1)), I64(15))
            mask = b.and_(b.shl(I64(15), below), high)
            place = b.add(records, b.mul(number, I64(RACE.size_bytes)))
            self.dword(b.inttoptr(place, POINTER), mask)

        r.repeat(count, one)


def _build_lds(function: ir.Function) -> None:
    r = Routine(function)
    b = r.b
    state, context, at, size, kind = function.args
    wave = b.zext(r.get(state, STATE, "wave_in_group"), I64)
    epoch = b.add(_epoch(r, state, context), I64(1))
    mine = b.or_(b.shl(epoch, I64(_EPOCH)), b.shl(wave, I64(_WAVE)))
    dwords = b.lshr(b.zext(b.add(r.get(state, STATE, "lds_bytes"), I32(3)), I64), I64(2))
    records = b.add(r.get(state, STATE, "lds_shadow"), dwords)
    check = _Check(r, kind, mine, wave)
    check.each(at, size, records)
    b.ret(r.load(check.race, I1))
    r.done()


class _GlobalCheck(_Check):
    """Other workgroups count too, whatever their epoch."""

    def __init__(self, r: Routine, kind: ir.Value, mine: ir.Value, wave: ir.Value, trusted: ir.Value) -> None:
        super().__init__(r, kind, mine, wave)
        self.trusted = trusted

    def _same(self, entry: ir.Value, shift: int, bits: int) -> ir.Value:
        both = self.r.b.xor(entry, self.mine)
        return self.r.equal(self.r.b.and_(self.r.b.lshr(both, I64(shift)), I64((1 << bits) - 1)), 0)

    def unordered(self, entry: ir.Value) -> ir.Value:
        r, b = self.r, self.r.b
        elsewhere = r.all(b.not_(self._same(entry, _GROUP, 24)), b.not_(self.trusted))
        return r.all(self._same(entry, _SERIAL, 16), r.any(elsewhere, super().unordered(entry)))

    def many(self, entry: ir.Value) -> ir.Value:
        """Of several waves, and of several workgroups where this wave's is another."""
        b = self.r.b
        elsewhere = b.or_(entry, I64(MANY << _WAVE | _EVERY_GROUP << _GROUP))
        return b.select(self._same(entry, _GROUP, 24), super().many(entry), elsewhere)


def _build_global(function: ir.Function) -> None:
    r = Routine(function)
    b = r.b
    state, context, where, va, size, kind, synchronising = function.args
    records = r.get(where, RANGE, "races")
    serial = r.get(context, CONTEXT, "serial")
    reads = r.any(r.equal(kind, WaveAccess.READ), r.equal(kind, WaveAccess.SCALAR_READ))
    with r.when(b.not_(reads)):
        r.put(where, RANGE, "stored", serial)
    with r.when(r.equal(records, 0)):
        b.ret(I1(0))
    wave = b.zext(r.get(state, STATE, "wave_in_group"), I64)
    group = b.and_(b.zext(r.get(state, STATE, "group"), I64), I64(_EVERY_GROUP))
    epoch = b.and_(_epoch(r, state, context), I64((1 << _GROUP - _EPOCH) - 1))
    mine = b.shl(b.and_(b.zext(serial, I64), I64(0xFFFF)), I64(_SERIAL))
    for value, shift in ((group, _GROUP), (epoch, _EPOCH), (wave, _WAVE)):
        mine = b.or_(mine, b.shl(value, I64(shift)))
    acquired = b.icmp_unsigned("!=", r.get(state, STATE, "acquired"), I32(0))
    check = _GlobalCheck(r, kind, mine, wave, b.or_(acquired, synchronising))
    check.each(va, size, records)
    b.ret(r.load(check.race, I1))
    r.done()
