"""Projections on t_cpu_native: the oracle's bits, in every type, ordering and shape."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product

import numpy as np
import pytest
from kernels.native.harness import check_op
from kernels.native.unkind import assert_rejected, edge_values, int32_indices
from kernels.op_cases import make_weight, random_floats

from zinc_rt.backends.cpu.tasks import TaskSplitting
from zinc_rt.ir.dtypes import find_block
from zinc_rt.ir.op import Op
from zinc_rt.kernels.cases import draw_weight
from zinc_rt.kernels.native.types import list_dtypes
from zinc_rt.kernels.weight import Weight

# With bodies of their own; the others go by dequantised pieces, and three of them stand for all by default.
FAST = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_k", "q5_k", "q6_k")
Q8 = ("q8_0", "q4_0", "q4_k", "q5_k", "q6_k")
TYPES = (*FAST, "q5_1", "iq4_xs", "nvfp4")
ROWS = (1, 15, 16, 17, 37)
COLUMNS: tuple[int | str, ...] = ("one block", "no round", 896, 1024)
TOKENS = (1, 2, 3, 4, 5, 8, 9, 16, 17, 130)
HALVES = {"q8_0": (0,), "q4_0": (0,), "q4_k": (0, 2), "q5_k": (0, 2), "q6_k": (208,)}  # scales in a block
UNKIND_HALVES = (0x0001, 0x83FF, 0x0000, 0x8000, 0x7C00, 0xFC00, 0x7E00, 0x7BFF, 0x3C00, 0xB5A3)
QUICK = ((1, TaskSplitting()), (2, TaskSplitting(least=1)))


def column_counts(dtype: str, names: int | str) -> int:
    """K: blocks are 1, 32, 64 or 256 elements, a round of the accumulators is 128."""
    elements = find_block(dtype)[0]
    if names == "one block":
        return elements
    if names == "no round":
        return {1: 1037, 32: 1056, 64: 1088}.get(elements, 1280)
    return -(-int(names) // elements) * elements


def pairwise_cases(*axes: tuple[object, ...]) -> Iterator[tuple[object, ...]]:
    """Return few cases that cover every pair of values of any two axes; each call returns the same ones."""
    places = list(combinations(range(len(axes)), 2))
    left = {(i, a, j, b) for i, j in places for a in range(len(axes[i])) for b in range(len(axes[j]))}
    every = list(product(*(range(len(axis)) for axis in axes)))
    random = np.random.default_rng(11)
    while left:
        i, a, j, b = min(left)
        fitting = [case for case in every if case[i] == a and case[j] == b]
        tried = [fitting[number] for number in random.integers(0, len(fitting), 12)]
        best = max(tried, key=lambda case: sum((i, case[i], j, case[j]) in left for i, j in places))
        left -= {(i, best[i], j, best[j]) for i, j in places}
        yield tuple(axis[number] for axis, number in zip(axes, best, strict=True))


SOME = tuple(pairwise_cases(TYPES, ROWS, COLUMNS, TOKENS))


@pytest.mark.rest(keep=29)
@pytest.mark.parametrize(("dtype", "rows", "k", "tokens"), SOME)
def test_matmul_matches(dtype: str, rows: int, k: int | str, tokens: int) -> None:
    k = column_counts(dtype, k)
    random = np.random.default_rng(rows + k + tokens)
    x = random_floats(tokens, tokens, k)
    parts = (draw_weight((rows,), "f32", random), draw_weight((1,), "f32", random)) if rows % 2 else ()
    orderings = ("canonical-1", "canonical-1-q8") if dtype in Q8 else ("canonical-1-q8",)
    check_op(Op.MATMUL, x, draw_weight((rows, k), dtype, random), *parts, orderings=orderings, thread_counts=QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", sorted(list_dtypes()))
@pytest.mark.parametrize("rows", ROWS)
def test_matmul_of_every_shape_matches(dtype: str, rows: int) -> None:
    for k, tokens in product(COLUMNS, TOKENS):
        test_matmul_matches(dtype, rows, k, tokens)


def test_default_cases_cover_every_pair() -> None:
    for i, j in combinations(range(4), 2):
        axes = (TYPES, ROWS, COLUMNS, TOKENS)
        assert {(case[i], case[j]) for case in SOME} == set(product(axes[i], axes[j]))


def weight_with_edge_scales(dtype: str, rows: int, k: int) -> Weight:
    """Blocks whose scales are float16 denormals, zeros of both signs, infinities, NaN and the largest value."""
    random = np.random.default_rng(k)
    result = draw_weight((rows, k), dtype, random)
    blocks = result.raw.reshape(-1, find_block(dtype)[1])
    for index in HALVES[dtype]:
        scales = random.choice(UNKIND_HALVES, len(blocks)).astype(np.uint16)
        kind = np.arange(len(blocks)) // (k // find_block(dtype)[0]) % 2  # every other row: finite ones only
        scales[kind == 0] = random.choice((0x0001, 0x83FF, 0x8000, 0x3C00), (kind == 0).sum())
        blocks[:, index : index + 2] = scales.view(np.uint8).reshape(-1, 2)
    return result


@pytest.mark.parametrize("dtype", Q8)
@pytest.mark.parametrize("tokens", [1, 3, 18])
def test_scales_of_every_kind_match(dtype: str, tokens: int) -> None:
    check_op(
        Op.MATMUL, random_floats(3, tokens, 1280), weight_with_edge_scales(dtype, 18, 1280), thread_counts=QUICK
    )


def edge_inputs(k: int) -> np.ndarray:
    """One token of each kind that quantisation treats differently."""
    x = random_floats(5, 14, k)
    x[0] = -0.0
    x[1] *= np.float32(2.0**-101)  # amax below 2^-100 in some blocks
    x[2] *= np.float32(2.0**-98)
    x[3] *= np.float32(8.4e6)  # a scale that overflows float16
    x[4] *= np.float32(1e37)
    x[5, ::97] = np.nan
    x[6, ::300] = np.inf
    x[7, ::300] = -np.inf
    x[8] *= np.float32(1e-41)
    x[9] *= np.float32(3e-8)  # a scale that float16 has as a denormal
    x[10] = np.round(x[10] * 2) / 2  # ties
    x[10, ::32] = 127
    x[11] = -1  # every quant is -127
    x[12, 256:] = 0
    x[13] = np.where(np.arange(k) // 32 % 2, x[13], 0)
    return x


@pytest.mark.parametrize("dtype", (*Q8, "f16", "q5_1"))
def test_inputs_of_every_kind_match(dtype: str) -> None:
    result = (
        draw_weight((17, 1280), dtype, np.random.default_rng(6))
        if dtype not in HALVES
        else finite_weight(dtype, 17, 1280)
    )
    x = edge_inputs(1280)
    check_op(Op.MATMUL, x, result, thread_counts=QUICK)
    for token in range(0, len(x), 3):
        check_op(Op.MATMUL, x[token : token + 1], result, thread_counts=QUICK[:1])


def finite_weight(dtype: str, rows: int, k: int) -> Weight:
    result = draw_weight((rows, k), dtype, np.random.default_rng(k))
    blocks = result.raw.reshape(-1, find_block(dtype)[1])
    for index in HALVES[dtype]:
        blocks[:, index : index + 2] = np.array([0x2C00], np.uint16).view(np.uint8)
    return result


@pytest.mark.parametrize("dtype", Q8)
@pytest.mark.parametrize("byte", [0x80, 0x7F, 0x00, 0xFF])
def test_largest_sums_match(dtype: str, byte: int) -> None:
    """All weights alike, all quants 127 or -127: the most that the integers must hold."""
    result = finite_weight(dtype, 17, 1024)
    blocks = result.raw.reshape(-1, find_block(dtype)[1])
    kept = [at + i for at in HALVES[dtype] for i in range(2)]
    blocks[:, [i for i in range(blocks.shape[1]) if i not in kept]] = byte
    x = np.ones((6, 1024), np.float32)
    x[1::2] = -1
    check_op(Op.MATMUL, x, result, thread_counts=QUICK)


@pytest.mark.parametrize("dtype", ["f32", "q8_0", "q6_k", "nvfp4"])
def test_bias_and_scale_of_any_type_match(dtype: str) -> None:
    random = np.random.default_rng(1)
    bias, scale = draw_weight((32,), "q8_0", random), draw_weight((1,), "bf16", random)
    check_op(Op.MATMUL, random_floats(1, 3, 256), draw_weight((32, 256), dtype, random), bias, scale)


@pytest.mark.parametrize("dtype", ["f16", "q8_0", "q4_k"])
def test_lm_head_computes_the_requested_rows(dtype: str) -> None:
    random = np.random.default_rng(2)
    table = draw_weight((35, 512), dtype, random)
    capacity = {"tokens": 9, "rows": 5}
    check_op(
        Op.LM_HEAD,
        random_floats(1, 7, 512),
        table,
        int32_indices(6, 0, 6),
        draw_weight((35,), "f16", random),
        capacity=capacity,
    )


@pytest.mark.parametrize("row", [-1, 7, 2**31 - 1])
@pytest.mark.parametrize("dtype", ["f16", "q8_0"])
def test_row_outside_the_step_is_rejected(dtype: str, row: int) -> None:
    table, fresh = draw_weight((16, 32), dtype, np.random.default_rng(2)), np.empty((1, 16), np.float32)
    assert_rejected(
        "a row is outside its tensor",
        Op.LM_HEAD,
        random_floats(1, 7, 32),
        table,
        int32_indices(row),
        None,
        outputs=(fresh,),
    )


@pytest.mark.parametrize("dtype", ["f32", "q8_0", "q4_0", "q5_k"])
@pytest.mark.parametrize("tokens", [1, 20])
def test_fused_norms_match(dtype: str, tokens: int) -> None:
    random = np.random.default_rng(3)
    x, norm = edge_values(1, tokens, 256, specials=(0.0, -0.0, 1e-41)), draw_weight((256,), "bf16", random)
    q, k, v = (draw_weight((rows, 256), dtype, random) for rows in (33, 16, 17))
    bias = draw_weight((33,), "f32", random)
    check_op(Op.RMS_NORM_FUSED_QKV, x, norm, q, k, v, bias, None, None, eps=1e-6, thread_counts=QUICK)
    check_op(Op.RMS_NORM_FUSED_MLP_GATE_UP, x, norm, q, q, eps=1e-6, thread_counts=QUICK)


def test_projections_of_one_input_with_different_types_match() -> None:
    random = np.random.default_rng(4)
    q, k, v = (draw_weight((32, 256), dtype, random) for dtype in ("q4_k", "q8_0", "f16"))
    norm = draw_weight((256,), "f32", random)
    check_op(Op.RMS_NORM_FUSED_QKV, random_floats(1, 3, 256), norm, q, k, v, None, None, None, eps=1e-6)


def make_experts(dtype: str, count: int, rows: int, k: int) -> tuple[Weight, Weight]:
    """Two halves of one tensor, so that each expert's rows are not adjacent."""
    both = draw_weight((count, 2 * rows, k), dtype, np.random.default_rng(rows))
    first, second = (both.raw[:, part] for part in (slice(0, rows), slice(rows, None)))
    return Weight(dtype, (count, rows, k), first), Weight(dtype, (count, rows, k), second)


