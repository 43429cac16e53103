"""The cases of validate/cases through a Vulkan driver, poison around every allocation: some of each kernel, with
--slow all."""

from __future__ import annotations

import pytest
from support import Counts

from zinc_rt.kernels.spirv.table import KERNELS
from zinc_rt.validate.cases.table import FAMILIES, cases
from zinc_rt.validate.kernel_test.bench import CaseBench
from zinc_rt.validate.kernel_test.select import plans, thinned

ALL = 1 << 30


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_the_oracles_bits(bench: CaseBench, family: str, slow_counts: Counts) -> None:
    taken = [plan for plan in plans(cases(family), KERNELS, bench.backend.ordering) if plan.kernels]
    assert taken
    for plan in thinned(taken, slow_counts(3, ALL)):
        outcome = bench.run(plan.case)
        assert outcome.status == "pass", f"{plan.case.text()}: {outcome.said}"
