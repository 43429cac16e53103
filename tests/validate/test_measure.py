"""How far two arrays are apart: by hand, in float64, and for every float there is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from zinc_rt.validate.measure import (
    BARS,
    BINS,
    Limit,
    compare_arrays,
    compute_agreement,
    count_by_powers,
    format_sparkline,
)

BITS = Limit(bits=True)
SHOWN = Limit()  # sets no bound
TINY = float(np.float32(1e-45))  # the smallest denormal
SMALLEST = np.finfo(np.float32).tiny
LARGEST = np.finfo(np.float32).max
INF, NAN = math.inf, math.nan

any_float = st.floats(width=32)
shapes = arrays.array_shapes(min_dims=2, max_dims=3, max_side=5)


def f32_array(*values: Any) -> np.ndarray:
    return np.array(values, np.float32)


def float_of_bits(*patterns: int) -> np.ndarray:
    return np.array(patterns, np.uint32).view(np.float32)


# --- units in the last place -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "ulp"),
    [
        (1.0, 1.0, 0),
        (1.0, float(np.nextafter(np.float32(1), np.float32(2))), 1),
        (0.0, TINY, 1),
        (-TINY, TINY, 2),
        (0.0, -0.0, 0),
        (-0.0, -TINY, 1),
        (float(SMALLEST), float(np.nextafter(SMALLEST, np.float32(0))), 1),
        (1.0, 2.0, 2**23),
        (-1.0, 1.0, 2 * 0x3F800000),
        (float(LARGEST), INF, 1),
        (-INF, INF, 2 * 0x7F800000),
    ],
)
def test_ulps_count_steps_between_adjacent_floats(a: float, b: float, ulp: int) -> None:
    assert (
        compare_arrays(f32_array(a), f32_array(b), SHOWN).max_ulp
        == compare_arrays(f32_array(b), f32_array(a), SHOWN).max_ulp
        == ulp
    )


@given(st.floats(-(2.0**100), 2.0**100, width=32), st.integers(0, 100))
def test_n_steps_up_are_n_ulps(start: float, steps: int) -> None:
    value = np.float32(start)
    for _ in range(steps):
        value = np.nextafter(value, np.float32(INF))
    assert compare_arrays(f32_array(value), f32_array(start), SHOWN).max_ulp == steps


@given(any_float, any_float)
def test_ulp_distance_is_symmetric(a: float, b: float) -> None:
    assert (
        compare_arrays(f32_array(a), f32_array(b), SHOWN).max_ulp
        == compare_arrays(f32_array(b), f32_array(a), SHOWN).max_ulp
    )


def test_signed_zeros_are_0_ulps_apart_but_differ_in_bits() -> None:
    measured = compare_arrays(f32_array(0.0), f32_array(-0.0), BITS)
    assert measured.max_ulp == 0 and not measured.equal_bits and not measured.within


# --- NaN and infinity --------------------------------------------------------------------------------------


@given(arrays.arrays(np.float32, shapes, elements=any_float))
def test_array_is_bit_exact_with_itself(array: np.ndarray) -> None:
    measured = compare_arrays(array, array.copy(), BITS)
    assert measured.within and measured.equal_bits and measured.first_bad == {}
    assert (measured.max_abs, measured.rel_rms, measured.max_ulp) == (0.0, 0.0, 0)


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("limit", [Limit(max_abs=1e30), Limit(rel_rms=1e30), SHOWN], ids=["abs", "rms", "none"])
def test_non_finite_values_exceed_every_limit_even_if_in_both(value: float, limit: Limit) -> None:
    got, want = f32_array([1, value], [3, 4]), f32_array([1, value], [3, 4])
    measured = compare_arrays(got, want, limit)
    assert not measured.within and measured.nonfinite == 1
    assert measured.equal_bits and measured.max_abs == 0.0
    assert (measured.first_bad["token"], measured.first_bad["dim"]) == (0, 1)
    assert compare_arrays(got, want, BITS).within


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_non_finite_value_is_infinitely_far(value: float) -> None:
    measured = compare_arrays(f32_array([1, value]), f32_array([1, 2]), Limit(max_abs=1e30))
    assert measured.max_abs == measured.rel_rms == INF
    assert not measured.within and measured.nonfinite == 1


@pytest.mark.parametrize("value", [NAN, INF])
@pytest.mark.parametrize("limit", [Limit(max_abs=1.0), Limit(rel_rms=1.0), BITS], ids=["abs", "rms", "bits"])
def test_finite_value_where_reference_is_not_finite_is_bad(value: float, limit: Limit) -> None:
    measured = compare_arrays(f32_array([1, 2]), f32_array([1, value]), limit)
    assert not measured.within and measured.nonfinite == 0 and measured.first_bad["dim"] == 1


def test_nans_with_different_payloads_differ_in_bits() -> None:
    assert not compare_arrays(float_of_bits(0x7FC00000), float_of_bits(0x7FC00001), BITS).within


# --- limits ------------------------------------------------------------------------------------------------


def test_limit_is_inclusive() -> None:
    got, want = f32_array([1, 2.5]), f32_array([1, 2])
    assert compare_arrays(got, want, Limit(max_abs=0.5)).within
    assert not compare_arrays(got, want, Limit(max_abs=0.4999)).within


@given(arrays.arrays(np.float32, (3, 4), elements=st.floats(-1e3, 1e3, width=32)), st.integers(0, 2**32 - 1))
def test_figures_match_float64(want: np.ndarray, seed: int) -> None:
    got = want + np.random.default_rng(seed).standard_normal(want.shape, np.float32)
    away = got.astype(np.float64) - want.astype(np.float64)
    measured = compare_arrays(got, want, SHOWN)
    assert measured.max_abs == np.abs(away).max()
    scale = math.sqrt(np.mean(want.astype(np.float64) ** 2))
    expected = math.sqrt(np.mean(away**2)) / scale if scale else INF
    assert measured.rel_rms == pytest.approx(expected, rel=1e-12)


def test_rms_limit_names_first_token_over_it_and_its_worst_element() -> None:
    want = np.ones((4, 100), np.float32)
    got = want.copy()
    got[1, :] += 0.001  # within
    got[2, 7], got[2, 60] = 1.5, 2.0
    got[3, 0] = 9.0
    measured = compare_arrays(got, want, Limit(rel_rms=0.01))
    assert not measured.within
    assert (measured.first_bad["token"], measured.first_bad["dim"]) == (2, 60)


def test_rms_limit_covers_the_whole_array_and_not_each_token() -> None:
    want = f32_array([1000, 1000], [1, 1])
    assert compare_arrays(f32_array([1000, 1000], [1, 1.5]), want, Limit(rel_rms=1e-3)).within


def test_all_zero_reference_has_no_scale() -> None:
    zeros = np.zeros((2, 3), np.float32)
    assert compare_arrays(zeros, zeros, Limit(rel_rms=0.0)).within
    off = compare_arrays(zeros + np.float32(1e-9), zeros, Limit(rel_rms=1.0))
    assert off.rel_rms == INF and not off.within and off.first_bad["token"] == 0


def test_empty_array_is_within_every_limit() -> None:
    empty = np.empty((0, 7), np.float32)
    assert (
        compare_arrays(empty, empty, BITS).within
        and compare_arrays(empty, empty, Limit(max_abs=0.0, rel_rms=0.0)).within
    )


def test_different_shapes_are_not_compared() -> None:
    measured = compare_arrays(np.zeros((2, 3), np.float32), np.zeros((3, 2), np.float32), SHOWN)
    assert not measured.within and measured.max_abs == INF
    assert measured.first_bad == {"shape": [2, 3], "wanted_shape": [3, 2]}


# --- where -------------------------------------------------------------------------------------------------


@given(shapes, st.data())
def test_first_bad_element_is_reported_and_all_are_counted(shape: tuple[int, ...], data: Any) -> None:
    want = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    places = data.draw(st.sets(st.integers(0, want.size - 1), min_size=1))
    got = want.copy()
    got.reshape(-1)[list(places)] += 0.5
    bad = compare_arrays(got, want, BITS).first_bad
    first = min(places)
    per_token = math.prod(shape[1:])
    assert (bad["token"], bad["dim"]) == divmod(first, per_token)
    assert (bad["got"], bad["want"], bad["count"]) == (first + 0.5, float(first), len(places))


@pytest.mark.parametrize("shape", [(3, 12), (3, 3, 4)], ids=["flat", "by head"])
def test_head_is_named_when_head_count_is_known(shape: tuple[int, ...]) -> None:
    want = np.zeros(shape, np.float32)
    got = want.copy()
    got.reshape(3, 12)[2, 9] = 1
    bad = compare_arrays(got, want, BITS, head_dim=4).first_bad
    assert (bad["token"], bad["head"], bad["dim"]) == (2, 2, 1)


def test_single_logits_row_has_no_heads() -> None:
    bad = compare_arrays(f32_array(1, 2, 3), f32_array(1, 2, 4), BITS).first_bad
    assert (bad["token"], bad["dim"]) == (2, 0) and "head" not in bad


def test_expert_ids_are_compared_as_numbers() -> None:
    got, want = np.array([[3, 1]], np.int32), np.array([[3, 2]], np.int32)
    assert compare_arrays(got, want, BITS).first_bad == {"token": 0, "dim": 1, "got": 1.0, "want": 2.0, "count": 1}


def test_strided_view_is_measured_by_logical_order() -> None:
    whole = np.arange(24, dtype=np.float32).reshape(4, 6)
    assert compare_arrays(whole[:, ::2], whole[:, ::2].copy(), BITS).within


# --- agreement of logits -----------------------------------------------------------------------------------


def expected_ulps(got: np.ndarray, want: np.ndarray) -> list[float]:
    """KL(want || got) of each row, written out."""
    result = []
    for g, w in zip(got.tolist(), want.tolist(), strict=True):
        p, q = ([math.exp(value - max(row)) for value in row] for row in (w, g))
        p, q = [value / math.fsum(p) for value in p], [value / math.fsum(q) for value in q]
        result.append(math.fsum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a))
    return result


@given(
    arrays.arrays(np.float32, (3, 6), elements=st.floats(-20, 20, width=32)),
    arrays.arrays(np.float32, (3, 6), elements=st.floats(-20, 20, width=32)),
)
def test_kl_matches_its_definition(got: np.ndarray, want: np.ndarray) -> None:
    seen, expected = compute_agreement(got, want), expected_ulps(got, want)
    assert seen.kl_mean == pytest.approx(sum(expected) / 3, rel=1e-9, abs=1e-12)
    assert seen.kl_max == pytest.approx(max(expected), rel=1e-9, abs=1e-12)


def test_kl_is_asymmetric_and_ignores_a_constant() -> None:
    sharp, flat = f32_array([5, 0, 0]), f32_array([1, 1, 1])
    assert compute_agreement(sharp, flat).kl_mean != pytest.approx(compute_agreement(flat, sharp).kl_mean)
    assert compute_agreement(flat + 7, flat).kl_mean == 0.0


def test_huge_logits_do_not_overflow() -> None:
    seen = compute_agreement(f32_array([3e38, -3e38]), f32_array([3e38, -3e38]))
    assert (seen.kl_max, seen.top1) == (0.0, 1)


def test_top_1_counts_positions_with_equal_maximum() -> None:
    seen = compute_agreement(
        f32_array([0, 1, 2], [5, 1, 2], [0, 3, 3]), f32_array([0, 1, 9], [0, 1, 9], [0, 3, 3])
    )
    assert (seen.top1, seen.positions) == (2, 3)


# --- what a row shows --------------------------------------------------------------------------------------


@given(arrays.arrays(np.float32, (4, 9), elements=any_float))
def test_every_finite_value_is_in_one_bin(values: np.ndarray) -> None:
    counts = count_by_powers(values)
    assert len(counts) == len(BINS) and sum(counts) == np.count_nonzero(np.isfinite(values))


def test_bins_are_powers_of_two_of_the_magnitude() -> None:
    assert count_by_powers(f32_array(0.0, 2**-9)) == [2] + [0] * 15
    assert count_by_powers(f32_array(-1.0, 1.5))[9] == 2
    assert count_by_powers(f32_array(64.0, -1e30))[-1] == 2


def test_sparkline_shows_zero_as_blank_maximum_as_full_and_single_counts() -> None:
    assert format_sparkline([0, 1, 500, 1000]) == BARS[0] + BARS[1] + BARS[4] + BARS[8]
    assert format_sparkline([]) == "" and format_sparkline([0, 0]) == "  "