def choose_experts(tokens: int, count: int, choices: int) -> np.ndarray:
    random = np.random.default_rng(tokens)
    return np.array([random.permutation(count)[:choices] for _ in range(tokens)], np.int32)


@pytest.mark.rest(keep=6)
@pytest.mark.parametrize("dtype", ["f32", "q8_0", "q4_k", "q6_k", "q5_1"])
@pytest.mark.parametrize("tokens", [1, 4, 40])
def test_experts_match(dtype: str, tokens: int) -> None:
    random = np.random.default_rng(5)
    gate, up = make_experts(dtype, 6, 18, 256)
    ids, scale = choose_experts(tokens, 6, 3), draw_weight((6,), "f16", random)
    capacity = {"tokens": tokens + 2}
    check_op(
        Op.MOE_GATE_UP,
        random_floats(1, tokens, 256),
        gate,
        up,
        ids,
        scale,
        None,
        capacity=capacity,
        thread_counts=QUICK,
    )
    down, _ = make_experts(dtype, 6, 33, 256)
    x, weights = random_floats(2, tokens, 3, 256), random_floats(3, tokens, 3)
    hidden = random_floats(4, tokens, 33)
    check_op(Op.MOE_DOWN_ACC, x, down, ids, weights, scale, hidden, capacity=capacity, thread_counts=QUICK)


