"""How close is close enough, for values of any size."""

import numpy as np
import pytest

from zinc_rt.validate.limits import BIT_EXACT, GOLDEN, OF_PEAK, against_golden, at_scale, between
from zinc_rt.validate.measure import compare


def test_small_values_use_the_plain_bound() -> None:
    assert at_scale(GOLDEN, np.full(100, 20.0, np.float32)) is GOLDEN


def test_bound_of_large_values_scales_with_the_largest() -> None:
    want = np.array([0.0, -400.0, 3.0], np.float32)
    assert at_scale(GOLDEN, want).max_abs == pytest.approx(400 * OF_PEAK)


def test_wrong_value_among_large_ones_still_exceeds_bound() -> None:
    want = np.full((2, 50), 300.0, np.float32)
    got = want + np.float32(0.01)
    assert not compare(got, want, at_scale(GOLDEN, want)).within


def test_empty_and_nan_arrays_leave_the_bound_unchanged() -> None:
    assert at_scale(GOLDEN, np.empty((0, 8), np.float32)) is GOLDEN
    assert at_scale(GOLDEN, np.full(4, np.nan, np.float32)) is GOLDEN


def test_bit_exact_limit_does_not_scale() -> None:
    assert at_scale(BIT_EXACT, np.full(4, 1e9, np.float32)) is BIT_EXACT


def test_same_ordering_requires_equal_bits_and_different_ones_do_not() -> None:
    assert between("canonical-1", "canonical-1").bits
    assert not between("canonical-1", "float32-dequant").bits
    assert not against_golden("qwen3", "canonical-1-q8").gates
    assert against_golden("qwen3", "canonical-1", "canonical-1").bits
