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


@pytest.mark.parametrize(("rows", "room", "cursor"), [(1, 4, 0), (3, 4, 3), (5, 3, 7), (2, 1000, 2_000_000_011)])
def test_tokens_go_into_the_ring_in_order(rows: int, room: int, cursor: int) -> None:
    token, slot = np.arange(100, 100 + rows, dtype=np.int32), np.arange(rows, dtype=np.int32)
    ring = np.full((room, 2), -1, np.int32)
    check(Op.STREAM_OUT, token, slot, ring, np.array([cursor], np.int32), capacity={"rows": 8})


def test_a_draft_is_accepted_up_to_the_first_difference() -> None:
    target = np.array([[5, 6, 7, 8], [5, 6, 7, 8], [5, 6, 7, 8], [9, 9, 9, 9]], np.int32)
    draft = np.array([[5, 6, 7], [5, 0, 7], [0, 6, 7], [9, 9, 9]], np.int32)
    accepted, following = check(Op.VERIFY_K, draft, target, capacity={"sequences": 6})
    assert accepted.tolist() == [3, 1, 0, 3] and following.tolist() == [8, 6, 5, 9]
