"""Projections on t_cpu_native: the oracle's bits, in every type, ordering and shape."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product

import numpy as np
import pytest
from kernels.native.harness import check
from kernels.native.unkind import indices, refused, unkind
from kernels.op_cases import floats

from zinc_rt.backends.cpu.tasks import Splitting
from zinc_rt.ir.dtypes import block_of
from zinc_rt.ir.op import Op
from zinc_rt.kernels.cases import weight
from zinc_rt.kernels.native.types import dtypes
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
QUICK = ((1, Splitting()), (2, Splitting(least=1)))


def columns(dtype: str, named: int | str) -> int:
    """K: blocks are 1, 32, 64 or 256 elements, a round of the accumulators is 128."""
    elements = block_of(dtype)[0]
    if named == "one block":
        return elements
    if named == "no round":
        return {1: 1037, 32: 1056, 64: 1088}.get(elements, 1280)
    return -(-int(named) // elements) * elements


def pairwise(*axes: tuple[object, ...]) -> Iterator[tuple[object, ...]]:
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


SOME = tuple(pairwise(TYPES, ROWS, COLUMNS, TOKENS))


@pytest.mark.rest(keep=29)
@pytest.mark.parametrize(("dtype", "rows", "k", "tokens"), SOME)
def test_matmul(dtype: str, rows: int, k: int | str, tokens: int) -> None:
    k = columns(dtype, k)
    random = np.random.default_rng(rows + k + tokens)
    x = floats(tokens, tokens, k)
    parts = (weight((rows,), "f32", random), weight((1,), "f32", random)) if rows % 2 else ()
    orderings = ("canonical-1", "canonical-1-q8") if dtype in Q8 else ("canonical-1-q8",)
    check(Op.MATMUL, x, weight((rows, k), dtype, random), *parts, orderings=orderings, ways=QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", sorted(dtypes()))
@pytest.mark.parametrize("rows", ROWS)
def test_matmul_in_every_shape(dtype: str, rows: int) -> None:
    for k, tokens in product(COLUMNS, TOKENS):
        test_matmul(dtype, rows, k, tokens)


def test_default_cases_cover_every_pair() -> None:
    for i, j in combinations(range(4), 2):
        axes = (TYPES, ROWS, COLUMNS, TOKENS)
        assert {(case[i], case[j]) for case in SOME} == set(product(axes[i], axes[j]))


def unkind_scales(dtype: str, rows: int, k: int) -> Weight:
    """Blocks whose scales are float16 denormals, zeros of both signs, infinities, NaN and the largest value."""
    random = np.random.default_rng(k)
    result = weight((rows, k), dtype, random)
    blocks = result.raw.reshape(-1, block_of(dtype)[1])
    for index in HALVES[dtype]:
        scales = random.choice(UNKIND_HALVES, len(blocks)).astype(np.uint16)
        kind = np.arange(len(blocks)) // (k // block_of(dtype)[0]) % 2  # every other row: finite ones only
        scales[kind == 0] = random.choice((0x0001, 0x83FF, 0x8000, 0x3C00), (kind == 0).sum())
        blocks[:, index : index + 2] = scales.view(np.uint8).reshape(-1, 2)
    return result


@pytest.mark.parametrize("dtype", Q8)
@pytest.mark.parametrize("tokens", [1, 3, 18])
def test_scales_of_every_kind(dtype: str, tokens: int) -> None:
    check(Op.MATMUL, floats(3, tokens, 1280), unkind_scales(dtype, 18, 1280), ways=QUICK)


def unkind_inputs(k: int) -> np.ndarray:
    """One token of each kind that quantisation treats differently."""
    x = floats(5, 14, k)
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
def test_inputs_of_every_kind(dtype: str) -> None:
    result = (
        weight((17, 1280), dtype, np.random.default_rng(6)) if dtype not in HALVES else finite(dtype, 17, 1280)
    )
    x = unkind_inputs(1280)
    check(Op.MATMUL, x, result, ways=QUICK)
    for token in range(0, len(x), 3):
        check(Op.MATMUL, x[token : token + 1], result, ways=QUICK[:1])


def finite(dtype: str, rows: int, k: int) -> Weight:
    result = weight((rows, k), dtype, np.random.default_rng(k))
    blocks = result.raw.reshape(-1, block_of(dtype)[1])
    for index in HALVES[dtype]:
        blocks[:, index : index + 2] = np.array([0x2C00], np.uint16).view(np.uint8)
    return result


@pytest.mark.parametrize("dtype", Q8)
@pytest.mark.parametrize("byte", [0x80, 0x7F, 0x00, 0xFF])
def test_largest_sums(dtype: str, byte: int) -> None:
    """All weights alike, all quants 127 or -127: the most that the integers must hold."""
    result = finite(dtype, 17, 1024)
    blocks = result.raw.reshape(-1, block_of(dtype)[1])
    kept = [at + i for at in HALVES[dtype] for i in range(2)]
    blocks[:, [i for i in range(blocks.shape[1]) if i not in kept]] = byte
    x = np.ones((6, 1024), np.float32)
    x[1::2] = -1
    check(Op.MATMUL, x, result, ways=QUICK)


@pytest.mark.parametrize("dtype", ["f32", "q8_0", "q6_k", "nvfp4"])
def test_bias_and_scale_of_any_type(dtype: str) -> None:
    random = np.random.default_rng(1)
    bias, scale = weight((32,), "q8_0", random), weight((1,), "bf16", random)
    check(Op.MATMUL, floats(1, 3, 256), weight((32, 256), dtype, random), bias, scale)


@pytest.mark.parametrize("dtype", ["f16", "q8_0", "q4_k"])
def test_lm_head_computes_the_requested_rows(dtype: str) -> None:
    random = np.random.default_rng(2)
    table = weight((35, 512), dtype, random)
    capacity = {"tokens": 9, "rows": 5}
    check(Op.LM_HEAD, floats(1, 7, 512), table, indices(6, 0, 6), weight((35,), "f16", random), capacity=capacity)


@pytest.mark.parametrize("row", [-1, 7, 2**31 - 1])
@pytest.mark.parametrize("dtype", ["f16", "q8_0"])
def test_row_outside_the_step(dtype: str, row: int) -> None:
    table, fresh = weight((16, 32), dtype, np.random.default_rng(2)), np.empty((1, 16), np.float32)
    refused("a row is outside its tensor", Op.LM_HEAD, floats(1, 7, 32), table, indices(row), None, fresh=(fresh,))


@pytest.mark.parametrize("dtype", ["f32", "q8_0", "q4_0", "q5_k"])
@pytest.mark.parametrize("tokens", [1, 20])
def test_fused_norms(dtype: str, tokens: int) -> None:
    random = np.random.default_rng(3)
    x, norm = unkind(1, tokens, 256, of=(0.0, -0.0, 1e-41)), weight((256,), "bf16", random)
    q, k, v = (weight((rows, 256), dtype, random) for rows in (33, 16, 17))
    bias = weight((33,), "f32", random)
    check(Op.RMS_NORM_FUSED_QKV, x, norm, q, k, v, bias, None, None, eps=1e-6, ways=QUICK)
    check(Op.RMS_NORM_FUSED_MLP_GATE_UP, x, norm, q, q, eps=1e-6, ways=QUICK)


def test_projections_of_one_input_may_have_different_types() -> None:
    random = np.random.default_rng(4)
    q, k, v = (weight((32, 256), dtype, random) for dtype in ("q4_k", "q8_0", "f16"))
    norm = weight((256,), "f32", random)
    check(Op.RMS_NORM_FUSED_QKV, floats(1, 3, 256), norm, q, k, v, None, None, None, eps=1e-6)


def experts(dtype: str, count: int, rows: int, k: int) -> tuple[Weight, Weight]:
    """Two halves of one tensor, so that each expert's rows are not adjacent."""
    both = weight((count, 2 * rows, k), dtype, np.random.default_rng(rows))
    first, second = (both.raw[:, part] for part in (slice(0, rows), slice(rows, None)))
    return Weight(dtype, (count, rows, k), first), Weight(dtype, (count, rows, k), second)


