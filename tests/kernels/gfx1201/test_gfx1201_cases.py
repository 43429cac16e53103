"""The cases of validate/cases on the bare engine at its strictest: some of each kernel, with --slow all."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harness import ORDERING, check

from zinc_rt.kernels.gfx1201.table import KERNELS
from zinc_rt.validate.cases.table import FAMILIES, cases
from zinc_rt.validate.kernel_test.select import plans, thinned
from zinc_rt.validate.kernel_test.support import support

ALL = 1 << 30


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_the_oracles_bits(family: str, slow_counts: Callable[[int, int], int]) -> None:
    taken = [plan for plan in plans(cases(family), KERNELS, ORDERING) if plan.kernels]
    assert taken
    for plan in thinned(taken, slow_counts(12, ALL)):
        case = plan.case
        try:
            check(case.op, *case.operands(), capacity=case.room, **case.attrs)
        except AssertionError as error:
            raise AssertionError(f"{case.text()}: {error}") from error


def test_no_case_is_refused() -> None:
    """Every width there is a case of, whatever the common ones are."""
    refused = {each.op: each.refused for each in support(KERNELS, ORDERING) if each.taken < each.cases}
    assert refused == {}
