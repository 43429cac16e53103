"""Tables of the readable and writable ranges of an address space, searched by compiled code.

Both tables are sorted by address. `spans` contains the mappings of the page tables; an access outside is a fault.
`ranges` contains the intervals that an access must stay inside, otherwise it is out of bounds:

- An allocation without announced suballocations is one range.
- In an allocation with announced suballocations only these are ranges. The bytes accessed by one lane must be in
  one of them. Of nested announcements the outermost one counts: kernels address with base and offset, so the
  intended object cannot be determined. Overlapping announcements that are not nested all count.

At level off both tables are the same. Entries of `ranges` never contain each other, so the last one that starts at
or before an address is the one that extends furthest.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from typing import Any
from weakref import ref

import numpy as np

from zinc_rt.sim.chips import PAGE_BYTES, round_up
from zinc_rt.sim.memory.buffers import Bo
from zinc_rt.sim.memory.initialised_bytes import InitialisedBytes
from zinc_rt.sim.memory.vm import GpuVm
from zinc_rt.sim.shader.layout import RACE, RANGE

RACE_BYTES = 1 << 28  # of larger ranges no race records are kept
ANY_BYTES = 1 << 20  # ranges up to this size are looked through after every dispatch that stored to them


class RangeFlag(IntFlag):
    READ = 1
    WRITE = 2
    CLEAN = 4  # all of it initialised, or it cannot be known (the host may write it)
    SAVED = 8  # VRAM with a second copy: pages are saved before their first store
    BEYOND = 16  # mapped, but past the end of the buffer


@dataclass(slots=True, eq=False)
class Piece:
    """Contiguous host memory at `va` with its properties."""

    va: int
    size_bytes: int
    host: int  # address of the byte at `va`
    flags: RangeFlag
    name: str
    written: InitialisedBytes | None = None
    start: int = 0  # of the piece, in `written` and `bo`
    bo: Bo | None = None

    @property
    def end(self) -> int:
        return self.va + self.size_bytes

    def part(self, va: int, end: int, name: str) -> Piece:
        skipped = va - self.va
        return Piece(
            va, end - va, self.host + skipped, self.flags, name, self.written, self.start + skipped, self.bo
        )


@dataclass(slots=True, eq=False)
class RangeTable:
    """The tables `ranges` and `spans`: [n] RANGE records read by compiled code. `keep` holds references to the
    memory they point to.
    """

    pieces: tuple[Piece, ...]
    ranges: np.ndarray
    spans: np.ndarray
    keep: list[Any] = field(default_factory=list)
    addresses: tuple[int, int] = field(init=False)  # of `ranges` and `spans` in this process
    _marks: dict[int, int] = field(default_factory=dict)  # marks of InitialisedBytes, by range, as last looked at
    _starts: list[int] = field(init=False)
    _unclean: dict[int, InitialisedBytes] = field(init=False)

    def __post_init__(self) -> None:
        self.addresses = int(self.ranges.ctypes.data), int(self.spans.ctypes.data)
        self._starts = self.ranges["va_lo"].tolist()
        self._unclean = {
            number: piece.written
            for number, (piece, flags) in enumerate(zip(self.pieces, self.ranges["flags"].tolist(), strict=True))
            if piece.written is not None and not flags & RangeFlag.CLEAN
        }

    def refresh(self, stored: Iterable[tuple[int, int]] | None = None) -> None:
        """Mark ranges as CLEAN if all their bytes have been written; waves then skip checks.

        `stored`: (VA, size) of the waves' stores since the last call; None examines all ranges.
        """
        chosen = None if stored is None else self._worth_looking(stored)
        worth = [
            number
            for number, written in self._unclean.items()
            if chosen is None or number in chosen or written.marks != self._marks.get(number)
        ]
        for number in worth:
            piece, written = self.pieces[number], self._unclean[number]
            self._marks[number] = written.marks
            if written.is_all_written(piece.start, piece.size_bytes):
                self.ranges["flags"][number] |= RangeFlag.CLEAN
                del self._unclean[number]

    def _worth_looking(self, stored: Iterable[tuple[int, int]]) -> set[int]:
        """Return whether to examine the ranges: small ones after any store, large ones after stores to a large
        part.
        """
        result = set()
        for va, size in stored:
            first = max(bisect_right(self._starts, va) - 1, 0)
            for number in range(first, bisect_left(self._starts, va + size)):
                piece = self.pieces[number]
                shared = min(va + size, piece.end) - max(va, piece.va)
                if shared > 0 and (piece.size_bytes <= ANY_BYTES or 2 * shared >= piece.size_bytes):
                    result.add(number)
        return result


def of_vm(vm: GpuVm, *, bounds: bool, races: bool = False) -> RangeTable:
    """Return the table of a client's address space. `bounds`: include announcements (modes fast and full).
    `races`: allocate memory for race records (mode full).
    """
    spans, keep = [], []
    for span in vm.spans:
        bo = span.bo
        view = np.frombuffer(bo.store.view, np.uint8)
        keep.append(view)
        flags = RangeFlag(RangeFlag.READ * span.read | RangeFlag.WRITE * span.write)
        if bo.written is None:
            flags |= RangeFlag.CLEAN
        if bo.saved is not None:
            flags |= RangeFlag.SAVED
        host = view.ctypes.data + span.offset
        spans.append(Piece(span.start, span.size_bytes, host, flags, bo.name, bo.written, span.offset, bo))
    announced = [(item.va, item.va + item.size_bytes, item.name) for item in vm.announced] if bounds else []
    return _table(spans, announced, keep, races=races)


@dataclass(frozen=True, slots=True)
class PlacedArray:
    """A caller's contiguous array at `va`."""

    va: int
    array: np.ndarray
    name: str
    write: bool = True
    written: InitialisedBytes | None = None


