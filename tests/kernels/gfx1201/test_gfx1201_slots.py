"""Drawing by slot records and log-probabilities on gfx1201, bit for bit against the oracle."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from harness import check
from kernels.op_cases import floats
from kernels.slot_cases import counts, indices, masks, records

from zinc_rt.ir.op import Op
from zinc_rt.kernels.cases import Case

SLOTS = {"slots": 9, "words": 64, "P": 6}


@pytest.mark.rest(keep=6)
@pytest.mark.parametrize("vocab", [1, 31, 33, 1025])
@pytest.mark.parametrize("without", [(), ("mask", "mask_row"), ("bias_id", "bias_value")])
def test_logits_are_adjusted(vocab: int, without: tuple[str, ...]) -> None:
    dims = {"L": 7, "V": vocab, **SLOTS, "ends": 2, "B": 3, "biases": min(vocab, 30), "M": 2}
    case = Case(Op.LOGITS_ADJUST, dims, without=without, values="edges", seed=vocab)
    check(Op.LOGITS_ADJUST, *case.operands(), capacity={"rows": 9})


@pytest.mark.parametrize("count", [0, 1, 2, 3, 255, 256, 300])
def test_every_bias_finds_its_token(count: int) -> None:
    ids = np.sort(np.random.default_rng(count).permutation(1500)[:300]).astype(np.int32)[None]
    ids[0, 0], ids[0, 299] = 0, 1499
    (adjusted,) = check(
        Op.LOGITS_ADJUST, np.zeros((1, 1500), np.float32), indices(0), indices(0),
        records({"bias_row": 0, "bias_count": count}), np.zeros((1, 1500), np.int32), indices(-1),
        ids, np.arange(1, 301, dtype=np.float32)[None], None, None,
    )  # fmt: skip
    assert np.count_nonzero(adjusted) == count


def test_eight_stop_tokens_and_five_end_tokens_are_delayed() -> None:
    record = records({"min_tokens": 3, "prompt_len": 5, "stop_ids": [0, 39, 5, 6, 7, 8, 9, 11]})
    operands = (record, counts([(0, 0)] * 40), indices(-1, 1, 2, 3, 38), None, None)
    mask = masks(np.ones((1, 40), bool))
    for position, forbidden in ((7, 12), (8, 0)):
        (adjusted,) = check(
            Op.LOGITS_ADJUST, floats(1, 1, 40), indices(0), indices(position), *operands, mask, indices(0)
        )
        assert np.isinf(adjusted).sum() == forbidden


@pytest.mark.rest(keep=3)
@pytest.mark.parametrize("values", ["plain", "ties", "edges"])
@pytest.mark.parametrize("vocab", [1, 33, 1025])
def test_tokens_are_sampled_and_counted(vocab: int, values: str) -> None:
    case = Case(Op.SAMPLE_SLOTS, {"L": 9, "V": vocab, **SLOTS}, values=values, seed=vocab)
    check(Op.SAMPLE_SLOTS, *case.operands(), capacity={"rows": 12})


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_row_without_a_candidate(value: float) -> None:
    record = records(*[{"temperature": t, "penalty_row": p} for p, t in enumerate((0.0, 0.8, 0.8))])
    logits = floats(3, 3, 70)
    logits[:2] = -np.inf
    logits[:2, 40] = value
    token, _ = check(
        Op.SAMPLE_SLOTS, logits, indices(0, 1, 2), indices(4, 5, 6), record, np.zeros((3, 70), np.int32)
    )
    assert token[:2].tolist() == [-1, -1] and token[2] >= 0


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("vocab", [1, 127, 129, 1025, 3000])
def test_log_probabilities(vocab: int) -> None:
    logits = floats(vocab, 4, vocab, scale=5)
    logits[1] = np.round(logits[1])
    for top in (1, min(vocab, 7)):
        check(Op.LOGPROBS, logits, indices(-1, 0, vocab - 1, vocab // 2), top=top, capacity={"rows": 6})


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
def test_log_probabilities_of_logits_at_their_limits(row: list[float]) -> None:
    check(Op.LOGPROBS, np.asarray([row], np.float32), indices(0), top=5)


def test_vocabulary_of_a_large_model(slow_counts: Callable[[int, int], int]) -> None:
    vocab = slow_counts(20_000, 151_936)
    check(Op.LOGPROBS, floats(9, 1, vocab, scale=4), indices(7), top=2)


def test_rows_of_one_slot_count_together() -> None:
    row_slot, position = np.zeros(20, np.int32), np.arange(20, dtype=np.int32)
    logits = np.tile(floats(2, 1, 40), (20, 1))
    _, tally = check(
        Op.SAMPLE_SLOTS, logits, row_slot, position, records({"penalty_row": 1}), np.ones((2, 40), np.int32)
    )
    assert tally.max() == 21 and tally.sum() == 100