def chosen(tokens: int, count: int, choices: int) -> np.ndarray:
    random = np.random.default_rng(tokens)
    return np.array([random.permutation(count)[:choices] for _ in range(tokens)], np.int32)


@pytest.mark.rest(keep=6)
@pytest.mark.parametrize("dtype", ["f32", "q8_0", "q4_k", "q6_k", "q5_1"])
@pytest.mark.parametrize("tokens", [1, 4, 40])
def test_experts(dtype: str, tokens: int) -> None:
    random = np.random.default_rng(5)
    gate, up = experts(dtype, 6, 18, 256)
    ids, scale = chosen(tokens, 6, 3), weight((6,), "f16", random)
    capacity = {"tokens": tokens + 2}
    check(Op.MOE_GATE_UP, floats(1, tokens, 256), gate, up, ids, scale, None, capacity=capacity, ways=QUICK)
    down, _ = experts(dtype, 6, 33, 256)
    x, weights = floats(2, tokens, 3, 256), floats(3, tokens, 3)
    hidden = floats(4, tokens, 33)
    check(Op.MOE_DOWN_ACC, x, down, ids, weights, scale, hidden, capacity=capacity, ways=QUICK)


def test_all_tokens_may_select_the_same_expert() -> None:
    gate, up = experts("q8_0", 300, 16, 64)
    check(Op.MOE_GATE_UP, floats(1, 150, 64), gate, up, np.full((150, 2), 299, np.int32), ways=QUICK)


