"""Copies of a model with wrong values: an engine that serves such a copy computes the original wrongly."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader

FLOAT32 = 6  # GGUF's type of a metadata value
# Bytes of a block and offset of its quants: of 4 bits, two in a byte, or of 8 bits.
NIBBLES = {
    GGMLQuantizationType.Q4_0: (18, 2),
    GGMLQuantizationType.Q4_1: (20, 4),
    GGMLQuantizationType.Q4_K: (144, 16),
}
BYTES = {GGMLQuantizationType.Q8_0: (34, 2)}
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


def with_coarse_layer(layer: int, bits: int) -> Patch:
    """Return a function that copies a GGUF file and rounds the quants of one layer's weights to `bits` bits, 4 or
    fewer.
    """

    def round_nibbles(values: np.ndarray) -> np.ndarray:
        step = 1 << (4 - bits)
        return values // step * step + step // 2

    def patch(source: Path, target: Path) -> None:
        data = np.fromfile(source, np.uint8)
        rounded = 0
        for tensor in GGUFReader(source).tensors:
            if not tensor.name.startswith(f"blk.{layer}."):
                continue
            raw = data[tensor.data_offset : tensor.data_offset + tensor.n_bytes]
            if layout := NIBBLES.get(tensor.tensor_type):
                quants = raw.reshape(-1, layout[0])[:, layout[1] :]
                quants[:] = round_nibbles(quants & 15) | round_nibbles(quants >> 4) << 4
            elif layout := BYTES.get(tensor.tensor_type):
                quants = raw.reshape(-1, layout[0])[:, layout[1] :].view(np.int8)
                step = 1 << (8 - bits)
                quants[:] = np.clip(np.rint(quants / step) * step, -128, 127)
            else:
                continue
            rounded += 1
        assert rounded >= 4
        data.tofile(target)

    return patch


PATCHES: dict[str, tuple[str, Patch]] = {  # name -> the class that a judge must report, and the change
    "rope base": ("position", with_number("qwen3.rope.freq_base", lambda base: base * 0.9)),
    "norm epsilon": ("numerics", with_number("qwen3.attention.layer_norm_rms_epsilon", lambda value: 1.0)),
    "first layer in 3 bits": ("numerics", with_coarse_layer(0, 3)),
    "middle layer in 3 bits": ("numerics", with_coarse_layer(1, 3)),
    "last layer in 3 bits": ("numerics", with_coarse_layer(2, 3)),
}
