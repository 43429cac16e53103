"""The cases of validate/cases on the native kernels: some of each, all of them with --slow."""

from __future__ import annotations

import pytest
from kernels.case_samples import SAMPLES, family_plans, sample_plans
from kernels.native.harness import check_op

from zinc_rt.kernels.native.table import KERNELS
from zinc_rt.validate.cases.table import FAMILIES


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("family", FAMILIES)
def test_family_matches_the_oracle_bits(family: str, sample: str) -> None:
    taken = family_plans(family, KERNELS, "canonical-1-q8", sample)
    assert taken
    for plan in sample_plans(taken, sample, maximum=6, group_count=24):
        case = plan.case
        try:
            check_op(case.op, *case.operands(), capacity=case.room, **case.attrs)
        except AssertionError as error:
            raise AssertionError(f"{case.text()}: {error}") from error
