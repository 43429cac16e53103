"""The cases of validate/cases on Vulkan's kernels as RADV's machine code, on the bare engine at its strictest.

One case of each kernel by default, with --slow all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from kernels.gfx1201.harness import ORDERING, check

from zinc_rt.errors import UnsupportedError
from zinc_rt.kernels.radv.table import KERNELS
from zinc_rt.validate.cases.table import FAMILIES, cases
from zinc_rt.validate.kernel_test.select import PlannedCase, plans, thinned

ALL = 1 << 30
PARTS = 4  # of a family, so that workers share it


@cache
def planned(family: str) -> tuple[PlannedCase, ...]:
    return tuple(plan for plan in plans(cases(family), KERNELS, ORDERING) if plan.kernels)


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_the_oracles_bits(family: str, part: int, slow_counts: Callable[[int, int], int]) -> None:
    for plan in thinned(planned(family), slow_counts(1, ALL))[part::PARTS]:
        case = plan.case
        try:
            check(case.op, *case.operands(), capacity=case.room, kernels=KERNELS, **case.attrs)
        except UnsupportedError:
            continue
        except AssertionError as error:
            raise AssertionError(f"{case.text()}: {error}") from error