def test_all_tokens_may_select_the_same_expert() -> None:
    gate, up = make_experts("q8_0", 300, 16, 64)
    check_op(
        Op.MOE_GATE_UP, random_floats(1, 150, 64), gate, up, np.full((150, 2), 299, np.int32), thread_counts=QUICK
    )


@pytest.mark.parametrize("expert", [-1, 6, 2**31 - 1])
def test_nonexistent_expert_is_rejected(expert: int) -> None:
    gate, up = make_experts("q8_0", 6, 16, 64)
    ids, fresh = np.array([[0, expert]], np.int32), np.empty((1, 2, 16), np.float32)
    assert_rejected(
        "an expert is outside its tensor",
        Op.MOE_GATE_UP,
        random_floats(1, 1, 64),
        gate,
        up,
        ids,
        outputs=(fresh, fresh),
    )


@pytest.mark.parametrize("dtype", ["f32", "q8_0", "q4_k"])
@pytest.mark.parametrize("options", [(), ("gate_inp",), ("hidden",), ("gate_inp", "hidden", "scales")])
def test_shared_expert_matches(dtype: str, options: tuple[str, ...]) -> None:
    random = np.random.default_rng(6)
    gate, up, down = (
        draw_weight((256, 256), dtype, random),
        draw_weight((256, 256), dtype, random),
        draw_weight((37, 256), dtype, random),
    )
    gate_inp = draw_weight((256,), "q8_0", random) if "gate_inp" in options else None
    hidden = random_floats(2, 3, 37) if "hidden" in options else None
    scales = [draw_weight((1,), "f32", random) if "scales" in options else None for _ in range(3)]
    check_op(
        Op.SHARED_EXPERT, random_floats(1, 3, 256), gate, up, down, gate_inp, hidden, *scales, thread_counts=QUICK
    )


