"""The router and the experts' sum on t_cpu_native: the oracle's choices and bits."""

from __future__ import annotations

import numpy as np
import pytest
from kernels.native.harness import check
from kernels.native.unkind import unkind
from kernels.op_cases import floats, weight

from zinc_rt.backends.cpu.one_node import Operand
from zinc_rt.ir.op import Op

ONE = ("canonical-1",)


def route(logits: np.ndarray, bias: np.ndarray | None = None, dtype: str = "f32", **attrs: object) -> None:
    """The router's weight is the identity, so that its logits are x (an infinity turns the other logits into
    NaN).
    """
    experts = logits.shape[1]
    operands: tuple[Operand, ...] = (
        logits,
        weight(np.eye(experts, dtype=np.float32)),
        None if bias is None else weight(bias, dtype),
    )
    check(Op.MOE_GATE_TOPK, *operands, capacity={"tokens": len(logits) + 2}, orderings=ONE, **attrs)


@pytest.mark.parametrize("gating", ["softmax", "sigmoid"])
@pytest.mark.parametrize(("experts", "k"), [(1, 1), (8, 2), (15, 15), (17, 4), (80, 8), (130, 130)])
def test_best_experts(gating: str, experts: int, k: int) -> None:
    route(floats(1, 5, experts, scale=3.0), k=k, gating=gating)


@pytest.mark.parametrize("renormalise", [False, True])
@pytest.mark.parametrize("scale", [0.0, 1.0, 2.5])
@pytest.mark.parametrize("dtype", ["", "f32", "f16"])
def test_bias_renormalising_and_scale(renormalise: bool, scale: float, dtype: str) -> None:
    bias = floats(2, 20) if dtype else None
    route(floats(1, 5, 20), bias, dtype or "f32", k=4, gating="sigmoid", renormalise=renormalise, scale=scale)


def test_nearly_zero_weights() -> None:
    route(floats(1, 5, 20) - 20, k=4, gating="sigmoid")


def test_ties_go_to_the_lower_index() -> None:
    random = np.random.default_rng(1)
    route(random.integers(-2, 3, (40, 24)).astype(np.float32), k=9)
    route(np.zeros((2, 24), np.float32), k=5, groups=6, groups_used=3)


@pytest.mark.parametrize(("groups", "used"), [(2, 1), (4, 4), (8, 3), (24, 5), (3, 2)])
def test_groups(groups: int, used: int) -> None:
    random = np.random.default_rng(groups)
    drawn = random.integers(-3, 4, (30, 24)).astype(np.float32)
    k = min(6, 24 // groups * used)
    for gating in ("softmax", "sigmoid"):
        route(drawn, floats(2, 24), gating=gating, k=k, groups=groups, groups_used=used)
        route(floats(3, 30, 24), k=k + 1 if k < 24 else k, gating=gating, groups=groups, groups_used=used)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_bias(value: float) -> None:
    bias = floats(2, 24)
    bias[[3, 7, 20]] = value
    route(floats(1, 6, 24), bias, k=6, gating="sigmoid")
    route(floats(1, 6, 24), bias, k=6, gating="sigmoid", groups=4, groups_used=2)
    route(floats(1, 6, 24), np.full(24, value, np.float32), k=6, gating="sigmoid")


def test_nan_logits() -> None:
    route(unkind(1, 60, 24, share=0.02), k=6)
    route(unkind(1, 60, 24, share=0.02), k=6, gating="sigmoid", groups=4, groups_used=2)


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("width", [1, 17, 80])
def test_sum_of_experts(hidden: bool, width: int) -> None:
    random = np.random.default_rng(1)
    check(
        Op.MOE_DOWN_ACC,
        floats(1, 5, 3, 32),
        weight(floats(2, 4, width, 32), "q8_0"),
        random.integers(0, 4, (5, 3)).astype(np.int32),
        unkind(3, 5, 3),
        weight(floats(4, 4)),
        unkind(5, 5, width) if hidden else None,
        capacity={"tokens": 7},
    )
