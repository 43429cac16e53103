"""The caches between waves and GL2, as far as they make a missing invalidation show: with `reorder_seed` only.

Waves read whole lines, which stay until they are invalidated or, as the seed picks, thrown out. A dispatch sees
its own stores; others, on other compute units, may still see the line as they read it before: as on silicon.
Without a seed nothing is cached and waves read the newest bytes.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from zinc_rt.pm4.generation import Generation
from zinc_rt.sim.cp.hazards import Cache
from zinc_rt.sim.interfaces import AccessKind, AddressSpace

LINE_BYTES = 128  # of GL0 and GL1 on RDNA
THROWN_OUT = 0.3  # how often a line that is there has gone all the same
LINES_KEPT = 1 << 16

Lines = dict[int, bytes]


class CachedSpace:
    """An address space as one dispatch's waves see it through `levels`, the nearest cache first.

    `own` are the lines the dispatch has stored to.
    """

    def __init__(
        self, space: AddressSpace, levels: Sequence[Lines], random_: random.Random, own: set[int]
    ) -> None:
        self._space, self._levels, self._random, self._own = space, levels, random_, own

    def read(self, va: int, size_bytes: int) -> bytes:
        found = bytearray(self._space.read(va, size_bytes))  # also what raises
        for line in range(va // LINE_BYTES, (va + size_bytes - 1) // LINE_BYTES + 1) if size_bytes else ():
            if line in self._own:
                continue
            start = line * LINE_BYTES
            first, last = max(va, start), min(va + size_bytes, start + LINE_BYTES)
            found[first - va : last - va] = self._line(line)[first - start : last - start]
        return bytes(found)

    def _line(self, line: int) -> bytes:
        for depth, level in enumerate(self._levels):
            held = level.get(line)
            if held is not None and self._random.random() >= THROWN_OUT:
                for nearer in self._levels[:depth]:
                    nearer[line] = held
                return held
        held = self._space.read(line * LINE_BYTES, LINE_BYTES)  # within the page of what was asked for
        for level in self._levels:
            if len(level) >= LINES_KEPT:
                level.clear()
            level[line] = held
        return held

    def write(self, va: int, data: bytes) -> None:
        self._space.write(va, data)
        self._stored(va, len(data))

    def view(self, va: int, size_bytes: int, access: AccessKind) -> memoryview:
        """For reading: a copy."""
        if access is AccessKind.WRITE:
            self._stored(va, size_bytes)
            return self._space.view(va, size_bytes, access)
        return memoryview(bytearray(self.read(va, size_bytes)))

    def _stored(self, va: int, size_bytes: int) -> None:
        self._own.update(range(va // LINE_BYTES, (va + size_bytes - 1) // LINE_BYTES + 1))

    def fetch(self, va: int, size_bytes: int) -> bytes:
        return self._space.fetch(va, size_bytes)

    def describe(self, va: int) -> str:
        return self._space.describe(va)

    def nearby(self, va: int) -> str:
        return self._space.nearby(va)

    def flush_hdp(self) -> None:
        self._space.flush_hdp()

    def write_back(self) -> None:
        self._space.write_back()

    def before_waves(self) -> None:
        self._space.before_waves()

    def after_waves(self, touched: Iterable[tuple[int, int]]) -> None:
        self._space.after_waves(touched)

    def invalidate_gl2(self, inside: tuple[int, int] | None = None) -> None:
        self._space.invalidate_gl2(inside)

    def invalidate_icache(self) -> None:
        self._space.invalidate_icache()


class Caches:
    """Of one address space: what its waves' vector and scalar reads go through."""

    def __init__(self, space: AddressSpace, generation: Generation, seed: int | None) -> None:
        self._space = space
        self._random = None if seed is None else random.Random(seed)
        names = [Cache.GLV_INV, Cache.GLK_INV] + [Cache.GL1_INV] * (generation == Generation.GFX11)
        self._levels: dict[Cache, Lines] = {name: {} for name in names}

    def of_dispatch(self) -> tuple[AddressSpace, AddressSpace]:
        """What a new dispatch's vector accesses and scalar reads go through."""
        if self._random is None:
            return self._space, self._space
        own: set[int] = set()
        shared = [level for name, level in self._levels.items() if name is Cache.GL1_INV]
        vector = CachedSpace(self._space, [self._levels[Cache.GLV_INV], *shared], self._random, own)
        return vector, CachedSpace(self._space, [self._levels[Cache.GLK_INV], *shared], self._random, own)

    def invalidate(self, operations: Cache, inside: tuple[int, int] | None = None) -> None:
        for name, level in self._levels.items():
            if name in operations:
                _invalidate(level, inside)


def _invalidate(level: Lines, inside: tuple[int, int] | None) -> None:
    if inside is None:
        level.clear()
        return
    va, size_bytes = inside
    first, end = va // LINE_BYTES, (va + size_bytes - 1) // LINE_BYTES + 1
    if end - first < len(level):
        for line in range(first, end):
            level.pop(line, None)
    else:
        for line in [line for line in level if first <= line < end]:
            del level[line]
