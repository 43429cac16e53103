"""Copies of a model with one wrong value: an engine that serves such a copy computes the original wrongly."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

FLOAT32 = 6  # GGUF's type of a metadata value
Patch = Callable[[Path, Path], None]


def with_number(key: str, change: Callable[[float], float]) -> Patch:
    """Return a function that copies a GGUF file and changes one F32 value of its metadata."""

    def patch(source: Path, target: Path) -> None:
        data = bytearray(source.read_bytes())
        name = key.encode()
        entry = struct.pack("<Q", len(name)) + name + struct.pack("<I", FLOAT32)
        offset = data.index(entry) + len(entry)
        (value,) = struct.unpack_from("<f", data, offset)
        struct.pack_into("<f", data, offset, change(value))
        target.write_bytes(data)

    return patch


PATCHES: dict[str, tuple[str, Patch]] = {  # name -> the class that a judge must report, and the change
    "rope base": ("position", with_number("qwen3.rope.freq_base", lambda base: base * 0.9)),
    "norm epsilon": ("numerics", with_number("qwen3.attention.layer_norm_rms_epsilon", lambda value: 1.0)),
}
