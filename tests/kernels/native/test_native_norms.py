"""RMS norms on t_cpu_native: the oracle's bits."""

from __future__ import annotations

import pytest
from kernels.native.harness import check_op
from kernels.native.unkind import FINITE, edge_values
from kernels.op_cases import make_weight, random_floats

from zinc_rt.ir.op import Op

ONE = ("canonical-1",)


@pytest.mark.parametrize(
    ("tokens", "groups", "size"), [(1, 1, 1), (2, 3, 15), (3, 2, 16), (2, 5, 37), (1, 4, 128), (2, 1, 1000)]
)
def test_groups_of_any_size_match(tokens: int, groups: int, size: int) -> None:
    for by in (None, make_weight(random_floats(2, size))):
        check_op(
            Op.RMS_NORM,
            edge_values(1, tokens, groups * size, share=0.01),
            by,
            eps=1e-6,
            size=size,
            capacity={"tokens": 4},
            orderings=ONE,
        )


@pytest.mark.parametrize("dtype", ["f16", "bf16", "q8_0", "q4_k"])
def test_weights_of_other_types_match(dtype: str) -> None:
    w = make_weight(random_floats(2, 256), dtype)
    check_op(Op.RMS_NORM, random_floats(1, 3, 512), w, eps=1e-5, size=256, orderings=ONE)
    check_op(Op.RESIDUAL_RMS_NORM, random_floats(1, 3, 256), random_floats(3, 3, 256), w, eps=1e-5, orderings=ONE)


@pytest.mark.parametrize("size", [1, 15, 16, 17, 130, 1000])
def test_norm_of_a_sum_matches(size: int) -> None:
    x, residual = edge_values(1, 3, size, specials=FINITE), edge_values(2, 3, size, share=0.01)
    check_op(
        Op.RESIDUAL_RMS_NORM,
        x,
        residual,
        make_weight(random_floats(3, size)),
        eps=1e-6,
        capacity={"tokens": 4},
        orderings=ONE,
    )
