"""The buffers from which the CP reads dwords: the ring, and the indirect buffers that it calls.

A frame has a window of fetched dwords. Positions count dwords: in the ring from the queue's creation,
never wrapped; in an indirect buffer from its start. Dwords at or after the write pointer are never read
(pm4.md §1.3).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from zinc_rt.sim.interfaces import AddressSpace

WINDOW_DW = 1024
MAX_DEPTH = 3  # ring, IB, IB within it; deeper nesting is unverified on silicon (pm4.md §3.10)


class FetchFrame(Protocol):
    """A buffer that the CP reads dwords from, at `position`: the ring, or an indirect buffer."""

    position: int
    words: list[int]
    base: int

    def available(self) -> int:
        """Return the number of dwords from `position` that may be read now; 0 or less: none."""

    def load(self, count: int) -> None:
        """Make words[position - base] and up to `count` available dwords valid. Raises Fault."""

    def place(self, position: int) -> str: ...

    def va(self, position: int) -> int: ...


def read_dwords(space: AddressSpace, va: int, count: int) -> list[int]:
    return memoryview(space.read(va, 4 * count)).cast("I").tolist()


@dataclass(slots=True)
class Ring:
    """The ring of a queue. `size_dw` is a power of two if the driver checked it; any size works here."""

    space: AddressSpace
    ring_va: int
    size_dw: int
    position: int
    wptr: int
    words: list[int] = field(default_factory=list)
    base: int = 0

    def available(self) -> int:
        return self.wptr - self.position

    def load(self, count: int) -> None:
        count = min(count, self.wptr - self.position)
        start = self.position % self.size_dw
        first = min(count, self.size_dw - start)
        words = read_dwords(self.space, self.ring_va + 4 * start, first)
        while len(words) < count:  # wraps, more than once only in a ring smaller than a packet
            words += read_dwords(self.space, self.ring_va, min(count - len(words), self.size_dw))
        self.words, self.base = words, self.position

    def place(self, position: int) -> str:
        return f"ring dword {position % self.size_dw:#x} (position {position})"

    def va(self, position: int) -> int:
        return self.ring_va + 4 * (position % self.size_dw)


@dataclass(slots=True)
class IndirectFrame:
    """A called buffer of `size_dw` dwords. `caller` is the position of the call, for reports."""

    space: AddressSpace
    start_va: int
    size_dw: int
    caller: str
    position: int = 0
    words: list[int] = field(default_factory=list)
    base: int = 0

    def available(self) -> int:
        return self.size_dw - self.position

    def load(self, count: int) -> None:
        count = min(count, self.size_dw - self.position)
        self.words = read_dwords(self.space, self.start_va + 4 * self.position, count)
        self.base = self.position

    def place(self, position: int) -> str:
        return f"IB 0x{self.start_va:x} dword {position:#x} (called at {self.caller})"

    def va(self, position: int) -> int:
        return self.start_va + 4 * position
