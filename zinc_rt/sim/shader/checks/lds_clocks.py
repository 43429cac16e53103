"""Vector clocks of a workgroup's waves for its LDS, in mode full (FastTrack, Flanagan and Freund, PLDI 2009).

The clock of a wave is the number of its atomic LDS operations. Each may release what the wave did before. A dword
has the releases that its value contains: for each wave, the clock after its last one. A wave that loads the value
with an atomic access has seen these releases, and observes them by global_inv. An access is ordered before a wave
that has observed a release after it. Accesses of a wave to LDS complete in order, so a release needs no wait.

A dword also has, for each wave, one more than the clock at its last read. The clocks follow the RACE records in
the LDS shadow: of each dword, the reads and the releases; of each wave, the seen and the observed releases; then
the clock of each wave.
"""

from __future__ import annotations

from llvmlite import ir  # type: ignore[import-untyped]

from zinc_rt.sim.shader.emit.builder import CodeBuilder, HelperBuilder
from zinc_rt.sim.shader.emit.values import I32, I64, POINTER, VOID
from zinc_rt.sim.shader.layout import RACE, STATE

WAVES = 32  # of a workgroup at most: 1024 work-items
_CLOCKS = ir.VectorType(I32, WAVES)
_ROW = 4 * WAVES  # bytes
_ACQUIRE = ir.FunctionType(VOID, [POINTER])  # (state)


def clocks_bytes(dwords: int) -> int:
    """Return the size of the clocks of this number of dwords and of the waves."""
    return _ROW * (2 * dwords + 2 * WAVES + 1)


def emit_lds_acquire(b: CodeBuilder, state: ir.Value) -> None:
    """Make the wave observe all releases that it has seen."""
    b.call(b.helper("zrt.lds_acquire", _ACQUIRE, _build_acquire), [state])


def _build_acquire(function: ir.Function) -> None:
    b = HelperBuilder(function)
    [state] = function.args
    with b.if_then(b.unequal(b.get(state, STATE, "lds_bytes"), 0)):
        WaveClocks(b, state).observe()
    b.ret_void()
    b.done()


class WaveClocks:
    """The clocks of the present wave."""

    def __init__(self, b: CodeBuilder, state: ir.Value) -> None:
        self.b = b
        dwords = b.lshr(b.zext(b.add(b.get(state, STATE, "lds_bytes"), 3), I64), 2)
        self.wave = b.zext(b.get(state, STATE, "wave_in_group"), I64)
        self.records = b.add(b.get(state, STATE, "lds_shadow"), dwords)
        self.dwords = b.add(self.records, b.mul(dwords, RACE.size_bytes))
        waves = b.add(self.dwords, b.mul(dwords, 2 * _ROW))
        self._all_seen, self._all_observed = waves, b.add(waves, WAVES * _ROW)
        self._clocks = b.add(waves, 2 * WAVES * _ROW)
        self.seen = self._row(self._all_seen, self.wave)
        self.observed = self._row(self._all_observed, self.wave)

    def _row(self, rows: ir.Value, wave: ir.Value) -> ir.Value:
        return self.b.add(rows, self.b.mul(wave, _ROW))

    def load(self, row: ir.Value) -> ir.Value:
        return self.b.load(self.b.inttoptr(row, POINTER), typ=_CLOCKS, align=1)

    def store(self, clocks: ir.Value, row: ir.Value) -> None:
        self.b.store(clocks, self.b.inttoptr(row, POINTER), align=1)

    def of_wave(self, row: ir.Value, wave: ir.Value) -> ir.Value:
        """Return the pointer to a wave's clock in a row."""
        return self.b.inttoptr(self.b.add(row, self.b.shl(wave, 2)), POINTER)

    def merge(self, clocks: ir.Value, row: ir.Value) -> None:
        """Set each clock of a row to the later one."""
        now = self.load(row)
        later = self.b.icmp_unsigned(">", clocks, now)
        self.store(self.b.select(later, clocks, now), row)

    def time(self) -> ir.Value:
        """Return the wave's clock, i64."""
        return self.b.zext(self.b.load(self.of_wave(self._clocks, self.wave), typ=I32, align=1), I64)

    def advance(self) -> None:
        clock = self.of_wave(self._clocks, self.wave)
        self.b.store(self.b.add(self.b.load(clock, typ=I32, align=1), 1), clock, align=1)

    def observe(self) -> None:
        self.merge(self.load(self.seen), self.observed)

    def is_unobserved(self, wave: ir.Value, time: ir.Value) -> ir.Value:
        """Return i1: this wave has observed no release of a wave after `time` (i64)."""
        observed = self.b.zext(self.b.load(self.of_wave(self.observed, wave), typ=I32, align=1), I64)
        return self.b.at_most(observed, time)

    def has_unobserved(self, row: ir.Value) -> ir.Value:
        """Return i1: a clock of another wave in a row is later than what this wave has observed."""
        b = self.b
        later = b.icmp_unsigned(">", self.load(row), self.load(self.observed))
        bits = b.zext(b.bitcast(later, ir.IntType(WAVES)), I64)
        others = b.xor(b.shl(I64(1), self.wave), I64(-1))
        return b.unequal(b.and_(bits, others), 0)


class DwordClocks:
    """The reads and releases of one dword."""

    def __init__(self, waves: WaveClocks, number: ir.Value) -> None:
        self.b, self._waves = waves.b, waves
        self._reads = self.b.add(waves.dwords, self.b.mul(number, 2 * _ROW))
        self._releases = self.b.add(self._reads, _ROW)

    def has_unobserved_read(self) -> ir.Value:
        return self._waves.has_unobserved(self._reads)

    def has_unobserved_release(self) -> ir.Value:
        return self._waves.has_unobserved(self._releases)

    def see_releases(self) -> None:
        self._waves.merge(self._waves.load(self._releases), self._waves.seen)

    def note_read(self, fresh: ir.Value) -> None:
        """Record a read by this wave. `fresh`: forget those of the other waves."""
        with self.b.if_then(fresh):
            self._waves.store(ir.Constant(_CLOCKS, None), self._reads)
        time = self.b.trunc(self._waves.time(), I32)
        self.b.store(self.b.add(time, 1), self._waves.of_wave(self._reads, self._waves.wave), align=1)

    def release(self) -> None:
        """Add this wave's accesses, and what it has observed, to the releases; then advance its clock."""
        waves = self._waves
        waves.merge(waves.load(waves.observed), self._releases)
        waves.advance()
        time = self.b.trunc(waves.time(), I32)
        self.b.store(time, waves.of_wave(self._releases, waves.wave), align=1)
