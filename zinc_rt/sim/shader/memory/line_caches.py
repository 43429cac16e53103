"""Caches of wave loads simulated by --coherence caches: lines, invalidation, eviction.

Two workgroup processors are simulated, each with a scalar cache and two compute units with one L0 each.
Workgroups are assigned to them in turn; with more processors, hits on stale lines would only be rarer. On gfx11
each of them is in another shader array, with a GL1. Rules: docs/shader-memory.md. Sources: LLVM AMDGPUUsage,
memory models of gfx11 and gfx12 (one write-through L0 per compute unit, one scalar cache per workgroup
processor, one GL1 per shader array; none is coherent; L2 is shared by all); AMD's RDNA white paper (lines of
128 and 64 bytes, 32 and 16 KiB; GL1 is only read, and a store to a line invalidates it there).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from zinc_rt.sim.shader.layout import ARRAY_CACHE, CACHE_LINE, CACHE_PROCESSORS, SCALAR_CACHE, VECTOR_CACHE

UNITS = 2 * CACHE_PROCESSORS  # compute units
EVICTED = 1 / 8  # of the lines held, before each dispatch


class LineCaches:
    """The caches of one address space. A seed selects the caches of a dispatch's first workgroup, and the lines
    that are evicted at random. `has_arrays`: each workgroup processor is in another shader array, with a GL1.
    """

    def __init__(self, seed: int, *, has_arrays: bool = False) -> None:
        self._random = np.random.default_rng(seed)
        self.vector = np.zeros((UNITS, VECTOR_CACHE.lines), CACHE_LINE.dtype)
        self.scalar = np.zeros((CACHE_PROCESSORS, SCALAR_CACHE.lines), CACHE_LINE.dtype)
        self.array = np.zeros((CACHE_PROCESSORS * has_arrays, ARRAY_CACHE.lines), CACHE_LINE.dtype)
        self._all = (self.vector, self.scalar, self.array)

    @property
    def addresses(self) -> tuple[int, int, int]:
        """Return the addresses of the vector, scalar and GL1 cache lines in this process."""
        vector, scalar, array = (int(lines.ctypes.data) for lines in self._all)
        return vector, scalar, array

    def before_dispatch(self) -> int:
        """Evict some lines. Return the offset to add to workgroup numbers to select their caches."""
        for lines in self._all:
            lines["tag"][self._random.random(lines.shape) < EVICTED] = 0
        return int(self._random.integers(UNITS))

    def invalidate(
        self, *, vector: bool, scalar: bool, array: bool, inside: tuple[int, int] | None = None
    ) -> None:
        """Invalidate all lines, or those that overlap (VA, size)."""
        for lines, line_bytes, chosen in (
            (self.vector, VECTOR_CACHE.line_bytes, vector),
            (self.scalar, SCALAR_CACHE.line_bytes, scalar),
            (self.array, ARRAY_CACHE.line_bytes, array),
        ):
            if not chosen:
                continue
            tags = lines["tag"]
            if inside is None:
                tags[:] = 0
            else:
                start, size_bytes = inside
                tags[(tags + line_bytes > start) & (tags < start + size_bytes)] = 0

    def keep_mapped(self, spans: Iterable[tuple[int, int]]) -> None:
        """Invalidate lines outside of all spans (first VA, VA after the last)."""
        mapped = list(spans)
        for lines in self._all:
            tags = lines["tag"]
            tags[~_within(tags, mapped)] = 0

    def find_oldest(self, va: int, *, scalar: bool) -> tuple[int, bool]:
        """Return the serial of the dispatch that loaded the oldest cached line of this VA, or 0 if none is cached,
        and whether it was loaded from a line of GL1 that was older than memory.
        """
        lines, shape = (self.scalar, SCALAR_CACHE) if scalar else (self.vector, VECTOR_CACHE)
        held = lines[lines["tag"] == (va & -shape.line_bytes | 1)]
        if not held.size:
            return 0, False
        oldest = held[held["filled"].argmin()]
        return int(oldest["filled"]), bool(oldest["from_stale"])


def _within(tags: np.ndarray, spans: Sequence[tuple[int, int]]) -> np.ndarray:
    result = np.zeros(tags.shape, bool)
    for start, end in spans:
        result |= (tags >= start) & (tags < end)
    return result
