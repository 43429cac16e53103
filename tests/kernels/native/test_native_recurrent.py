"""Convolution, delta net, gated norm and scan on t_cpu_native: the oracle's bits in every form of the state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernels.native.harness import check
from kernels.native.unkind import indices, refused, unkind
from kernels.op_cases import floats, weight

from zinc_rt.backends.cpu.one_node import Operand
from zinc_rt.ir.op import Op
from zinc_rt.kernels.weight import Weight
from zinc_rt.validate.cases.table import cases

ONE = ("canonical-1",)
STEPS = {  # whose token each is
    "one token": indices(0),
    "a prompt": np.zeros(9, np.int32),
    "decode": indices(0, 1, 2),
    "mixed": indices(0, 0, 0, 1, 2, 2),
    "silent": indices(0, 2, 2),
}
FORMS = ("plain", "in place", "ids", "disjoint")


def state_operands(form: str, sequence: np.ndarray, *row: int, slots: int = 5) -> tuple[np.ndarray, ...]:
    """State, sequence and, if the form has them, ids: rows that other sequences write are read first, or there are
    none.
    """
    sequences = int(sequence.max()) + 1
    state = floats(9, sequences if form == "plain" else slots, *row)
    if form == "disjoint":
        return state, sequence, indices(2, 4, 4)[:sequences], indices(2, 3, 1)[:sequences]
    if form != "ids":
        return state, sequence
    return state, sequence, indices(3, 0, 4)[:sequences], indices(0, 3, 1)[:sequences]


def promised(form: str) -> dict[str, Any]:
    return {"disjoint": True} if form == "disjoint" else {}


def convolve(
    form: str,
    sequence: np.ndarray,
    channels: int,
    taps: Weight,
    *,
    bias: Operand = None,
    silu: bool = True,
    capacity: dict[str, int] | None = None,
) -> None:
    check(
        {"plain": Op.SSM_CONV1D, "in place": Op.SSM_CONV1D_UPDATE}.get(form, Op.SSM_CONV1D_UPDATE_IDS),
        unkind(1, len(sequence), channels, share=0.02),
        taps,
        *state_operands(form, sequence, taps.shape[1] - 1, channels),
        bias,
        silu=silu,
        **promised(form),
        capacity=capacity or {"tokens": len(sequence) + 2, "sequences": 4},
        orderings=ONE,
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("step", STEPS)
def test_convolution(form: str, step: str) -> None:
    convolve(form, STEPS[step], 37, weight(floats(2, 37, 4)))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("channels", "taps"), [(1, 4), (16, 1), (300, 4), (15, 2), (17, 3), (4, 32)])
def test_convolution_of_any_width(form: str, channels: int, taps: int) -> None:
    bias = weight(floats(3, channels))
    convolve(form, STEPS["mixed"], channels, weight(floats(2, channels, taps)), bias=bias, silu=taps != 3)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "q8_0"])
def test_convolution_with_weights_of_other_types(dtype: str) -> None:
    convolve("ids", STEPS["mixed"], 64, weight(floats(2, 64, 32), dtype), bias=weight(floats(3, 64), dtype))


def test_convolution_with_part_of_a_larger_weight() -> None:
    convolve("plain", STEPS["mixed"], 37, Weight("f32", (37, 4), floats(2, 37, 3, 4)[:, 1]))


def test_single_sequence_writes_its_row_directly() -> None:
    convolve("ids", STEPS["a prompt"], 20, weight(floats(2, 20, 4)), capacity={"tokens": 9, "sequences": 1})


def delta(
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
    check(
        {"plain": Op.SSM_DELTA_NET, "in place": Op.SSM_DELTA_NET_INPLACE}.get(form, Op.SSM_DELTA_NET_INPLACE_IDS),
        unkind(1, tokens, (2 * k_heads + v_heads) * head_dim, share=share),
        floats(2, tokens, v_heads),
        floats(3, tokens, v_heads, scale=20.0),
        weight(floats(4, v_heads), vectors),
        weight(-np.abs(floats(5, v_heads)), vectors),
        *state_operands(form, sequence, v_heads, head_dim, head_dim),
        k_heads=k_heads,
        v_heads=v_heads,
        head_dim=head_dim,
        eps=1e-6,
        grouping=grouping,
        **promised(form),
        capacity={"tokens": tokens + 2, "sequences": 4},
        orderings=ONE,
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("step", STEPS)
def test_delta_net(form: str, step: str) -> None:
    delta(form, STEPS[step])


@pytest.mark.rest(keep=5)
@pytest.mark.parametrize("grouping", ["tiled", "grouped"])
@pytest.mark.parametrize(
    ("k_heads", "v_heads", "head_dim"), [(1, 1, 1), (1, 3, 15), (2, 6, 16), (3, 3, 17), (1, 2, 128), (1, 1, 130)]
)
def test_delta_net_of_any_width(grouping: str, k_heads: int, v_heads: int, head_dim: int) -> None:
    for form in FORMS:
        delta(form, STEPS["mixed"], k_heads=k_heads, v_heads=v_heads, head_dim=head_dim, grouping=grouping)


def test_delta_net_of_pathological_values() -> None:
    delta("plain", STEPS["mixed"], share=0.02)
    delta("in place", STEPS["mixed"], head_dim=128, share=0.002)


def test_delta_net_with_vectors_of_other_types() -> None:
    delta("ids", STEPS["mixed"], vectors="f16")


@pytest.mark.parametrize("size", [1, 15, 16, 37, 128])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_gated_norm(size: int, dtype: str) -> None:
    x, z = unkind(1, 3, 3 * size, share=0.01), unkind(2, 3, 3 * size, share=0.01)
    check(Op.SSM_GATED_NORM, x, z, weight(floats(3, size), dtype), eps=1e-6, capacity={"tokens": 5}, orderings=ONE)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("channels", "n"), [(1, 1), (17, 16), (40, 15), (5, 130)])
def test_scan(step: str, channels: int, n: int) -> None:
    sequence = STEPS[step]
    tokens = len(sequence)
    check(
        Op.SSM_SCAN,
        floats(1, tokens, channels),
        floats(2, tokens, channels, scale=20.0),
        *(floats(3, tokens, n), unkind(4, tokens, n, share=0.01)),
        weight(-np.abs(floats(5, channels, n))),
        weight(floats(6, channels)),
        *state_operands("plain", sequence, channels, n),
        capacity={"tokens": tokens + 2, "sequences": 4},
        orderings=ONE,
    )


@pytest.mark.parametrize("op", [Op.SSM_DELTA_NET, Op.SSM_SCAN])
def test_infinity_does_not_spread_past_a_narrow_row(op: Op) -> None:
    for case in cases("recurrent"):
        if case.op is op and case.values == "infinite":
            check(op, *case.operands(), **case.attrs, orderings=ONE)


@pytest.mark.parametrize(
    ("sequence", "source", "target"),
    [((0, 5), (0, 1), (0, 1)), ((0, -1), (0, 1), (0, 1)), ((0, 1), (0, 5), (0, 1)), ((0, 1), (0, 1), (-1, 1))],
)
def test_rows_outside_the_state_are_rejected(
    sequence: tuple[int, ...], source: tuple[int, ...], target: tuple[int, ...]
) -> None:
    x = floats(1, 2, 8)
    refused(
        "a slot is outside its table",
        Op.SSM_CONV1D_UPDATE_IDS,
        *(x, weight(floats(2, 8, 4)), floats(3, 5, 3, 8)),
        *(indices(*ids) for ids in (sequence, source, target)),
        None,
        fresh=(x,),
    )
