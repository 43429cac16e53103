"""Initialisation state of a buffer: one byte per dword, one bit for each of its bytes."""

from __future__ import annotations

import numpy as np

WHOLE_DWORD = 0xF
_CHUNK = 1 << 18  # dwords looked at in one go


class InitialisedBytes:
    """Initialisation state of memory that the host cannot access. `dwords`: uint8 [ceil(size / 4)], bit i
    set if byte i of the dword is initialised. Its pages are allocated when first marked. Compiled waves
    read and update the same array."""

    __slots__ = ("dwords", "marks", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.dwords = np.zeros(-(-size_bytes // 4), np.uint8)
        self.marks = 0  # how often `mark` was called: waves mark without it

    def mark(self, start: int, size_bytes: int) -> None:
        end = start + size_bytes
        first, last = -(-start // 4), end // 4
        self.marks += 1
        if first <= last:
            self.dwords[first:last] = WHOLE_DWORD
            if start % 4:
                self.dwords[first - 1] |= WHOLE_DWORD & (0xF << start % 4)
            if end % 4:
                self.dwords[last] |= 0xF >> (4 - end % 4)
        elif size_bytes:  # inside one dword
            self.dwords[last] |= ((1 << size_bytes) - 1) << start % 4

    def forget(self, start: int, size_bytes: int) -> None:
        """Mark the bytes as uninitialised. `start` and the size are in whole dwords."""
        self.dwords[start // 4 : (start + size_bytes) // 4] = 0

    def forget_bytes(self, start: int, size_bytes: int) -> None:
        """Mark the bytes as uninitialised."""
        first, end = start // 4, -(-(start + size_bytes) // 4)
        bits = self._unpack_bits(first, end)
        bits[start - 4 * first : start - 4 * first + size_bytes] = 0
        self.dwords[first:end] = np.packbits(bits.reshape(-1, 4), axis=1, bitorder="little")[:, 0]

    def read_bytes(self, start: int, size_bytes: int) -> np.ndarray:
        """Return whether each byte is initialised, as uint8 [size_bytes] of 0 and 1."""
        first = start // 4
        return self._unpack_bits(first, -(-(start + size_bytes) // 4))[start - 4 * first :][:size_bytes]

    def _unpack_bits(self, first: int, end: int) -> np.ndarray:
        return np.unpackbits(self.dwords[first:end, None], axis=1, count=4, bitorder="little").reshape(-1)

    def is_all_written(self, start: int, size_bytes: int) -> bool:
        end = start + size_bytes
        first, last = -(-start // 4), end // 4
        if first > last:
            wanted = ((1 << size_bytes) - 1) << start % 4
            return bool(self.dwords[last] & wanted == wanted)
        head, tail = WHOLE_DWORD & (0xF << start % 4), 0xF >> (4 - end % 4)
        chunks = range(first, last, _CHUNK)
        return (
            all(bool((self.dwords[chunk : min(chunk + _CHUNK, last)] == WHOLE_DWORD).all()) for chunk in chunks)
            and (start % 4 == 0 or bool(self.dwords[first - 1] & head == head))
            and (end % 4 == 0 or bool(self.dwords[last] & tail == tail))
        )
