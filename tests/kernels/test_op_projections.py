"""Projections, embedding rows and elementwise opcodes against float64."""

from __future__ import annotations

import numpy as np
import pytest
from op_cases import (
    ORDERINGS,
    QUANTS,
    assert_close,
    assert_same,
    dequantise64,
    make_weight,
    product_error_limit,
    random_floats,
    run_op,
)

from zinc_rt.ir.op import Op


def sigmoid64(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x.astype(np.float64)))


def gelu64(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def edge_rows(tokens: int, columns: int) -> np.ndarray:
    """Zeros and large values of both signs, denormals, edge values of exp; the rest ordinary."""
    x = random_floats(9, tokens, columns, scale=3)
    edges = np.array([0, -0.0, 1e-42, -1e-42, 30, -30, 86, -86, 1e4], np.float32)[:columns]
    x[0, : len(edges)] = edges
    return x


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("dtype", QUANTS)
@pytest.mark.parametrize("tokens", [1, 3])
def test_matmul_is_correct_for_every_weight_type(ordering: str, dtype: str, tokens: int) -> None:
    x = random_floats(1, tokens, 512)
    x[0, 7] = 900  # an outlier spoils its 8-bit block's resolution, and the limit knows
    w, bias, scale = (
        make_weight(random_floats(2, 33, 512), dtype),
        make_weight(random_floats(3, 33)),
        make_weight(np.array([0.37])),
    )
    limit = product_error_limit(x, w, ordering)
    product = x.astype(np.float64) @ dequantise64(w).T
    assert_close(run_op(Op.MATMUL, ordering, x, w, None, None), product, limit, relative=False)
    assert_close(
        run_op(Op.MATMUL, ordering, x, w, bias, None), product + dequantise64(bias), limit + 1e-4, relative=False
    )
    want = product * np.float64(np.float32(0.37)) + dequantise64(bias)
    assert_close(run_op(Op.MATMUL, ordering, x, w, bias, scale), want, limit + 1e-4, relative=False)


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("dtype", ["f32", "q8_0"])
def test_matmul_of_a_gated_norm_matches_its_parts_bit_for_bit(ordering: str, dtype: str) -> None:
    x, z, residual = (random_floats(1, 2, 256), random_floats(2, 2, 256, scale=4), random_floats(3, 2, 9, scale=9))
    w, norm_w = make_weight(random_floats(4, 9, 256), dtype), make_weight(random_floats(5, 64))
    gated = run_op(Op.SSM_GATED_NORM, ordering, x, z, norm_w, eps=1e-5)
    product = run_op(Op.MATMUL, ordering, gated, w, None, None)
    fused = run_op(Op.MATMUL, ordering, x, w, None, None, norm_w, residual, z, eps=1e-5, norm_groups=4)
    assert_same(fused, run_op(Op.ADD, ordering, product, residual))
    act = run_op(Op.SWIGLU, ordering, z, x)
    only_gate = run_op(Op.MATMUL, ordering, x, w, None, None, None, None, z)
    assert_same(only_gate, run_op(Op.MATMUL, ordering, act, w, None, None))


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize(("n", "k"), [(1, 1), (3, 5), (1, 127), (2, 129), (1030, 3)])
@pytest.mark.parametrize("magnitude", [1e-38, 1.0, 1e15])
def test_matmul_is_correct_at_odd_shapes_and_magnitudes(ordering: str, n: int, k: int, magnitude: float) -> None:
    x, w = random_floats(k, 2, k, scale=magnitude), make_weight(random_floats(n, n, k))
    want = x.astype(np.float64) @ dequantise64(w).T
    assert_close(
        run_op(Op.MATMUL, ordering, x, w, None, None),
        want,
        product_error_limit(x, w, ordering) + k * 1e-44,
        relative=False,
    )


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize(
    ("op", "dtype"), [(Op.MATMUL_WMMA_F16, "f16"), (Op.MATMUL_WMMA_Q4K, "q4_k"), (Op.MATMUL_WMMA_BF16, "q4_k")]
)
def test_wmma_products_are_those_of_halves(ordering: str, op: Op, dtype: str) -> None:
    a, b = random_floats(1, 5, 256), make_weight(random_floats(2, 18, 256), dtype)
    got = run_op(op, ordering, a, b)
    unit = 2.0**-7 if op is Op.MATMUL_WMMA_BF16 else 2.0**-10  # half of it for each operand
    rounding = unit * (np.abs(a).astype(np.float64) @ np.abs(dequantise64(b)).T)
    error = np.abs(got - a.astype(np.float64) @ dequantise64(b).T)
    assert (error <= rounding + 1e-6).all()
    if ordering != "float32-dequant":
        assert_same(got, run_op(op, "canonical-1", a, b))
        assert (got != run_op(Op.MATMUL, "canonical-1", a, b, None, None)).any()


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("dtype", ["f32", "q8_0", "q6_k"])
def test_lm_head_returns_the_requested_rows_in_order(ordering: str, dtype: str) -> None:
    x, w, bias = (
        random_floats(1, 6, 256),
        make_weight(random_floats(2, 50, 256), dtype),
        make_weight(random_floats(3, 50)),
    )
    for rows in ([5], [4, 0, 4], [0, 1, 2, 3, 4, 5]):
        got = run_op(Op.LM_HEAD, ordering, x, w, np.array(rows, np.int32), bias)
        want = x[rows].astype(np.float64) @ dequantise64(w).T + dequantise64(bias)
        assert_close(got, want, product_error_limit(x[rows], w, ordering) + 1e-5, relative=False)
    nothing = run_op(Op.LM_HEAD, ordering, x, w, np.array([], np.int32), None)
    assert nothing.shape == (0, 50)


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("dtype", QUANTS)
def test_embed_returns_dequantised_rows_bit_for_bit(ordering: str, dtype: str) -> None:
    table = make_weight(random_floats(1, 9, 256), dtype)
    ids = np.array([8, 0, 3, 3], np.int32)
    assert_same(run_op(Op.EMBED, ordering, ids, table), dequantise64(table)[ids].astype(np.float32))


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize(("tokens", "columns"), [(1, 1), (2, 9), (3, 131)])
def test_activations_match_their_formulas(ordering: str, tokens: int, columns: int) -> None:
    gate, up = edge_rows(tokens, columns), random_floats(2, tokens, columns, scale=2)
    if columns == 1:
        gate[:] = -3.25
    g64, u64 = gate.astype(np.float64), up.astype(np.float64)
    # exp stops at -87: a sigmoid this close to 0 is right to 1e-37 only.
    tail = 1e-36 * np.abs(g64)
    swiglu, geglu = g64 * sigmoid64(gate) * u64, gelu64(gate) * u64
    assert_close(
        run_op(Op.SWIGLU, ordering, gate, up), swiglu, 1e-6 * np.abs(swiglu) + tail * np.abs(u64), relative=False
    )
    limit = 2e-6 * np.abs(geglu) + 4e-7 * np.abs(u64)  # 1 + tanh cancels for negative arguments
    assert_close(run_op(Op.GEGLU, ordering, gate, up), geglu, limit, relative=False)
    plain = gelu64(gate)
    assert_close(run_op(Op.GELU, ordering, gate), plain, 2e-6 * np.abs(plain) + 4e-7, relative=False)
    want = u64 * sigmoid64(gate)
    assert_close(
        run_op(Op.SIGMOID_MUL, ordering, up, gate), want, 1e-6 * np.abs(want) + 1e-36 * np.abs(u64), relative=False
    )


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize(("tokens", "columns"), [(1, 1), (4, 37)])
def test_add_and_scales_round_once_per_operation(ordering: str, tokens: int, columns: int) -> None:
    a, b = random_floats(1, tokens, columns, scale=1e20), random_floats(2, tokens, columns)
    a[0, 0], b[0, 0] = 1e-44, 3e-44
    assert_same(run_op(Op.ADD, ordering, a, b), (a.astype(np.float64) + b).astype(np.float32))
    factor = float(np.float32(57.25))
    once = (b.astype(np.float64) * factor).astype(np.float32)
    assert_same(run_op(Op.SCALE, ordering, b, None, factor=factor), once)
    twice = (once.astype(np.float64) * np.float64(np.float32(0.1))).astype(np.float32)
    assert_same(run_op(Op.SCALE, ordering, b, make_weight(np.array([0.1])), factor=factor), twice)
    table = random_floats(3, 40)
    position = np.array([39, 0, 7, 7], np.int32)[:tokens]
    want = (b.astype(np.float64) * table[position].astype(np.float64)[:, None]).astype(np.float32)
    assert_same(run_op(Op.ROW_SCALE, ordering, b, position, make_weight(table)), want)


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize(("group", "offset", "size"), [(1, 0, 1), (12, 0, 12), (6, 5, 1), (4, 1, 2)])
def test_slice_takes_its_columns_of_every_group(ordering: str, group: int, offset: int, size: int) -> None:
    x = random_floats(1, 3, 24)
    picked = [c for c in range(24) if offset <= c % group < offset + size]
    assert_same(run_op(Op.SLICE, ordering, x, group=group, offset=offset, size=size), x[:, picked])


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_softcap_matches_the_formula(ordering: str) -> None:
    x = np.array([[0, 1e-6, 1, -1, 29, -31, 500, -1e6, 3e38]], np.float32)
    want = 30 * np.tanh(x.astype(np.float64) / 30)
    got = run_op(Op.SOFTCAP, ordering, x, cap=30.0)
    assert_close(got, want, 1e-6 * np.abs(want) + 3e-6, relative=False)  # tanh is good to 1e-7 of the cap
    assert np.abs(got).max() <= 30
