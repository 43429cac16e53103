"""GGUF files: metadata as Python values, tensors as read-only views of the memory-mapped file.

A split model is read from all its parts, each mapped separately.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np

from zinc_rt.host.errors import InputError
from zinc_rt.host.files import cache_folder
from zinc_rt.host.input_files import make_read_error
from zinc_rt.model.gguf_header import Header, TensorInfo, read_header
from zinc_rt.model.gguf_parts import check_parts, is_split, model_stem, part_paths

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


READ_BYTES = 1 << 24
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
class ModelPart:
    """A file of a model: its size, its modification time, and the tensors that it contains with their offsets."""

    path: Path
    size_bytes: int
    mtime_ns: int
    tensors: Mapping[str, int]

    @property
    def stamp(self) -> str:
        """Return the identity by which results about the file's bytes are cached."""
        return f"{self.path.resolve()}\0{self.size_bytes}\0{self.mtime_ns}"


@dataclass(frozen=True, slots=True)
class GGUFFile:
    """A model. `path` is that of the first part; a model that is not split has one part."""

    path: Path
    metadata: Mapping[str, object]  # str, int, float, bool, list of str, or a NumPy array
    tensors: Mapping[str, Tensor]  # in file order
    parts: tuple[ModelPart, ...]

    @property
    def file_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts)

    @property
    def mtime_ns(self) -> int:
        """Return the modification time of the part that was written last."""
        return max(part.mtime_ns for part in self.parts)

    @property
    def stamp(self) -> str:
        """Return the identity by which results about the model's bytes are cached."""
        return "\0".join(part.stamp for part in self.parts)

    @property
    def name(self) -> str:
        """Return the file name without .gguf and without the number of the part."""
        return model_stem(self.path)

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
    """Open the model at `path`, any part of it if it is split; weights stay on disk until they are accessed.

    Raise InputError (missing, truncated, malformed, parts that do not belong together) or UnsupportedError
    (version, byte order, tensor type).
    """
    if not os.fspath(path):
        raise InputError("'' is not a model", next="pass a .gguf file")
    named = _MappedFile.open(Path(path))
    files = [named]
    if is_split(named.header.metadata):
        paths = part_paths(named.path, named.header.metadata)
        files = [named if item == named.path else _MappedFile.open(item) for item in paths]
        check_parts(
            paths,
            [file.header.metadata for file in files],
            [[info.name for info in file.header.tensors] for file in files],
        )
    return GGUFFile(
        path=files[0].path,
        metadata=MappingProxyType(dict(files[0].header.metadata)),
        tensors=MappingProxyType({name: tensor for file in files for name, tensor in file.tensors()}),
        parts=tuple(file.part() for file in files),
    )


@dataclass(frozen=True, slots=True)
class _MappedFile:
    path: Path
    mapping: mmap.mmap
    status: os.stat_result
    header: Header

    @staticmethod
    def open(path: Path) -> _MappedFile:
        mapping, status = _map(path)
        return _MappedFile(path, mapping, status, read_header(memoryview(mapping), str(path)))

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        data = np.frombuffer(self.mapping, np.uint8)
        return ((info.name, _view_tensor(info, data)) for info in self.header.tensors)

    def part(self) -> ModelPart:
        offsets = {info.name: info.offset for info in self.header.tensors}
        return ModelPart(self.path, self.status.st_size, self.status.st_mtime_ns, MappingProxyType(offsets))


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
        raise make_read_error(path, error) from error
    if hasattr(mmap, "MADV_HUGEPAGE"):  # fewer page faults, where the file system has large pages
        with suppress(OSError):
            mapping.madvise(mmap.MADV_HUGEPAGE)
    return mapping, status


def _view_tensor(info: TensorInfo, file_data: np.ndarray) -> Tensor:
    dtype = info.type.name.lower()
    raw = file_data[info.offset : info.offset + info.size_bytes]
    if dtype in PLAIN_DTYPES:
        data = raw.view(PLAIN_DTYPES[dtype]).reshape(info.shape)
    else:
        data = raw.reshape(*info.shape[:-1], -1)
    return Tensor(info.name, dtype, info.shape, data)


def digest_model(gguf: GGUFFile, *, advance: Callable[[int], None] = lambda size_bytes: None) -> str:
    """Return the sha256 (hex) over metadata, tensor names, types, shapes and bytes. Padding, order and the split
    into parts are ignored.

    Every part is read once; the result is cached by path, size and modification time. `advance` is called for
    each tensor read.
    """
    return _remembered(gguf.stamp, gguf.mtime_ns, lambda: _compute_digest(gguf, advance))


def part_digest(part: ModelPart, *, advance: Callable[[int], None] = lambda size_bytes: None) -> str:
    """Return the sha256 (hex) of one file's bytes, as sha256sum prints it. Raise InputError if it cannot be read.

    The result is cached as that of `digest_model`.
    """

    def compute() -> str:
        total = hashlib.sha256()
        try:
            with part.path.open("rb") as file:
                while piece := file.read(READ_BYTES):
                    total.update(piece)
                    advance(len(piece))
        except OSError as error:
            raise make_read_error(part.path, error) from error
        return total.hexdigest()

    return _remembered(f"file\0{part.stamp}", part.mtime_ns, compute)


def digest_header(gguf: GGUFFile) -> str:
    """Return the sha256 (hex) over metadata, and the tensors' names, types, shapes, parts and places in them.
    Tensor data is not read."""
    total = hashlib.sha256(b"zinc-rt gguf header 3\n")
    _update_with_metadata(total, gguf.metadata)
    for number, part in enumerate(gguf.parts):
        for name, offset in part.tensors.items():
            tensor = gguf.tensors[name]
            total.update(f"{name}\0{tensor.dtype}\0{tensor.shape}\0{number}\0{offset}\0".encode())
    return total.hexdigest()


def _compute_digest(gguf: GGUFFile, advance: Callable[[int], None]) -> str:
    total = hashlib.sha256(b"zinc-rt gguf digest 1\n")
    whole = {key: value for key, value in gguf.metadata.items() if not key.startswith("split.")}
    _update_with_metadata(total, whole)
    for name in sorted(gguf.tensors):
        tensor = gguf.tensors[name]
        total.update(f"{name}\0{tensor.dtype}\0{tensor.shape}\0".encode())
        total.update(tensor.data.reshape(-1).view(np.uint8).data)
        advance(tensor.nbytes)
    return total.hexdigest()


def digest_metadata(metadata: Mapping[str, object]) -> bytes:
    """Return the sha256 of metadata."""
    total = hashlib.sha256()
    _update_with_metadata(total, metadata)
    return total.digest()


def _update_with_metadata(total: hashlib._Hash, metadata: Mapping[str, object]) -> None:
    for key in sorted(metadata):
        value = metadata[key]
        if isinstance(value, np.ndarray):
            total.update(f"{key}\0{value.dtype.str}\0{value.shape}\0".encode() + value.tobytes())
        else:
            total.update(f"{key}\0{value!r}\0".encode())


def _remembered(stamp: str, mtime_ns: int, compute: Callable[[], str]) -> str:
    """Return a sha256 (hex) from the cache, or compute and store it."""
    name = hashlib.sha256(stamp.encode("utf-8", "surrogateescape")).hexdigest()
    file = cache_folder() / "digest" / name
    with suppress(OSError, ValueError):
        text = file.read_text(encoding="ascii").strip()
        if len(text) == 64 and int(text, 16) >= 0:
            return text
    text = compute()
    if time.time_ns() - mtime_ns > SETTLED_NS:
        with suppress(OSError):
            _replace(file, text)
    return text


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
