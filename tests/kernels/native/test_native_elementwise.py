"""Elementwise opcodes on t_cpu_native: the oracle's bits."""

from __future__ import annotations

import pytest
from kernels.native.harness import check
from kernels.op_cases import floats

from zinc_rt.ir.op import Op


@pytest.mark.parametrize(("tokens", "columns"), [(1, 1), (3, 15), (2, 16), (5, 37), (4, 1024)])
def test_add(tokens: int, columns: int) -> None:
    a, b = floats(1, tokens, columns), floats(2, tokens, columns)
    check(Op.ADD, a, b, capacity={"tokens": 8})
