"""canonical-1's dot and linear against scalar loops, and what their results must not depend on."""

from __future__ import annotations

import numpy as np
import pytest
import scalar_arithmetic as scalar
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from zinc_rt.host.errors import UnsupportedError, UsageError
from zinc_rt.kernels.reference.arithmetic import ORDERINGS, arithmetic
from zinc_rt.kernels.reference.arithmetic import rows as row_blocks
from zinc_rt.kernels.weight import Weight

canonical = arithmetic("canonical-1")
UNKIND = [0.0, -0.0, 1e-45, -1e-45, 1.1754942e-38, 1.0, -1.0, 16777216.0, 0.99999994, 3e38, -3e38]


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Assert equality bit for bit; NaNs are equal, whatever their payload."""
    a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
    nan = np.isnan(a)
    return bool((nan == np.isnan(b)).all() and np.array_equal(a[~nan].view(np.uint32), b[~nan].view(np.uint32)))


def spread_values(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Normal values spread over 40 octaves, so that every change of order shows."""
    return (rng.normal(size=shape) * 2.0 ** rng.integers(-20, 20, shape)).astype(np.float32)


def f32_weight(values: np.ndarray) -> Weight:
    return Weight("f32", values.shape, values)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 127, 128, 129, 255, 256, 1000])
def test_dot_matches_the_scalar_loop_bit_for_bit(k: int) -> None:
    rng = np.random.default_rng(k)
    a, b = spread_values(rng, 3, k), spread_values(rng, 3, k)
    got = canonical.dot(a, b)
    assert same_bits(got, [scalar.dot(x, y) for x, y in zip(a, b, strict=True)])
    assert np.all(got != 0)


def test_inputs_are_sensitive_to_the_order() -> None:
    rng = np.random.default_rng(1)
    a, b = spread_values(rng, 50, 1000), spread_values(rng, 50, 1000)
    reversed_order = canonical.dot(a[:, ::-1], b[:, ::-1])
    assert (canonical.dot(a, b) != reversed_order).mean() > 0.5


finite = st.floats(width=32, allow_nan=False, allow_infinity=False) | st.sampled_from(UNKIND)
anything = st.floats(width=32) | st.sampled_from(UNKIND)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 300).flatmap(lambda k: st.tuples(*[arrays(np.float32, k, elements=anything)] * 2)))
def test_dot_of_any_floats_matches_the_scalar_loop(pair: tuple[np.ndarray, np.ndarray]) -> None:
    assert same_bits(canonical.dot(*pair), scalar.dot(*pair))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 200).flatmap(lambda k: st.tuples(*[arrays(np.float32, k, elements=finite)] * 2)),
    st.integers(0, 300),
)
def test_zero_padding_of_both_operands_is_unobservable(pair: tuple[np.ndarray, np.ndarray], zeros: int) -> None:
    a, b = (np.concatenate([operand, np.zeros(zeros, np.float32)]) for operand in pair)
    assert same_bits(canonical.dot(a, b), canonical.dot(*pair))


def test_infinity_is_kept_and_empty_lanes_do_not_produce_nan() -> None:
    a = np.array([np.inf, 1, 2], np.float32)
    assert canonical.dot(a, np.ones(3, np.float32)) == np.inf
    assert np.isnan(canonical.dot(a, np.zeros(3, np.float32)))


def test_sum_of_negative_zeros_is_positive_zero() -> None:
    total = canonical.dot(np.full(5, -0.0, np.float32), np.ones(5, np.float32))
    assert total == 0
    assert not np.signbit(total)


def test_denormal_products_are_kept() -> None:
    a = np.full(4, 1e-30, np.float32)
    b = np.full(4, 1e-12, np.float32)
    assert canonical.dot(a, b) == np.float32(4) * (a[0] * b[0]) > 0


