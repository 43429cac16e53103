"""Drawing by slot records and log-probabilities on gfx1201, bit for bit against the oracle."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from harness import check_op
from kernels.op_cases import random_floats
from kernels.slot_cases import count_tokens, int32_indices, make_records, pack_masks

from zinc_rt.ir.op import Op
from zinc_rt.kernels.cases import Case

SLOTS = {"slots": 9, "words": 64, "P": 6}


@pytest.mark.rest(keep=6)
@pytest.mark.parametrize("vocab", [1, 31, 33, 1025])
@pytest.mark.parametrize("omitted", [(), ("mask", "mask_row"), ("bias_id", "bias_value")])
def test_logits_are_adjusted(vocab: int, omitted: tuple[str, ...]) -> None:
    dims = {"L": 7, "V": vocab, **SLOTS, "ends": 2, "B": 3, "biases": min(vocab, 30), "M": 2}
    case = Case(Op.LOGITS_ADJUST, dims, without=omitted, values="edges", seed=vocab)
    check_op(Op.LOGITS_ADJUST, *case.operands(), capacity={"rows": 9})


@pytest.mark.parametrize("count", [0, 1, 2, 3, 255, 256, 300])
def test_every_bias_is_applied_to_its_token(count: int) -> None:
    ids = np.sort(np.random.default_rng(count).permutation(1500)[:300]).astype(np.int32)[None]
    ids[0, 0], ids[0, 299] = 0, 1499
    (adjusted,) = check_op(
        Op.LOGITS_ADJUST, np.zeros((1, 1500), np.float32), int32_indices(0), int32_indices(0),
        make_records({"bias_row": 0, "bias_count": count}), np.zeros((1, 1500), np.int32), int32_indices(-1),
        ids, np.arange(1, 301, dtype=np.float32)[None], None, None,
    )  # fmt: skip
    assert np.count_nonzero(adjusted) == count


def test_eight_stop_tokens_and_five_end_tokens_are_delayed() -> None:
    record = make_records({"min_tokens": 3, "prompt_len": 5, "stop_ids": [0, 39, 5, 6, 7, 8, 9, 11]})
    operands = (record, count_tokens([(0, 0)] * 40), int32_indices(-1, 1, 2, 3, 38), None, None)
    mask = pack_masks(np.ones((1, 40), bool))
    for position, forbidden in ((7, 12), (8, 0)):
        (adjusted,) = check_op(
            Op.LOGITS_ADJUST,
            random_floats(1, 1, 40),
            int32_indices(0),
            int32_indices(position),
            *operands,
            mask,
            int32_indices(0),
        )
        assert np.isinf(adjusted).sum() == forbidden


@pytest.mark.rest(keep=3)
@pytest.mark.parametrize("values", ["plain", "ties", "edges"])
@pytest.mark.parametrize("vocab", [1, 33, 1025])
def test_tokens_are_sampled_and_counted(vocab: int, values: str) -> None:
    case = Case(Op.SAMPLE_SLOTS, {"L": 9, "V": vocab, **SLOTS}, values=values, seed=vocab)
    check_op(Op.SAMPLE_SLOTS, *case.operands(), capacity={"rows": 12})


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_row_without_a_candidate_matches(value: float) -> None:
    record = make_records(*[{"temperature": t, "penalty_row": p} for p, t in enumerate((0.0, 0.8, 0.8))])
    logits = random_floats(3, 3, 70)
    logits[:2] = -np.inf
    logits[:2, 40] = value
    token, _ = check_op(
        Op.SAMPLE_SLOTS,
        logits,
        int32_indices(0, 1, 2),
        int32_indices(4, 5, 6),
        record,
        np.zeros((3, 70), np.int32),
    )
    assert token[:2].tolist() == [-1, -1] and token[2] >= 0


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("vocab", [1, 127, 129, 1025, 3000])
def test_log_probabilities_match(vocab: int) -> None:
    logits = random_floats(vocab, 4, vocab, scale=5)
    logits[1] = np.round(logits[1])
    for top in (1, min(vocab, 7)):
        check_op(Op.LOGPROBS, logits, int32_indices(-1, 0, vocab - 1, vocab // 2), top=top, capacity={"rows": 6})


@pytest.mark.parametrize(
    "row",
    [
        np.full(70, 1.5),
        np.full(70, -np.inf),
        np.full(70, np.nan),
        [np.inf, 1, np.inf, -np.inf] * 9,
        [-np.inf, 1, np.nan, 2] * 9,
        [0.0, -0.0] * 20,
        [-0.0, *[-200.0] * 30],
        [-1e-45, 1e-45, -0.0, 0.0] * 9,
        [3e38, -3e38, 0] * 12,
    ],
    ids=["equal", "-inf", "NaN", "inf", "some NaN", "zeros", "one", "denormals", "large"],
)
def test_log_probabilities_of_logits_at_their_limits_match(row: list[float]) -> None:
    check_op(Op.LOGPROBS, np.asarray([row], np.float32), int32_indices(0), top=5)


def test_vocabulary_of_a_large_model_matches(slow_counts: Callable[[int, int], int]) -> None:
    vocab = slow_counts(20_000, 151_936)
    check_op(Op.LOGPROBS, random_floats(9, 1, vocab, scale=4), int32_indices(7), top=2)


def test_rows_of_one_slot_count_together() -> None:
    row_slot, position = np.zeros(20, np.int32), np.arange(20, dtype=np.int32)
    logits = np.tile(random_floats(2, 1, 40), (20, 1))
    _, tally = check_op(
        Op.SAMPLE_SLOTS, logits, row_slot, position, make_records({"penalty_row": 1}), np.ones((2, 40), np.int32)
    )
    assert tally.max() == 21 and tally.sum() == 100
