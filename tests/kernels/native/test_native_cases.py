"""The cases of validate/cases on the native kernels: some of each, all of them with --slow."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kernels.native.harness import check

from zinc_rt.kernels.native.table import KERNELS
from zinc_rt.validate.cases.table import FAMILIES, cases
from zinc_rt.validate.kernel_test.select import plans, thinned

ALL = 1 << 30


@pytest.mark.parametrize("family", FAMILIES)
def test_family_matches_the_oracle_bits(family: str, slow_counts: Callable[[int, int], int]) -> None:
    taken = [plan for plan in plans(cases(family), KERNELS, "canonical-1-q8") if plan.kernels]
    assert taken
    for plan in thinned(taken, slow_counts(6, ALL)):
        case = plan.case
        try:
            check(case.op, *case.operands(), capacity=case.room, **case.attrs)
        except AssertionError as error:
            raise AssertionError(f"{case.text()}: {error}") from error
