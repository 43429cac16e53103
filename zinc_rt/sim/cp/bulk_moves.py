"""Copies and fills in pieces, so that no packet occupies the device's thread for long."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from zinc_rt.sim.interfaces import AccessKind, AddressSpace

PIECE_BYTES = 4 << 20
PAGE_BYTES = 4096


def copy(space: AddressSpace, destination: int, source: int, size_bytes: int) -> Callable[[], bool]:
    """Return a function to call until it returns True. Overlapping ranges are copied piece by piece in
    ascending order."""
    result = 0

    def advance() -> bool:
        nonlocal result
        piece = min(PIECE_BYTES, size_bytes - result)
        if piece:
            _copy_piece(space, destination + result, source + result, piece)
        result += piece
        return result >= size_bytes

    return advance


def fill(space: AddressSpace, destination: int, pattern: bytes, size_bytes: int) -> Callable[[], bool]:
    """Fill the range with repetitions of `pattern`; the last one may be truncated."""
    result = 0
    piece_bytes = PIECE_BYTES - PIECE_BYTES % len(pattern)

    def advance() -> bool:
        nonlocal result
        piece = min(piece_bytes, size_bytes - result)
        if piece:
            write(space, destination + result, (pattern * (piece // len(pattern) + 1))[:piece])
        result += piece
        return result >= size_bytes

    return advance


def write(space: AddressSpace, va: int, data: bytes) -> None:
    """Write data of any size, across allocations. On Fault the pages before the bad one have been written,
    as with DMA."""
    try:
        space.view(va, len(data), AccessKind.WRITE)[:] = data
    except ValueError:
        for start, end in _split_pages(va, len(data)):
            space.write(va + start, data[start:end])


def _copy_piece(space: AddressSpace, destination: int, source: int, size_bytes: int) -> None:
    try:
        read = space.view(source, size_bytes, AccessKind.READ)
        space.view(destination, size_bytes, AccessKind.WRITE)[:] = read
    except ValueError:
        for start, end in _split_pages(destination, size_bytes):
            space.write(destination + start, space.read(source + start, end - start))


def _split_pages(va: int, size_bytes: int) -> list[tuple[int, int]]:
    """Split the range into (start, end) parts, one per page."""
    cuts = [0, *range(PAGE_BYTES - va % PAGE_BYTES, size_bytes, PAGE_BYTES), size_bytes]
    return list(pairwise(cuts))
