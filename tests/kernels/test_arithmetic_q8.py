"""canonical-1-q8: its activation blocks, its block dots, and llama.cpp's recorded ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scalar_arithmetic as scalar

from zinc_rt.kernels.reference.arithmetic import arithmetic
from zinc_rt.kernels.reference.arithmetic.blocks import UNPACK, unpack
from zinc_rt.kernels.reference.arithmetic.q8 import quantise
from zinc_rt.kernels.weight import Weight

q8 = arithmetic("canonical-1-q8")
LLAMA_NAMES = {"q8_0": "q8_0", "q4_0": "q4_0", "q4_k": "q4_K", "q5_k": "q5_K", "q6_k": "q6_K"}


def random_rows(rng: np.random.Generator, dtype: str, blocks: int) -> tuple[np.ndarray, int]:
    """Three rows of elements values, with float16 scales of both signs and very different magnitudes."""
    per_block, size, scales = {
        "q8_0": (32, 34, [0]),
        "q4_0": (32, 18, [0]),
        "q4_k": (256, 144, [0, 2]),
        "q5_k": (256, 176, [0, 2]),
        "q6_k": (256, 210, [208]),
    }[dtype]
    raw = rng.integers(0, 256, (3, blocks, size), dtype=np.uint8)
    for scale in scales:
        d = (rng.normal(size=(3, blocks)) * 2.0 ** rng.integers(-12, 3, (3, blocks))).astype(np.float16)
        raw[..., scale : scale + 2] = d[..., None].view(np.uint8)
    return raw.reshape(3, -1), blocks * per_block


@pytest.mark.parametrize("dtype", UNPACK)
@pytest.mark.parametrize("blocks", [1, 3, 33])
def test_linear_matches_the_scalar_loop_bit_for_bit(dtype: str, blocks: int) -> None:
    rng = np.random.default_rng(blocks)
    raw, k = random_rows(rng, dtype, blocks)
    x = (rng.normal(size=k) * 2.0 ** rng.integers(-9, 9, k)).astype(np.float32)
    if blocks > 1:
        x[:32] = 0
    got = q8.linear(x, Weight(dtype, (3, k), raw))
    parts = unpack(dtype, raw)
    ones = np.ones((3, *parts.q.shape[1:3]))
    want = [
        scalar.q8_dot(
            x,
            parts.q[row],
            (ones if parts.scale is None else parts.scale)[row],
            parts.d[row],
            None if parts.minimum is None else parts.minimum[row],
            None if parts.dmin is None else parts.dmin[row],
        )
        for row in range(3)
    ]
    assert np.array_equal(got, np.array(want, np.float32))
    assert np.all(got != 0)


@pytest.mark.parametrize("dtype", UNPACK)
def test_block_dots_agree_with_llama_cpp(data_dir: Path, dtype: str) -> None:
    """Same integers, so only the order of a few float32 sums differs."""
    vectors = np.load(data_dir / "goldens" / "quant_vectors.npz")
    name = LLAMA_NAMES[dtype]
    (recorded,) = (key for key in vectors.files if key.startswith(f"{name}/vec_dot("))
    weight = Weight(dtype, (4, 512), vectors[f"{name}/raw"])
    got = q8.linear(vectors["act"], weight)
    assert (
        np.abs(got - vectors[recorded]).max()
        < 2e-6 * np.abs(vectors[f"{name}/deq"] * vectors["act"]).sum(-1).max()
    )
    unquantised = arithmetic("canonical-1").linear(vectors["act"], weight)
    assert np.abs(unquantised - vectors[recorded]).max() > 1e-2


def test_blocks_of_32_match_llama_cpp_q8_0_bytes(data_dir: Path) -> None:
    vectors = np.load(data_dir / "goldens" / "quant_vectors.npz")
    recorded = vectors["act_as_q8_0"].reshape(-1, 34)
    q, d = quantise(vectors["act"][None], 32)
    assert np.array_equal(q[0], recorded[:, 2:].view(np.int8))
    assert np.array_equal(d[0], recorded[:, :2].copy().view(np.float16)[:, 0].astype(np.float32))


def test_blocks_of_256_match_llama_cpp_q8_k_up_to_sign(data_dir: Path) -> None:
    """block_q8_K gives q and d the sign that makes the largest element -127; the product is the same."""
    vectors = np.load(data_dir / "goldens" / "quant_vectors.npz")
    recorded = vectors["act_as_q8_K"].reshape(-1, 292)
    recorded_d = recorded[:, :4].copy().view(np.float32)[:, 0]
    q, d = quantise(vectors["act"][None], 256)
    assert np.array_equal(q[0] * np.sign(recorded_d)[:, None], recorded[:, 4:260].view(np.int8))
    assert np.allclose(d[0], np.abs(recorded_d), rtol=2e-7, atol=0)


@pytest.mark.parametrize("block", [32, 256])
def test_activation_blocks_round_to_nearest_even_and_reach_127(block: int) -> None:
    x = np.zeros((1, block), np.float32)
    x[0, :6] = [127, -127, 0.5, 1.5, -2.5, 126.49]
    q, d = quantise(x, block)
    assert q[0, 0, :6].tolist() == [127, -127, 0, 2, -2, 126]
    assert d[0, 0] == 1


@pytest.mark.parametrize("block", [32, 256])
@pytest.mark.parametrize("amax", [0, 1e-45, 7e-31, 8e-31, 1e-20, 1e-3, 8e6, 3e38])
def test_activation_blocks_of_any_size_quantise_in_range(block: int, amax: float) -> None:
    rng = np.random.default_rng(0)
    x = (rng.uniform(-1, 1, (2, block)) * amax).astype(np.float32)
    x[:, 5] = amax
    q, d = quantise(x, block)
    assert np.abs(q.astype(int)).max() == (127 if amax >= 2.0**-100 else 0)
    if 1e-3 <= amax <= 8e6 or (block == 256 and amax > 1e-30):
        assert np.abs(q * d[..., None] - x[:, None]).max() <= amax / 127 * 0.57


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_or_infinite_activation_reaches_every_output(value: float) -> None:
    rng = np.random.default_rng(1)
    raw, k = random_rows(rng, "q8_0", 4)
    x = rng.normal(size=(2, k)).astype(np.float32)
    x[1, 40] = value
    got = q8.linear(x, Weight("q8_0", (3, k), raw))
    assert np.isfinite(got[0]).all()
    assert np.isnan(got[1]).all()


def test_other_types_are_computed_as_canonical_1() -> None:
    rng = np.random.default_rng(2)
    weight = Weight("f16", (9, 70), rng.normal(size=(9, 70)).astype(np.float16))
    x = rng.normal(size=(2, 70)).astype(np.float32)
    assert np.array_equal(q8.linear(x, weight), arithmetic("canonical-1").linear(x, weight))
