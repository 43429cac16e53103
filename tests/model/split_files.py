"""Split a GGUF file into parts, as llama-gguf-split does: metadata in the first, split.* in all."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

from gguf import GGMLQuantizationType
from model.gguf_bytes import pack_string

from zinc_rt.model.gguf import Tensor, read_gguf
from zinc_rt.model.gguf_parts import part_name

ALIGNMENT = 32
U16, I32 = 2, 5  # GGUFValueType


def split(path: Path, folder: Path, counts: list[int], stem: str = "model") -> list[Path]:
    """Write parts of `counts` tensors in order, the last with the rest, to `folder`. Return their paths."""
    gguf = read_gguf(path)
    tensors = list(gguf.tensors.values())
    header = path.read_bytes()[: min(gguf.parts[0].tensors.values())]
    key_count = struct.unpack_from("<Q", header, 16)[0]
    metadata = header[24 : _end_of_metadata(header, tensors[0].name)]
    total = len(counts) + 1
    paths, start = [], 0
    for number, count in enumerate([*counts, len(tensors) - sum(counts)]):
        mine, start = tensors[start : start + count], start + count
        keys = _u16("split.no", number) + _u16("split.count", total) + _i32("split.tensors.count", len(tensors))
        own, own_count = (metadata, key_count) if number == 0 else (b"", 0)
        paths.append(folder / part_name(stem, number + 1, total))
        paths[-1].write_bytes(_file(own + keys, own_count + 3, mine))
    return paths


def swap(a: Path, b: Path) -> None:
    """Exchange the content of two files."""
    aside = a.with_suffix(".aside")
    shutil.move(a, aside)
    shutil.move(b, a)
    shutil.move(aside, b)


def _file(metadata: bytes, key_count: int, tensors: list[Tensor]) -> bytes:
    entries, data = b"", b""
    for tensor in tensors:
        dims = tuple(reversed(tensor.shape))
        number = int(GGMLQuantizationType[tensor.dtype.upper()])
        entries += pack_string(tensor.name) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
        entries += struct.pack("<IQ", number, len(data))
        content = tensor.data.tobytes()
        data += content + b"\0" * (-len(content) % ALIGNMENT)
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), key_count) + metadata + entries
    return header + b"\0" * (-len(header) % ALIGNMENT) + data


def _end_of_metadata(header: bytes, first_tensor: str) -> int:
    """Return where the tensors' entries begin: at the first tensor's name."""
    return header.rindex(pack_string(first_tensor))


def _u16(key: str, value: int) -> bytes:
    return pack_string(key) + struct.pack("<IH", U16, value)


def _i32(key: str, value: int) -> bytes:
    return pack_string(key) + struct.pack("<Ii", I32, value)
