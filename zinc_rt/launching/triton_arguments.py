"""The arguments of a Triton launch in the order of the compiled kernel: tuples and tensor descriptors expanded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.launching.triton_memory import HostPointer, make_pointer

Argument = np.generic | HostPointer | None

_INTEGERS = {"i1": np.uint8, "u1": np.uint8} | {
    f"{letter}{bits}": getattr(np, f"{word}{bits}")
    for letter, word in (("i", "int"), ("u", "uint"))
    for bits in (8, 16, 32, 64)
}
_FLOATS: dict[str, type[np.floating]] = {
    "fp16": np.float16,
    "fp32": np.float32,
    "f32": np.float32,
    "fp64": np.float64,
}
_DESCRIPTOR = re.compile(r"tensordesc(?:_im2col)?<([^\[>]*)\[([^\]]*)\]")


def list_arguments(signature: Mapping[Any, Any], values: Sequence[Any]) -> dict[str, Argument]:
    """Return the arguments by name. `signature`: Triton's type of each parameter; `values`: one for each.

    Raise UnsupportedError for a type that a simulated chip does not support.
    """
    flat: dict[str, Argument] = {}
    for (name, kind), value in zip(signature.items(), values, strict=True):
        for key, item in _flatten_argument(str(name), kind, value):
            flat[key] = item
    return flat


def _flatten_argument(name: str, kind: Any, value: Any) -> Iterator[tuple[str, Argument]]:
    if kind == "constexpr":
        return
    if isinstance(kind, tuple):
        fields = getattr(value, "_fields", range(len(kind)))
        for field, inner, part in zip(fields, kind, value, strict=True):
            yield from _flatten_argument(f"{name}.{field}", inner, part)
    elif kind.startswith("tensordesc"):
        yield from _expand_descriptor(name, kind, value)
    else:
        yield name, _convert_argument(name, kind, value)


def _convert_argument(name: str, kind: str, value: Any) -> Argument:
    if kind.startswith("*"):
        if value is None:
            return None
        return np.uint64(value) if isinstance(value, int) else make_pointer(name, value)
    if kind in _INTEGERS:
        type_ = np.dtype(_INTEGERS[kind])
        bits = int(value) & (1 << 8 * type_.itemsize) - 1
        return np.frombuffer(bits.to_bytes(type_.itemsize, "little"), type_)[0]
    if kind in _FLOATS:
        return _FLOATS[kind](value)
    if kind == "bf16":
        return _round_to_bfloat16(float(value))
    raise UnsupportedError(f"argument {name} has the type {kind}, which a simulated chip does not support")


def _round_to_bfloat16(value: float) -> np.uint16:
    """Return the bits of the nearest bf16, ties to even."""
    bits = int(np.float32(value).view(np.uint32))
    if np.isnan(value):
        return np.uint16(bits >> 16 | 0x40)
    return np.uint16(bits + 0x7FFF + (bits >> 16 & 1) >> 16 & 0xFFFF)


def _expand_descriptor(name: str, kind: str, value: Any) -> Iterator[tuple[str, Argument]]:
    """Expand a tensor descriptor like the AMD backend: base, shape and strides in 64 bits, two flags, then
    shape in 32 and strides in 64 bits."""
    match = _DESCRIPTOR.match(kind)
    if match is None:
        raise UnsupportedError(f"argument {name} is a tensor descriptor of the unsupported form {kind}")
    yield name, _convert_argument(name, f"*{match[1]}", value.base)
    for field, numbers in (("shape", value.shape), ("stride", value.strides)):
        for axis, number in enumerate(numbers):
            yield f"{name}.{field}[{axis}] (64 bits)", np.int64(number)
    yield f"{name}.nan padding", np.uint8(value.padding == "nan")
    yield f"{name}.round to tf32", np.uint8(bool(getattr(value, "round_f32_to_tf32", False)))
    for axis, number in enumerate(value.shape):
        yield f"{name}.shape[{axis}]", np.int32(number)
    for axis, number in enumerate(value.strides):
        yield f"{name}.stride[{axis}]", np.int64(number)
