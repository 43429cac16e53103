"""MessagePack as LLVM writes kernel metadata: maps, arrays, strings, numbers (msgpack.org, spec.md)."""

from __future__ import annotations

import struct
from typing import Any

from zinc_rt.host.errors import InputError

_FIXED = {0xC0: None, 0xC2: False, 0xC3: True}
_NUMBERS = {
    0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
    0xCA: ">f", 0xCB: ">d",
}  # fmt: skip
_COUNTED = {
    0xD9: (1, str),
    0xDA: (2, str),
    0xDB: (4, str),
    0xDC: (2, list),
    0xDD: (4, list),
    0xDE: (2, dict),
    0xDF: (4, dict),
}
MAX_DEPTH = 16


def unpack(data: bytes, source: str) -> Any:
    """Decode the first value. Raise InputError if it is truncated or of a type that metadata does not use."""
    try:
        return _unpack_value(data, 0, 0)[0]
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise InputError(f"{source}: the metadata is truncated or damaged ({error})") from None
    except ValueError as error:
        raise InputError(f"{source}: the metadata is damaged: {error}") from None


def _unpack_value(data: bytes, index: int, depth: int) -> tuple[Any, int]:
    if depth > MAX_DEPTH:
        raise ValueError("nested too deeply")
    head = data[index]
    index += 1
    if head in _FIXED:
        return _FIXED[head], index
    if head < 0x80 or head >= 0xE0:
        return head - 256 * (head >= 0xE0), index
    if head in _NUMBERS:
        form = struct.Struct(_NUMBERS[head])
        return form.unpack_from(data, index)[0], index + form.size
    kind: type
    if head < 0xC0:
        kind, count = (dict, head & 15) if head < 0x90 else (list, head & 15) if head < 0xA0 else (str, head & 31)
    elif head in _COUNTED:
        width, kind = _COUNTED[head]
        count, index = int.from_bytes(data[index : index + width], "big"), index + width
    else:
        raise ValueError(f"unknown type byte {head:#04x}")
    if kind is str:
        if index + count > len(data):
            raise ValueError("a string extends beyond the end")
        return data[index : index + count].decode(), index + count
    items = []
    for _ in range(count * (2 if kind is dict else 1)):
        item, index = _unpack_value(data, index, depth + 1)
        items.append(item)
    if kind is dict and any(isinstance(key, (dict, list)) for key in items[::2]):
        raise ValueError("a map key is not a plain value")
    return (dict(zip(items[::2], items[1::2], strict=True)) if kind is dict else items), index
