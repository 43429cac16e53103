"""The opcodes whose projections are those of matrix cores (docs/wmma-f16.md), on every tier."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from zinc_rt.kernels.reference.arithmetic import Arithmetic
from zinc_rt.kernels.weight import Weight


def matmul_wmma(
    math: Arithmetic, a: np.ndarray, b: Weight, bias: Weight | None = None, scale: Weight | None = None
) -> np.ndarray:
    """Compute [T, N] from a [T, K] and b (N, K): b a, times scale[0], plus bias."""
    y = math.linear(a, b)
    if scale is not None:
        y = y * math.dequantise(scale)[0]
    return y if bias is None else y + math.dequantise(bias)


def use_wmma(code: Callable[..., Any], ordering: str) -> Callable[..., Any]:
    """Return the function of an opcode with the projections of an ordering of WMMA_FORMS."""

    @wraps(code)
    def compute(math: Arithmetic, *operands: Any, **attrs: Any) -> Any:
        return code(math.with_wmma(ordering), *operands, **attrs)

    return compute
