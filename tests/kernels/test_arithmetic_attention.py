"""Attention in every ordering: scalar loops for canonical-1, float64 for all, and garbage where no query looks."""

from __future__ import annotations

import numpy as np
import pytest
import scalar_arithmetic as scalar

from zinc_rt.kernels.reference.arithmetic import ORDERINGS, arithmetic

canonical = arithmetic("canonical-1")
SCALE = float(np.float32(0.35))


def random_inputs(
    rng: np.random.Generator, *, n: int, heads: int, kv_heads: int, keys: int, d: int, dv: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    shapes = ((n, heads, d), (keys, kv_heads, d), (keys, kv_heads, dv))
    q, k, v = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    return q, k, v


def make_masks(rng: np.random.Generator, n: int, keys: int) -> dict[str, np.ndarray]:
    position = keys - n + np.arange(n)[:, None]
    j = np.arange(keys)
    causal = j <= position
    holes = rng.random((n, keys)) < 0.3
    holes[:, 0] = True
    chunk_missing = causal.copy()
    chunk_missing[:, :256] = False
    return {
        "causal": causal,
        "window": causal & (j > position - 40),
        "holes": holes,
        "first chunk hidden": chunk_missing if chunk_missing.any() else causal,
    }


@pytest.mark.rest(keep=2)
@pytest.mark.parametrize("keys", [1, 31, 33, 256, 257, 600])
@pytest.mark.parametrize("kind", ["causal", "window", "holes", "first chunk hidden"])
def test_attention_matches_the_scalar_loop_bit_for_bit(keys: int, kind: str) -> None:
    rng = np.random.default_rng(keys)
    n = min(2, keys)
    q, k, v = random_inputs(rng, n=n, heads=4, kv_heads=2, keys=keys, d=5, dv=3)
    mask = make_masks(rng, n, keys)[kind]
    got = canonical.attention(q, k, v, mask, SCALE)
    assert np.array_equal(got, scalar.attention(q, k, v, mask, np.float32(SCALE)))
    assert np.all(got[mask.any(axis=1)] != 0)
    assert mask.any()


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("kind", ["causal", "window", "holes"])
def test_attention_is_close_to_float64(ordering: str, kind: str) -> None:
    rng = np.random.default_rng(7)
    q, k, v = random_inputs(rng, n=3, heads=6, kv_heads=2, keys=700, d=64, dv=32)
    mask = make_masks(rng, 3, 700)[kind]
    score = np.einsum("ihd,jhd->ihj", q.astype(np.float64), k.repeat(3, axis=1)) * SCALE
    p = np.exp(score - score.max(axis=-1, keepdims=True)) * mask[:, None, :]
    want = np.einsum("ihj,jhd->ihd", p, v.repeat(3, axis=1)) / p.sum(axis=-1)[..., None]
    assert np.abs(arithmetic(ordering).attention(q, k, v, mask, SCALE) - want).max() < 3e-6


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("garbage", [np.nan, np.inf, 3e38])
def test_masked_keys_and_values_do_not_leak(ordering: str, garbage: float) -> None:
    rng = np.random.default_rng(8)
    q, k, v = random_inputs(rng, n=4, heads=2, kv_heads=1, keys=530, d=8, dv=8)
    mask = make_masks(rng, 4, 530)["window"]
    mask[2, 520:524] = False
    want = arithmetic(ordering).attention(q, np.where(mask.any(0)[:, None, None], k, 0), v, mask, SCALE)
    k[~mask.any(axis=0)] = garbage
    v[~mask.any(axis=0)] = garbage
    got = arithmetic(ordering).attention(q, k, v, mask, SCALE)
    assert np.isfinite(got).all()
    assert np.array_equal(got, want)


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_value_masked_for_one_query_does_not_reach_it(ordering: str) -> None:
    rng = np.random.default_rng(9)
    q, k, v = random_inputs(rng, n=2, heads=2, kv_heads=1, keys=40, d=8, dv=8)
    mask = make_masks(rng, 2, 40)["causal"]
    v[39] = np.nan
    got = arithmetic(ordering).attention(q, k, v, mask, SCALE)
    assert np.isfinite(got[0]).all()
    assert np.isnan(got[1]).all()


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_query_that_sees_no_key_gives_zeros(ordering: str) -> None:
    rng = np.random.default_rng(10)
    q, k, v = random_inputs(rng, n=2, heads=2, kv_heads=2, keys=9, d=4, dv=4)
    mask = np.zeros((2, 9), bool)
    mask[1, 4] = True
    got = arithmetic(ordering).attention(q, k, v, mask, SCALE)
    assert not got[0].any()
    assert np.array_equal(got[1], v[4])


@pytest.mark.parametrize("ordering", ["canonical-1", "canonical-1-q8"])
def test_batched_prefill_matches_stepwise_decode_bit_for_bit(ordering: str) -> None:
    rng = np.random.default_rng(11)
    q, k, v = random_inputs(rng, n=20, heads=4, kv_heads=2, keys=300, d=16, dv=16)
    mask = make_masks(rng, 20, 300)["causal"]
    together = arithmetic(ordering).attention(q, k, v, mask, SCALE)
    for i in range(20):
        seen = 281 + i  # a decode step's cache ends at its own position
        attention = arithmetic(ordering).attention(q[i : i + 1], k[:seen], v[:seen], mask[i : i + 1, :seen], SCALE)
        assert np.array_equal(attention[0], together[i])


def test_attention_accepts_any_strides() -> None:
    rng = np.random.default_rng(12)
    q, k, v = random_inputs(rng, n=3, heads=4, kv_heads=2, keys=50, d=6, dv=6)
    mask = make_masks(rng, 3, 50)["holes"]
    cache = np.stack([k, v], axis=2)
    got = canonical.attention(np.asfortranarray(q), cache[:, :, 0], cache[:, :, 1], np.asfortranarray(mask), SCALE)
    assert np.array_equal(got, canonical.attention(q, k, v, mask, SCALE))


def test_distant_scores_select_the_largest() -> None:
    q = np.full((1, 1, 1), 1000, np.float32)
    k = np.array([0, 1, 0], np.float32).reshape(3, 1, 1)
    v = np.array([5, 7, 9], np.float32).reshape(3, 1, 1)
    assert canonical.attention(q, k, v, np.ones((1, 3), bool), 1.0) == 7
