"""Norms against float64, and the fused forms against their parts."""

from __future__ import annotations

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

CEPS = 1e-6


def norm64(x: np.ndarray, w: np.ndarray | None, size: int, eps: float = CEPS) -> np.ndarray:
    y = np.empty(x.shape)
    for t, row in enumerate(x.astype(np.float64)):
        for start in range(0, len(row), size):
            group = row[start : start + size]
            scaled = group / np.sqrt((group * group).mean() + np.float64(np.float32(eps)))
            y[t, start : start + size] = scaled if w is None else scaled * w
    return y


def edge_rows(kind: str, tokens: int, columns: int) -> np.ndarray:
    x = random_floats(columns, tokens, columns)
    match kind:
        case "outlier":
            x[:, columns // 2] = 3e4
        case "denormal":
            x *= np.float32(1e-39)
        case "large":
            x *= np.float32(1e17)
        case "one zero row":
            x[0] = 0
    return x


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("kind", ["plain", "outlier", "denormal", "large", "one zero row"])
@pytest.mark.parametrize(("tokens", "groups", "size"), [(1, 1, 1), (2, 1, 3), (3, 5, 17), (2, 1, 131), (2, 4, 64)])
def test_rms_norm_matches_the_formula(ordering: str, kind: str, tokens: int, groups: int, size: int) -> None:
    x = edge_rows(kind, tokens, groups * size)
    w = random_floats(5, size)
    for operand, want in ((make_weight(w), norm64(x, w.astype(np.float64), size)), (None, norm64(x, None, size))):
        got = run_op(Op.RMS_NORM, ordering, x, operand, eps=CEPS, size=size)
        # A denormal is known to its last unit only, here a thousandth of the value times its 1000-fold gain.
        assert_close(
            got, want, 1e-6 * np.abs(want) + (1e-42 if kind == "denormal" else 0), relative=False, zero=True
        )
        assert kind == "one zero row" or got.any()
        assert kind != "one zero row" or not got[0].any()


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_eps_dominates_a_vanishing_row(ordering: str) -> None:
    x = np.full((1, 8), 1e-6, np.float32)
    got = run_op(Op.RMS_NORM, ordering, x, None, eps=1e-2, size=8)
    assert_close(got, np.full((1, 8), 1e-5), 1e-4)


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize(("tokens", "columns"), [(1, 1), (3, 67)])
def test_residual_rms_norm_adds_before_normalising(ordering: str, tokens: int, columns: int) -> None:
    x, residual, w = (
        random_floats(1, tokens, columns),
        random_floats(2, tokens, columns, scale=50),
        make_weight(random_floats(3, columns)),
    )
    hidden, y = run_op(Op.RESIDUAL_RMS_NORM, ordering, x, residual, w, eps=CEPS)
    assert_close(hidden, x.astype(np.float64) + residual, 1e-7)
    assert_close(y, norm64(hidden, dequantise64(w), columns), 1e-6)


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_residual_rms_norm_matches_add_and_rms_norm_bit_for_bit(ordering: str) -> None:
    x, residual, w = random_floats(1, 5, 96), random_floats(2, 5, 96, scale=1e3), make_weight(random_floats(3, 96))
    hidden, y = run_op(Op.RESIDUAL_RMS_NORM, ordering, x, residual, w, eps=CEPS)
    total = run_op(Op.ADD, ordering, x, residual)
    assert_same(hidden, total)
    assert_same(y, run_op(Op.RMS_NORM, ordering, total, w, eps=CEPS, size=96))


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("dtype", ["f32", "q8_0", "q4_k"])
@pytest.mark.parametrize("biased", [True, False])
def test_fused_qkv_matches_the_formula_and_its_parts(ordering: str, dtype: str, biased: bool) -> None:
    x, norm_w = random_floats(1, 3, 256), make_weight(random_floats(2, 256))
    ws = [make_weight(random_floats(3 + i, rows, 256), dtype) for i, rows in enumerate((64, 32, 31))]
    biases = [make_weight(random_floats(7 + i, w.shape[0])) if biased else None for i, w in enumerate(ws)]
    fused = run_op(Op.RMS_NORM_FUSED_QKV, ordering, x, norm_w, *ws, *biases, eps=CEPS)
    h = run_op(Op.RMS_NORM, ordering, x, norm_w, eps=CEPS, size=256)
    h64 = norm64(x, dequantise64(norm_w), 256)
    assert len(fused) == 3
    for got, w, bias in zip(fused, ws, biases, strict=True):
        assert_same(got, run_op(Op.MATMUL, ordering, h, w, bias, None))
        want = h64 @ dequantise64(w).T + (0 if bias is None else dequantise64(bias))
        assert_close(got, want, 2 * product_error_limit(h, w, ordering) + 1e-6, relative=False)


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("dtype", ["f16", "q4_0", "q6_k"])
def test_fused_gate_up_matches_the_formula_and_its_parts(ordering: str, dtype: str) -> None:
    x, norm_w = random_floats(1, 2, 256), make_weight(random_floats(2, 256))
    gate_w, up_w = make_weight(random_floats(3, 45, 256), dtype), make_weight(random_floats(4, 45, 256), "f32")
    fused = run_op(Op.RMS_NORM_FUSED_MLP_GATE_UP, ordering, x, norm_w, gate_w, up_w, eps=CEPS)
    h = run_op(Op.RMS_NORM, ordering, x, norm_w, eps=CEPS, size=256)
    for got, w in zip(fused, (gate_w, up_w), strict=True):
        assert_same(got, run_op(Op.MATMUL, ordering, h, w, None, None))
        want = norm64(x, dequantise64(norm_w), 256) @ dequantise64(w).T
        assert_close(got, want, 2 * product_error_limit(h, w, ordering) + 1e-6, relative=False)


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("dtype", ["f32", "q4_0"])
def test_projection_of_a_norm_onto_a_residual_matches_its_parts(ordering: str, dtype: str) -> None:
    x, norm_w, w = (
        random_floats(1, 3, 96),
        make_weight(random_floats(2, 96)),
        make_weight(random_floats(3, 19, 96), dtype),
    )
    bias, residual = make_weight(random_floats(4, 19)), random_floats(5, 3, 19, scale=20)
    got = run_op(Op.MATMUL, ordering, x, w, bias, None, norm_w, residual, eps=CEPS)
    h = run_op(Op.RMS_NORM, ordering, x, norm_w, eps=CEPS, size=96)
    assert_same(got, run_op(Op.ADD, ordering, residual, run_op(Op.MATMUL, ordering, h, w, bias, None)))
    want = norm64(x, dequantise64(norm_w), 96) @ dequantise64(w).T + dequantise64(bias) + residual
    assert_close(got, want, 2 * product_error_limit(h, w, ordering) + 1e-5, relative=False)


def test_norm_added_to_a_residual_matches_both_bit_for_bit() -> None:
    x, residual, w = random_floats(1, 3, 96), random_floats(2, 3, 96, scale=20), make_weight(random_floats(3, 32))
    for norm_w in (w, None):
        normed = run_op(Op.RMS_NORM, "canonical-1", x, norm_w, eps=CEPS, size=32)
        got = run_op(Op.RMS_NORM, "canonical-1", x, norm_w, residual, eps=CEPS, size=32)
        assert_same(got, run_op(Op.ADD, "canonical-1", residual, normed))


@pytest.mark.parametrize(("activation", "op"), [("silu", Op.SWIGLU), ("gelu", Op.GEGLU)])
def test_gate_up_with_activation_matches_gate_up_then_activation(activation: str, op: Op) -> None:
    x, norm_w = random_floats(1, 2, 96), make_weight(random_floats(2, 96))
    halves = [make_weight(random_floats(seed, 45, 96), "q8_0") for seed in (3, 4)]
    gate, up = run_op(Op.RMS_NORM_FUSED_MLP_GATE_UP, "canonical-1", x, norm_w, *halves, eps=CEPS)
    (got,) = run_op(
        Op.RMS_NORM_FUSED_MLP_GATE_UP, "canonical-1", x, norm_w, *halves, eps=CEPS, activation=activation
    )
    assert_same(got, run_op(op, "canonical-1", gate, up))


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize(("tokens", "heads", "size"), [(1, 1, 1), (2, 3, 16), (3, 2, 130)])
def test_gated_norm_normalises_each_head_then_gates(ordering: str, tokens: int, heads: int, size: int) -> None:
    x, z = random_floats(1, tokens, heads * size, scale=20), random_floats(2, tokens, heads * size, scale=4)
    z[0, 0] = 80
    w = make_weight(random_floats(3, size))
    got = run_op(Op.SSM_GATED_NORM, ordering, x, z, w, eps=CEPS)
    gate = z.astype(np.float64) / (1 + np.exp(-z.astype(np.float64)))
    assert_close(got, norm64(x, dequantise64(w), size) * gate, 2e-6)


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("kind", ["plain", "outlier", "large", "one zero row"])
@pytest.mark.parametrize(("tokens", "width"), [(1, 3), (3, 17), (2, 131), (2, 256)])
def test_layer_norm_matches_the_formula(ordering: str, kind: str, tokens: int, width: int) -> None:
    x = edge_rows(kind, tokens, width)
    x += np.float32(0.5) * np.abs(x).max(axis=1, keepdims=True)  # a mean far from 0
    w, b = random_floats(5, width), random_floats(6, width)
    exact = x.astype(np.float64)
    centred = exact - exact.mean(axis=1, keepdims=True)
    spread = np.sqrt((centred**2).mean(axis=1, keepdims=True) + CEPS)
    limit = 2e-6 * np.abs(exact).max(axis=1, keepdims=True) / spread * np.abs(w).max() + 1e-6
    for bias in (None, make_weight(b)):
        want = centred / spread * w + (0 if bias is None else b)
        got = run_op(Op.LAYER_NORM, ordering, x, make_weight(w), bias, eps=CEPS)
        assert_close(got, want, limit, relative=False, zero=True)


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_layer_norm_of_a_constant_row_is_its_bias(ordering: str) -> None:
    w, b = (make_weight(random_floats(seed, 64)) for seed in (1, 2))
    got = run_op(Op.LAYER_NORM, ordering, np.full((2, 64), 3, np.float32), w, b, eps=1e-5)
    assert np.array_equal(got, np.stack([random_floats(2, 64)] * 2))
