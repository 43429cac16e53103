"""LOGITS_ADJUST, SAMPLE_SLOTS and LOGPROBS on t_cpu_native: the oracle's bits, ids checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernels.native.harness import check_op
from kernels.native.unkind import assert_rejected, edge_values, int32_indices
from kernels.op_cases import random_floats
from kernels.slot_cases import count_tokens, make_records, pack_masks

from zinc_rt.ir.op import Op
from zinc_rt.kernels.cases import Case

ONE = ("canonical-1",)


def check_adjustment(**settings: Any) -> tuple[Any, ...]:
    """One row of five logits that uses every option except those passed."""
    wanted = {
        "logits": random_floats(1, 1, 5),
        "row_slot": int32_indices(0),
        "sample_position": int32_indices(0),
        "record": make_records(
            {"penalty_row": 0, "bias_row": 0, "bias_count": 2, "min_tokens": 1, "stop_ids": [2]}
        ),
        "token_counts": count_tokens([(0, 3), (1, 0), (1, 2), (0, 0), (0, 1)]),
        "end_id": int32_indices(1),
        "bias_id": int32_indices(0, 4)[None],
        "bias_value": np.array([[-6, 50]], np.float32),
        "mask": pack_masks(np.array([[1, 1, 1, 1, 0]], bool)),
        "mask_row": int32_indices(0),
    }
    return tuple({**wanted, **settings}.values())


def test_row_with_every_adjustment_matches() -> None:
    check_op(Op.LOGITS_ADJUST, *check_adjustment(), capacity={"rows": 3}, orderings=ONE)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"row_slot": int32_indices(1)}, "slot"),
        ({"row_slot": int32_indices(-1)}, "slot"),
        ({"mask_row": int32_indices(1)}, "row"),
        ({"record": make_records({"penalty_row": 1})}, "row"),
        ({"record": make_records({"bias_row": 1, "bias_count": 1})}, "row"),
        ({"record": make_records({"bias_row": 0, "bias_count": 3})}, "row"),
        ({"bias_id": int32_indices(4, 4)[None]}, "token"),
        ({"bias_id": int32_indices(0, 5)[None]}, "token"),
        ({"end_id": int32_indices(5)}, "token"),
    ],
)
def test_ids_outside_their_tables_are_rejected(settings: dict[str, Any], reason: str) -> None:
    assert_rejected(
        f"a {reason}", Op.LOGITS_ADJUST, *check_adjustment(**settings), outputs=(np.zeros((1, 5), np.float32),)
    )


def test_rows_of_one_slot_count_together() -> None:
    record = make_records({"penalty_row": 2, "repetition": 1.1})
    logits = np.tile(random_floats(2, 1, 40), (30, 1))
    check_op(
        Op.SAMPLE_SLOTS, logits, np.zeros(30, np.int32), np.arange(30, dtype=np.int32), record,
        np.zeros((3, 40), np.int32), capacity={"rows": 32}, orderings=ONE,
    )  # fmt: skip


@pytest.mark.parametrize("vocab", [1, 17, 127, 128, 129, 3000])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.5])
def test_log_probabilities_match(vocab: int, value: float) -> None:
    logits = edge_values(vocab, 6, vocab, share=0.05)
    logits[::2, :: vocab // 2 + 1] = value
    logits[1] = value
    token = np.arange(-1, 5, dtype=np.int32) % vocab
    for top in (1, min(20, vocab)):
        check_op(Op.LOGPROBS, logits, token, top=top, capacity={"rows": 9}, orderings=ONE)


def test_token_outside_the_vocabulary_is_rejected() -> None:
    fresh = (np.zeros(1, np.float32), np.zeros((1, 1), np.int32), np.zeros((1, 1), np.float32))
    assert_rejected("a token", Op.LOGPROBS, random_floats(1, 1, 5), int32_indices(5), outputs=fresh, top=1)


def test_real_model_vocabulary_matches() -> None:
    slots = {"slots": 3, "words": 64, "P": 2}
    case = Case(Op.SAMPLE_SLOTS, {"L": 2, "V": 152_064, **slots}, values="plain", seed=1)
    check_op(case.op, *case.operands(), orderings=ONE)
