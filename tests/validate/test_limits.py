"""Bounds that depend on what is compared."""

from __future__ import annotations

import numpy as np
import pytest

from zinc_rt.validate.limits import GOLDEN, ORDERINGS, QUANTISED, SAME, against_golden, at_scale


def test_a_layer_of_large_values_gets_the_room_float32_needs() -> None:
    """A residual stream of 400 has float32 steps of 3e-5 before anything is added up."""
    wide = at_scale(GOLDEN, np.full((4, 8), 400, np.float32))
    assert wide.max_abs == pytest.approx(400 * 3e-4)
    assert at_scale(GOLDEN, np.full((4, 8), 0.5, np.float32)) == GOLDEN
    assert at_scale(GOLDEN, np.empty((0, 8), np.float32)) == GOLDEN
    assert at_scale(GOLDEN, np.full((4, 8), np.nan, np.float32)) == GOLDEN
    for unbounded in (SAME, QUANTISED):
        assert at_scale(unbounded, np.full((4, 8), 400, np.float32)) == unbounded


def test_a_golden_of_our_own_is_held_to_its_bits() -> None:
    assert against_golden("llama", "canonical-1", "canonical-1") == SAME
    assert against_golden("llama", "canonical-1-q8", "canonical-1-q8") == SAME
    assert against_golden("llama", "float32-dequant", "float32-dequant") == ORDERINGS
    assert against_golden("llama", "float32-dequant", "canonical-1") == ORDERINGS
    assert against_golden("llama", "canonical-1") == GOLDEN
