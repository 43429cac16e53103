"""Rows written as a ggml type come back close, and the same rows always give the same bytes."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES

from zinc_rt.golden.tiny_models.quantize import WRITABLE, find_ggml_type, quantize
from zinc_rt.host.errors import InputError, UnsupportedError

# rel RMS of the error for Gaussian rows; the measured value is a little below each
LIMITS = {
    "f32": 0.0,
    "f16": 3e-4,
    "bf16": 2e-3,
    "q4_0": 0.10,
    "q4_1": 0.09,
    "q5_0": 0.05,
    "q5_1": 0.04,
    "q8_0": 0.006,
    "mxfp4": 0.15,
    "q2_k": 0.35,
    "q3_k": 0.20,
    "q4_k": 0.09,
    "q5_k": 0.045,
    "q6_k": 0.025,
}


def dequantise(data: np.ndarray, dtype: str) -> np.ndarray:
    return data if dtype == "f32" else gguf.quants.dequantize(data.view(np.uint8), find_ggml_type(dtype))


def gaussian_array(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_every_writable_type_has_an_error_bound() -> None:
    assert set(LIMITS) == set(WRITABLE)


@pytest.mark.parametrize("dtype", WRITABLE)
def test_quantised_rows_round_trip_within_the_bound(dtype: str) -> None:
    rows = gaussian_array((3, 5, 512))
    data = quantize(rows, dtype)
    block, block_bytes = GGML_QUANT_SIZES[find_ggml_type(dtype)]
    assert data.nbytes == rows.size // block * block_bytes
    assert data.shape[:-1] == (3, 5)
    second = dequantise(data, dtype).reshape(rows.shape)
    assert np.sqrt(np.mean((second - rows) ** 2) / np.mean(rows**2)) <= LIMITS[dtype]


@pytest.mark.parametrize("dtype", WRITABLE)
def test_quantisation_is_deterministic(dtype: str) -> None:
    rows = gaussian_array((4, 256), seed=3)
    assert np.array_equal(quantize(rows, dtype), quantize(rows.copy(), dtype))


@pytest.mark.parametrize("dtype", [name for name in WRITABLE if name.startswith("q") and name != "q2_k"])
@pytest.mark.parametrize("kind", ["zeros", "one outlier", "all positive", "all negative", "denormal", "constant"])
def test_extreme_blocks_stay_within_their_maximum(dtype: str, kind: str) -> None:
    rows = {
        "zeros": np.zeros((2, 256), np.float32),
        "one outlier": np.where(np.arange(256) == 77, 1e3, gaussian_array((2, 256))).astype(np.float32),
        "all positive": np.abs(gaussian_array((2, 256))),
        "all negative": -np.abs(gaussian_array((2, 256))),
        "denormal": gaussian_array((2, 256)) * np.float32(1e-41),
        "constant": np.full((2, 256), 0.7, np.float32),
    }[kind]
    second = dequantise(quantize(rows, dtype), dtype)
    assert np.isfinite(second).all()
    largest = np.abs(rows).max()
    assert np.abs(second - rows).max() <= max(0.26 * largest, 1e-7)


def test_unencodable_rows_are_rejected() -> None:
    with pytest.raises(InputError, match="multiple of 256"):
        quantize(gaussian_array((2, 255)), "q4_k")
    with pytest.raises(InputError, match="infinities or NaN"):
        quantize(np.full((1, 256), np.nan, np.float32), "q4_k")
    with pytest.raises(InputError, match="too large"):
        quantize(np.full((1, 256), 1e30, np.float32), "q6_k")
    with pytest.raises(UnsupportedError, match="cannot write 'iq2_xs'"):
        quantize(gaussian_array((1, 256)), "iq2_xs")
