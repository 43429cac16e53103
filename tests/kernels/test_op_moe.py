"""Routing and experts against plain loops in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from op_cases import (
    ORDERINGS,
    assert_close,
    assert_same,
    dequantise64,
    make_weight,
    product_error_limit,
    random_floats,
    run_op,
)

from zinc_rt.ir.op import Op
from zinc_rt.kernels.weight import Weight


def route64(
    x: np.ndarray,
    gate: np.ndarray,
    bias: np.ndarray | None,
    *,
    k: int,
    gating: str = "softmax",
    renormalise: bool = True,
    scale: float = 1.0,
    groups: int = 1,
    groups_used: int = 1,
    logit_bias: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    logits = x.astype(np.float64) @ gate.T.astype(np.float64)
    if logit_bias is not None:
        logits = logits + logit_bias
    ids, weights = [], []
    for row in logits:
        if gating == "softmax":
            p = np.exp(row - row.max())
            p /= p.sum()
        elif gating == "sigmoid":
            p = 1 / (1 + np.exp(-row))
        else:
            p = row
        score = list(p if bias is None else p + bias)
        item = len(score) // groups
        if groups > 1:
            worth = [sum(sorted(score[g * item : (g + 1) * item])[-2:]) for g in range(groups)]
            kept = sorted(range(groups), key=lambda g: (-worth[g], g))[:groups_used]
            score = [s if e // item in kept else -np.inf for e, s in enumerate(score)]
        chosen = sorted(range(len(score)), key=lambda e: (-score[e], e))[:k]
        w = np.exp(p[chosen] - p[chosen[0]]) if gating == "softmax_selected" else p[chosen]
        if renormalise:
            w = w / max(w.sum(), 2.0**-14)
        ids.append(chosen)
        weights.append(w if scale == 0 else w * scale)
    return logits, np.array(ids), np.array(weights)


@pytest.mark.rest(keep=43)
@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("gating", ["softmax", "sigmoid"])
@pytest.mark.parametrize("renormalise", [True, False])
@pytest.mark.parametrize(
    ("tokens", "experts", "attrs"),
    [
        (1, 1, {"k": 1}),
        (5, 8, {"k": 3}),
        (3, 7, {"k": 7, "scale": 2.5}),
        (6, 12, {"k": 4, "groups": 3, "groups_used": 2, "scale": 0.0}),
        (6, 4, {"k": 2, "groups": 4, "groups_used": 3}),  # groups of one
    ],
)
@pytest.mark.parametrize("biased", [True, False])
def test_routing_matches_the_definition(
    ordering: str, gating: str, renormalise: bool, tokens: int, experts: int, attrs: dict[str, Any], biased: bool
) -> None:
    x, gate = random_floats(1, tokens, 19), random_floats(2, experts, 19)
    bias = random_floats(3, experts, scale=2) if biased else None
    attrs = {**attrs, "gating": gating, "renormalise": renormalise}
    operand = None if bias is None else make_weight(bias)
    logits, ids, weights = run_op(Op.MOE_GATE_TOPK, ordering, x, make_weight(gate), operand, **attrs)
    want_logits, want_ids, want_weights = route64(x, gate, bias, **attrs)
    assert_close(logits, want_logits, 1e-5, relative=False)
    assert ids.dtype == np.int32
    assert ids.tolist() == want_ids.tolist()
    assert_close(weights, want_weights, 2e-5)


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_weights_of_softmax_selected_are_the_softmax_of_the_selected_logits(ordering: str) -> None:
    x, gate, bias = random_floats(1, 5, 19, scale=3), random_floats(2, 12, 19), random_floats(3, 12, scale=5)
    operands = x, make_weight(gate), None, None, None, None, None, None, make_weight(bias)
    attrs: dict[str, Any] = {"k": 4, "gating": "softmax_selected"}
    logits, ids, weights = run_op(Op.MOE_GATE_TOPK, ordering, *operands, **attrs)
    want_logits, want_ids, want_weights = route64(x, gate, None, logit_bias=bias, **attrs)
    assert_close(logits, want_logits, 3e-5, relative=False)
    assert ids.tolist() == want_ids.tolist() != route64(x, gate, None, **attrs)[1].tolist()
    softmax = np.exp(np.take_along_axis(want_logits, want_ids, axis=1))
    assert_close(weights, softmax / softmax.sum(axis=1, keepdims=True), 3e-5)
    assert_close(weights, want_weights, 3e-5)


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_ties_select_the_lower_expert_and_group(ordering: str) -> None:
    x, gate = np.ones((1, 1), np.float32), np.zeros((6, 1), np.float32)
    _, ids, weights = run_op(Op.MOE_GATE_TOPK, ordering, x, make_weight(gate), None, k=4)
    assert ids.tolist() == [[0, 1, 2, 3]]
    assert_close(weights, np.full((1, 4), 0.25), 1e-6)
    _, ids, _ = run_op(Op.MOE_GATE_TOPK, ordering, x, make_weight(gate), None, k=2, groups=3, groups_used=1)
    assert ids.tolist() == [[0, 1]]
    gate[[1, 4]] = 3
    _, ids, _ = run_op(Op.MOE_GATE_TOPK, ordering, x, make_weight(gate), None, k=3)
    assert ids.tolist() == [[1, 4, 0]]


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_selection_bias_changes_the_selection_and_never_the_weights(ordering: str) -> None:
    x, gate = np.ones((1, 1), np.float32), np.array([[2], [1], [0]], np.float32)
    bias = make_weight(np.array([0, 0, 9], np.float32))
    _, ids, weights = run_op(Op.MOE_GATE_TOPK, ordering, x, make_weight(gate), bias, k=2, renormalise=False)
    p = np.exp([2.0, 1, 0]) / np.exp([2.0, 1, 0]).sum()
    assert ids.tolist() == [[2, 0]]
    assert_close(weights, p[None, [2, 0]], 1e-6)


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_vanishing_weight_sum_is_divided_by_the_floor(ordering: str) -> None:
    x, gate = np.ones((1, 1), np.float32), np.full((4, 1), -20, np.float32)
    _, _, weights = run_op(Op.MOE_GATE_TOPK, ordering, x, make_weight(gate), None, k=2, gating="sigmoid")
    assert_close(weights, np.full((1, 2), np.exp(-20) / (1 + np.exp(-20)) / 2.0**-14), 2e-6)


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_one_large_logit_takes_all_the_weight(ordering: str) -> None:
    x, gate = np.ones((1, 1), np.float32), np.array([[-300], [500], [0]], np.float32)
    _, ids, weights = run_op(Op.MOE_GATE_TOPK, ordering, x, make_weight(gate), None, k=2)
    assert ids.tolist() == [[1, 0]]  # the choice is by probability, where the two others tie at nothing
    assert_close(weights, np.array([[1, 0.0]]), 1e-30, relative=False)


CHOICES = np.array([[4, 0], [2, 4], [4, 3]], np.int32)  # expert 1 is nobody's, 4 everybody's


def stacked_weight(seed: int, dtype: str, *shape: int) -> Weight:
    return make_weight(random_floats(seed, *shape), dtype)


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("dtype", ["f32", "bf16", "q8_0", "q4_k"])
@pytest.mark.parametrize("tokens", [1, 3])
def test_gate_and_up_are_the_selected_experts_projections(ordering: str, dtype: str, tokens: int) -> None:
    x, ids = random_floats(1, tokens, 256), CHOICES[:tokens]
    gate_w, up_w = stacked_weight(2, dtype, 5, 9, 256), stacked_weight(3, dtype, 5, 9, 256)
    for got, w in zip(run_op(Op.MOE_GATE_UP, ordering, x, gate_w, up_w, ids), (gate_w, up_w), strict=True):
        assert got.shape == (tokens, 2, 9)
        for t in range(tokens):
            for choice, expert in enumerate(ids[t]):
                one = x[t : t + 1]
                want = one.astype(np.float64) @ dequantise64(w)[expert].T
                assert_close(
                    got[t : t + 1, choice],
                    want,
                    product_error_limit(one, w[int(expert)], ordering),
                    relative=False,
                )


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_halves_of_a_merged_gate_up_tensor_work_as_views(ordering: str) -> None:
    x, merged = random_floats(1, 3, 32), stacked_weight(2, "q8_0", 5, 8, 32)
    halves = [Weight("q8_0", (5, 4, 32), merged.raw[:, part]) for part in (slice(0, 4), slice(4, 8))]
    gate, up = run_op(Op.MOE_GATE_UP, ordering, x, *halves, CHOICES)
    both, _ = run_op(Op.MOE_GATE_UP, ordering, x, merged, merged, CHOICES)
    assert_same(np.concatenate([gate, up], axis=-1), both)


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("activation", ["silu", "gelu"])
def test_expert_activation_matches_the_dense_one_bit_for_bit(ordering: str, activation: str) -> None:
    gate, up = random_floats(1, 3, 2, 17, scale=5), random_floats(2, 3, 2, 17)
    got = run_op(Op.MOE_SWIGLU, ordering, gate, up, activation=activation)
    assert_same(got, run_op(Op.SWIGLU if activation == "silu" else Op.GEGLU, ordering, gate, up))
    g = gate.astype(np.float64)
    tanh = np.tanh(np.sqrt(2 / np.pi) * (g + 0.044715 * g**3))
    act = g / (1 + np.exp(-g)) if activation == "silu" else 0.5 * g * (1 + tanh)
    assert_close(got, act * up, 2e-6, relative=False)


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_clamped_activation_matches_its_definition(ordering: str) -> None:
    gate, up = random_floats(1, 3, 2, 37, scale=9), random_floats(2, 3, 2, 37, scale=9)
    gate[0, 0, :4], up[0, 0, 4:8] = (7, -700, 700, np.nan), (7, -700, 700, np.nan)
    with np.errstate(over="ignore"):
        g, u = np.minimum(gate.astype(np.float64), 7), np.clip(up.astype(np.float64), -7, 7)
        want = g / (1 + np.exp(-1.702 * g)) * (u + 1)
    got = run_op(Op.MOE_SWIGLU, ordering, gate, up, activation="clamped")
    assert np.isnan(got[0, 0, 3]) and np.isnan(got[0, 0, 7])
    got[0, 0, [3, 7]] = want[0, 0, [3, 7]] = 0
    assert_close(got, want, 4e-6, relative=False)
    assert (gate > 7).any() and (gate < -7).any() and (np.abs(up) > 7).any()


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_biases_of_experts_are_those_of_the_selected_ones(ordering: str) -> None:
    x, w = random_floats(1, 3, 64), random_floats(2, 3, 2)
    gate_w, up_w = stacked_weight(3, "f32", 5, 9, 64), stacked_weight(4, "f32", 5, 9, 64)
    gate_bias, up_bias, down_bias = (random_floats(seed, 5, size) for seed, size in ((5, 9), (6, 9), (7, 11)))
    down_w = stacked_weight(8, "f32", 5, 11, 9)
    plain = run_op(Op.MOE_GATE_UP, ordering, x, gate_w, up_w, CHOICES)
    operands = (x, gate_w, up_w, CHOICES, None, None, None, make_weight(gate_bias), make_weight(up_bias))
    biased = run_op(Op.MOE_GATE_UP, ordering, *operands)
    for got, want, bias in zip(biased, plain, (gate_bias, up_bias), strict=True):
        assert_same(got, want + bias[CHOICES])
    (act,) = run_op(Op.MOE_GATE_UP, ordering, *operands, activation="clamped")
    assert_same(act, run_op(Op.MOE_SWIGLU, ordering, *biased, activation="clamped"))
    got = run_op(Op.MOE_DOWN_ACC, ordering, act, down_w, CHOICES, w, None, None, None, make_weight(down_bias))
    y = np.einsum("tkdf,tkf->tkd", dequantise64(down_w)[CHOICES], act.astype(np.float64)) + down_bias[CHOICES]
    assert_close(got, (y * w[..., None]).sum(axis=1), 2e-5, relative=False)


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("dtype", ["f32", "f16", "q8_0", "q6_k"])
@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("residual", [True, False])
def test_down_acc_is_the_weighted_sum_of_the_experts(
    ordering: str, dtype: str, scaled: bool, residual: bool
) -> None:
    x, w, down_w = random_floats(1, 3, 2, 256), random_floats(2, 3, 2), stacked_weight(3, dtype, 5, 11, 256)
    expert_scale = random_floats(4, 5) if scaled else None
    hidden = random_floats(5, 3, 11, scale=10) if residual else None
    operands = (None if expert_scale is None else make_weight(expert_scale), hidden)
    got = run_op(Op.MOE_DOWN_ACC, ordering, x, down_w, CHOICES, w, *operands)
    want = np.zeros((3, 11)) if hidden is None else hidden.astype(np.float64)
    limit = np.full((3, 11), 1e-5)
    for t in range(3):
        for choice, expert in enumerate(CHOICES[t]):
            factor = float(w[t, choice]) * (1.0 if expert_scale is None else float(expert_scale[expert]))
            want[t] += factor * (dequantise64(down_w)[expert] @ x[t, choice].astype(np.float64))
            limit[t] += (
                abs(factor) * product_error_limit(x[t, choice : choice + 1], down_w[int(expert)], ordering)[0]
            )
    assert_close(got, want, limit, relative=False)


@pytest.mark.parametrize("ordering", ["canonical-1", "canonical-1-q8"])
def test_expert_sum_starts_at_zero_in_selection_order(ordering: str) -> None:
    down = make_weight(np.array([[[1e8]], [[-1e8]], [[1]]], np.float32))
    x, w = np.ones((2, 3, 1), np.float32), np.ones((2, 3), np.float32)
    ids = np.array([[0, 1, 2], [0, 2, 1]], np.int32)
    hidden = np.full((2, 1), 0.25, np.float32)
    got = run_op(Op.MOE_DOWN_ACC, ordering, x, down, ids, w, None, hidden)
    assert got.tolist() == [[1.25], [0.25]]  # 1e8 + 1 is 1e8 in float32


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("dtype", ["f16", "q4_k", "mxfp4"])
@pytest.mark.parametrize(
    ("gate_up", "down", "unit"),
    [
        (Op.MOE_GATE_UP_WMMA_F16, Op.MOE_DOWN_ACC_WMMA_F16, 2.0**-10),
        (Op.MOE_GATE_UP_WMMA_BF16, Op.MOE_DOWN_ACC_WMMA_BF16, 2.0**-7),
    ],
    ids=["f16", "bf16"],
)
def test_experts_of_halves_match_float64(ordering: str, dtype: str, gate_up: Op, down: Op, unit: float) -> None:
    """Gate, up and down projections, with scales and biases. `unit`: of the rounding of both operands."""
    x, ids = random_floats(1, 3, 256), CHOICES
    gate_w, up_w = (stacked_weight(seed, dtype, 5, 64, 256) for seed in (2, 3))
    scales, biases = [random_floats(seed, 5) for seed in (4, 5)], [random_floats(seed, 5, 64) for seed in (6, 7)]
    vectors = [make_weight(vector) for vector in (*scales, *biases)]
    got = run_op(gate_up, ordering, x, gate_w, up_w, ids, *vectors[:2], None, *vectors[2:])
    for result, w, scale, bias in zip(got, (gate_w, up_w), scales, biases, strict=True):
        chosen = dequantise64(w)[ids]  # [T, k, F, D]
        products = scale[ids][..., None] * np.einsum("tkfd,td->tkf", chosen, x.astype(np.float64))
        sizes = np.abs(scale[ids])[..., None] * np.einsum("tkfd,td->tkf", np.abs(chosen), np.abs(x))
        assert_close(result, products + bias[ids], unit * sizes + 1e-5, relative=False)
    x, w, down_w = random_floats(8, 3, 2, 256), random_floats(9, 3, 2), stacked_weight(10, dtype, 5, 11, 256)
    total = run_op(down, ordering, x, down_w, ids, w, None, None)
    chosen = dequantise64(down_w)[ids]
    want = np.einsum("tk,tkdf,tkf->td", w, chosen, x.astype(np.float64))
    sizes = np.einsum("tk,tkdf,tkf->td", np.abs(w), np.abs(chosen), np.abs(x))
    assert_close(total, want, unit * sizes + 1e-5, relative=False)


@pytest.mark.parametrize("ordering", ["canonical-1", "canonical-1-q8"])
@pytest.mark.parametrize(
    ("op", "one"),
    [
        (Op.MOE_DOWN_ACC_WMMA_F16, Op.MATMUL_WMMA_F16),
        (Op.MOE_DOWN_ACC_WMMA_BF16, Op.MATMUL_WMMA_BF16),
    ],
)
def test_experts_of_halves_are_products_of_halves(op: Op, one: Op, ordering: str) -> None:
    """A pair has the sums of a product of halves in both orderings, whatever other tokens choose, and the sum over
    a token's experts is that of MOE_DOWN_ACC."""
    x, ids = random_floats(1, 4, 3, 64), np.array([[4, 0, 2], [1, 0, 4], [0, 1, 2], [2, 4, 0]], np.int32)
    down_w, w = stacked_weight(2, "q8_0", 5, 33, 64), random_floats(3, 4, 3)
    got = run_op(op, ordering, x, down_w, ids, w, None, None)
    want = np.zeros((4, 33), np.float32)
    for token, rank in np.ndindex(4, 3):
        expert = down_w[int(ids[token, rank])]
        product = run_op(one, ordering, x[token, rank : rank + 1], expert)[0]
        want[token] += product * w[token, rank]
    assert_same(got, want)
    alone = [
        run_op(op, ordering, x[t : t + 1], down_w, ids[t : t + 1], w[t : t + 1], None, None) for t in range(4)
    ]
    assert_same(got, np.concatenate(alone))
    assert (got != run_op(Op.MOE_DOWN_ACC, ordering, x, down_w, ids, w, None, None)).any()


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("dtype", ["f32", "q8_0", "q4_k"])
@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize(
    ("op", "product"),
    [
        (Op.SHARED_EXPERT, Op.MATMUL),
        (Op.SHARED_EXPERT_WMMA_F16, Op.MATMUL_WMMA_F16),
        (Op.SHARED_EXPERT_WMMA_BF16, Op.MATMUL_WMMA_BF16),
    ],
)
def test_shared_expert_matches_its_parts_bit_for_bit(
    op: Op, product: Op, ordering: str, dtype: str, gated: bool, residual: bool
) -> None:
    x = random_floats(1, 3, 256)
    gate_w, up_w, down_w = (make_weight(random_floats(2 + i, 256, 256, scale=0.1), dtype) for i in range(3))
    gate_inp = make_weight(random_floats(8, 256, scale=0.2)) if gated else None
    hidden = random_floats(9, 3, 256) if residual else None
    got = run_op(op, ordering, x, gate_w, up_w, down_w, gate_inp, hidden)

    gate, up = (run_op(product, ordering, x, w, None, None) for w in (gate_w, up_w))
    y = run_op(product, ordering, run_op(Op.SWIGLU, ordering, gate, up), down_w, None, None)
    if gate_inp is not None:
        score = run_op(Op.MATMUL, ordering, x, make_weight(gate_inp.raw[None]), None, None)
        y = run_op(Op.SIGMOID_MUL, ordering, y, np.repeat(score, 256, axis=1))
    y = y if hidden is None else run_op(Op.ADD, ordering, hidden, y)
    if ordering == "float32-dequant":
        assert_close(got, y.astype(np.float64), 1e-4, relative=False)  # BLAS picks its order by shape
    else:
        assert_same(got, y)


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize(("tokens", "width", "ffn"), [(1, 1, 1), (3, 33, 5)])
def test_shared_expert_matches_the_formula(ordering: str, tokens: int, width: int, ffn: int) -> None:
    x, hidden = random_floats(1, tokens, width), random_floats(2, tokens, width)
    gate, up, down, score = (
        random_floats(3, ffn, width),
        random_floats(4, ffn, width),
        random_floats(5, width, ffn),
        random_floats(6, width),
    )
    operands = (make_weight(gate), make_weight(up), make_weight(down), make_weight(score), hidden)
    x64 = x.astype(np.float64)
    g = x64 @ gate.T
    y = (g / (1 + np.exp(-g)) * (x64 @ up.T)) @ down.T
    want = hidden + y / (1 + np.exp(-(x64 @ score)))[:, None]
    assert_close(
        run_op(Op.SHARED_EXPERT, ordering, x, *operands), want, 1e-5 * np.abs(y).max() + 1e-6, relative=False
    )


