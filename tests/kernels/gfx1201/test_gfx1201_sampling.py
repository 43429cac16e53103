"""From logits to tokens on gfx1201, bit for bit against the oracle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from harness import bench, check_op, run
from kernels.op_cases import random_floats
from kernels.slot_cases import int32_indices, make_records

from zinc_rt.ir.op import Op
from zinc_rt.ir.slot_record import SlotFlag


@pytest.mark.parametrize("vocab", [1, 2, 31, 1023, 1024, 1025, 5000])
def test_greedy_token_matches(vocab: int) -> None:
    logits = random_floats(vocab, 3, vocab)
    logits[1] = -np.inf
    logits[2, vocab // 2 :] = 9.0  # a tie
    token, nonfinite = check_op(Op.ARGMAX, logits, capacity={"rows": 8})
    assert token[1] == 0 and nonfinite.tolist() == [-1, 0, -1]


def test_greedy_token_of_zeros_denormals_and_nan_matches() -> None:
    check_op(Op.ARGMAX, np.array([[-0.0, 0.0, -1e-45], [-1.0, -1e-45, -0.0], [1.0, np.nan, np.nan]], np.float32))
    check_op(
        Op.ARGMAX, np.array([[-np.inf, np.inf, np.inf], [np.nan, np.inf, 0.0], [-3.0, -2.0, -2.0]], np.float32)
    )


@pytest.mark.parametrize("position", [0, 1, 31, 32, 1023, 1024, 1500, 2999])
def test_first_non_finite_logit_is_reported(position: int) -> None:
    logits = random_floats(position, 4, 3000)
    logits[0, position] = np.nan
    logits[1, position:] = np.inf
    logits[2, position::7] = -np.inf
    logits[3] = 3.4e38
    _, nonfinite = check_op(Op.ARGMAX, logits, capacity={"rows": 5})
    assert nonfinite.tolist() == [position, position, position, -1]


def test_greedy_token_works_without_the_nonfinite_output() -> None:
    logits = random_floats(3, 2, 40)
    result = bench(Op.ARGMAX, logits, outputs=(np.zeros(2, np.int32), np.zeros(2, np.int32)))
    untouched = result.arrays["nonfinite"].copy()
    result.node = replace(result.node, outputs=result.node.outputs[:1])
    run(result)
    assert result.arrays["token"].tolist() == logits.argmax(axis=1).tolist()
    assert result.arrays["nonfinite"].tolist() == untouched.tolist()


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 100])
def test_page_table_receives_its_new_entries(count: int) -> None:
    table = np.arange(240, dtype=np.int32).reshape(6, 40)
    entries = np.random.default_rng(count).permutation(240)[:count].astype(np.int32)
    (stored,) = check_op(Op.TABLE_STORE, entries, entries - 1000, table, capacity={"entries": 120})
    assert (stored != np.arange(240).reshape(6, 40)).sum() == count


@pytest.mark.parametrize(
    ("rows", "capacity", "cursor"), [(1, 4, 0), (3, 4, 3), (5, 3, 7), (2, 1000, 2_000_000_011), (3, 8, -2)]
)
def test_tokens_enter_the_ring_in_order(rows: int, capacity: int, cursor: int) -> None:
    token, slot = np.arange(100, 100 + rows, dtype=np.int32), np.arange(rows, dtype=np.int32)[::-1].copy()
    record = make_records(
        *[{"epoch": (1 << 22) - 1 - i, "flags": 0xFF9F, "logprobs": 255 - i} for i in range(rows)]
    )
    ring = np.full((capacity, 4), -1, np.int32)
    check_op(Op.STREAM_OUT, token, slot, -slot, record, ring, np.array([cursor], np.int32), capacity={"rows": 8})


@pytest.mark.parametrize("slow", [{0}, {3}, {1, 2, 5}, {0, 1, 2, 3, 4, 5}])
def test_slots_with_backpressure_are_skipped(slow: set[int]) -> None:
    slot = np.array([5, 4, 3, 2, 1, 0, 3], np.int32)
    flags = [(SlotFlag.BACKPRESSURE if i in slow else 0) | SlotFlag.PENALTIES for i in range(6)]
    record = make_records(*[{"epoch": i, "flags": flag, "penalty_row": i} for i, flag in enumerate(flags)])
    ring, cursor = np.full((4, 4), -1, np.int32), int32_indices(6)
    _, end = check_op(Op.STREAM_OUT, slot + 70, slot, slot + 900, record, ring, cursor, capacity={"rows": 8})
    assert end[0] == 6 + 7 - sum(i in slow for i in slot.tolist())
    _, tally = check_op(
        Op.SAMPLE_SLOTS,
        random_floats(1, 7, 40),
        slot,
        slot + 900,
        record,
        np.zeros((6, 40), np.int32),
        capacity={"rows": 8},
    )
    assert np.flatnonzero(tally.any(axis=1)).tolist() == [i for i in range(6) if i not in slow]


def test_draft_is_accepted_up_to_the_first_difference() -> None:
    target = np.array([[5, 6, 7, 8], [5, 6, 7, 8], [5, 6, 7, 8], [9, 9, 9, 9]], np.int32)
    draft = np.array([[5, 6, 7], [5, 0, 7], [0, 6, 7], [9, 9, 9]], np.int32)
    accepted, following = check_op(Op.VERIFY_K, draft, target, capacity={"sequences": 6})
    assert accepted.tolist() == [3, 1, 0, 3] and following.tolist() == [8, 6, 5, 9]


def check_sample(logits: np.ndarray, sampling: np.ndarray, seed: int = 0) -> np.ndarray:
    """SAMPLE of each row of `logits` with its row of `sampling`; seed, choice and position are random dwords."""
    dwords = np.random.default_rng(seed).integers(-(2**31), 2**31, (len(logits), 4)).astype(np.int32)
    key, choice, position = (np.ascontiguousarray(part) for part in (dwords[:, :2], dwords[:, 2], dwords[:, 3]))
    (token,) = check_op(
        Op.SAMPLE, logits, key, sampling.astype(np.float32), choice, position, capacity={"rows": len(logits) + 1}
    )
    return token


def sampling_settings(*columns: tuple[float, ...]) -> np.ndarray:
    """Every combination of temperatures, top_k, top_p and min_p."""
    return np.array(list(product(*columns)), np.float32)


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("vocab", [1, 2, 33, 1024, 1025, 5000])
def test_token_is_sampled(vocab: int) -> None:
    sampling = sampling_settings((0.7, 3.0), (0, 40), (1.0, 0.9), (0.0, 0.05))
    logits = random_floats(vocab, len(sampling), vocab)
    logits[::2] = np.round(logits[::2] * 4)  # many ties
    token = check_sample(logits, sampling, vocab)
    assert vocab < 1000 or len(set(token.tolist())) > 8


@pytest.mark.rest
def test_settings_at_their_limits_match() -> None:
    sampling = sampling_settings(
        (0.0, -1.0, 1e-45, 1e-30, np.inf), (1, 3, 1e9), (0.0, -1.0, 0.5, 2.0), (0.0, 1.0, 7.0)
    )
    logits = random_floats(5, len(sampling), 37)
    token = check_sample(logits, sampling)
    greedy = logits.argmax(axis=1)
    assert (
        token[(sampling[:, 0] <= 0) | (sampling[:, 1] == 1)]
        == greedy[(sampling[:, 0] <= 0) | (sampling[:, 1] == 1)]
    ).all()


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(
    "row",
    [
        np.full(70, 1.5),
        np.full(70, -np.inf),
        np.full(70, np.nan),
        [np.inf, 1, np.inf, -np.inf] * 9,
        [-np.inf, 1, np.nan, 2] * 9,
        [np.nan, np.inf, 0, -np.inf] * 9,
        [0.0, -0.0] * 20,
        [-1e-45, 1e-45, -0.0, 0.0] * 9,
        [3e38, -3e38, 0] * 12,
    ],
    ids=["equal", "-inf", "NaN", "inf", "some NaN", "NaN and inf", "zeros", "denormals", "large"],
)
def test_logits_at_their_limits_match(row: list[float]) -> None:
    sampling = sampling_settings((0.0, 0.8, 1e-40, np.nan), (0, 5), (1.0, 0.6, np.nan), (0.0, 0.3))
    check_sample(np.tile(np.asarray(row, np.float32), (len(sampling), 1)), sampling, len(row))


def test_vocabulary_of_a_large_model_matches(slow_counts: Callable[[int, int], int]) -> None:
    vocab = slow_counts(20_000, 151_936)
    sampling = np.array([[0.8, 0, 0.95, 0], [1.0, 50, 1, 0.01]])
    check_sample(random_floats(9, 2, vocab), sampling)


def test_vocabulary_too_large_for_the_sort_is_rejected() -> None:
    logits, two = np.zeros((1, (1 << 18) + 1), np.float32), np.zeros((1, 2), np.int32)
    with pytest.raises(AssertionError, match="262145 logits; the sort supports at most 262144"):
        check_op(Op.SAMPLE, logits, two, np.zeros((1, 4), np.float32), two[0, :1], two[0, :1])
