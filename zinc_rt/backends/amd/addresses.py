"""Map GPU addresses to allocations, to name the address of a fault."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass

FAR_BYTES = 1 << 30  # what lies further off has nothing to do with an address


@dataclass(frozen=True, slots=True, order=True)
class Region:
    va: int
    size_bytes: int
    name: str

    @property
    def end(self) -> int:
        return self.va + self.size_bytes


class AddressMap:
    """Live allocations by GPU address. Regions may be nested: the smallest one names an address."""

    def __init__(self) -> None:
        self._regions: list[Region] = []

    def __len__(self) -> int:
        return len(self._regions)

    def __iter__(self) -> Iterator[Region]:
        return iter(self._regions)

    def add(self, va: int, size_bytes: int, name: str) -> Region:
        region = Region(va, size_bytes, name)
        insort(self._regions, region)
        return region

    def remove(self, region: Region) -> None:
        self._regions.remove(region)

    def at(self, va: int) -> Region | None:
        """Return the smallest region that contains `va`."""
        covering = [region for region in self._regions if region.va <= va < region.end]
        return min(covering, key=lambda region: region.size_bytes, default=None)

    def find_region_below(self, va: int) -> Region | None:
        """Return the nearest region that ends at or below `va`, the smallest of several: a likely origin of an
        overrun. Return None if it is far away."""
        below = [region for region in self._regions if region.end <= va < region.end + FAR_BYTES]
        return max(below, key=lambda region: (region.end, -region.size_bytes), default=None)

    def find_region_above(self, va: int) -> Region | None:
        """Return the nearest region that begins above `va`, the smallest of several. Return None if it is far
        away."""
        above = [region for region in self._regions if va < region.va < va + FAR_BYTES]
        return min(above, key=lambda region: (region.va, region.size_bytes), default=None)

    def name(self, va: int) -> str | None:
        """Return a name such as "weights+0x40", or None if `va` is outside all allocations."""
        region = self.at(va)
        if region is None:
            return None
        return f"{region.name}+{va - region.va:#x}" if va != region.va else region.name

    def describe(self, va: int) -> str:
        """Describe `va` by its name or, outside all allocations, by the distances to the neighbouring ones."""
        inside = self.name(va)
        if inside is not None:
            return inside
        below, above = self.find_region_below(va), self.find_region_above(va)
        parts = []
        if below is not None:
            parts.append(f"{va - below.end:#x} bytes past the end of {below.name}")
        if above is not None:
            parts.append(f"{above.va - va:#x} bytes before {above.name}")
        return f"in no allocation: {', '.join(parts)}" if parts else "in no allocation, and none is nearby"

    def check_range(self, va: int, size_bytes: int, kind: str) -> str | None:
        """Return the reason why these bytes cannot be used, for the PM4 linter; empty if they can. They may span
        adjacent regions."""
        index, end = va, va + max(size_bytes, 1)
        while index < end:
            ends = [region.end for region in self._regions if region.va <= index < region.end]
            if not ends:
                return self.describe(index)
            index = max(ends)
        return None
