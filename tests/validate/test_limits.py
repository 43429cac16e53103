"""How close is close enough, for values of any size."""

import numpy as np
import pytest

from zinc_rt.validate.limits import BIT_EXACT, GOLDEN, OF_PEAK, choose_golden_limit, choose_tier_limit, scale_limit
from zinc_rt.validate.measure import compare_arrays


def test_small_values_use_the_plain_bound() -> None:
    assert scale_limit(GOLDEN, np.full(100, 20.0, np.float32)) is GOLDEN


def test_bound_of_large_values_scales_with_the_largest() -> None:
    want = np.array([0.0, -400.0, 3.0], np.float32)
    assert scale_limit(GOLDEN, want).max_abs == pytest.approx(400 * OF_PEAK)


def test_wrong_value_among_large_ones_still_exceeds_bound() -> None:
    want = np.full((2, 50), 300.0, np.float32)
    got = want + np.float32(0.01)
    assert not compare_arrays(got, want, scale_limit(GOLDEN, want)).within


def test_empty_and_nan_arrays_leave_the_bound_unchanged() -> None:
    assert scale_limit(GOLDEN, np.empty((0, 8), np.float32)) is GOLDEN
    assert scale_limit(GOLDEN, np.full(4, np.nan, np.float32)) is GOLDEN


def test_bit_exact_limit_does_not_scale() -> None:
    assert scale_limit(BIT_EXACT, np.full(4, 1e9, np.float32)) is BIT_EXACT


def test_same_ordering_requires_equal_bits_and_different_ones_do_not() -> None:
    assert choose_tier_limit("canonical-1", "canonical-1").bits
    assert not choose_tier_limit("canonical-1", "float32-dequant").bits
    assert not choose_golden_limit("qwen3", "canonical-1-q8").gates
    assert choose_golden_limit("qwen3", "canonical-1", "canonical-1").bits
