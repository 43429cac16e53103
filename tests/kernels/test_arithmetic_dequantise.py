"""Dequantisation is ggml's to the bit: recorded vectors, and gguf's own code over random bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize as gguf_dequantize

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.kernels.reference.arithmetic.blocks import UNPACK
from zinc_rt.kernels.reference.arithmetic.dequantise import dequantise
from zinc_rt.kernels.weight import Weight

NO_GGUF_CODE = {"q1_0", "q2_0"}  # ggml has them, gguf's Python package does not dequantise them yet
PLAIN = {"f16": np.float16, "bf16": np.uint16}


def test_recorded_vectors_of_every_type_are_exact(data_dir: Path) -> None:
    vectors = np.load(data_dir / "goldens" / "quant_vectors.npz")
    names = [name.removesuffix("/raw") for name in vectors.files if name.endswith("/raw")]
    exact, unsupported = set(), set()
    for name in names:
        raw = vectors[f"{name}/raw"]
        weight = Weight(name.lower(), (4, 512), raw.view(PLAIN.get(name, np.uint8)))
        try:
            got = dequantise(weight)
        except UnsupportedError:
            unsupported.add(name)
            continue
        assert np.array_equal(got.view(np.uint32), vectors[f"{name}/deq"].view(np.uint32)), name
        exact.add(name)
    assert unsupported <= NO_GGUF_CODE
    assert len(exact) >= 25


@pytest.mark.parametrize("dtype", UNPACK)
def test_any_bytes_dequantise_like_gguf(dtype: str) -> None:
    ggml = GGMLQuantizationType[dtype.upper()]
    elements, size = GGML_QUANT_SIZES[ggml]
    rng = np.random.default_rng(0)
    raw = rng.integers(0, 256, (64, 4 * size), dtype=np.uint8)
    raw[0] = 0
    raw[1] = 255
    with np.errstate(all="ignore"):
        want = gguf_dequantize(raw, ggml)
    got = dequantise(Weight(dtype, (64, 4 * elements), raw))
    assert got.dtype == np.float32
    assert np.isnan(want).any()
    assert np.array_equal(got, want, equal_nan=True)
    assert np.array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))


@pytest.mark.parametrize("dtype", UNPACK)
@pytest.mark.parametrize("scale", [0x0001, 0x03FF, 0x8001, 0x7C00, 0xFC00, 0x7E00, 0x7BFF, 0x0000, 0x8000])
def test_odd_float16_scales_dequantise_like_gguf(dtype: str, scale: int) -> None:
    ggml = GGMLQuantizationType[dtype.upper()]
    elements, size = GGML_QUANT_SIZES[ggml]
    raw = np.random.default_rng(scale).integers(0, 256, (4, size), dtype=np.uint8)
    raw[:, 208 if dtype == "q6_k" else 0 :][:, :2] = [scale & 255, scale >> 8]
    with np.errstate(all="ignore"):
        want = gguf_dequantize(raw, ggml)
    got = dequantise(Weight(dtype, (4, elements), raw))
    assert np.array_equal(got, want, equal_nan=True)


def test_every_f16_and_bf16_bit_pattern_converts_exactly() -> None:
    every = np.arange(65536, dtype=np.uint16)
    half = dequantise(Weight("f16", (65536,), every.view(np.float16)))
    finite = np.isfinite(half)
    assert np.array_equal(half[finite].astype(np.float16).view(np.uint16), every[finite])
    brain = dequantise(Weight("bf16", (256, 256), every.reshape(256, 256)))
    assert np.array_equal(brain.view(np.uint32) >> 16, every.reshape(256, 256))


@pytest.mark.parametrize("dtype", ["q8_0", "q5_k"])
def test_stacked_and_sliced_weights_keep_their_shape(dtype: str) -> None:
    elements, size = GGML_QUANT_SIZES[GGMLQuantizationType[dtype.upper()]]
    raw = np.random.default_rng(1).integers(0, 60, (3, 8, 2 * size), dtype=np.uint8)
    stacked = dequantise(Weight(dtype, (3, 8, 2 * elements), raw))
    assert stacked.shape == (3, 8, 2 * elements)
    part = dequantise(Weight(dtype, (3, 2, 2 * elements), raw[:, 1:6:3]))
    assert np.array_equal(part, stacked[:, 1:6:3])


def test_undecodable_type_is_reported() -> None:
    with pytest.raises(UnsupportedError, match="i32"):
        dequantise(Weight("i32", (4,), np.zeros(4, np.int32)))
