"""The opcodes whose projections are those of wmma-f16 (docs/wmma-f16.md), on every tier."""

from __future__ import annotations

from typing import Any

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic
from zinc_rt.kernels.reference.moe_down_acc import moe_down_acc
from zinc_rt.kernels.reference.moe_gate_up import moe_gate_up
from zinc_rt.kernels.reference.shared_expert import shared_expert
from zinc_rt.kernels.weight import Weight


def matmul_wmma(
    math: Arithmetic, a: np.ndarray, b: Weight, bias: Weight | None = None, scale: Weight | None = None
) -> np.ndarray:
    """Compute [T, N] from a [T, K] and b (N, K) with the sums of gfx12's matrix cores (docs/wmma-f16.md): b a,
    times scale[0], plus bias."""
    y = math.linear_wmma(a, b)
    if scale is not None:
        y = y * math.dequantise(scale)[0]
    return y if bias is None else y + math.dequantise(bias)


def moe_gate_up_wmma_f16(
    math: Arithmetic, x: np.ndarray, gate_w: Weight, up_w: Weight, ids: np.ndarray, *options: Any, **attrs: Any
) -> tuple[np.ndarray, ...]:
    """Compute MOE_GATE_UP, with the projections of wmma-f16."""
    return moe_gate_up(math.with_wmma(), x, gate_w, up_w, ids, *options, **attrs)


def moe_down_acc_wmma_f16(
    math: Arithmetic, x: np.ndarray, down_w: Weight, ids: np.ndarray, weights: np.ndarray, *options: Any
) -> np.ndarray:
    """Compute MOE_DOWN_ACC, with the projections of wmma-f16; the sum over a token's experts is the same."""
    return moe_down_acc(math.with_wmma(), x, down_w, ids, weights, *options)


def shared_expert_wmma_f16(
    math: Arithmetic, x: np.ndarray, gate_w: Weight, up_w: Weight, down_w: Weight, *options: Any, **attrs: Any
) -> np.ndarray:
    """Compute SHARED_EXPERT, with the projections of wmma-f16; its gate is the dot product of the ordering."""
    return shared_expert(math.with_wmma(), x, gate_w, up_w, down_w, *options, **attrs)