def test_fused_forms_match_their_parts_bit_for_bit() -> None:
    x, norm_w, router = (
        random_floats(1, 2, 64),
        make_weight(random_floats(2, 64)),
        make_weight(random_floats(3, 8, 64)),
    )
    h = run_op(Op.RMS_NORM, "canonical-1", x, norm_w, eps=1e-5, size=64)
    routed = run_op(Op.MOE_GATE_TOPK, "canonical-1", h, router, None, None, k=2)
    for got, want in zip(
        run_op(Op.MOE_GATE_TOPK, "canonical-1", x, router, None, norm_w, k=2, eps=1e-5), routed, strict=True
    ):
        assert_same(got, want)
    _, ids, weights = routed
    gate_w, up_w, down_w = (make_weight(random_floats(seed, 8, 64, 64), "q8_0") for seed in (4, 5, 6))
    gate, up = run_op(Op.MOE_GATE_UP, "canonical-1", h, gate_w, up_w, ids)
    (y,) = run_op(Op.MOE_GATE_UP, "canonical-1", h, gate_w, up_w, ids, activation="gelu")
    assert_same(y, run_op(Op.MOE_SWIGLU, "canonical-1", gate, up, activation="gelu"))
    fused = run_op(
        Op.MOE_GATE_TOPK, "canonical-1", x, router, None, norm_w, gate_w, up_w, k=2, eps=1e-5, activation="gelu"
    )
    for got, want in zip(fused, (*routed, y), strict=True):
        assert_same(got, want)
    hidden, residual = random_floats(7, 2, 64, scale=9), random_floats(8, 2, 64, scale=9)
    total = run_op(Op.MOE_DOWN_ACC, "canonical-1", y, down_w, ids, weights, None, hidden)
    got = run_op(Op.MOE_DOWN_ACC, "canonical-1", y, down_w, ids, weights, None, hidden, residual)
    assert_same(got, run_op(Op.ADD, "canonical-1", total, residual))
