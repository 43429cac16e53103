"""Argument syntax of the command line: `x=in:f32[1024]:random:7`, `y=out:f32[4,256]`, `n=i32:1024`,
`t=lds:4096`, `p=null`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zinc_rt.host.errors import InputError, UsageError

DTYPES: dict[str, np.dtype[Any]] = {
    f"{letter}{8 * size}": np.dtype(f"{kind}{size}")
    for letter, kind, sizes in (("f", "f", (2, 4, 8)), ("i", "i", (1, 2, 4, 8)), ("u", "u", (1, 2, 4, 8)))
    for size in sizes
}
ML_DTYPES = {"bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}  # the OCP types of gfx12
FORM = "NAME=in|out|inout:TYPE[SHAPE][:FILL], NAME=TYPE:VALUE, NAME=lds:BYTES or NAME=null"
_BUFFER = re.compile(r"(in|out|inout):(\w+)\[([\d,\sx]+)\](?::(.+))?")


@dataclass(frozen=True, slots=True, eq=False)
class LaunchBuffer:
    """A buffer argument. `array` is its initial content; `out`: read it back after the launch; `read`: the kernel
    may read its initial content."""

    array: np.ndarray
    out: bool = False
    read: bool = True


@dataclass(frozen=True, slots=True)
class Lds:
    """A __local argument: a number of bytes of LDS after the static LDS."""

    size_bytes: int


Value = LaunchBuffer | Lds | np.generic | None  # None: a null pointer


def out(shape: int | tuple[int, ...], dtype: Any) -> LaunchBuffer:
    """Return an output, initialised to bytes 0xff (NaN or -1). Elements that the kernel does not write, and reads
    of elements before they are written, are findings."""
    dtype = np.dtype(dtype)
    count = math.prod(shape) if isinstance(shape, tuple) else shape
    ones = np.full(count * dtype.itemsize, 0xFF, np.uint8)
    return LaunchBuffer(ones.view(dtype).reshape(shape), out=True, read=False)


def inout(array: np.ndarray) -> LaunchBuffer:
    """Return a buffer that is read and written; the given array is not modified."""
    return LaunchBuffer(np.ascontiguousarray(array), out=True)


def parse(text: str) -> tuple[str, Value]:
    """Parse one --arg into (name, value). Raise UsageError, and InputError for a file that cannot be read."""
    name, equals, rest = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--arg {text}: expected {FORM}")
    match = _BUFFER.fullmatch(rest)
    if match is not None:
        way, dtype, shape, fill = match.groups()
        return name, _parse_buffer(text, way, parse_type(f"--arg {text}", dtype), shape, fill)
    if rest == "null":
        return name, None
    kind, colon, value = rest.partition(":")
    if not colon:
        raise UsageError(f"--arg {text}: expected {FORM}")
    try:
        if kind == "lds":
            return name, Lds(int(value, 0))
        dtype_ = parse_type(f"--arg {text}", kind)
        return name, dtype_.type(float(value) if is_float(dtype_) else int(value, 0))
    except (ValueError, OverflowError):
        raise UsageError(f"--arg {text}: {value} is not a valid {kind}") from None


def is_float(dtype: np.dtype[Any]) -> bool:
    """Return whether this is a floating-point type, of NumPy or of ml_dtypes."""
    return dtype.kind == "f" or dtype.name in ML_DTYPES.values()


def parse_type(text: str, name: str) -> np.dtype[Any]:
    """Return the type of this name, like f32 or bf16. Raise UsageError, which begins with `text`."""
    if name in DTYPES:
        return DTYPES[name]
    if name not in ML_DTYPES:
        raise UsageError(f"{text}: unknown type {name}, expected one of {', '.join([*DTYPES, *ML_DTYPES])}")
    try:
        import ml_dtypes
    except ImportError:
        raise UsageError(
            f"{text}: {name} needs the package ml_dtypes", next="pip install 'zinc-rt[launch]'"
        ) from None
    return np.dtype(getattr(ml_dtypes, ML_DTYPES[name]))


def _parse_buffer(text: str, way: str, dtype: np.dtype[Any], shape: str, fill: str | None) -> LaunchBuffer:
    try:
        sizes = tuple(int(part) for part in re.split(r"[,x]", shape.replace(" ", "")))
    except ValueError:
        raise UsageError(f"--arg {text}: invalid shape [{shape}]") from None
    if way == "out" and fill is None:
        return out(sizes, dtype)
    return LaunchBuffer(_make_filled_array(text, sizes, dtype, fill or "zeros"), out=way != "in")


def _make_filled_array(text: str, shape: tuple[int, ...], dtype: np.dtype[Any], fill: str) -> np.ndarray:
    kind, _, rest = fill.partition(":")
    try:
        if kind == "random":
            return make_random(shape, dtype, int(rest or 0))
        if kind == "range":
            return np.arange(math.prod(shape)).astype(dtype).reshape(shape)
        if kind in ("zeros", "ones"):
            return np.full(shape, kind == "ones", dtype)
        if kind == "fill":
            return np.full(shape, float(rest) if is_float(dtype) else int(rest, 0), dtype)
    except (ValueError, OverflowError):
        raise UsageError(f"--arg {text}: {rest} is not a valid value for {kind}") from None
    if kind == "file":
        return _read_from_file(text, rest, shape, dtype)
    raise UsageError(
        f"--arg {text}: unknown fill {kind}, expected random:SEED, range, zeros, ones, fill:VALUE or file:F.npy"
    )


def make_random(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int) -> np.ndarray:
    """Return random values: normally distributed floats, or integers of the whole range."""
    generator = np.random.default_rng(seed)
    if is_float(dtype):
        return generator.standard_normal(shape).astype(dtype)
    info = np.iinfo(dtype)
    return generator.integers(info.min, info.max, shape, dtype, endpoint=True)


def _read_from_file(text: str, path: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    try:
        array = np.load(Path(path))
    except (OSError, ValueError) as error:
        raise InputError(f"--arg {text}: {path}: {error}") from None
    if isinstance(array, np.ndarray) and dtype.kind == "V" and array.dtype == np.dtype(f"V{dtype.itemsize}"):
        array = array.view(dtype)  # as NumPy stores a type of ml_dtypes
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.size != math.prod(shape):
        about = f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else "no single array"
        raise InputError(f"--arg {text}: {path} contains {about}, expected {dtype}{list(shape)}")
    return np.ascontiguousarray(array).reshape(shape)
