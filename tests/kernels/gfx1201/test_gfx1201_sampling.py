"""From logits to tokens on gfx1201, bit for bit against the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from harness import check
from kernels.op_cases import floats

from zinc_rt.ir.op import Op


@pytest.mark.parametrize("vocab", [1, 2, 31, 1023, 1024, 1025, 5000])
def test_the_greedy_token(vocab: int) -> None:
    logits = floats(vocab, 3, vocab)
    logits[1] = -np.inf
    logits[2, vocab // 2 :] = 9.0  # a tie
    (token,) = check(Op.ARGMAX, logits, capacity={"rows": 8})
    assert token[1] == 0


def test_the_greedy_token_of_zeros_denormals_and_nan() -> None:
    check(Op.ARGMAX, np.array([[-0.0, 0.0, -1e-45], [-1.0, -1e-45, -0.0], [1.0, np.nan, np.nan]], np.float32))
    check(Op.ARGMAX, np.array([[-np.inf, np.inf, np.inf], [np.nan, np.inf, 0.0], [-3.0, -2.0, -2.0]], np.float32))
