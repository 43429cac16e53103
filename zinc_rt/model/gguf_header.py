"""Parse the GGUF header. Every length, count and offset is validated before use."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import NoReturn

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType

from zinc_rt.host.errors import InputError, UnsupportedError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32  # GGUF_DEFAULT_ALIGNMENT in ggml/include/gguf.h
MIN_ALIGNMENT, MAX_ALIGNMENT = 8, 1 << 20
MAX_DIMS = 4  # GGML_MAX_DIMS in ggml/include/ggml.h
MIN_KEY_VALUE_BYTES = 8 + 1 + 4 + 1  # name length, name, type, the smallest value
MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8  # name length, name, n_dims, one dim, type, offset

SCALARS: dict[GGUFValueType, np.dtype] = {
    GGUFValueType.UINT8: np.dtype("<u1"),
    GGUFValueType.INT8: np.dtype("<i1"),
    GGUFValueType.UINT16: np.dtype("<u2"),
    GGUFValueType.INT16: np.dtype("<i2"),
    GGUFValueType.UINT32: np.dtype("<u4"),
    GGUFValueType.INT32: np.dtype("<i4"),
    GGUFValueType.FLOAT32: np.dtype("<f4"),
    GGUFValueType.BOOL: np.dtype("<u1"),
    GGUFValueType.UINT64: np.dtype("<u8"),
    GGUFValueType.INT64: np.dtype("<i8"),
    GGUFValueType.FLOAT64: np.dtype("<f8"),
}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    name: str
    type: GGMLQuantizationType
    shape: tuple[int, ...]  # row-major: (out, in), GGUF's ne reversed
    offset: int  # bytes from the start of the file
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Header:
    version: int
    metadata: Mapping[str, object]
    tensors: tuple[TensorInfo, ...]


def read_header(data: memoryview, name: str) -> Header:
    """Parse the header of the file whose bytes are `data`; messages call it `name`.

    Raise InputError (malformed, truncated) or UnsupportedError (big endian, version, tensor type).
    """
    walk = _HeaderReader(data, name)
    version = _version(walk)
    tensor_count = walk.count("tensors", MIN_TENSOR_BYTES)
    key_count = walk.count("metadata entries", MIN_KEY_VALUE_BYTES)
    metadata = _metadata(walk, key_count)
    alignment = _alignment(walk, metadata)
    tensors = _tensors(walk, tensor_count, alignment)
    return Header(version, metadata, tensors)


class _HeaderReader:
    """A position in the file, checked against its end."""

    def __init__(self, data: memoryview, name: str) -> None:
        self.data = data
        self.name = name
        self.at = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def fail(self, problem: str, *, offset: int | None = None) -> NoReturn:
        where = self.at if offset is None else offset
        raise InputError(
            f"{self.name}: at byte {where}: {problem}",
            next="the file is damaged or not a GGUF file: download it again",
        )

    def take(self, size: int, what: str) -> memoryview:
        if size > self.left:
            end = self.at + size
            self.fail(
                f"truncated: {what} needs bytes {self.at}..{end}, but the file has {len(self.data)}"
                if size < 1 << 48
                else f"{what} claims {size} bytes, but only {self.left} are left"
            )
        piece = self.data[self.at : self.at + size]
        self.at += size
        return piece

    def u32(self, what: str) -> int:
        return int.from_bytes(self.take(4, what), "little")

    def u64(self, what: str) -> int:
        return int.from_bytes(self.take(8, what), "little")

    def count(self, what: str, smallest_bytes: int) -> int:
        offset = self.at
        count = self.u64(f"the number of {what}")
        if count * smallest_bytes > self.left:
            self.fail(f"claims {count} {what}, more than the {self.left} bytes left can hold", offset=offset)
        return count

    def string(self, what: str) -> str:
        offset = self.at
        raw = self.take(self.u64(f"the length of {what}"), what)
        try:
            return str(raw, "utf-8")
        except UnicodeDecodeError:
            self.fail(f"{what} is not UTF-8", offset=offset)

    def strings(self, count: int, what: str) -> list[str]:
        """Read `count` strings in a plain loop over local names, because vocabularies have 150k entries and
        more.
        """
        data, offset, end = self.data, self.at, len(self.data)
        length_at = struct.Struct("<Q").unpack_from
        texts: list[str] = []
        for index in range(count):
            start = offset + 8
            if start > end or (stop := start + length_at(data, offset)[0]) > end:
                self.at = offset
                self.fail(f"truncated: string {index} of {count} in {what} does not fit in the file")
            try:
                texts.append(str(data[start:stop], "utf-8"))
            except UnicodeDecodeError:
                self.fail(f"string {index} of {what} is not UTF-8", offset=offset)
            offset = stop
        self.at = offset
        return texts


def _version(walk: _HeaderReader) -> int:
    magic = bytes(walk.take(4, "the magic"))
    if magic != MAGIC:
        walk.fail(f"starts with {magic!r}, a GGUF file starts with {MAGIC!r}", offset=0)
    version = walk.u32("the version")
    if version & 0xFFFF == 0 and version:
        raise UnsupportedError(
            f"{walk.name}: big-endian GGUF files are not supported", next="convert the model to little-endian"
        )
    if version not in VERSIONS:
        raise UnsupportedError(
            f"{walk.name}: GGUF version is {version}; this build reads {' and '.join(map(str, VERSIONS))}",
            next="convert the model again with a current llama.cpp, or update zinc-rt",
        )
    return version


def _metadata(walk: _HeaderReader, count: int) -> dict[str, object]:
    metadata: dict[str, object] = {}
    for index in range(count):
        offset = walk.at
        key = walk.string(f"metadata key {index}")
        if not key or key in metadata:
            walk.fail(
                f"metadata key {key!r} appears twice" if key else f"metadata key {index} is empty", offset=offset
            )
        metadata[key] = _value(walk, key)
    return metadata


def _value_type(walk: _HeaderReader, key: str) -> GGUFValueType:
    offset = walk.at
    number = walk.u32(f"the type of {key}")
    try:
        return GGUFValueType(number)
    except ValueError:
        walk.fail(f"{key} has the unknown value type {number}", offset=offset)


def _value(walk: _HeaderReader, key: str) -> object:
    kind = _value_type(walk, key)
    if kind == GGUFValueType.STRING:
        return walk.string(key)
    if kind != GGUFValueType.ARRAY:
        return _numbers(walk, kind, 1, key)[0].item()
    item = _value_type(walk, key)
    if item == GGUFValueType.ARRAY:
        raise UnsupportedError(
            f"{walk.name}: at byte {walk.at}: {key} is an array of arrays, which is not supported",
            next="remove that key with gguf-new-metadata",
        )
    if item == GGUFValueType.STRING:
        return walk.strings(walk.count(f"strings in {key}", 8), key)
    return _numbers(walk, item, walk.count(f"numbers in {key}", SCALARS[item].itemsize), key)


def _numbers(walk: _HeaderReader, kind: GGUFValueType, count: int, key: str) -> np.ndarray:
    offset = walk.at
    dtype = SCALARS[kind]
    values = np.frombuffer(walk.take(count * dtype.itemsize, key), dtype).copy()
    if kind == GGUFValueType.BOOL:
        if values.size and values.max() > 1:
            walk.fail(f"{key} holds {values.max()} where a bool is 0 or 1", offset=offset)
        values = values.astype(np.bool_)
    values.flags.writeable = False
    return values


def _alignment(walk: _HeaderReader, metadata: Mapping[str, object]) -> int:
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if (
        not isinstance(alignment, int)
        or not MIN_ALIGNMENT <= alignment <= MAX_ALIGNMENT
        or alignment & (alignment - 1)
    ):
        expected = f"a power of two from {MIN_ALIGNMENT} to {MAX_ALIGNMENT}"
        walk.fail(f"general.alignment is {alignment!r}, expected {expected}")
    return alignment


def _tensors(walk: _HeaderReader, count: int, alignment: int) -> tuple[TensorInfo, ...]:
    entries = [(walk.at, _tensor_entry(walk, index)) for index in range(count)]
    data_start = -(-walk.at // alignment) * alignment
    tensors: dict[str, TensorInfo] = {}
    for index, entry in entries:
        name, start = entry.name, data_start + entry.offset
        if name in tensors:
            walk.fail(f"tensor {name} appears twice", offset=index)
        if entry.offset % alignment:
            walk.fail(f"tensor {name} starts at {entry.offset}, not a multiple of {alignment}", offset=index)
        if (end := start + entry.size_bytes) > len(walk.data):
            walk.fail(
                f"truncated: tensor {name} needs bytes {start}..{end}, but the file has {len(walk.data)}",
                offset=index,
            )
        tensors[name] = replace(entry, offset=start)
    _check_no_overlap(walk, list(tensors.values()))
    return tuple(tensors.values())


def _tensor_entry(walk: _HeaderReader, index: int) -> TensorInfo:
    """Read one tensor's entry. Its `offset` is still relative to the start of the data, which follows the last
    entry."""
    position = walk.at
    name = walk.string(f"the name of tensor {index}")
    if not name:
        walk.fail(f"tensor {index} has no name", offset=position)
    n_dims = walk.u32(f"the dimensions of {name}")
    if not 1 <= n_dims <= MAX_DIMS:
        walk.fail(f"tensor {name} has {n_dims} dimensions, expected 1 to {MAX_DIMS}", offset=position)
    dims = struct.unpack(f"<{n_dims}Q", walk.take(8 * n_dims, f"the dimensions of {name}"))
    if 0 in dims or prod(dims) >= 1 << 63:
        walk.fail(f"tensor {name} has the invalid size {' x '.join(map(str, dims))}", offset=position)
    kind = _tensor_type(walk, name)
    block, block_bytes = GGML_QUANT_SIZES[kind]
    if dims[0] % block:
        walk.fail(
            f"tensor {name} has rows of {dims[0]} elements, but {kind.name} needs a multiple of {block}",
            offset=position,
        )
    shape = tuple(reversed(dims))
    size_bytes = prod(dims) // block * block_bytes
    offset = walk.u64(f"the offset of {name}")
    return TensorInfo(name, kind, shape, offset, size_bytes)


def _tensor_type(walk: _HeaderReader, name: str) -> GGMLQuantizationType:
    number = walk.u32(f"the type of {name}")
    with suppress(ValueError):
        kind = GGMLQuantizationType(number)
        if kind in GGML_QUANT_SIZES:
            return kind
    raise UnsupportedError(
        f"{walk.name}: at byte {walk.at - 4}: tensor {name} has the unknown ggml type {number}",
        next="use another quantisation of the model, or a newer `gguf` package if the type is new",
    )


def _check_no_overlap(walk: _HeaderReader, tensors: list[TensorInfo]) -> None:
    ordered = sorted(tensors, key=lambda tensor: tensor.offset)
    for before, after in pairwise(ordered):
        if before.offset + before.size_bytes > after.offset:
            walk.fail(f"tensors {before.name} and {after.name} overlap", offset=after.offset)