@pytest.mark.parametrize("dtype", ["f16", "q8_0", "q6_k"])
@pytest.mark.parametrize("tokens", [1, 20])
def test_head_projections_match(dtype: str, tokens: int) -> None:
    k_b = draw_weight((3, 17, 256), dtype, np.random.default_rng(7))
    x = random_floats(1, tokens, 3 * (256 + 9))
    check_op(Op.MLA_ABSORB, x, k_b, heads=3, nope=256, rope=9, latent=17, thread_counts=QUICK)


@pytest.mark.parametrize("op", [Op.MATMUL_WMMA_F16, Op.MATMUL_WMMA_BF16])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "q4_k", "q8_0", "iq1_m"])
def test_matrix_core_products_match(op: Op, dtype: str) -> None:
    op = Op.MATMUL_WMMA_Q4K if (op, dtype) == (Op.MATMUL_WMMA_F16, "q4_k") else op
    check_op(
        op, random_floats(1, 20, 512), draw_weight((33, 512), dtype, np.random.default_rng(8)), thread_counts=QUICK
    )


@pytest.mark.parametrize("op", [Op.MATMUL_WMMA_F16, Op.MATMUL_WMMA_BF16])
@pytest.mark.parametrize("k", [1, 7, 37, 300])
def test_matrix_core_products_of_unkind_rows_match(op: Op, k: int) -> None:
    """Widths that fill no tile; rows with infinity, NaN, denormals and zeros; weights that overflow a half, or
    whose sums overflow float32 or are denormal."""
    x = random_floats(1, 140, k)
    x[0, -1], x[1, -1], x[4, 0] = np.inf, np.nan, 3e38
    x[2] *= 1e-42
    x[3] = 0
    w = random_floats(2, 17, k)
    w[3, -1], w[5, 0], w[7] = 7e4, np.nan, w[7] * 1e-6
    w[9], w[10, -1], w[12] = w[9] * 3e37, np.float32(3.4e38), np.ldexp(w[12], -124 - np.arange(k) % 24)
    x[5] = np.ldexp(x[5], -3 * (np.arange(k) % 40))
    w[14] = np.ldexp(w[14], np.arange(k) % 90 - 60)
    check_op(op, x, make_weight(w), thread_counts=QUICK)


@pytest.mark.parametrize("dtype", ["q8_0", "f16"])
def test_rows_wider_than_a_panel_match(dtype: str) -> None:
    """More blocks to an accumulator than a panel has room for."""
    k = 33 * 1024
    check_op(
        Op.MATMUL,
        random_floats(1, 9, k),
        draw_weight((17, k), dtype, np.random.default_rng(9)),
        thread_counts=QUICK[:1],
    )
