"""Convolution over time, the gated delta rule and the selective scan, in every form the state can be handled."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from op_cases import ORDERINGS, assert_close, assert_same, make_weight, random_floats, run_op

from zinc_rt.ir.op import Op

# Token -> sequence of the batch. A sequence's tokens are neighbours, and one may have no token at all.
BATCHES = {
    "one token": [0],
    "one sequence": [0] * 7,
    "three": [0, 0, 0, 1, 2, 2, 2],
    "one silent": [0, 2, 2],
}


def conv64(
    x: np.ndarray, taps: np.ndarray, state: np.ndarray, sequence: list[int], bias: np.ndarray | None, silu: bool
) -> tuple[np.ndarray, np.ndarray]:
    lines = [list(rows.astype(np.float64)) for rows in state]
    width = taps.shape[1]
    y = np.empty(x.shape)
    for t, item in enumerate(sequence):
        lines[item].append(x[t].astype(np.float64))
        total = sum(lines[item][len(lines[item]) - width + j] * taps[:, j] for j in range(width))
        total = total if bias is None else total + bias
        y[t] = total / (1 + np.exp(-total)) if silu else total
    kept = [np.array(line[len(line) - (width - 1) :]).reshape(width - 1, -1) for line in lines]
    return y, np.array(kept)


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize(("channels", "width"), [(1, 2), (5, 4), (130, 3)])
@pytest.mark.parametrize("silu", [True, False])
@pytest.mark.parametrize("biased", [True, False])
def test_conv_matches_the_formula(
    ordering: str, batch: list[int], channels: int, width: int, silu: bool, biased: bool
) -> None:
    x, taps = random_floats(1, len(batch), channels, scale=4), random_floats(2, channels, width)
    state = random_floats(3, max(batch) + 1, width - 1, channels)
    bias = random_floats(4, channels) if biased else None
    operand = None if bias is None else make_weight(bias)
    before = state.copy()
    sequence = np.array(batch, np.int32)
    y, new = run_op(Op.SSM_CONV1D, ordering, x, make_weight(taps), state, sequence, operand, silu=silu)
    want, want_state = conv64(x, taps, state, batch, bias, silu)
    assert_close(y, want, 5e-6, relative=False)
    assert_close(new, want_state, 0)
    assert np.array_equal(state, before), "the plain form leaves its state operand alone"


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_conv_adds_its_taps_from_the_oldest(ordering: str) -> None:
    state = np.array([[[1e8], [-1e8]]], np.float32)
    taps = make_weight(np.ones((1, 3), np.float32))
    y, _ = run_op(
        Op.SSM_CONV1D, ordering, np.ones((1, 1), np.float32), taps, state, np.array([0]), None, silu=False
    )
    assert y.tolist() == [[1.0]]
    state = np.array([[[1], [1e8]]], np.float32)
    x = np.array([[-1e8]], np.float32)
    y, _ = run_op(Op.SSM_CONV1D, ordering, x, taps, state, np.array([0]), None, silu=False)
    assert y.tolist() == [[0.0]]  # 1 + 1e8 is 1e8 in float32, then the newest cancels it


def delta64(
    conv_out: np.ndarray,
    beta: np.ndarray,
    alpha: np.ndarray,
    dt_bias: np.ndarray,
    a: np.ndarray,
    state: np.ndarray,
    sequence: list[int],
    *,
    k_heads: int,
    v_heads: int,
    head_dim: int,
    eps: float,
    grouping: str,
) -> tuple[np.ndarray, np.ndarray]:
    """S <- e^g S; delta = beta (v - S^T k); S <- S + k delta^T; o = S^T q / sqrt(d); S is [key dim][value dim]."""
    d = head_dim
    s_of = state.astype(np.float64).swapaxes(-1, -2)
    y = np.empty((len(conv_out), v_heads * d))
    for t, item in enumerate(sequence):
        row = conv_out[t].astype(np.float64)
        for n in range(v_heads):
            m = n % k_heads if grouping == "tiled" else n // (v_heads // k_heads)
            q = row[m * d : (m + 1) * d]
            k = row[(k_heads + m) * d : (k_heads + m + 1) * d]
            v = row[(2 * k_heads + n) * d : (2 * k_heads + n + 1) * d]
            q, k = (part / math.sqrt(float(part @ part) + float(np.float32(eps))) for part in (q, k))
            g = float(a[n]) * math.log1p(math.exp(float(alpha[t, n]) + float(dt_bias[n])))
            s = s_of[item, n] * math.exp(g)
            delta = (v - s.T @ k) / (1 + math.exp(-float(beta[t, n])))
            s = s + np.outer(k, delta)
            s_of[item, n] = s
            y[t, n * d : (n + 1) * d] = s.T @ q / math.sqrt(d)
    return y, s_of.swapaxes(-1, -2)


def delta_operands(batch: list[int], k_heads: int, v_heads: int, d: int) -> tuple[list[Any], np.ndarray]:
    """The five operands before the state, and a state for each sequence."""
    tokens = len(batch)
    conv_out = random_floats(1, tokens, (2 * k_heads + v_heads) * d, scale=2)
    if tokens > 1:
        conv_out[0, :d] = 0  # a query of length nought
    beta, alpha = random_floats(2, tokens, v_heads, scale=3), random_floats(3, tokens, v_heads, scale=3)
    alpha[-1, 0] = 25  # softplus is the identity up there
    beta[-1, -1] = -40
    dt_bias, a = random_floats(4, v_heads), -np.exp(random_floats(5, v_heads))
    state = random_floats(6, max(batch) + 1, v_heads, d, d)
    return [conv_out, beta, alpha, make_weight(dt_bias), make_weight(a)], state


HEADS = [(1, 1, 1), (2, 4, 8), (1, 3, 5), (2, 2, 33)]


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize(("k_heads", "v_heads", "d"), HEADS)
@pytest.mark.parametrize("grouping", ["tiled", "grouped"])
def test_delta_rule_matches_the_formula(
    ordering: str, batch: list[int], k_heads: int, v_heads: int, d: int, grouping: str
) -> None:
    operands, state = delta_operands(batch, k_heads, v_heads, d)
    attrs = {"k_heads": k_heads, "v_heads": v_heads, "head_dim": d, "eps": 1e-6, "grouping": grouping}
    before = state.copy()
    y, new = run_op(Op.SSM_DELTA_NET, ordering, *operands, state, np.array(batch, np.int32), **attrs)
    plain = [operand.raw if i > 2 else operand for i, operand in enumerate(operands)]
    want, want_state = delta64(*plain, state, batch, **attrs)
    assert_close(y, want, 1e-5, relative=False)
    assert_close(new, want_state, 1e-5, relative=False)
    assert np.array_equal(state, before), "the plain form leaves its state operand alone"
    silent = [s for s in range(len(state)) if s not in batch]
    assert np.array_equal(new[silent], state[silent])


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("batch", [[0], [0, 0, 1]])
@pytest.mark.parametrize("normed", [True, False])
def test_convolution_of_a_projection_matches_its_parts_bit_for_bit(
    ordering: str, batch: list[int], normed: bool
) -> None:
    x, w = random_floats(1, len(batch), 64), make_weight(random_floats(2, 9, 64), "q8_0")
    taps, bias, norm_w = (make_weight(random_floats(3, *shape)) for shape in ((9, 4), (9,), (64,)))
    cache, other = random_floats(4, SLOTS, 3, 9), random_floats(4, SLOTS, 3, 9)
    rows = np.array(batch, np.int32), *(np.array(ids[: max(batch) + 1], np.int32) for ids in ([4, 2], [1, 2]))
    h = run_op(Op.RMS_NORM, ordering, x, norm_w, eps=1e-5, size=64) if normed else x
    mixed = run_op(Op.MATMUL, ordering, h, w, None, None)
    want = run_op(Op.SSM_CONV1D_UPDATE_IDS, ordering, mixed, taps, other, *rows, bias)
    operands = (x, w, taps, cache, *rows, bias, norm_w if normed else None)
    assert_same(run_op(Op.MATMUL_FUSED_CONV1D_IDS, ordering, *operands, eps=1e-5), want)
    assert_same(cache, other)


FORMS = {
    "conv": (Op.SSM_CONV1D, Op.SSM_CONV1D_UPDATE, Op.SSM_CONV1D_UPDATE_IDS),
    "delta": (Op.SSM_DELTA_NET, Op.SSM_DELTA_NET_INPLACE, Op.SSM_DELTA_NET_INPLACE_IDS),
}
SLOTS = 6


def form_case(which: str, batch: list[int]) -> tuple[list[Any], list[Any], dict[str, Any], np.ndarray]:
    """Operands before the state, after it, attributes, and a cache of SLOTS rows."""
    if which == "conv":
        x, taps, bias = (
            random_floats(1, len(batch), 9),
            make_weight(random_floats(2, 9, 4)),
            make_weight(random_floats(3, 9)),
        )
        return [x, taps], [bias], {"silu": True}, random_floats(4, SLOTS, 3, 9)
    operands, _ = delta_operands(batch, 2, 4, 8)
    attrs = {"k_heads": 2, "v_heads": 4, "head_dim": 8, "eps": 1e-6, "grouping": "tiled"}
    return operands, [], attrs, random_floats(4, SLOTS, 4, 8, 8)


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("which", FORMS)
@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_in_place_form_matches_the_plain_one_bit_for_bit(ordering: str, which: str, batch: list[int]) -> None:
    plain, inplace, _ = FORMS[which]
    before, after, attrs, cache = form_case(which, batch)
    sequence = np.array(batch, np.int32)
    want, want_state = run_op(plain, ordering, *before, cache.copy(), sequence, *after, **attrs)
    got = run_op(inplace, ordering, *before, cache, sequence, *after, **attrs)
    assert_same(got, want)
    assert_same(cache, want_state)


@pytest.mark.rest(keep=49)
@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("which", FORMS)
@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize(
    ("source", "target"),
    [
        ([0, 1, 2], [0, 1, 2]),
        ([4, 0, 3], [4, 0, 3]),
        ([1, 2, 0], [0, 1, 2]),  # each reads a row that another writes
        ([5, 5, 5], [3, 4, 0]),  # all fork from one
        ([0, 1, 2], [1, 2, 0]),
    ],
    ids=["identity", "permuted slots", "rotated sources", "forked", "rotated targets"],
)
def test_ids_form_matches_gather_plain_scatter_bit_for_bit(
    ordering: str, which: str, batch: list[int], source: list[int], target: list[int]
) -> None:
    plain, _, by_ids = FORMS[which]
    sequences = max(batch) + 1
    sources, targets = (np.array(ids[:sequences], np.int32) for ids in (source, target))
    before, after, attrs, cache = form_case(which, batch)
    sequence = np.array(batch, np.int32)

    gathered = run_op(Op.LOAD_REQUEST_STATE, ordering, cache, sources)
    want, new = run_op(plain, ordering, *before, gathered, sequence, *after, **attrs)
    want_cache = cache.copy()
    run_op(Op.STORE_REQUEST_STATE, ordering, new, targets, want_cache)

    got = run_op(by_ids, ordering, *before, cache, sequence, sources, targets, *after, **attrs)
    assert_same(got, want)
    assert_same(cache, want_cache)


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("which", FORMS)
def test_token_by_token_matches_all_at_once_bit_for_bit(ordering: str, which: str) -> None:
    batch = BATCHES["three"]
    plain, _, _ = FORMS[which]
    before, after, attrs, cache = form_case(which, batch)
    state = cache[:3]
    want, want_state = run_op(plain, ordering, *before, state, np.array(batch, np.int32), *after, **attrs)
    for t, item in enumerate(batch):
        operands = [operand[t : t + 1] if isinstance(operand, np.ndarray) else operand for operand in before]
        y, state = run_op(plain, ordering, *operands, state, np.array([item], np.int32), *after, **attrs)
        if ordering == "float32-dequant":
            assert_close(y, want[t : t + 1].astype(np.float64), 1e-5, relative=False)
        else:
            assert_same(y, want[t : t + 1])
    assert_close(
        state, want_state.astype(np.float64), 0 if ordering != "float32-dequant" else 1e-5, relative=False
    )


def scan_case(batch: list[int]) -> tuple[list[Any], list[Any], dict[str, Any], np.ndarray]:
    tokens = len(batch)
    per_token = [random_floats(1 + i, tokens, columns) for i, columns in enumerate((6, 6, 5, 5))]
    return (
        [*per_token, make_weight(-np.exp(random_floats(5, 6, 5))), make_weight(random_floats(6, 6))],
        [],
        {},
        random_floats(7, SLOTS, 6, 5),
    )


@pytest.mark.parametrize("ordering", ["canonical-1", "canonical-1-q8"])
@pytest.mark.parametrize("which", [*FORMS, "scan"])
def test_sequences_may_come_in_any_order(ordering: str, which: str) -> None:
    batch = [0, 0, 0, 1, 2, 2, 2]
    before, after, attrs, cache = scan_case(batch) if which == "scan" else form_case(which, batch)
    op = Op.SSM_SCAN if which == "scan" else FORMS[which][0]
    state = cache[:3]
    want, want_state = run_op(op, ordering, *before, state, np.array(batch, np.int32), *after, **attrs)
    renumber = [1, 2, 0]  # old sequence -> new
    order = [4, 5, 6, 0, 1, 2, 3]
    operands = [operand[order] if isinstance(operand, np.ndarray) else operand for operand in before]
    sequence = np.array([renumber[batch[t]] for t in order], np.int32)
    moved = np.empty_like(state)
    moved[renumber] = state
    got, new = run_op(op, ordering, *operands, moved, sequence, *after, **attrs)
    assert_same(got, want[order])
    assert_same(new[renumber], want_state)


@pytest.mark.parametrize("which", [*FORMS, "scan"])
def test_sequence_with_noncontiguous_tokens_is_rejected(which: str) -> None:
    batch = [0, 1, 0]
    before, after, attrs, cache = scan_case(batch) if which == "scan" else form_case(which, batch)
    op = Op.SSM_SCAN if which == "scan" else FORMS[which][0]
    with pytest.raises(ValueError, match="token 2 belongs to sequence 0, but the previous token to 1"):
        run_op(op, "canonical-1", *before, cache[:2], np.array(batch, np.int32), *after, **attrs)


@pytest.mark.parametrize("which", FORMS)
@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ([0, 1, 2], [3, 4, 3], "row 3 is the target of two sequences"),
        ([0, 1, 2], [0, 2, 1], "row 2 is the target of sequence 1 and the source of 2"),
        ([5, 5, 5], [0, 1, 5], "row 5 is the target of sequence 2 and the source of 0"),
    ],
)
def test_overlapping_rows_declared_disjoint_are_rejected(
    which: str, source: list[int], target: list[int], reason: str
) -> None:
    before, after, attrs, cache = form_case(which, BATCHES["three"])
    ids = (np.array(rows, np.int32) for rows in (source, target))
    sequence = np.array(BATCHES["three"], np.int32)
    with pytest.raises(ValueError, match=reason):
        run_op(FORMS[which][2], "canonical-1", *before, cache, sequence, *ids, *after, **attrs, disjoint=True)


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize(("inner", "n"), [(1, 1), (6, 16), (3, 129)])
def test_selective_scan_matches_the_formula(ordering: str, batch: list[int], inner: int, n: int) -> None:
    tokens = len(batch)
    u, dt = random_floats(1, tokens, inner, scale=2), random_floats(2, tokens, inner, scale=3)
    dt[0, 0] = 24
    b, c = random_floats(3, tokens, n), random_floats(4, tokens, n)
    a, d = -np.exp(random_floats(5, inner, n)), random_floats(6, inner)
    state = random_floats(7, max(batch) + 1, inner, n)
    before = state.copy()
    got = run_op(
        Op.SSM_SCAN, ordering, u, dt, b, c, make_weight(a), make_weight(d), state, np.array(batch, np.int32)
    )
    s_of, want = state.astype(np.float64), np.empty((tokens, inner))
    for t, item in enumerate(batch):
        for i in range(inner):
            step = math.log1p(math.exp(float(dt[t, i])))
            for j in range(n):
                kept = s_of[item, i, j] * math.exp(step * float(a[i, j]))
                s_of[item, i, j] = kept + step * float(u[t, i]) * float(b[t, j])
            want[t, i] = s_of[item, i] @ c[t].astype(np.float64) + float(d[i]) * float(u[t, i])
    assert_close(got[0], want, 2e-5 * max(1.0, float(np.abs(want).max())), relative=False)
    assert_close(got[1], s_of, 1e-5 * max(1.0, float(np.abs(s_of).max())), relative=False)
    assert np.array_equal(state, before)


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_request_state_is_copied_in_and_out_by_slot(ordering: str, dtype: type) -> None:
    table = (np.arange(5 * 6).reshape(5, 2, 3) + 1).astype(dtype)
    if dtype is np.float32:
        table[3, 0, 0] = np.nan  # rows nobody names are not looked at
    slot = np.array([4, 0, 4], np.int32)
    value = run_op(Op.LOAD_REQUEST_STATE, ordering, table, slot)
    assert_same(value, np.array([table[4], table[0], table[4]]))
    before = table.copy()
    value[...] = 77
    assert table.tobytes() == before.tobytes(), "what was loaded is a copy"
    assert run_op(Op.STORE_REQUEST_STATE, ordering, value[:2], np.array([2, 1], np.int32), table) is None
    assert (table[[1, 2]] == 77).all()
    assert table[[0, 3, 4]].tobytes() == before[[0, 3, 4]].tobytes()
