"""Copies of a model with one wrong value: an engine that serves such a copy computes the original wrongly."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np

from zinc_rt.model.gguf import read_gguf

FLOAT32 = 6  # GGUF's type of a metadata value
Q8_0 = np.dtype([("scale", "<f2"), ("values", "i1", 32)])
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


def with_low_precision(layer: int, step: int) -> Patch:
    """Return a function that copies a GGUF file and rounds the layer's Q8_0 weights to multiples of `step`."""

    def patch(source: Path, target: Path) -> None:
        data = bytearray(source.read_bytes())
        changed = 0
        for name, tensor in read_gguf(source).tensors.items():
            if name.startswith(f"blk.{layer}.") and tensor.dtype == "q8_0":
                raw = tensor.data.tobytes()
                offset = data.index(raw)
                blocks = np.frombuffer(raw, Q8_0).copy()
                rounded = np.round(blocks["values"] / step) * step
                blocks["values"] = rounded.clip(-128, 127).astype(np.int8)
                data[offset : offset + len(raw)] = blocks.tobytes()
                changed += 1
        assert changed
        target.write_bytes(data)

    return patch


PATCHES: dict[str, tuple[str, Patch]] = {  # name -> the class that a judge must report, and the change
    "rope base": ("position", with_number("qwen3.rope.freq_base", lambda base: base * 0.9)),
    "norm epsilon": ("numerics", with_number("qwen3.attention.layer_norm_rms_epsilon", lambda value: 1e-1)),
    "one layer in low precision": ("numerics", with_low_precision(1, 64)),
}
