"""Repacked weights: lossless on any bytes, and laid out as the table of repack.py says."""

from __future__ import annotations

import numpy as np
import pytest

from zinc_rt.ir.dtypes import count_row_bytes, find_block
from zinc_rt.kernels.rows import repack
from zinc_rt.kernels.weight import Weight

SIZES = {32: (32, 96, 160, 256, 768, 896, 1024, 1056, 1120, 2816, 3072), 256: (256, 512, 768, 1024, 2304)}
CASES = [(dtype, k) for dtype in repack.FORMATS for k in SIZES[find_block(dtype)[0]]]


def random_bytes(dtype: str, rows: int, k: int) -> np.ndarray:
    """Random bytes, including NaN, infinite, denormal and negative scales."""
    return np.random.default_rng(k).integers(0, 256, (rows, count_row_bytes(dtype, k)), np.uint8)


@pytest.mark.parametrize(("dtype", "k"), CASES)
@pytest.mark.parametrize("rows", [1, 3])
def test_repacking_is_lossless(dtype: str, k: int, rows: int) -> None:
    raw = random_bytes(dtype, rows, k)
    packed = repack.pack(dtype, raw)
    layout = repack.make_layout(dtype, rows, k)
    assert packed.dtype == np.uint8 and packed.shape == (layout.size_bytes,)
    assert all(plane.offset_bytes % repack.ALIGNMENT == 0 for plane in layout.planes)
    assert (repack.unpack(dtype, packed, rows, k) == raw).all()


@pytest.mark.parametrize("chunk", [1, 4096])
def test_chunk_size_does_not_affect_the_result(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = random_bytes("q6_k", 9, 1280)
    whole = repack.pack("q6_k", raw)
    monkeypatch.setattr(repack, "CHUNK_ELEMENTS", chunk)
    assert (repack.pack("q6_k", raw) == whole).all()
    assert (repack.unpack("q6_k", whole, 9, 1280) == raw).all()


def test_q8_0_lane_elements_and_scale_are_at_documented_offsets() -> None:
    rows, k = 2, 1024 + 96
    raw = random_bytes("q8_0", rows, k)
    packed = repack.pack("q8_0", raw)
    quants, scales = repack.make_layout("q8_0", rows, k).planes
    for row in range(rows):
        blocks = raw[row].reshape(-1, 34)
        for step in range(9):
            for lane in range(32 if step < 8 else 24):
                first = 128 * step + 4 * lane
                block = blocks[first // 32]
                base = quants.offset_bytes + row * quants.row_bytes
                index = base + step // 4 * 512 + lane * 16 + step % 4 * 4 if step < 8 else base + 1024 + lane * 8
                assert ((packed[index : index + 4] ^ 128) == block[2 + first % 32 :][:4]).all()
                index = (
                    scales.offset_bytes + row * scales.row_bytes + step // 8 * 64 + 2 * (lane // 8 * 8 + step % 8)
                )
                assert (packed[index : index + 2] == block[:2]).all()


def test_other_types_are_unchanged_and_views_are_gathered() -> None:
    values = np.arange(2 * 6 * 5, dtype=np.float32).reshape(2, 6, 5)
    half = Weight("f32", (2, 3, 5), values[:, 3:])
    assert (repack.pack_weight(half).view(np.float32) == values[:, 3:].reshape(-1)).all()
    raw = random_bytes("q3_k", 4, 256)
    assert (repack.pack("q3_k", raw) == raw.reshape(-1)).all()
    assert repack.make_layout("q3_k", 4, 256).size_bytes == 4 * find_block("q3_k")[1]
    merged = random_bytes("q8_0", 8, 64).reshape(2, 4, -1)
    part = Weight("q8_0", (2, 2, 64), merged[:, 2:])
    assert (repack.pack_weight(part) == repack.pack("q8_0", merged[:, 2:].reshape(4, -1))).all()


def test_row_of_partial_blocks_is_rejected() -> None:
    with pytest.raises(ValueError, match="whole blocks"):
        repack.make_layout("q8_0", 1, 40)
