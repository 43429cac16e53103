"""First-fit suballocation of one byte range: a sorted free list that coalesces."""

from __future__ import annotations

from bisect import bisect_left, insort

from zinc_rt.errors import ZincError


class OutOfMemory(ZincError):
    """No free range is large enough."""


def align_up(size_bytes: int, alignment: int) -> int:
    return -(-size_bytes // alignment) * alignment


class Suballocator:
    """Offsets into a range of `size_bytes`. Every allocation is rounded up to `alignment`, a power of two."""

    def __init__(self, size_bytes: int, *, alignment: int = 256, name: str = "range") -> None:
        if alignment < 1 or alignment & (alignment - 1):
            raise ValueError(f"{name}: an alignment is a power of two, not {alignment}")
        if size_bytes < 0:
            raise ValueError(f"{name}: {size_bytes} bytes cannot be divided")
        self.name = name
        self.size_bytes = size_bytes
        self.alignment = alignment
        usable = size_bytes // alignment * alignment
        self._free: list[tuple[int, int]] = (
            [(0, usable)] if usable else []
        )  # (offset, size), sorted, never adjacent
        self._taken: dict[int, tuple[int, int]] = {}  # offset -> (asked, rounded)

    @property
    def used_bytes(self) -> int:
        """With rounding."""
        return sum(rounded for _, rounded in self._taken.values())

    @property
    def payload_bytes(self) -> int:
        """As asked for."""
        return sum(asked for asked, _ in self._taken.values())

    @property
    def free_bytes(self) -> int:
        return sum(size for _, size in self._free)

    @property
    def largest_free_bytes(self) -> int:
        return max((size for _, size in self._free), default=0)

    def alloc(self, size_bytes: int) -> int:
        """Offset of the first free range that fits. Raises OutOfMemory."""
        if size_bytes < 1:
            raise ValueError(f"{self.name}: cannot allocate {size_bytes} bytes")
        rounded = align_up(size_bytes, self.alignment)
        for place, (offset, size) in enumerate(self._free):
            if size >= rounded:
                if size == rounded:
                    del self._free[place]
                else:
                    self._free[place] = (offset + rounded, size - rounded)
                self._taken[offset] = (size_bytes, rounded)
                return offset
        raise OutOfMemory(
            f"{self.name}: wanted {rounded} bytes, {self.free_bytes} of {self.size_bytes} are free "
            f"and the largest piece is {self.largest_free_bytes}"
        )

    def free(self, offset: int) -> None:
        """Raises ValueError for an offset that is not allocated (a second free, a made-up one)."""
        if offset not in self._taken:
            raise ValueError(f"{self.name}: nothing is allocated at {offset:#x}: freed twice, or never allocated")
        _, size = self._taken.pop(offset)
        place = bisect_left(self._free, (offset, 0))
        if place < len(self._free) and offset + size == self._free[place][0]:
            size += self._free.pop(place)[1]
        if place > 0 and sum(self._free[place - 1]) == offset:
            before, before_size = self._free.pop(place - 1)
            offset, size = before, before_size + size
        insort(self._free, (offset, size))
