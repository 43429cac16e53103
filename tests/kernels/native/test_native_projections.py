"""Projections on t_cpu_native: the oracle's bits, in every type, ordering and shape."""

from __future__ import annotations

import numpy as np
import pytest
from kernels.native.harness import check
from kernels.op_cases import floats

from zinc_rt.backends.cpu.cases import weight
from zinc_rt.ir.op import Op

TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_k", "q5_k", "q6_k", "q5_1", "iq4_nl", "q2_k", "nvfp4")


@pytest.mark.parametrize("dtype", TYPES)
def test_matmul(dtype: str) -> None:
    random = np.random.default_rng(3)
    check(Op.MATMUL, floats(1, 5, 1280), weight((37, 1280), dtype, random))


@pytest.mark.parametrize("dtype", ("q8_0", "q4_0", "q4_k", "q5_k", "q6_k"))
@pytest.mark.parametrize("tokens", (9, 16, 131))
def test_panels(dtype: str, tokens: int) -> None:
    random = np.random.default_rng(3)
    check(
        Op.MATMUL,
        floats(1, tokens, 1280),
        weight((37, 1280), dtype, random),
        orderings=("canonical-1", "canonical-1-q8"),
    )
