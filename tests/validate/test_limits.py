"""How close is close enough, for values of any size."""

import numpy as np
import pytest

from zinc_rt.validate.limits import BIT_EXACT, GOLDEN, OF_PEAK, against_golden, at_scale, between
from zinc_rt.validate.measure import compare


def test_small_values_are_held_to_the_plain_bound() -> None:
    assert at_scale(GOLDEN, np.full(100, 20.0, np.float32)) is GOLDEN


def test_the_bound_of_large_values_is_a_part_of_the_largest() -> None:
    want = np.array([0.0, -400.0, 3.0], np.float32)
    assert at_scale(GOLDEN, want).max_abs == pytest.approx(400 * OF_PEAK)


def test_a_wrong_value_among_large_ones_is_still_outside() -> None:
    want = np.full((2, 50), 300.0, np.float32)
    got = want + np.float32(0.01)
    assert not compare(got, want, at_scale(GOLDEN, want)).within


def test_nothing_and_nan_leave_the_bound_as_it_is() -> None:
    assert at_scale(GOLDEN, np.empty((0, 8), np.float32)) is GOLDEN
    assert at_scale(GOLDEN, np.full(4, np.nan, np.float32)) is GOLDEN


def test_bits_do_not_scale() -> None:
    assert at_scale(BIT_EXACT, np.full(4, 1e9, np.float32)) is BIT_EXACT


def test_one_ordering_means_the_same_bits_and_two_do_not() -> None:
    assert between("canonical-1", "canonical-1").bits
    assert not between("canonical-1", "float32-dequant").bits
    assert not against_golden("qwen3", "canonical-1-q8").gates
    assert against_golden("qwen3", "canonical-1", "canonical-1").bits
