"""The router and the experts' sum on t_cpu_native: the oracle's choices and bits."""

from __future__ import annotations

import numpy as np
import pytest
from kernels.native.harness import check_op
from kernels.native.unkind import edge_values
from kernels.op_cases import make_weight, random_floats

from zinc_rt.backends.cpu.one_node import Operand
from zinc_rt.ir.op import Op

ONE = ("canonical-1",)


def check_routing(logits: np.ndarray, bias: np.ndarray | None = None, dtype: str = "f32", **attrs: object) -> None:
    """The router's weight is the identity, so that its logits are x (an infinity turns the other logits into
    NaN).
    """
    experts = logits.shape[1]
    operands: tuple[Operand, ...] = (
        logits,
        make_weight(np.eye(experts, dtype=np.float32)),
        None if bias is None else make_weight(bias, dtype),
    )
    check_op(Op.MOE_GATE_TOPK, *operands, capacity={"tokens": len(logits) + 2}, orderings=ONE, **attrs)


@pytest.mark.parametrize("gating", ["softmax", "sigmoid"])
@pytest.mark.parametrize(("experts", "k"), [(1, 1), (8, 2), (15, 15), (17, 4), (80, 8), (130, 130)])
def test_selected_experts_match(gating: str, experts: int, k: int) -> None:
    check_routing(random_floats(1, 5, experts, scale=3.0), k=k, gating=gating)


@pytest.mark.parametrize("renormalise", [False, True])
@pytest.mark.parametrize("scale", [0.0, 1.0, 2.5])
@pytest.mark.parametrize("dtype", ["", "f32", "f16"])
def test_bias_renormalising_and_scale_match(renormalise: bool, scale: float, dtype: str) -> None:
    bias = random_floats(2, 20) if dtype else None
    check_routing(
        random_floats(1, 5, 20), bias, dtype or "f32", k=4, gating="sigmoid", renormalise=renormalise, scale=scale
    )


def test_nearly_zero_weights_match() -> None:
    check_routing(random_floats(1, 5, 20) - 20, k=4, gating="sigmoid")


def test_ties_select_the_lower_index() -> None:
    random = np.random.default_rng(1)
    check_routing(random.integers(-2, 3, (40, 24)).astype(np.float32), k=9)
    check_routing(np.zeros((2, 24), np.float32), k=5, groups=6, groups_used=3)


@pytest.mark.parametrize(("groups", "used"), [(2, 1), (4, 4), (8, 3), (24, 5), (3, 2)])
def test_expert_groups_match(groups: int, used: int) -> None:
    random = np.random.default_rng(groups)
    drawn = random.integers(-3, 4, (30, 24)).astype(np.float32)
    k = min(6, 24 // groups * used)
    for gating in ("softmax", "sigmoid"):
        check_routing(drawn, random_floats(2, 24), gating=gating, k=k, groups=groups, groups_used=used)
        check_routing(
            random_floats(3, 30, 24), k=k + 1 if k < 24 else k, gating=gating, groups=groups, groups_used=used
        )


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_bias_matches(value: float) -> None:
    bias = random_floats(2, 24)
    bias[[3, 7, 20]] = value
    check_routing(random_floats(1, 6, 24), bias, k=6, gating="sigmoid")
    check_routing(random_floats(1, 6, 24), bias, k=6, gating="sigmoid", groups=4, groups_used=2)
    check_routing(random_floats(1, 6, 24), np.full(24, value, np.float32), k=6, gating="sigmoid")


def test_nan_logits_match() -> None:
    check_routing(edge_values(1, 60, 24, share=0.02), k=6)
    check_routing(edge_values(1, 60, 24, share=0.02), k=6, gating="sigmoid", groups=4, groups_used=2)


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("width", [1, 17, 80])
def test_sum_of_experts_matches(hidden: bool, width: int) -> None:
    random = np.random.default_rng(1)
    check_op(
        Op.MOE_DOWN_ACC,
        random_floats(1, 5, 3, 32),
        make_weight(random_floats(2, 4, width, 32), "q8_0"),
        random.integers(0, 4, (5, 3)).astype(np.int32),
        edge_values(3, 5, 3),
        make_weight(random_floats(4, 4)),
        edge_values(5, 5, width) if hidden else None,
        capacity={"tokens": 7},
    )