def test_dot_broadcasts_and_accepts_any_strides() -> None:
    rng = np.random.default_rng(2)
    s, k = spread_values(rng, 5, 70, 6), spread_values(rng, 70, 5)
    got = canonical.dot(s.transpose(0, 2, 1), k.T[:, None, :])
    assert got.shape == (5, 6)
    assert same_bits(got[3, 4], scalar.dot(s[3, :, 4], k[:, 3]))


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (130, 129), (33, 256)])
def test_linear_is_one_dot_per_output(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    w, x = spread_values(rng, *shape), spread_values(rng, 2, 3, shape[1])
    got = canonical.linear(x, f32_weight(w))
    assert got.shape == (2, 3, shape[0])
    assert same_bits(got[1, 2], [scalar.dot(row, x[1, 2]) for row in w])


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("ordering", ["canonical-1", "canonical-1-q8"])
@pytest.mark.parametrize("dtype", ["f32", "q8_0", "q6_k"])
def test_linear_is_independent_of_threads_blocks_and_batch(
    ordering: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(4)
    weight = random_weight(rng, dtype, 300, 512)
    x = rng.normal(size=(70, 512)).astype(np.float32)
    want = arithmetic(ordering).linear(x, weight)
    assert np.isfinite(want).all()
    assert np.ptp(want) > 0
    one_by_one = np.stack([arithmetic(ordering).linear(token, weight) for token in x])
    assert same_bits(one_by_one, want)
    for block_rows in (1, 7, 64):
        monkeypatch.setattr(row_blocks, "BLOCK_ROWS", block_rows)
        assert same_bits(arithmetic(ordering, threads=3).linear(x, weight), want)
    rows = slice(50, 170)
    assert same_bits(arithmetic(ordering).linear(x, weight[rows]), want[:, rows])


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_rows_may_be_a_strided_view(ordering: str) -> None:
    rng = np.random.default_rng(5)
    merged = random_weight(rng, "q8_0", 60, 64)
    every_third = Weight("q8_0", (20, 64), merged.raw[::3])
    copied = Weight("q8_0", (20, 64), merged.raw[::3].copy())
    x = rng.normal(size=(4, 64)).astype(np.float32)
    assert same_bits(arithmetic(ordering).linear(x, every_third), arithmetic(ordering).linear(x, copied))


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("dtype", ["f32", "q8_0", "q4_0", "q4_k", "q5_k", "q6_k"])
def test_every_ordering_is_close_to_float64(ordering: str, dtype: str) -> None:
    rng = np.random.default_rng(6)
    weight = random_weight(rng, dtype, 40, 512)
    x = rng.normal(size=(3, 512)).astype(np.float32)
    want = x.astype(np.float64) @ canonical.dequantise(weight).astype(np.float64).T
    error = np.abs(arithmetic(ordering).linear(x, weight) - want)
    magnitude = np.sqrt(np.square(want).mean())
    quantised = ordering == "canonical-1-q8" and dtype != "f32"
    assert error.max() < magnitude * (4e-2 if quantised else 2e-6)


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_rows_of_another_length_are_rejected(ordering: str) -> None:
    with pytest.raises(ValueError, match="expects rows of 8 elements, not 16"):
        arithmetic(ordering).linear(np.zeros((2, 16), np.float32), f32_weight(np.zeros((4, 8), np.float32)))
    with pytest.raises(ValueError, match="a dot product of 8 and 16 elements"):
        canonical.dot(np.zeros((2, 8), np.float32), np.zeros(16, np.float32))


def test_row_block_error_is_raised_from_any_thread() -> None:
    undecodable = Weight("i32", (4000, 8), np.zeros((4000, 8), np.int32))
    with pytest.raises(UnsupportedError, match="i32"):
        arithmetic("canonical-1", threads=2).linear(np.zeros((2, 8), np.float32), undecodable)


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("dtype", ["f32", "q4_k"])
def test_zero_tokens_give_zero_results(ordering: str, dtype: str) -> None:
    weight = random_weight(np.random.default_rng(0), dtype, 5, 256)
    assert arithmetic(ordering).linear(np.zeros((0, 256), np.float32), weight).shape == (0, 5)


def test_unknown_ordering_error_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match="canonical-1, canonical-1-q8, float32-dequant"):
        arithmetic("canonical-2")


def random_weight(rng: np.random.Generator, dtype: str, rows: int, k: int) -> Weight:
    """Random bytes with plausible float16 scales, of mean near zero."""
    if dtype == "f32":
        return f32_weight(rng.normal(size=(rows, k)).astype(np.float32))
    size, scales = {
        "q8_0": (34, [0]),
        "q4_0": (18, [0]),
        "q4_k": (144, [0, 2]),
        "q5_k": (176, [0, 2]),
        "q6_k": (210, [208]),
    }[dtype]
    per_block = 32 if size < 100 else 256
    blocks = rng.integers(0, 256, (rows, k // per_block, size), dtype=np.uint8)
    for scale in scales:
        d = rng.uniform(1e-3, 2e-3, blocks.shape[:-1]).astype(np.float16)
        blocks[..., scale : scale + 2] = d[..., None].view(np.uint8)
    return Weight(dtype, (rows, k), blocks.reshape(rows, -1))
