"""GPU address allocation for clients that choose addresses: first fit, with adjacent free ranges merged."""

from __future__ import annotations

from bisect import insort

from zinc_rt.host.errors import ZincError


class GpuAddresses:
    """An allocator of the addresses from `first` to `last`, both inclusive."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last
        self._free = [(first, last + 1)]  # start, end; sorted, never touching

    def take(self, size_bytes: int, align_bytes: int) -> int:
        for index, (start, end) in enumerate(self._free):
            va = start + -start % align_bytes
            if va + size_bytes <= end:
                pieces = [(start, va), (va + size_bytes, end)]
                self._free[index : index + 1] = [piece for piece in pieces if piece[0] < piece[1]]
                return va
        raise ZincError(
            f"no free range of {size_bytes} bytes of GPU addresses between {self.first:#x} and {self.last:#x}",
            next="free buffers, or use larger ones in smaller number",
        )

    def give_back(self, va: int, size_bytes: int) -> None:
        end = va + size_bytes
        if not self.first <= va < end <= self.last + 1 or any(s < end and va < e for s, e in self._free):
            raise ValueError(f"{size_bytes} bytes at {va:#x} were not allocated here")
        insort(self._free, (va, end))
        joined: list[tuple[int, int]] = []
        for start, stop in self._free:
            if joined and joined[-1][1] == start:
                joined[-1] = (joined[-1][0], stop)
            else:
                joined.append((start, stop))
        self._free = joined
