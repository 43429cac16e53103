"""Elementwise opcodes on t_cpu_native: the oracle's bits."""

from __future__ import annotations

import numpy as np
import pytest
from kernels.native.harness import check_op
from kernels.native.unkind import assert_rejected, edge_values, int32_indices
from kernels.op_cases import make_weight, random_floats

from zinc_rt.ir.op import Op

SHAPES = [(1, 1), (3, 15), (2, 16), (5, 37), (2, 2049), (1, 4097)]
ONE = ("canonical-1",)


@pytest.mark.parametrize("op", [Op.ADD, Op.SWIGLU, Op.GEGLU, Op.SIGMOID_MUL])
@pytest.mark.parametrize("shape", SHAPES)
def test_two_operand_op_matches(op: Op, shape: tuple[int, int]) -> None:
    check_op(op, edge_values(1, *shape), edge_values(2, *shape), capacity={"tokens": 8}, orderings=ONE)


@pytest.mark.parametrize("activation", ["silu", "gelu"])
def test_activation_of_experts_matches(activation: str) -> None:
    check_op(
        Op.MOE_SWIGLU,
        edge_values(1, 3, 2, 37),
        edge_values(2, 3, 2, 37),
        activation=activation,
        capacity={"tokens": 5},
        orderings=ONE,
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [None, "f32", "f16", "bf16"])
def test_scale_matches(shape: tuple[int, int], dtype: str | None) -> None:
    by = make_weight(np.array([0.3], np.float32), dtype) if dtype else None
    check_op(Op.SCALE, edge_values(1, *shape), by, factor=1.7, capacity={"tokens": 8}, orderings=ONE)


@pytest.mark.parametrize("shape", SHAPES)
def test_softcap_matches(shape: tuple[int, int]) -> None:
    check_op(Op.SOFTCAP, edge_values(1, *shape), cap=30.0, capacity={"tokens": 8}, orderings=ONE)


@pytest.mark.parametrize(
    ("group", "offset", "size"), [(1, 0, 1), (10, 2, 5), (40, 39, 1), (40, 0, 40), (20, 3, 17)]
)
def test_slice_matches(group: int, offset: int, size: int) -> None:
    check_op(
        Op.SLICE,
        edge_values(1, 3, 80),
        group=group,
        offset=offset,
        size=size,
        capacity={"tokens": 8},
        orderings=ONE,
    )


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_row_scale_matches(dtype: str) -> None:
    table = make_weight(random_floats(2, 9), dtype)
    check_op(
        Op.ROW_SCALE, edge_values(1, 3, 37), int32_indices(8, 0, 3), table, capacity={"tokens": 8}, orderings=ONE
    )


@pytest.mark.parametrize("position", [-1, 9, 2**31 - 1])
def test_row_scale_rejects_positions_outside_its_table(position: int) -> None:
    x = random_floats(1, 2, 37)
    table = make_weight(random_floats(2, 9))
    assert_rejected("a position is outside", Op.ROW_SCALE, x, int32_indices(3, position), table, outputs=(x,))