def of_arrays(
    placed: Sequence[PlacedArray],
    *,
    bounds: bool,
    races: bool = False,
    announced: Sequence[tuple[int, int, str]] = (),
) -> RangeTable:
    """Return the table of an address space of NumPy arrays. As in a real allocation, the rest of an array's
    last page is mapped: reads return 0xA5, stores are discarded, both are out of bounds. `announced` lists
    suballocations as (first VA, VA after the last byte, name).
    """
    beyond = np.full(PAGE_BYTES, 0xA5, np.uint8)
    keep: list[Any] = [beyond]
    spans, past = [], []
    for array in sorted(placed, key=lambda array: array.va):
        if array.array.nbytes == 0:
            continue
        keep += [array.array, array.written]
        flags = RangeFlag(RangeFlag.READ | RangeFlag.WRITE * array.write)
        if array.written is None:
            flags |= RangeFlag.CLEAN
        size = array.array.nbytes
        spans.append(Piece(array.va, size, array.array.ctypes.data, flags, array.name, array.written))
        rest = round_up(array.va + size, PAGE_BYTES) - array.va - size
        if rest:
            tail = RangeFlag.READ | RangeFlag.WRITE | RangeFlag.CLEAN | RangeFlag.BEYOND
            past.append(Piece(array.va + size, rest, beyond.ctypes.data, tail, array.name))
    return _table(spans, list(announced) if bounds else [], keep, past, races=races)


def _table(
    spans: list[Piece],
    announced: list[tuple[int, int, str]],
    keep: list[Any],
    past: Sequence[Piece] = (),
    *,
    races: bool,
) -> RangeTable:
    pieces = _bounded(spans, announced)
    mapped = sorted([*spans, *past], key=lambda piece: piece.va)
    keep += [piece.written for piece in pieces]
    table = RangeTable(tuple(pieces), _records(pieces), _records(mapped), keep)
    if races:
        _add_races(table)
    return table


def _add_races(table: RangeTable) -> None:
    for number, piece in enumerate(table.pieces):
        if piece.flags & RangeFlag.WRITE and piece.size_bytes <= RACE_BYTES:
            first = piece.va // 4
            records = np.zeros(-(-piece.end // 4) - first, RACE.dtype)
            table.keep.append(records)
            table.ranges["races"][number] = (records.ctypes.data - first * RACE.size_bytes) % (1 << 64)


def _bounded(spans: list[Piece], announced: list[tuple[int, int, str]]) -> list[Piece]:
    outermost: list[tuple[int, int, str]] = []
    for item in sorted(announced, key=lambda one: (one[0], -one[1])):
        if not outermost or item[1] > outermost[-1][1]:
            outermost.append(item)
    pieces: list[Piece] = []
    first = 0
    for span in sorted(spans, key=lambda span: span.va):
        while first < len(outermost) and outermost[first][1] <= span.va:
            first += 1
        index, result = first, False
        while index < len(outermost) and outermost[index][0] < span.end:
            start, end, name = outermost[index]
            pieces.append(span.part(max(start, span.va), min(end, span.end), name))
            index, result = index + 1, True
        if not result:
            pieces.append(span)
    return pieces


def _records(pieces: Sequence[Piece]) -> np.ndarray:
    records = np.zeros(len(pieces) + 1, RANGE.dtype)  # never empty: it has an address
    for number, piece in enumerate(pieces):
        record = records[number]
        record["va_lo"], record["va_hi"], record["index"] = piece.va, piece.end, number
        record["delta"] = (piece.host - piece.va) % (1 << 64)
        flags = piece.flags
        if piece.written is not None:
            record["shadow"] = _per_dword(piece.written.dwords.ctypes.data, piece.va, piece.start)
            if piece.written.is_all_written(piece.start, piece.size_bytes):
                flags |= RangeFlag.CLEAN
        if piece.bo is not None and piece.bo.saved is not None:
            pages = piece.bo.saved.ctypes.data + piece.start // PAGE_BYTES - piece.va // PAGE_BYTES
            record["saved"] = pages % (1 << 64)
        record["flags"] = flags
    return records[: len(pieces)]


def _per_dword(array: int, va: int, start: int) -> int:
    """Return the offset to add to a VA's dword number (VA / 4) to get its byte of a per-dword array."""
    return (array + start // 4 - va // 4) % (1 << 64)


class RangeCache:
    """A cached table of a VM, which it references weakly. The table is rebuilt when mappings, announcements or
    host mappings change.
    """

    def __init__(self, vm: GpuVm, *, bounds: bool, races: bool = False) -> None:
        self._reference, self._bounds, self._races = ref(vm), bounds, races
        self._state: tuple[int, int] = (-1, -1)
        self._table: RangeTable | None = None

    def table(self) -> RangeTable:
        vm = self._reference()
        if vm is None:
            raise ValueError("the address space was already closed")
        state = (vm.version, sum(span.bo.host_changes for span in vm.spans))
        if self._table is None or state != self._state:
            self._table, self._state = of_vm(vm, bounds=self._bounds, races=self._races), state
        return self._table
