"""A GGUF file put together by hand, so that a test can break any part of it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

U32, STRING, ARRAY = 4, 8, 9  # GGUFValueType


def pack_string(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def pack_u32_field(key: str, value: int) -> bytes:
    return pack_string(key) + struct.pack("<II", U32, value)


def pack_string_field(key: str, value: str | bytes) -> bytes:
    return pack_string(key) + struct.pack("<I", STRING) + pack_string(value)


def pack_array_field(key: str, item_type: int, count: int, payload: bytes) -> bytes:
    return pack_string(key) + struct.pack("<IIQ", ARRAY, item_type, count) + payload


@dataclass(frozen=True)
class RawTensor:
    name: str
    dims: tuple[int, ...]
    type: int
    offset: int

    def pack_entry(self) -> bytes:
        dims = struct.pack(f"<{len(self.dims)}Q", *self.dims)
        return (
            pack_string(self.name)
            + struct.pack("<I", len(self.dims))
            + dims
            + struct.pack("<IQ", self.type, self.offset)
        )


def gguf_bytes(
    metadata: Sequence[bytes] = (),
    tensors: Sequence[RawTensor] = (),
    data: bytes = b"",
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    tensor_count: int | None = None,
    key_count: int | None = None,
    alignment: int = 32,
) -> bytes:
    tensor_count = len(tensors) if tensor_count is None else tensor_count
    key_count = len(metadata) if key_count is None else key_count
    header = magic + struct.pack("<IQQ", version, tensor_count, key_count)
    header += b"".join(metadata) + b"".join(tensor.pack_entry() for tensor in tensors)
    return header + b"\0" * (-len(header) % alignment) + data
