"""Fetch of a kernel's machine code by following its control flow, because nothing marks where code begins or
ends.

Functions may be located before the kernels that call them, and far from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from zinc_rt.isa import Target
from zinc_rt.isa.control_flow import LONGEST_BYTES, find_control_flow
from zinc_rt.sim.chips import PAGE_BYTES
from zinc_rt.sim.interfaces import AddressSpace, Fault

REACH_BYTES = 1 << 24  # to either side of the entry
HEAD_BYTES = 64  # from the entry on, by which known code is looked up
ERASED = b"\xff"  # not fetched: not an instruction


@dataclass(frozen=True, slots=True)
class FetchedCode:
    """Fetched code. `code` extends from the lowest to the highest reachable byte. `entry`: byte offset of the
    kernel's first instruction. `pieces`: (first, end) byte offsets of fetched bytes; gaps between them are filler.
    """

    code: bytes
    entry: int
    pieces: tuple[tuple[int, int], ...]

    def find_first_difference(self, read: Callable[[int, int], bytes], va: int) -> int | None:
        """Return the byte offset of the first dword in `code` that differs from memory, or None. The entry is
        at `va`.
        """
        base = va - self.entry
        for first, end in self.pieces:
            have, want = read(base + first, end - first), self.code[first:end]
            if have != want:
                pairs = enumerate(zip(have, want, strict=True))
                return first + (next(index for index, pair in pairs if pair[0] != pair[1]) & ~3)
        return None

    def is_at(self, space: AddressSpace, va: int) -> bool:
        """Return whether an instruction fetch returns this code at the address."""
        try:
            return self.find_first_difference(space.fetch, va) is None
        except Fault:
            return False


class KnownCode:
    """Code whose control flow has been followed. Equal bytes have equal extents at any address."""

    def __init__(self) -> None:
        self._codes: dict[tuple[Target, bytes], list[FetchedCode]] = {}  # by target and first bytes

    def at(self, space: AddressSpace, va: int, head: bytes, target: Target) -> FetchedCode | None:
        known = self._codes.get((target, head), ())
        return next((item for item in known if item.is_at(space, va)), None)

    def add(self, found: FetchedCode, target: Target) -> None:
        head = found.code[found.entry : found.entry + HEAD_BYTES]
        if len(head) == HEAD_BYTES:
            self._codes.setdefault((target, head), []).append(found)


def fetch_code(space: AddressSpace, va: int, target: Target, known: KnownCode | None = None) -> FetchedCode:
    """Return all code reachable from `va`. Raises Fault if the first instruction cannot be fetched. Control
    flow is cut off at pages that cannot be fetched and at a distance of REACH_BYTES.
    """
    known = KnownCode() if known is None else known
    pages = _Pages(space, va)
    met = known.at(space, va, pages.content(va, va + HEAD_BYTES), target)
    if met is not None:
        return met
    while True:
        places = find_reached(pages, va, target)
        if not pages.add(places):
            break
    locations = [location for location in places if location // PAGE_BYTES in pages.fetched]
    low, high = min(locations), max(locations) + 1
    code = FetchedCode(pages.content(low, high), va - low, pages.iterate_pieces(low, high))
    if not pages.refused:
        known.add(code, target)
    return code


class _Pages:
    """Pages of code by number, and the pages that could not be fetched."""

    def __init__(self, space: AddressSpace, va: int) -> None:
        self._space, self._va = space, va
        self.fetched: dict[int, bytes] = {}
        self.refused: set[int] = set()
        self._fetch(va // PAGE_BYTES)

    def _fetch(self, page: int) -> None:
        self.fetched[page] = self._space.fetch(page * PAGE_BYTES, PAGE_BYTES)

    def add(self, places: Iterable[int]) -> bool:
        """Fetch the pages of these bytes. Return whether any are new."""
        near = (location // PAGE_BYTES for location in places if abs(location - self._va) <= REACH_BYTES)
        wanted = set(near) - self.fetched.keys() - self.refused
        for page in wanted:
            try:
                self._fetch(page)
            except Fault:
                self.refused.add(page)
        return bool(wanted - self.refused)

    def content(self, low: int, high: int) -> bytes:
        """Return the bytes from `low` to `high`, with ERASED for bytes that were not fetched."""
        first, nothing = low // PAGE_BYTES, ERASED * PAGE_BYTES
        pages = [self.fetched.get(page, nothing) for page in range(first, -(-high // PAGE_BYTES))]
        return b"".join(pages)[low - first * PAGE_BYTES :][: high - low]

    def iterate_pieces(self, low: int, high: int) -> tuple[tuple[int, int], ...]:
        """Return runs of pages between these addresses, as offsets from `low`."""
        runs: list[list[int]] = []
        for page in sorted(self.fetched):
            start, end = max(page * PAGE_BYTES, low), min((page + 1) * PAGE_BYTES, high)
            if start < end and runs and runs[-1][1] == start - low:
                runs[-1][1] = end - low
            elif start < end:
                runs.append([start - low, end - low])
        return tuple((start, end) for start, end in runs)


def find_reached(pages: _Pages, va: int, target: Target) -> list[int]:
    """Return the VAs of the first and last bytes reachable from `va`, including bytes not fetched yet. If call
    targets cannot be determined, all addresses formed by the code are included.
    """
    low, high = min(pages.fetched) * PAGE_BYTES, (max(pages.fetched) + 1) * PAGE_BYTES
    flow = find_control_flow(pages.content(low, high), target, va - low, running=True)
    places = list(flow.formed)
    for block in flow.blocks.values():
        places += [block.start, max(block.end - 1, block.start)]
        if block.illegal_at is not None:
            cut = (low + block.illegal_at) % PAGE_BYTES > PAGE_BYTES - LONGEST_BYTES
            places += [block.illegal_at, block.illegal_at + (LONGEST_BYTES if cut else 3)]
    return [low + location for location in places]
