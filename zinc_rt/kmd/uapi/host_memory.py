"""Arrays of this process that ioctl arguments point to."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

from zinc_rt.kmd.uapi.structs import Struct, StructBytes


class HostArray:
    """Bytes at a fixed `address` during the object's lifetime: keep it alive across the call."""

    __slots__ = ("_store", "address", "size_bytes")

    def __init__(self, content: bytes | bytearray) -> None:
        self.size_bytes = len(content)
        self._store = (ctypes.c_char * max(1, len(content))).from_buffer_copy(bytes(content) or b"\0")
        self.address = ctypes.addressof(self._store)

    def bytes(self) -> bytes:
        return self._store.raw[: self.size_bytes]

    def record(self, struct: Struct, index: int = 0) -> StructBytes:
        """Return a copy of the index-th struct in the array."""
        start = index * struct.size_bytes
        return struct.read(self.bytes()[start : start + struct.size_bytes])


def make_u32_array(values: Iterable[int]) -> HostArray:
    return HostArray(b"".join(value.to_bytes(4, "little") for value in values))


def make_u64_array(values: Iterable[int]) -> HostArray:
    return HostArray(b"".join(value.to_bytes(8, "little") for value in values))


def make_record_array(items: Iterable[StructBytes]) -> HostArray:
    return HostArray(b"".join(bytes(item.raw) for item in items))


def store_u32(address: int, value: int) -> None:
    """Perform one aligned 32-bit store, for device registers."""
    ctypes.c_uint32.from_address(address).value = value
