"""Memory touched by a launch, for the hazard tracker: the intervals of its memory instructions, overlapping ones
merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from zinc_rt.sim.shader.layout import KEPT, WaveAccess
from zinc_rt.sim.shader_engine import Accesses, Ranges


def find_touched(memory_sites: Iterable[np.ndarray], extents: Iterable[np.ndarray]) -> Accesses:
    """Return the intervals of all threads, from MEMORY_SITE records and EXTENT records [kinds of WaveAccess,
    ranges].
    """
    result: list[list[tuple[int, int]]] = [[] for _ in WaveAccess]
    for sites in memory_sites:
        for kind, start, end in _list_intervals(sites, sites["kind"].tolist()):
            result[kind].append((start, end))
    for table in extents:
        if not (table.size and table.view(np.uint64).max()):
            continue  # as nearly always: the quickest way to see it
        indices, numbers = np.nonzero(table["touched_above"])
        for kind, number in zip(indices.tolist(), numbers.tolist(), strict=True):
            row = table[kind, number]
            result[kind].append((~int(row["touched_below"]) & (1 << 64) - 1, int(row["touched_above"])))
    return Accesses(
        _join_intervals(result[WaveAccess.READ]),
        _join_intervals(result[WaveAccess.SCALAR_READ]),
        _join_intervals(result[WaveAccess.WRITE]),
        _join_intervals(result[WaveAccess.ATOMIC]),
    )


def _list_intervals(sites: np.ndarray, numbers: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return (the site's number, first VA, VA after the last) of each interval in MEMORY_SITE records."""
    lows, highs = sites["touched_lo"].tolist(), sites["touched_hi"].tolist()
    result = [row for row in zip(numbers, lows, highs, strict=True) if row[1] != row[2]]
    if any(stowed := sites["stowed"].tolist()):
        for number, count, kept in zip(numbers, stowed, sites["kept"], strict=True):
            if count:
                rows = kept.reshape(KEPT, -1).tolist()
                result += [(number, low, high) for low, high, _range in rows if high]
    return result


def find_ranges_by_site(
    pcs: Sequence[int], threads: Iterable[tuple[np.ndarray, np.ndarray]], ranges: np.ndarray
) -> dict[int, set[tuple[int, int]]]:
    """Return the ranges, as (VA, VA after the last byte), that the instruction at each pc may have accessed.

    `pcs`: the instruction of each memory site. `threads`: MEMORY_SITE and EXTENT records of each thread. Intervals
    that a site had no room for are recorded by the kind of access, so they count for each site of that kind.
    """
    result: dict[int, set[tuple[int, int]]] = {}
    kinds: dict[int, set[int]] = {}
    earlier: dict[int, set[tuple[int, int]]] = {}
    for sites, table in threads:
        for index, start, _end in _list_intervals(sites, range(len(sites))):
            row = ranges[np.searchsorted(ranges["va_lo"], np.uint64(start), "right") - 1]
            result.setdefault(pcs[index], set()).add((int(row["va_lo"]), int(row["va_hi"])))
            kinds.setdefault(pcs[index], set()).add(int(sites["kind"][index]))
        if table.size and table.view(np.uint64).max():
            for kind, number in zip(
                *(index.tolist() for index in np.nonzero(table["touched_above"])), strict=True
            ):
                row = ranges[number]
                earlier.setdefault(kind, set()).add((int(row["va_lo"]), int(row["va_hi"])))
    for pc, of_site in kinds.items():
        for kind in of_site:
            result[pc] |= earlier.get(kind, set())
    return result


def _join_intervals(intervals: list[tuple[int, int]]) -> Ranges:
    """Merge (start, end) intervals to disjoint ascending (VA, size)."""
    joined: list[list[int]] = []
    for start, end in sorted(intervals):
        if joined and start <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([start, end])
    return tuple((start, end - start) for start, end in joined)
