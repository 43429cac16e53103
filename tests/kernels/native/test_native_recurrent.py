"""Convolution, delta net, gated norm and scan on t_cpu_native: the oracle's bits in every form of the state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernels.native.harness import check_op
from kernels.native.unkind import assert_rejected, edge_values, int32_indices
from kernels.op_cases import make_weight, random_floats

from zinc_rt.backends.cpu.one_node import Operand
from zinc_rt.ir.op import Op
from zinc_rt.kernels.weight import Weight
from zinc_rt.validate.cases.table import family_cases

ONE = ("canonical-1",)
STEPS = {  # whose token each is
    "one token": int32_indices(0),
    "a prompt": np.zeros(9, np.int32),
    "decode": int32_indices(0, 1, 2),
    "mixed": int32_indices(0, 0, 0, 1, 2, 2),
    "silent": int32_indices(0, 2, 2),
}
FORMS = ("plain", "in place", "ids", "disjoint")


def state_operands(form: str, sequence: np.ndarray, *row: int, slots: int = 5) -> tuple[np.ndarray, ...]:
    """State, sequence and, if the form has them, ids: rows that other sequences write are read first, or there are
    none.
    """
    sequences = int(sequence.max()) + 1
    state = random_floats(9, sequences if form == "plain" else slots, *row)
    if form == "disjoint":
        return state, sequence, int32_indices(2, 4, 4)[:sequences], int32_indices(2, 3, 1)[:sequences]
    if form != "ids":
        return state, sequence
    return state, sequence, int32_indices(3, 0, 4)[:sequences], int32_indices(0, 3, 1)[:sequences]


def form_attributes(form: str) -> dict[str, Any]:
    return {"disjoint": True} if form == "disjoint" else {}


def check_convolution(
    form: str,
    sequence: np.ndarray,
    channels: int,
    taps: Weight,
    *,
    bias: Operand = None,
    silu: bool = True,
    capacity: dict[str, int] | None = None,
) -> None:
    check_op(
        {"plain": Op.SSM_CONV1D, "in place": Op.SSM_CONV1D_UPDATE}.get(form, Op.SSM_CONV1D_UPDATE_IDS),
        edge_values(1, len(sequence), channels, share=0.02),
        taps,
        *state_operands(form, sequence, taps.shape[1] - 1, channels),
        bias,
        silu=silu,
        **form_attributes(form),
        capacity=capacity or {"tokens": len(sequence) + 2, "sequences": 4},
        orderings=ONE,
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("step", STEPS)
def test_convolution_matches(form: str, step: str) -> None:
    check_convolution(form, STEPS[step], 37, make_weight(random_floats(2, 37, 4)))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("channels", "taps"), [(1, 4), (16, 1), (300, 4), (15, 2), (17, 3), (4, 32)])
def test_convolution_of_any_width_matches(form: str, channels: int, taps: int) -> None:
    bias = make_weight(random_floats(3, channels))
    check_convolution(
        form, STEPS["mixed"], channels, make_weight(random_floats(2, channels, taps)), bias=bias, silu=taps != 3
    )


@pytest.mark.parametrize("dtype", ["f16", "bf16", "q8_0"])
def test_convolution_with_weights_of_other_types_matches(dtype: str) -> None:
    check_convolution(
        "ids",
        STEPS["mixed"],
        64,
        make_weight(random_floats(2, 64, 32), dtype),
        bias=make_weight(random_floats(3, 64), dtype),
    )


def test_convolution_with_part_of_a_larger_weight_matches() -> None:
    check_convolution("plain", STEPS["mixed"], 37, Weight("f32", (37, 4), random_floats(2, 37, 3, 4)[:, 1]))


def test_single_sequence_writes_its_row_directly() -> None:
    check_convolution(
        "ids", STEPS["a prompt"], 20, make_weight(random_floats(2, 20, 4)), capacity={"tokens": 9, "sequences": 1}
    )


def check_delta_net(
    form: str,
    sequence: np.ndarray,
    *,
    k_heads: int = 2,
    v_heads: int = 4,
    head_dim: int = 20,
    grouping: str = "tiled",
    vectors: str = "f32",
    share: float = 0.0,
) -> None:
    tokens = len(sequence)
    check_op(
        {"plain": Op.SSM_DELTA_NET, "in place": Op.SSM_DELTA_NET_INPLACE}.get(form, Op.SSM_DELTA_NET_INPLACE_IDS),
        edge_values(1, tokens, (2 * k_heads + v_heads) * head_dim, share=share),
        random_floats(2, tokens, v_heads),
        random_floats(3, tokens, v_heads, scale=20.0),
        make_weight(random_floats(4, v_heads), vectors),
        make_weight(-np.abs(random_floats(5, v_heads)), vectors),
        *state_operands(form, sequence, v_heads, head_dim, head_dim),
        k_heads=k_heads,
        v_heads=v_heads,
        head_dim=head_dim,
        eps=1e-6,
        grouping=grouping,
        **form_attributes(form),
        capacity={"tokens": tokens + 2, "sequences": 4},
        orderings=ONE,
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("step", STEPS)
def test_delta_net_matches(form: str, step: str) -> None:
    check_delta_net(form, STEPS[step])


@pytest.mark.rest(keep=5)
@pytest.mark.parametrize("grouping", ["tiled", "grouped"])
@pytest.mark.parametrize(
    ("k_heads", "v_heads", "head_dim"), [(1, 1, 1), (1, 3, 15), (2, 6, 16), (3, 3, 17), (1, 2, 128), (1, 1, 130)]
)
def test_delta_net_of_any_width_matches(grouping: str, k_heads: int, v_heads: int, head_dim: int) -> None:
    for form in FORMS:
        check_delta_net(
            form, STEPS["mixed"], k_heads=k_heads, v_heads=v_heads, head_dim=head_dim, grouping=grouping
        )


def test_delta_net_of_pathological_values_matches() -> None:
    check_delta_net("plain", STEPS["mixed"], share=0.02)
    check_delta_net("in place", STEPS["mixed"], head_dim=128, share=0.002)


def test_delta_net_with_vectors_of_other_types_matches() -> None:
    check_delta_net("ids", STEPS["mixed"], vectors="f16")


@pytest.mark.parametrize("size", [1, 15, 16, 37, 128])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_gated_norm_matches(size: int, dtype: str) -> None:
    x, z = edge_values(1, 3, 3 * size, share=0.01), edge_values(2, 3, 3 * size, share=0.01)
    check_op(
        Op.SSM_GATED_NORM,
        x,
        z,
        make_weight(random_floats(3, size), dtype),
        eps=1e-6,
        capacity={"tokens": 5},
        orderings=ONE,
    )


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("channels", "n"), [(1, 1), (17, 16), (40, 15), (5, 130)])
def test_scan_matches(step: str, channels: int, n: int) -> None:
    sequence = STEPS[step]
    tokens = len(sequence)
    check_op(
        Op.SSM_SCAN,
        random_floats(1, tokens, channels),
        random_floats(2, tokens, channels, scale=20.0),
        *(random_floats(3, tokens, n), edge_values(4, tokens, n, share=0.01)),
        make_weight(-np.abs(random_floats(5, channels, n))),
        make_weight(random_floats(6, channels)),
        *state_operands("plain", sequence, channels, n),
        capacity={"tokens": tokens + 2, "sequences": 4},
        orderings=ONE,
    )


@pytest.mark.parametrize("op", [Op.SSM_DELTA_NET, Op.SSM_SCAN])
def test_infinity_stays_in_its_row(op: Op) -> None:
    for case in family_cases("recurrent"):
        if case.op is op and case.values == "infinite":
            check_op(op, *case.operands(), **case.attrs, orderings=ONE)


@pytest.mark.parametrize(
    ("sequence", "source", "target"),
    [((0, 5), (0, 1), (0, 1)), ((0, -1), (0, 1), (0, 1)), ((0, 1), (0, 5), (0, 1)), ((0, 1), (0, 1), (-1, 1))],
)
def test_rows_outside_the_state_are_rejected(
    sequence: tuple[int, ...], source: tuple[int, ...], target: tuple[int, ...]
) -> None:
    x = random_floats(1, 2, 8)
    assert_rejected(
        "a slot is outside its table",
        Op.SSM_CONV1D_UPDATE_IDS,
        *(x, make_weight(random_floats(2, 8, 4)), random_floats(3, 5, 3, 8)),
        *(int32_indices(*ids) for ids in (sequence, source, target)),
        None,
        outputs=(x,),
    )
