"""GGUF files: metadata as Python values, tensors as read-only views of the memory-mapped file."""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np

from zinc_rt.host.errors import InputError, UnsupportedError
from zinc_rt.host.files import cache_folder
from zinc_rt.host.input_files import unreadable
from zinc_rt.model.gguf_header import TensorInfo, read_header

# ggml types with a NumPy dtype; bf16 keeps its 16 bits. All others are blocks of bytes.
PLAIN_DTYPES: dict[str, np.dtype] = {
    "f32": np.dtype("<f4"),
    "f16": np.dtype("<f2"),
    "bf16": np.dtype("<u2"),
    "f64": np.dtype("<f8"),
    "i8": np.dtype("<i1"),
    "i16": np.dtype("<i2"),
    "i32": np.dtype("<i4"),
    "i64": np.dtype("<i8"),
}


SETTLED_NS = 2_000_000_000  # a file written more recently may be written again without its time changing


@dataclass(frozen=True, slots=True)
class Tensor:
    """One weight. `data` is a read-only view of the file and keeps the mapping alive.

    `dtype` is ggml's name in lower case ("f32", "q4_k", "mxfp4"); `shape` is row-major, (out, in). `data` has that
    shape if NumPy has the type (bf16 as uint16), else it is uint8 of (*shape[:-1], bytes per row).
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: np.ndarray

    @property
    def nbytes(self) -> int:
        return self.data.nbytes


@dataclass(frozen=True, slots=True)
class GGUFFile:
    path: Path
    metadata: Mapping[str, object]  # str, int, float, bool, list of str, or a NumPy array
    tensors: Mapping[str, Tensor]  # in file order
    file_bytes: int
    mtime_ns: int

    @property
    def architecture(self) -> str:
        name = self.metadata.get("general.architecture")
        if not isinstance(name, str) or not name:
            raise InputError(
                f"{self.path}: general.architecture is {name!r}, expected the name of an architecture",
                next="convert the model again, or download a complete file",
            )
        return name


def read_gguf(path: str | os.PathLike[str]) -> GGUFFile:
    """Open the model file at `path`; weights stay on disk until they are accessed.

    Raise InputError (missing, truncated, malformed) or UnsupportedError (version, byte order, tensor type, one
    part of a split model).
    """
    if not os.fspath(path):
        raise InputError("'' is not a model", next="pass a .gguf file")
    path = Path(path)
    mapping, status = _map(path)
    header = read_header(memoryview(mapping), str(path))
    parts = header.metadata.get("split.count", 1)
    if isinstance(parts, int) and parts > 1:
        raise UnsupportedError(
            f"{path}: one of the {parts} parts of a split model",
            next=f"join them: llama-gguf-split --merge {path.name} joined.gguf",
        )
    file_data = np.frombuffer(mapping, np.uint8)
    tensors = {info.name: _view(info, file_data) for info in header.tensors}
    return GGUFFile(
        path=path,
        metadata=MappingProxyType(dict(header.metadata)),
        tensors=MappingProxyType(tensors),
        file_bytes=status.st_size,
        mtime_ns=status.st_mtime_ns,
    )


def _map(path: Path) -> tuple[mmap.mmap, os.stat_result]:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # opening a FIFO would wait for its writer
            raise InputError(f"{path}: not a regular file", next="pass a .gguf file")
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_size == 0:
                raise InputError(f"{path}: the file is empty", next="download it again")
            mapping = mmap.mmap(file.fileno(), status.st_size, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
        raise unreadable(path, error) from error
    if hasattr(mmap, "MADV_HUGEPAGE"):  # fewer page faults, where the file system has large pages
        with suppress(OSError):
            mapping.madvise(mmap.MADV_HUGEPAGE)
    return mapping, status


def _view(info: TensorInfo, file_data: np.ndarray) -> Tensor:
    dtype = info.type.name.lower()
    raw = file_data[info.offset : info.offset + info.size_bytes]
    if dtype in PLAIN_DTYPES:
        data = raw.view(PLAIN_DTYPES[dtype]).reshape(info.shape)
    else:
        data = raw.reshape(*info.shape[:-1], -1)
    return Tensor(info.name, dtype, info.shape, data)


def digest(gguf: GGUFFile, *, advance: Callable[[int], None] = lambda size_bytes: None) -> str:
    """Return the sha256 (hex) over metadata, tensor names, types, shapes and bytes; padding and order are ignored.

    The whole file is read once; the result is cached by path, size and modification time. `advance` is called for
    each tensor read.
    """
    remembered = _cache_file(gguf)
    with suppress(OSError, ValueError):
        text = remembered.read_text(encoding="ascii").strip()
        if len(text) == 64 and int(text, 16) >= 0:
            return text
    text = _digest(gguf, advance)
    if time.time_ns() - gguf.mtime_ns > SETTLED_NS:
        with suppress(OSError):
            _replace(remembered, text)
    return text


def header_digest(gguf: GGUFFile) -> str:
    """Return the sha256 (hex) over metadata, and the tensors' names, types, shapes and places in the file. Tensor
    data is not read."""
    total = hashlib.sha256(b"zinc-rt gguf header 2\n")
    for key in sorted(gguf.metadata):
        value = gguf.metadata[key]
        if isinstance(value, np.ndarray):
            total.update(f"{key}\0{value.dtype.str}\0{value.shape}\0".encode() + value.tobytes())
        else:
            total.update(f"{key}\0{value!r}\0".encode())
    begin = min((tensor.data.ctypes.data for tensor in gguf.tensors.values()), default=0)
    for tensor in gguf.tensors.values():
        location = tensor.data.ctypes.data - begin
        total.update(f"{tensor.name}\0{tensor.dtype}\0{tensor.shape}\0{location}\0".encode())
    return total.hexdigest()


def _digest(gguf: GGUFFile, advance: Callable[[int], None]) -> str:
    total = hashlib.sha256(b"zinc-rt gguf digest 1\n")
    for key in sorted(gguf.metadata):
        value = gguf.metadata[key]
        if isinstance(value, np.ndarray):
            total.update(f"{key}\0{value.dtype.str}\0{value.shape}\0".encode() + value.tobytes())
        else:
            total.update(f"{key}\0{value!r}\0".encode())
    for name in sorted(gguf.tensors):
        tensor = gguf.tensors[name]
        total.update(f"{name}\0{tensor.dtype}\0{tensor.shape}\0".encode())
        total.update(tensor.data.reshape(-1).view(np.uint8).data)
        advance(tensor.nbytes)
    return total.hexdigest()


def _cache_file(gguf: GGUFFile) -> Path:
    identity = f"{gguf.path.resolve()}\0{gguf.file_bytes}\0{gguf.mtime_ns}"
    return cache_folder() / "digest" / hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, unfinished = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
        Path(unfinished).replace(path)
    except OSError:
        Path(unfinished).unlink(missing_ok=True)
        raise
