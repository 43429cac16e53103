"""What the kernel set of Vulkan takes, as its table says: every opcode that T-CPU has, and why not where not."""

from __future__ import annotations

from functools import cache

import pytest

from zinc_rt.ir.op import Op
from zinc_rt.kernels.reference.table import FUNCTIONS
from zinc_rt.kernels.spirv.compile import list_sources
from zinc_rt.kernels.spirv.table import KERNELS
from zinc_rt.validate.kernel_test.support import LEFT_OUT, Support, list_support


@cache
def support_by_op() -> dict[Op, list[Support]]:
    result: dict[Op, list[Support]] = {}
    for item in list_support(KERNELS, "canonical-1"):
        result.setdefault(item.op, []).append(item)
    return result


@pytest.mark.rest
def test_every_oracle_opcode_runs() -> None:
    ran = {op for op, rows in support_by_op().items() if any(row.taken for row in rows)}
    assert not set(FUNCTIONS) - ran - set(LEFT_OUT)


def test_every_case_runs() -> None:
    assert not {op for op, rows in support_by_op().items() if any(row.taken < row.cases for row in rows)}


def test_every_kernel_has_a_source() -> None:
    assert set(KERNELS.names()) == {source.name for source in list_sources()}
