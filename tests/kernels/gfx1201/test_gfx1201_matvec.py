"""gfx1201 projections bit for bit against the oracle, at unkind shapes and values, without any finding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from harness import bench, check_op
from kernels.op_cases import make_weight, random_floats

from zinc_rt.ir.dtypes import count_row_bytes
from zinc_rt.ir.op import Op
from zinc_rt.kernels.gfx1201.table import KERNELS, TUNING
from zinc_rt.kernels.launch import SYNC
from zinc_rt.kernels.weight import Weight

PLAIN = TUNING.weight_dtypes[:3]
EXPERTS = np.array([[4, 0], [2, 4], [4, 3]], np.int32)  # expert 1 is nobody's, 4 everybody's


def any_bytes(dtype: str, *shape: int) -> Weight:
    """Random bytes as a file may contain them, including NaN, infinite, denormal and negative scales."""
    *rows, k = shape
    raw = np.random.default_rng(k).integers(0, 256, (*rows, count_row_bytes(dtype, k)), np.uint8)
    if dtype in PLAIN:
        return Weight(dtype, shape, raw.view({"f32": np.float32, "f16": np.float16, "bf16": np.uint16}[dtype]))
    return Weight(dtype, shape, raw)


@pytest.mark.parametrize("dtype", PLAIN)
@pytest.mark.parametrize("scaled", [True, False])
def test_scale_and_bias_are_rounded_separately(dtype: str, scaled: bool) -> None:
    x, w = random_floats(1, 3, 64, scale=7), make_weight(random_floats(2, 19, 64), "q8_0")
    scale = make_weight(np.array([0.37], np.float32), dtype) if scaled else None
    check_op(Op.MATMUL, x, w, make_weight(random_floats(3, 19), dtype), scale, capacity={"tokens": 5})


@pytest.mark.parametrize("dtype", ["f32", "q6_k"])
def test_logits_of_requested_rows_match(dtype: str) -> None:
    x, w, bias = (
        random_floats(1, 6, 256),
        make_weight(random_floats(2, 50, 256), dtype),
        make_weight(random_floats(3, 50)),
    )
    for rows in ([5], [4, 0, 4]):
        check_op(Op.LM_HEAD, x, w, np.array(rows, np.int32), bias, capacity={"tokens": 8, "rows": 4})
    check_op(Op.LM_HEAD, x, w, np.array([3], np.int32))


@pytest.mark.rest
@pytest.mark.parametrize("dtype", ["f32", "q8_0", "q4_k"])
def test_fused_norm_and_projections_match(dtype: str) -> None:
    x, norm = random_floats(1, 3, 256, scale=3), make_weight(random_floats(2, 256))
    q, k, v = (make_weight(random_floats(3 + i, n, 256), dtype) for i, n in enumerate((32, 16, 7)))
    biases = [make_weight(random_floats(6 + i, n)) for i, n in enumerate((32, 16, 7))]
    check_op(Op.RMS_NORM_FUSED_QKV, x, norm, q, k, v, *biases, eps=1e-6, capacity={"tokens": 4})
    check_op(Op.RMS_NORM_FUSED_QKV, x[:1], norm, q, k, v, eps=1e-6)
    check_op(Op.RMS_NORM_FUSED_MLP_GATE_UP, x, norm, q, k, eps=1e-5)


@pytest.mark.rest
@pytest.mark.parametrize(("dtype", "k"), [("f32", 5), ("f16", 2691), ("q8_0", 96), ("q4_0", 4736), ("q5_k", 2816)])
@pytest.mark.slow(keep=2)
def test_projection_of_a_norm_onto_a_residual_matches(dtype: str, k: int) -> None:
    """k: of less than a step, of whole loops of the norm's dot, and of each of its tails."""
    x, norm, residual = (
        random_floats(1, 3, k, scale=3),
        make_weight(random_floats(2, k)),
        random_floats(4, 3, 33, scale=20),
    )
    w, scale = make_weight(random_floats(3, 33, k), dtype), make_weight(np.array([0.37], np.float32), "f16")
    x[1, k // 2] = np.inf  # a reciprocal of 0
    check_op(Op.MATMUL, x, w, None, scale, norm, residual, eps=1e-6, capacity={"tokens": 4})
    check_op(Op.MATMUL, x, w, make_weight(random_floats(5, 33)), None, norm, residual, eps=1e-6)
    check_op(Op.MATMUL, x, w, None, None, None, residual)
    check_op(Op.MATMUL, x, w, None, None, norm, residual, eps=1e-6, capacity={"tokens": TUNING.matmul_capacity})


@pytest.mark.rest(keep=2)
@pytest.mark.parametrize(
    ("dtype", "size", "groups"),
    [("q8_0", 128, 17), ("f32", 20, 5), ("q4_k", 64, 8), ("f16", 128, 5), ("q6_k", 128, 48), ("bf16", 4, 1)],
)
def test_projection_of_a_gated_norm_matches(dtype: str, size: int, groups: int) -> None:
    """Groups of less than a wave's step; fewer than 16 groups, which is a round of the workgroup; and more."""
    k = size * groups
    x, gate = random_floats(1, 3, k, scale=3), random_floats(2, 3, k, scale=3)
    x[1, 1], gate[2, 0] = np.inf, -np.inf
    w, norm = make_weight(random_floats(3, 18, k), dtype), make_weight(random_floats(4, size))
    scale, residual = make_weight(np.array([0.37], np.float32), "f16"), random_floats(5, 3, 18, scale=9)
    attrs = {"eps": 1e-6, "norm_groups": groups}
    check_op(Op.MATMUL, x, w, None, scale, norm, residual, gate, **attrs, capacity={"tokens": 4})
    check_op(Op.MATMUL, x, w, make_weight(random_floats(6, 18)), None, norm, None, gate, **attrs)
    check_op(Op.MATMUL, x[:1], w, None, None, norm, residual[:1], gate[:1], **attrs, ordering="canonical-1-q8")


def test_gated_norms_that_the_kernel_does_not_take_are_separate_launches() -> None:
    """Wide groups, rows longer than LDS, a norm of another type, many tokens, a gate or groups alone."""
    for size, groups, dtype, tokens in (
        (132, 2, "f32", 1),
        (128, 49, "f32", 1),
        (64, 2, "f16", 1),
        (64, 2, "f32", 16),
    ):
        k = size * groups
        x, gate, w = random_floats(1, 2, k), random_floats(2, 2, k), make_weight(random_floats(3, 5, k))
        norm = make_weight(random_floats(4, size), dtype)
        attrs = {"eps": 1e-6, "norm_groups": groups, "capacity": {"tokens": tokens}}
        assert launched(Op.MATMUL, x, w, None, None, norm, None, gate, **attrs)[-1] != "matvec_gated_f32"
        check_op(Op.MATMUL, x, w, None, None, norm, None, gate, **attrs)
    check_op(Op.MATMUL, x, w, None, None, norm, None, None, eps=1e-6, norm_groups=2)
    check_op(Op.MATMUL, x, w, None, None, None, None, gate)
    assert launched(Op.MATMUL, x, w, None, None, norm, None, gate, eps=1e-6, norm_groups=2) == ["matvec_gated_f32"]


def launched(op: Op, x: np.ndarray, w: Weight, *others: np.ndarray | Weight | None, **attrs: Any) -> list[str]:
    """Return the kernels of a projection, in order."""
    result = bench(op, x, w, *others, outputs=(np.zeros((len(x), w.shape[0]), np.float32),), **attrs)
    (entry,) = (row for row in KERNELS.entries if row.op is op and "canonical-1" in row.orderings)
    return [step.kernel for step in entry.code(result.node, result.graph, result.capacity) if step is not SYNC]


@pytest.mark.rest
@pytest.mark.parametrize("activation", ["silu", "gelu"])
def test_gate_up_and_their_product_match(activation: str) -> None:
    x, norm = random_floats(1, 3, 256, scale=3), make_weight(random_floats(2, 256))
    gate, up = (make_weight(random_floats(seed, 19, 256), "q4_k") for seed in (3, 4))
    attrs = {"eps": 1e-6, "activation": activation}
    check_op(Op.RMS_NORM_FUSED_MLP_GATE_UP, x, norm, gate, up, **attrs, capacity={"tokens": 4})
    check_op(Op.RMS_NORM_FUSED_MLP_GATE_UP, x, norm, gate, make_weight(random_floats(4, 19, 256), "q6_k"), **attrs)
    experts = [make_weight(random_floats(seed, 5, 9, 256), "q8_0") for seed in (3, 4)]
    check_op(Op.MOE_GATE_UP, x, *experts, EXPERTS, activation=activation, capacity={"tokens": 4})
    for capacity in (4, TUNING.matmul_capacity):
        normed = {"activation": activation, "eps": 1e-5, "capacity": {"tokens": capacity}}
        check_op(Op.MOE_GATE_UP, x, *experts, EXPERTS, None, None, norm, **normed)


def test_experts_summed_onto_two_others_match() -> None:
    x, w, down = (
        random_floats(1, 3, 2, 256),
        random_floats(2, 3, 2),
        make_weight(random_floats(3, 5, 131, 256), "q8_0"),
    )
    hidden, residual = (random_floats(seed, 3, 131, scale=10) for seed in (4, 5))
    check_op(Op.MOE_DOWN_ACC, x, down, EXPERTS, w, None, hidden, residual, capacity={"tokens": 4})
    check_op(Op.MOE_DOWN_ACC, x, down, EXPERTS, w, None, None, residual)
    check_op(
        Op.MOE_DOWN_ACC, x, down, EXPERTS, w, None, hidden, residual, capacity={"tokens": TUNING.matmul_capacity}
    )


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("choices", [1, 7, 8, 9, 17, 128])
def test_any_number_of_experts_is_summed_in_order(choices: int) -> None:
    """A workgroup has eight waves, each with every eighth choice."""
    x, w = random_floats(1, 2, choices, 32), random_floats(2, 2, choices, scale=5)
    ids = np.random.default_rng(choices).integers(0, 5, (2, choices)).astype(np.int32)
    down = make_weight(random_floats(3, 5, 6, 32), "q8_0")
    check_op(
        Op.MOE_DOWN_ACC,
        x,
        down,
        ids,
        w,
        make_weight(random_floats(4, 5)),
        random_floats(5, 2, 6),
        random_floats(6, 2, 6),
    )


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("dtype", ["f32", "bf16", "q8_0", "q6_k"])
@pytest.mark.parametrize("scaled", [True, False])
def test_gate_and_up_of_the_selected_experts_match(dtype: str, scaled: bool) -> None:
    gate, up = (make_weight(random_floats(seed, 5, 9, 256), dtype) for seed in (2, 3))
    scales = [make_weight(random_floats(seed, 5)) for seed in (4, 5)] if scaled else []
    check_op(Op.MOE_GATE_UP, random_floats(1, 3, 256), gate, up, EXPERTS, *scales, capacity={"tokens": 4})


def test_halves_of_a_merged_tensor_work_as_weights() -> None:
    merged = make_weight(random_floats(2, 5, 8, 96), "q8_0")
    halves = [Weight("q8_0", (5, 4, 96), merged.raw[:, part]) for part in (slice(0, 4), slice(4, 8))]
    check_op(Op.MOE_GATE_UP, random_floats(1, 3, 96), *halves, EXPERTS)


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("dtype", ["f32", "q8_0", "q4_k"])
@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("residual", [True, False])
def test_experts_are_summed_in_selection_order(dtype: str, scaled: bool, residual: bool) -> None:
    x, w, down = (
        random_floats(1, 3, 2, 256),
        random_floats(2, 3, 2),
        make_weight(random_floats(3, 5, 131, 256), dtype),
    )
    scale = make_weight(random_floats(4, 5)) if scaled else None
    hidden = random_floats(5, 3, 131, scale=10) if residual else None
    check_op(Op.MOE_DOWN_ACC, x, down, EXPERTS, w, scale, hidden, capacity={"tokens": 4})


def test_expert_sum_starts_at_zero_and_keeps_its_order() -> None:
    down = make_weight(np.array([[[1e8]], [[-1e8]], [[1]]], np.float32))
    x, w = np.ones((2, 3, 1), np.float32), np.ones((2, 3), np.float32)
    ids = np.array([[0, 1, 2], [0, 2, 1]], np.int32)
    (out,) = check_op(Op.MOE_DOWN_ACC, x, down, ids, w, None, np.full((2, 1), 0.25, np.float32))
    assert out.tolist() == [[1.25], [0.25]]


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("dtype", ["f32", "q4_0"])
@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("residual", [True, False])
def test_shared_expert_matches(dtype: str, gated: bool, residual: bool) -> None:
    x, hidden = random_floats(1, 3, 160), random_floats(9, 3, 160) if residual else None
    gate, up = (make_weight(random_floats(2 + i, 64, 160, scale=0.1), dtype) for i in range(2))
    down, score = (
        make_weight(random_floats(4, 160, 64), dtype),
        make_weight(random_floats(8, 160, scale=0.2)) if gated else None,
    )
    scales = [make_weight(np.array([s], np.float32)) for s in (0.5, 3.1, 0.7)]
    check_op(Op.SHARED_EXPERT, x, gate, up, down, score, hidden, *scales, capacity={"tokens": 4})
    check_op(Op.SHARED_EXPERT, x, gate, up, down, score, hidden)
    norm = make_weight(random_floats(10, 160))
    for capacity in (4, TUNING.matmul_capacity):
        normed = {"eps": 1e-5, "capacity": {"tokens": capacity}}
        check_op(Op.SHARED_EXPERT, x, gate, up, down, score, hidden, None, None, None, norm, **normed)
        check_op(Op.SHARED_EXPERT, x, gate, up, down, score, hidden, *scales, norm, **normed)


def rejection_of(op: Op, *operands: np.ndarray | Weight | None) -> str:
    result = bench(op, *operands, outputs=(np.zeros((1, 4), np.float32),))
    (entry,) = (row for row in KERNELS.entries if row.op is op and "canonical-1" in row.orderings)
    return entry.rejects(result.node, result.graph) or ""


def test_unsupported_operand_type_is_rejected_by_name() -> None:
    x = np.zeros((1, 256), np.float32)
    assert rejection_of(Op.MATMUL, x, Weight("i32", (4, 256), np.zeros((4, 256), np.int32))).startswith("w is i32")
    assert rejection_of(Op.MATMUL, x, any_bytes("q3_k", 4, 256)) == ""  # expanded
    good = make_weight(random_floats(1, 4, 256))
    assert rejection_of(Op.MATMUL, x, good, any_bytes("q8_0", 32)).startswith("bias is q8_0")
    assert rejection_of(Op.MATMUL, x, good) == ""
