"""Typed reads from GGUF metadata: a wrong type or length raises an InputError that names the key."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from zinc_rt.host.errors import InputError

Metadata = Mapping[str, object]

_REDO = "convert the model again, or use another file"


def make_metadata_error(message: str) -> InputError:
    """Return the error for unusable metadata."""
    return InputError(message, next=_REDO)


def _make_type_error(key: str, expected: str, saw: object) -> InputError:
    return make_metadata_error(f"{key}: expected {expected}, saw {type(saw).__name__}")


def read_text(metadata: Metadata, key: str) -> str | None:
    value = metadata.get(key)
    if value is None or isinstance(value, str):
        return value
    raise _make_type_error(key, "a string", value)


def read_flag(metadata: Metadata, key: str, default: bool) -> bool:
    value = metadata.get(key)
    if value is None:
        return default
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise _make_type_error(key, "a boolean", value)


def read_integer(metadata: Metadata, key: str) -> int | None:
    value = metadata.get(key)
    if value is None:
        return None
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise _make_type_error(key, "an integer", value)
    return int(value)


def read_strings(metadata: Metadata, key: str) -> list[str] | None:
    value = metadata.get(key)
    if value is None:
        return None
    if isinstance(value, np.ndarray):
        if value.size == 0:
            return []
        value = value.tolist()
    if not isinstance(value, list | tuple):
        raise _make_type_error(key, "an array of strings", value)
    values = list(value)
    for item in values:
        if not isinstance(item, str):
            raise _make_type_error(key, "an array of strings", item)
    try:
        "".join(values).encode()
    except UnicodeEncodeError:
        raise make_metadata_error(f"{key}: contains a string that is not valid UTF-8") from None
    return values


def read_numbers(metadata: Metadata, key: str, *, kinds: str) -> np.ndarray | None:
    """Return a one-dimensional numeric array whose NumPy dtype kind is in `kinds` ('i', 'u', 'f')."""
    value = metadata.get(key)
    if value is None:
        return None
    if isinstance(value, bytes | bytearray):
        value = np.frombuffer(value, np.uint8)
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError):
        raise _make_type_error(key, "an array of numbers", value) from None
    if array.ndim != 1 or (array.size and array.dtype.kind not in kinds):
        raise make_metadata_error(f"{key}: expected an array of numbers, got {array.dtype} of shape {array.shape}")
    return array
