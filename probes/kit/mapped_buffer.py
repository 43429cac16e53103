"""Host access to a GPU buffer by address, without references that keep the mapping alive."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from zinc_rt.kmd.transport import DeviceBuffer

POISON32 = 0xDEADBEEF
POISON64 = 0xDEADBEEF_DEADBEEF


class MappedBuffer:
    """A mapped buffer; offsets in bytes."""

    def __init__(self, buffer: DeviceBuffer) -> None:
        self.buffer = buffer
        self.size_bytes = buffer.size_bytes

    @property
    def gpu_va(self) -> int:
        return self.buffer.gpu_va

    @property
    def address(self) -> int:
        return self.buffer.host.address

    def u32(self, offset: int) -> int:
        return ctypes.c_uint32.from_address(self.address + self._check_range(offset, 4)).value

    def put32(self, offset: int, value: int) -> None:
        ctypes.c_uint32.from_address(self.address + self._check_range(offset, 4)).value = value

    def u64(self, offset: int) -> int:
        return ctypes.c_uint64.from_address(self.address + self._check_range(offset, 8)).value

    def put64(self, offset: int, value: int) -> None:
        ctypes.c_uint64.from_address(self.address + self._check_range(offset, 8)).value = value

    def read(self, offset: int, size_bytes: int) -> bytes:
        return ctypes.string_at(self.address + self._check_range(offset, size_bytes), size_bytes)

    def put(self, offset: int, data: bytes) -> None:
        ctypes.memmove(self.address + self._check_range(offset, len(data)), data, len(data))

    def poison(self) -> None:
        self.put(0, POISON32.to_bytes(4, "little") * (self.size_bytes // 4))

    def free(self) -> None:
        self.buffer.free()

    def _check_range(self, offset: int, size_bytes: int) -> int:
        if not 0 <= offset <= self.size_bytes - size_bytes:
            raise ValueError(
                f"{self.buffer.name}: access to bytes {offset} to {offset + size_bytes} of a buffer of "
                f"{self.size_bytes}"
            )
        return offset


def make_pattern(size_bytes: int, seed: int = 1) -> bytes:
    """Return bytes in which any address error or byte swap is detectable."""
    words = ((seed * 0x9E3779B1 + index * 0x85EBCA6B) & 0xFFFFFFFF for index in range(-(-size_bytes // 4)))
    return b"".join(word.to_bytes(4, "little") for word in words)[:size_bytes]


def find_first_lost(
    write: Callable[[bytes], None], read: Callable[[], bytes], size_bytes: int, seeds: tuple[int, int]
) -> tuple[int, int] | None:
    """Return the seed and byte of the first pattern written to a memory that is not read back. The second seed
    ensures that old contents are detected.
    """
    for seed in seeds:
        want = make_pattern(size_bytes, seed)
        write(want)
        bad = find_first_difference(read(), want)
        if bad is not None:
            return seed, bad
    return None


def find_first_difference(got: bytes, want: bytes) -> int | None:
    """Return the first differing byte, or None."""
    if got == want:
        return None
    return next((i for i, (a, b) in enumerate(zip(got, want, strict=False)) if a != b), min(len(got), len(want)))