@pytest.mark.parametrize("expert", [-1, 6, 2**31 - 1])
def test_nonexistent_expert_is_rejected(expert: int) -> None:
    gate, up = experts("q8_0", 6, 16, 64)
    ids, fresh = np.array([[0, expert]], np.int32), np.empty((1, 2, 16), np.float32)
    refused(
        "an expert is outside its tensor", Op.MOE_GATE_UP, floats(1, 1, 64), gate, up, ids, fresh=(fresh, fresh)
    )


@pytest.mark.parametrize("dtype", ["f32", "q8_0", "q4_k"])
@pytest.mark.parametrize("given", [(), ("gate_inp",), ("hidden",), ("gate_inp", "hidden", "scales")])
def test_shared_expert(dtype: str, given: tuple[str, ...]) -> None:
    random = np.random.default_rng(6)
    gate, up, down = (
        weight((256, 256), dtype, random),
        weight((256, 256), dtype, random),
        weight((37, 256), dtype, random),
    )
    gate_inp = weight((256,), "q8_0", random) if "gate_inp" in given else None
    hidden = floats(2, 3, 37) if "hidden" in given else None
    scales = [weight((1,), "f32", random) if "scales" in given else None for _ in range(3)]
    check(Op.SHARED_EXPERT, floats(1, 3, 256), gate, up, down, gate_inp, hidden, *scales, ways=QUICK)


@pytest.mark.parametrize("dtype", ["f16", "q8_0", "q6_k"])
@pytest.mark.parametrize("tokens", [1, 20])
def test_heads(dtype: str, tokens: int) -> None:
    k_b = weight((3, 17, 256), dtype, np.random.default_rng(7))
    x = floats(1, tokens, 3 * (256 + 9))
    check(Op.MLA_ABSORB, x, k_b, heads=3, nope=256, rope=9, latent=17, ways=QUICK)


@pytest.mark.parametrize("op", [Op.MATMUL_WMMA_F16, Op.MATMUL_WMMA_Q4K])
def test_matrix_core_products(op: Op) -> None:
    dtype = "f16" if op is Op.MATMUL_WMMA_F16 else "q4_k"
    check(op, floats(1, 20, 512), weight((33, 512), dtype, np.random.default_rng(8)), ways=QUICK)


@pytest.mark.parametrize("dtype", ["q8_0", "f16"])
def test_rows_wider_than_a_panel(dtype: str) -> None:
    """More blocks to an accumulator than a panel has room for."""
    k = 33 * 1024
    check(Op.MATMUL, floats(1, 9, k), weight((17, k), dtype, np.random.default_rng(9)), ways=QUICK[:1])
