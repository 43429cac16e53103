"""Drawing by slot records: what is done to logits and in which order, the draw, the log-probabilities."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from op_cases import ORDERINGS, random_floats, run_op
from slot_cases import count_tokens, int32_indices, make_records, pack_masks

from zinc_rt.ir.op import Op
from zinc_rt.ir.slot_record import RECORD, SlotFlag
from zinc_rt.kernels.cases import Case

INF = math.inf
NONE_COUNTED = np.zeros((1, 4), np.int32)


def adjust_logits(ordering: str, logits: np.ndarray, record: np.ndarray, **given: np.ndarray) -> np.ndarray:
    """Run LOGITS_ADJUST on row i with slot i, position 0 and the passed operands."""
    rows, vocab = logits.shape
    wanted = {
        "row_slot": np.arange(rows, dtype=np.int32),
        "sample_position": np.zeros(rows, np.int32),
        "record": record,
        "token_counts": np.zeros((1, vocab), np.int32),
        "end_id": int32_indices(-1),
        **dict.fromkeys(("bias_id", "bias_value", "mask", "mask_row")),
        **given,
    }
    return run_op(Op.LOGITS_ADJUST, ordering, logits, *wanted.values())


def round_to_f32(value: float) -> float:
    return float(np.float32(value))


def adjust_one(
    x: float, token: int, record: np.void, position: int, count: int, bias: float | None, bit: int
) -> float:
    """Compute one logit by definition: in float64, rounded to float32 after each operation, which equals the
    float32 operation.
    """
    if not bit:
        x = -INF
    if bias is not None:
        x = round_to_f32(x + bias)
    if record["flags"] & SlotFlag.PENALTIES:
        r, f, p = (float(record[name]) for name in ("repetition", "frequency", "presence"))
        result = count & 0x7FFFFFFF
        if count:
            x = round_to_f32(x / r) if x > 0 else round_to_f32(x * r)
        if result:
            x = round_to_f32(round_to_f32(x - round_to_f32(f * result)) - p)
    if (
        position - record["prompt_len"] < record["min_tokens"]
        and token in record["stop_ids"][: record["stop_count"]].tolist()
    ):
        x = -INF
    return x


SLOTS = {"slots": 9, "words": 64, "P": 6, "ends": 2}


@pytest.mark.rest(keep=11)
@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "omitted", [(), ("mask", "mask_row"), ("bias_id", "bias_value"), ("mask", "mask_row", "bias_id", "bias_value")]
)
def test_logits_are_adjusted_by_the_definition(ordering: str, seed: int, omitted: tuple[str, ...]) -> None:
    dims = {"L": 7, "V": 45, "B": 3, "biases": 5, "M": 2, **SLOTS}
    operands = Case(Op.LOGITS_ADJUST, dims, without=omitted, seed=seed).operands()
    logits, row_slot, position, record, token_counts, end_id, bias_id, bias_value, mask, mask_row = operands
    got = run_op(Op.LOGITS_ADJUST, ordering, *operands)
    slots = record.view(RECORD)[:, 0]
    different = 0
    for i, token in product(range(7), range(45)):
        of = slots[row_slot[i]]
        bias = None
        if bias_id is not None and of["flags"] & SlotFlag.BIAS:
            row = of["bias_row"]
            named = dict(zip(bias_id[row, : of["bias_count"]].tolist(), bias_value[row].tolist(), strict=False))
            bias = named.get(token)
        bit = 1
        if mask is not None and mask_row[i] >= 0:
            bit = int(mask[mask_row[i], token // 32]) >> token % 32 & 1
        count = int(np.uint32(token_counts[of["penalty_row"], token]))
        want = adjust_one(float(logits[i, token]), token, of, int(position[i]), count, bias, bit)
        if position[i] - of["prompt_len"] < of["min_tokens"] and token in end_id:
            want = -INF
        assert got[i, token] == np.float32(want), (i, token)
        different += want != logits[i, token]
    assert 20 < different < 7 * 45


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_slot_without_adjustments_keeps_its_logits(ordering: str) -> None:
    logits = np.array([[-0.0, 1e-45, np.inf, -np.inf, np.nan, 3e38]], np.float32)
    assert adjust_logits(ordering, logits, make_records({})).tobytes() == logits.tobytes()


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_order_is_mask_bias_repetition_then_frequency_and_presence(ordering: str) -> None:
    penalties = {"penalty_row": 0, "repetition": 2.0, "frequency": 0.25, "presence": 0.5}
    result = adjust_logits(
        ordering,
        np.array([[4, 4, -4, 1, 4]], np.float32),
        make_records({"bias_row": 0, "bias_count": 2, **penalties}),
        token_counts=count_tokens([(0, 3), (1, 0), (1, 2), (0, 0), (0, 1)]),
        bias_id=int32_indices(0, 4)[None],
        bias_value=np.array([[-6, 50]], np.float32),
        mask=pack_masks(np.array([[1, 1, 1, 1, 0]], bool)),
        mask_row=int32_indices(0),
    )
    # 0: the bias turns it negative, so that repetition multiplies. 1: in the prompt only, repetition alone.
    # 2: negative. 3: never seen. 4: masked, and no bias brings it back.
    assert result.tolist() == [[(4 - 6) * 2 - 0.75 - 0.5, 2, -8 - 0.5 - 0.5, 1, -INF]]


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_end_and_stop_tokens_are_suppressed_until_min_tokens(ordering: str) -> None:
    record = make_records(*[{"prompt_len": 10, "min_tokens": 2, "stop_ids": [3]}] * 3, {"prompt_len": 10})
    result = adjust_logits(
        ordering,
        np.zeros((4, 5), np.float32),
        record,
        sample_position=int32_indices(10, 11, 12, 10),
        end_id=int32_indices(1, -1),
    )
    forbidden = [0, -INF, 0, -INF, 0]
    assert result.tolist() == [forbidden, forbidden, [0.0] * 5, [0.0] * 5]


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_masked_and_unmasked_rows_can_be_mixed(ordering: str) -> None:
    allowed = np.zeros((2, 40), bool)
    allowed[0, [0, 39]] = allowed[1, [31, 32]] = True
    logits = random_floats(1, 3, 40)
    result = adjust_logits(
        ordering, logits, make_records({}, {}, {}), mask=pack_masks(allowed), mask_row=int32_indices(1, -1, 0)
    )
    assert np.flatnonzero(result[0] > -INF).tolist() == [31, 32]
    assert np.flatnonzero(result[2] > -INF).tolist() == [0, 39]
    assert result[1].tobytes() == logits[1].tobytes() and result[0, 31] == logits[0, 31]


def test_non_ascending_biases_are_rejected() -> None:
    biases = {"bias_id": int32_indices(4, 4)[None], "bias_value": np.ones((1, 2), np.float32)}
    record = make_records({"bias_row": 0, "bias_count": 2})
    with pytest.raises(ValueError, match="bias row 0 are not in ascending order"):
        adjust_logits(ORDERINGS[0], np.zeros((1, 9), np.float32), record, **biases)


def sample_slots(ordering: str, logits: np.ndarray, record: np.ndarray, token_counts: np.ndarray) -> np.ndarray:
    rows = len(logits)
    return run_op(
        Op.SAMPLE_SLOTS, ordering, logits, np.arange(rows, dtype=np.int32), np.arange(rows, dtype=np.int32) + 7,
        record, token_counts,
    )  # fmt: skip


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_sample_slots_matches_sample_with_operands_from_the_record(ordering: str) -> None:
    case = Case(Op.SAMPLE_SLOTS, {"L": 60, "V": 67, **SLOTS, "slots": 40}, values="plain", seed=4)
    logits, row_slot, position, record, token_counts = case.operands()
    of = record.view(RECORD)[:, 0][row_slot]
    seed = np.stack([of["seed"] & 0xFFFFFFFF, of["seed"] >> 32], axis=1).astype(np.uint32).view(np.int32)
    sampling = np.stack([of[name] for name in ("temperature", "top_k", "top_p", "min_p")], axis=1)
    want = run_op(Op.SAMPLE, ordering, logits, seed, sampling, of["choice"].astype(np.int32), position)
    before = token_counts.copy()
    token = run_op(Op.SAMPLE_SLOTS, ordering, logits, row_slot, position, record, token_counts)
    assert token.tolist() == want.tolist() and token.dtype == np.int32
    added = np.zeros_like(before)
    for row, drawn in zip(of, want.tolist(), strict=True):
        if row["flags"] & SlotFlag.PENALTIES:
            added[row["penalty_row"], drawn] += 1
    assert added.sum() > 3 and (token_counts - before).tolist() == added.tolist()


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_row_without_a_candidate_samples_and_counts_nothing(
    ordering: str, temperature: float, value: float
) -> None:
    logits = random_floats(2, 2, 9)
    logits[1] = -np.inf
    logits[1, 4] = value
    settings = {"temperature": temperature, "repetition": 1.1}
    record = make_records({**settings, "penalty_row": 1}, {**settings, "penalty_row": 0})
    tally = np.full((2, 9), 1 << 31, np.uint32).view(np.int32)
    token = sample_slots(ordering, logits, record, tally)
    assert token[0] >= 0 and token[1] == -1
    assert (tally.view(np.uint32) - (1 << 31)).tolist() == [[0] * 9, [int(i == token[0]) for i in range(9)]]


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_log_probabilities_match_the_log_softmax(ordering: str) -> None:
    logits = random_floats(3, 20, 300, scale=4)
    token = np.random.default_rng(1).integers(0, 300, 20).astype(np.int32)
    logprob, top_id, top_logprob = run_op(Op.LOGPROBS, ordering, logits, token, top=5)
    x = logits.astype(np.float64)
    want = x - np.log(np.exp(x).sum(axis=1, keepdims=True))
    assert np.abs(logprob - want[np.arange(20), token]).max() < 4e-6
    assert np.abs(top_logprob - np.take_along_axis(want, top_id, axis=1)).max() < 4e-6
    for row, ids in zip(logits.tolist(), top_id.tolist(), strict=True):
        assert ids == sorted(range(300), key=lambda i: (-row[i], i))[:5]
    assert (logprob.dtype, top_id.dtype, top_logprob.dtype) == (np.float32, np.int32, np.float32)
    assert top_logprob.shape == (20, 5)


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_log_probabilities_of_ties_and_forbidden_tokens(ordering: str) -> None:
    logits = np.array([[1, 2, 2, -np.inf, 2, 0.0]], np.float32)
    logprob, top_id, top = run_op(Op.LOGPROBS, ordering, logits, int32_indices(3), top=6)
    assert top_id.tolist() == [[1, 2, 4, 0, 5, 3]]
    assert logprob.tolist() == [-INF] and top[0, 0] == top[0, 1] == top[0, 2] and top[0, 5] == -INF
    shapes = [part.shape for part in run_op(Op.LOGPROBS, ordering, logits, int32_indices(3), top=0)]
    assert shapes == [(1,), (1, 0), (1, 0)]


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_log_probabilities_without_a_sample_or_with_non_finite_logits(ordering: str) -> None:
    logits = random_floats(4, 4, 8)
    logits[1, 6] = np.nan
    logits[2, [3, 5]] = np.inf
    logits[3] = -np.inf
    logprob, top_id, top = run_op(Op.LOGPROBS, ordering, logits, int32_indices(-1, 6, 3, 0), top=2)
    assert np.isnan(logprob).all()
    assert np.isfinite(top[0]).all() and np.isnan(top[1:]).all()
    best = max((value, -i) for i, value in enumerate(logits[1].tolist()) if i != 6)[1]
    assert top_id[1:].tolist() == [[6, -best], [3, 5], [0, 1]]
