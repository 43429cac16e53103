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
    version = _read_version(walk)
    tensor_count = walk.count("tensors", MIN_TENSOR_BYTES)
    key_count = walk.count("metadata entries", MIN_KEY_VALUE_BYTES)
    metadata = _read_metadata(walk, key_count)
    alignment = _read_alignment(walk, metadata)
    tensors = _read_tensors(walk, tensor_count, alignment)
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

    def read_string(self, what: str) -> str:
        offset = self.at
        raw = self.take(self.u64(f"the length of {what}"), what)
        try:
            return str(raw, "utf-8")
        except UnicodeDecodeError:
            self.fail(f"{what} is not UTF-8", offset=offset)

    def read_strings(self, count: int, what: str) -> list[str]:
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


def _read_version(reader: _HeaderReader) -> int:
    magic = bytes(reader.take(4, "the magic"))
    if magic != MAGIC:
        reader.fail(f"starts with {magic!r}, a GGUF file starts with {MAGIC!r}", offset=0)
    version = reader.u32("the version")
    if version & 0xFFFF == 0 and version:
        raise UnsupportedError(
            f"{reader.name}: big-endian GGUF files are not supported", next="convert the model to little-endian"
        )
    if version not in VERSIONS:
        raise UnsupportedError(
            f"{reader.name}: GGUF version is {version}; this build reads {' and '.join(map(str, VERSIONS))}",
            next="convert the model again with a current llama.cpp, or update zinc-rt",
        )
    return version


def _read_metadata(reader: _HeaderReader, count: int) -> dict[str, object]:
    metadata: dict[str, object] = {}
    for index in range(count):
        offset = reader.at
        key = reader.read_string(f"metadata key {index}")
        if not key or key in metadata:
            reader.fail(
                f"metadata key {key!r} appears twice" if key else f"metadata key {index} is empty", offset=offset
            )
        metadata[key] = _read_value(reader, key)
    return metadata


def _read_value_type(reader: _HeaderReader, key: str) -> GGUFValueType:
    offset = reader.at
    number = reader.u32(f"the type of {key}")
    try:
        return GGUFValueType(number)
    except ValueError:
        reader.fail(f"{key} has the unknown value type {number}", offset=offset)


def _read_value(reader: _HeaderReader, key: str) -> object:
    kind = _read_value_type(reader, key)
    if kind == GGUFValueType.STRING:
        return reader.read_string(key)
    if kind != GGUFValueType.ARRAY:
        return _read_numbers(reader, kind, 1, key)[0].item()
    item = _read_value_type(reader, key)
    if item == GGUFValueType.ARRAY:
        raise UnsupportedError(
            f"{reader.name}: at byte {reader.at}: {key} is an array of arrays, which is not supported",
            next="remove that key with gguf-new-metadata",
        )
    if item == GGUFValueType.STRING:
        return reader.read_strings(reader.count(f"strings in {key}", 8), key)
    return _read_numbers(reader, item, reader.count(f"numbers in {key}", SCALARS[item].itemsize), key)


def _read_numbers(reader: _HeaderReader, kind: GGUFValueType, count: int, key: str) -> np.ndarray:
    offset = reader.at
    dtype = SCALARS[kind]
    values = np.frombuffer(reader.take(count * dtype.itemsize, key), dtype).copy()
    if kind == GGUFValueType.BOOL:
        if values.size and values.max() > 1:
            reader.fail(f"{key} holds {values.max()} where a bool is 0 or 1", offset=offset)
        values = values.astype(np.bool_)
    values.flags.writeable = False
    return values


def _read_alignment(reader: _HeaderReader, metadata: Mapping[str, object]) -> int:
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if (
        not isinstance(alignment, int)
        or not MIN_ALIGNMENT <= alignment <= MAX_ALIGNMENT
        or alignment & (alignment - 1)
    ):
        expected = f"a power of two from {MIN_ALIGNMENT} to {MAX_ALIGNMENT}"
        reader.fail(f"general.alignment is {alignment!r}, expected {expected}")
    return alignment


def _read_tensors(reader: _HeaderReader, count: int, alignment: int) -> tuple[TensorInfo, ...]:
    entries = [(reader.at, _read_tensor_entry(reader, index)) for index in range(count)]
    data_start = -(-reader.at // alignment) * alignment
    tensors: dict[str, TensorInfo] = {}
    for index, entry in entries:
        name, start = entry.name, data_start + entry.offset
        if name in tensors:
            reader.fail(f"tensor {name} appears twice", offset=index)
        if entry.offset % alignment:
            reader.fail(f"tensor {name} starts at {entry.offset}, not a multiple of {alignment}", offset=index)
        if (end := start + entry.size_bytes) > len(reader.data):
            reader.fail(
                f"truncated: tensor {name} needs bytes {start}..{end}, but the file has {len(reader.data)}",
                offset=index,
            )
        tensors[name] = replace(entry, offset=start)
    _check_no_overlap(reader, list(tensors.values()))
    return tuple(tensors.values())


def _read_tensor_entry(reader: _HeaderReader, index: int) -> TensorInfo:
    """Read one tensor's entry. Its `offset` is still relative to the start of the data, which follows the last
    entry."""
    position = reader.at
    name = reader.read_string(f"the name of tensor {index}")
    if not name:
        reader.fail(f"tensor {index} has no name", offset=position)
    n_dims = reader.u32(f"the dimensions of {name}")
    if not 1 <= n_dims <= MAX_DIMS:
        reader.fail(f"tensor {name} has {n_dims} dimensions, expected 1 to {MAX_DIMS}", offset=position)
    dims = struct.unpack(f"<{n_dims}Q", reader.take(8 * n_dims, f"the dimensions of {name}"))
    if 0 in dims or prod(dims) >= 1 << 63:
        reader.fail(f"tensor {name} has the invalid size {' x '.join(map(str, dims))}", offset=position)
    kind = _read_tensor_type(reader, name)
    block, block_bytes = GGML_QUANT_SIZES[kind]
    if dims[0] % block:
        reader.fail(
            f"tensor {name} has rows of {dims[0]} elements, but {kind.name} needs a multiple of {block}",
            offset=position,
        )
    shape = tuple(reversed(dims))
    size_bytes = prod(dims) // block * block_bytes
    offset = reader.u64(f"the offset of {name}")
    return TensorInfo(name, kind, shape, offset, size_bytes)


def _read_tensor_type(reader: _HeaderReader, name: str) -> GGMLQuantizationType:
    number = reader.u32(f"the type of {name}")
    with suppress(ValueError):
        kind = GGMLQuantizationType(number)
        if kind in GGML_QUANT_SIZES:
            return kind
    raise UnsupportedError(
        f"{reader.name}: at byte {reader.at - 4}: tensor {name} has the unknown ggml type {number}",
        next="use another quantisation of the model, or a newer `gguf` package if the type is new",
    )


def _check_no_overlap(reader: _HeaderReader, tensors: list[TensorInfo]) -> None:
    ordered = sorted(tensors, key=lambda tensor: tensor.offset)
    for before, after in pairwise(ordered):
        if before.offset + before.size_bytes > after.offset:
            reader.fail(f"tensors {before.name} and {after.name} overlap", offset=after.offset)
