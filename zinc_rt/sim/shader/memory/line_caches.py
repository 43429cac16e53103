"""Caches of wave loads simulated by --coherence caches: lines, invalidation, eviction.

Two workgroup processors are simulated, each with a scalar cache and two compute units with one L0 each. Workgroups
are assigned to them in turn; with more processors, hits on stale lines would only be rarer. Rules:
docs/shader-memory.md. Sources: LLVM AMDGPUUsage, memory model GFX12 (one write-through L0 per compute unit; one
scalar cache per workgroup processor; neither is coherent; L2 is shared by all); AMD's RDNA white paper (lines of
128 and 64 bytes, 32 and 16 KiB).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from zinc_rt.sim.shader.layout import CACHE_LINE, CACHE_PROCESSORS, SCALAR_CACHE, VECTOR_CACHE

UNITS = 2 * CACHE_PROCESSORS  # compute units
EVICTED = 1 / 8  # of the lines held, before each dispatch


class LineCaches:
    """The caches of one address space. A seed selects the caches of a dispatch's first workgroup, and the lines
    that are evicted at random.
    """

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self.vector = np.zeros((UNITS, VECTOR_CACHE.lines), CACHE_LINE.dtype)
        self.scalar = np.zeros((CACHE_PROCESSORS, SCALAR_CACHE.lines), CACHE_LINE.dtype)

    @property
    def addresses(self) -> tuple[int, int]:
        """Return the addresses of the vector and the scalar cache lines in this process."""
        return int(self.vector.ctypes.data), int(self.scalar.ctypes.data)

    def before_dispatch(self) -> int:
        """Evict some lines. Return the offset to add to workgroup numbers to select their caches."""
        for lines in (self.vector, self.scalar):
            lines["tag"][self._random.random(lines.shape) < EVICTED] = 0
        return int(self._random.integers(UNITS))

    def invalidate(self, *, vector: bool, scalar: bool, inside: tuple[int, int] | None = None) -> None:
        """Invalidate all lines, or those that overlap (VA, size)."""
        for lines, line_bytes, chosen in (
            (self.vector, VECTOR_CACHE.line_bytes, vector),
            (self.scalar, SCALAR_CACHE.line_bytes, scalar),
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
        for lines in (self.vector, self.scalar):
            tags = lines["tag"]
            tags[~_within(tags, mapped)] = 0

    def filled(self, va: int, *, scalar: bool) -> int:
        """Return the serial of the dispatch that loaded the oldest cached line of this VA, or 0 if none is
        cached.
        """
        lines, shape = (self.scalar, SCALAR_CACHE) if scalar else (self.vector, VECTOR_CACHE)
        held = lines[lines["tag"] == (va & -shape.line_bytes | 1)]
        return int(held["filled"].min()) if held.size else 0


def _within(tags: np.ndarray, spans: Sequence[tuple[int, int]]) -> np.ndarray:
    result = np.zeros(tags.shape, bool)
    for start, end in spans:
        result |= (tags >= start) & (tags < end)
    return result
