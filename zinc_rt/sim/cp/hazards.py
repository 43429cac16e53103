"""Dependent work without the barrier or the cache operation between: found, and both sides named.

Work of a queue overlaps until something orders it (errata 21): CS_PARTIAL_FLUSH waits for waves; a wait on a fence
means everything before the fence, and so does a doorbell rung after it fired. What is ordered still reads stale
lines unless the caches between have been dealt with (pm4.md §3.4):

    written by        read by waves                     read through L2   read past L2
    waves, L2         GLV_INV or GLK_INV, gfx11 GL1_INV  -                 GL2_WB
    past L2           the same, and GL2_INV              GL2_INV           -

Code is read through the instruction cache: GLI_INV. Work of different processes never meets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntFlag

from zinc_rt.isa.wave_rules import RULES
from zinc_rt.pm4.generation import Generation
from zinc_rt.sim.cp.clocks import Clock, WorkKind, WorkStream
from zinc_rt.sim.shader_engine import Accesses, Ranges

PRUNE_FROM = 64
RECORDS_KEPT = 512
CODE_KEPT = 128


class Cache(IntFlag):
    """A cache operation performed since the data was written."""

    GLV_INV = 1
    GLK_INV = 2
    GL1_INV = 4
    GL2_INV = 8
    GL2_WB = 16
    GLI_INV = 32


NO_CACHE = Cache(0)
NEVER = 1 << 62


@dataclass(slots=True, eq=False)
class AccessRecord:
    """One piece of work. `issue` numbers the device's packets; `seen` is its queue's clock at the packet."""

    stream: WorkStream
    number: int
    issue: int
    seen: Clock
    accesses: Accesses
    label: str
    queue_id: int
    position: int  # as in Finding
    packet_va: int
    past_l2: bool = False
    code: Ranges = ()
    cleaned: dict[Cache, int] = field(default_factory=dict)  # cache -> issue number of the first operation
    settled: int = NEVER  # later waves of its own queue have waited for it and read no stale line of it


Report = Callable[[AccessRecord, str, str], None]
"""(the later work, rule, sentence)"""


def find_overlap(ranges: Ranges, other: Ranges) -> int | None:
    """Return the first VA in both."""
    for va, size in ranges:
        for va2, size2 in other:
            if va < va2 + size2 and va2 < va + size:
                return max(va, va2)
    return None


class HazardTracker:
    """Accesses to one address space. `report` is called once for each pair and rule."""

    def __init__(self, generation: Generation, report: Report) -> None:
        self._report = report
        wave_caches = Cache.GL1_INV if RULES[generation].has_array_caches else NO_CACHE
        self._vector_caches, self._scalar_caches = Cache.GLV_INV | wave_caches, Cache.GLK_INV | wave_caches
        self._needed = tuple(self._vector_caches | self._scalar_caches)
        self._records: list[AccessRecord] = []
        # Accesses by CPs, the newest for each address.
        self._cp: dict[tuple[WorkStream, Accesses], AccessRecord] = {}
        self._code: dict[
            Ranges, AccessRecord
        ] = {}  # writes by others than waves, for GLI_INV, the newest for each address
        self._places: dict[Ranges, list[Ranges]] = {}  # of code: the places of _code that overlap it
        self._reported: set[tuple[str, str, str]] = set()
        self._prune_at = PRUNE_FROM

    def add(self, record: AccessRecord) -> None:
        """Check finished work against all recorded work, then record it."""
        accesses = record.accesses
        kind = record.stream[1]
        if kind is WorkKind.WAVES:
            self._check_waves(record)
        else:
            for other in self._records:
                self._check(record, other)
            for other in self._cp.values():
                if kind is not WorkKind.CP or other.stream[0] != record.stream[0]:
                    self._check(record, other)
        if record.code:
            for written_place in self._list_written_places(record.code):
                self._check_code(record, self._code[written_place])
        if kind is WorkKind.CP:
            key = (record.stream, accesses)
            self._cp.pop(key, None)
            self._cp[key] = record
            if len(self._cp) > RECORDS_KEPT:
                del self._cp[next(iter(self._cp))]
        elif accesses.reads or accesses.scalar_reads or accesses.writes or accesses.atomics:
            self._records.append(record)
            if len(self._records) >= self._prune_at:
                self._prune()
        if kind is not WorkKind.WAVES and accesses.writes:
            if self._code.pop(accesses.writes, None) is None:
                self._places.clear()
            self._code[accesses.writes] = record
            if len(self._code) > CODE_KEPT:
                del self._code[next(iter(self._code))]
                self._places.clear()

    def record_cache_operation(
        self, caches: Cache, clock: Clock, issue: int, inside: tuple[int, int] | None = None
    ) -> None:
        """Record cache operations performed at packet `issue`, for work in `clock`; `inside`: only (va,
        size)."""
        if not caches:
            return
        item = tuple(caches)  # taking flags apart is slow
        known = all(cache in self._needed for cache in item)  # to whatever is settled
        for records in (self._records, self._cp.values(), self._code.values() if Cache.GLI_INV in caches else ()):
            for record in records:
                if known and record.settled != NEVER:
                    continue
                if record.number <= clock.get(record.stream, 0) and (
                    inside is None or _limit_to(record.accesses.writes, inside)
                ):
                    cleaned = record.cleaned
                    for cache in item:
                        if cache not in cleaned:
                            cleaned[cache] = issue

    def _check_waves(self, record: AccessRecord) -> None:
        """Compare with all records, except those that can no longer conflict with waves of their own queue."""
        queue, issue = record.stream[0], record.issue
        for records in (self._records, self._cp.values()):
            for other in records:
                if other.stream[0] != queue:
                    self._check(record, other)
                elif issue < other.settled:
                    self._check(record, other)
                    if self._is_ordered(record, other):
                        other.settled = issue

    def _is_ordered(self, later: AccessRecord, earlier: AccessRecord) -> bool:
        """Return whether the pair needs no further checks, because later work of a queue inherits the waits and
        invalidations of `later`.
        """
        if earlier.issue > later.issue or earlier.past_l2:
            return False
        if earlier.stream[1] is not WorkKind.CP and later.seen.get(earlier.stream, 0) < earlier.number:
            return False
        if not (earlier.accesses.writes or earlier.accesses.atomics):
            return True
        return all(earlier.cleaned.get(cache, NEVER) < later.issue for cache in self._needed)

    def _check(self, one: AccessRecord, other: AccessRecord) -> None:
        a, b = one.accesses, other.accesses
        if a.high <= b.low or b.high <= a.low:
            return  # nowhere near each other
        earlier, later = (other, one) if other.issue < one.issue else (one, other)
        own_cp = earlier.stream[1] is WorkKind.CP and earlier.stream[0] == later.stream[0]
        ordered = own_cp or later.seen.get(earlier.stream, 0) >= earlier.number
        a, b = earlier.accesses, later.accesses
        if not ordered:
            self._report_conflict(
                "RAW", earlier, later, find_overlap(a.writes, b.reads + b.scalar_reads + b.atomics)
            )
            self._report_conflict("WAW", earlier, later, find_overlap(a.writes + a.atomics, b.writes))
            self._report_conflict(
                "WAR", earlier, later, find_overlap(a.reads + a.scalar_reads, b.writes + b.atomics)
            )
            self._report_conflict("RAW", earlier, later, find_overlap(a.atomics, b.reads + b.scalar_reads))
            return
        written = a.writes + a.atomics
        if not written:
            return
        if later.stream[1] is WorkKind.WAVES:
            vector, scalar = find_overlap(written, b.reads), find_overlap(written, b.scalar_reads)
            if vector is None and scalar is None:
                return
            past = Cache.GL2_INV if earlier.past_l2 else NO_CACHE
            self._report_stale(earlier, later, vector, self._vector_caches | past)
            self._report_stale(earlier, later, scalar, self._scalar_caches | past)
        elif earlier.past_l2 != later.past_l2:
            wanted = Cache.GL2_WB if later.past_l2 else Cache.GL2_INV
            self._report_stale(earlier, later, find_overlap(written, b.reads), wanted)

    def _list_written_places(self, code: Ranges) -> list[Ranges]:
        result = self._places.get(code)
        if result is None:
            result = [location for location in self._code if find_overlap(location, code) is not None]
            self._places[code] = result
        return result

    def _check_code(self, later: AccessRecord, earlier: AccessRecord) -> None:
        va = find_overlap(earlier.accesses.writes, later.code)
        if va is None:
            return
        own_cp = earlier.stream[1] is WorkKind.CP and earlier.stream[0] == later.stream[0]
        if not own_cp and later.seen.get(earlier.stream, 0) < earlier.number:
            self._report_conflict("RAW", earlier, later, va)
        else:
            self._report_stale(earlier, later, va, Cache.GLI_INV)

    def _report_conflict(self, kind: str, earlier: AccessRecord, later: AccessRecord, va: int | None) -> None:
        if va is not None:
            self._report_once(
                later,
                earlier,
                "missing-barrier",
                (
                    f"{kind} at 0x{va:x}: {later.label} runs while {earlier.label} may still run; "
                    f"{_BARRIERS[earlier.stream[1]]} between them"
                ),
            )

    def _report_stale(self, earlier: AccessRecord, later: AccessRecord, va: int | None, cache: Cache) -> None:
        if va is None:
            return
        missing = [cache for cache in cache if not earlier.cleaned.get(cache, later.issue) < later.issue]
        if missing:
            names = ", ".join(str(cache.name) for cache in missing)
            self._report_once(
                later,
                earlier,
                "missing-cache-op",
                f"{later.label} may read stale data at 0x{va:x}, written by {earlier.label}: "
                f"no {names} between them",
            )

    def _report_once(self, later: AccessRecord, earlier: AccessRecord, rule: str, sentence: str) -> None:
        key = (rule, earlier.label, later.label)
        if key not in self._reported and len(self._reported) < 10_000:
            self._reported.add(key)
            self._report(later, rule, sentence)

    def _prune(self) -> None:
        """Drop records that their own queue has waited for and written back, because that queue can no longer
        conflict with them.

        A conflict with another queue that never synchronised with them is then missed; this is the cost of a
        bounded list.
        """
        newest: dict[int, Clock] = {}
        for record in self._records:
            newest[record.stream[0]] = record.seen
        self._records = [
            record
            for record in self._records
            if newest[record.stream[0]].get(record.stream, 0) < record.number
            or (
                (record.accesses.writes or record.accesses.atomics)
                and not all(cache in record.cleaned for cache in self._needed)
            )
        ][-RECORDS_KEPT:]
        self._prune_at = max(PRUNE_FROM, min(2 * len(self._records), RECORDS_KEPT + PRUNE_FROM))


_BARRIERS = {
    WorkKind.WAVES: "no CS_PARTIAL_FLUSH and no wait on a fence",
    WorkKind.DMA: "no wait on a fence (and no raw_wait)",
    WorkKind.CP: "no wait",
}


def _limit_to(ranges: Ranges, inside: tuple[int, int]) -> bool:
    start, size = inside
    return all(start <= va and va + length <= start + size for va, length in ranges)
