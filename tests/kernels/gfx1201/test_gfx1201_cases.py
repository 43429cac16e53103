"""The cases of validate/cases on the bare engine at its strictest."""

from __future__ import annotations

import itertools

import pytest
from harness import ORDERING, check_op, inexact_instructions
from kernels.case_samples import SAMPLES, family_plans, sample_plans
from support import Counts

from zinc_rt.kernels.gfx1201.table import KERNELS
from zinc_rt.sim.shader.perturbation import perturb_results
from zinc_rt.sim.shader.run.engine_device import EngineDevice
from zinc_rt.validate.cases.table import FAMILIES, family_cases
from zinc_rt.validate.kernel_test.select import plan_cases, thin_plans
from zinc_rt.validate.kernel_test.support import list_support

ALL = 1 << 30


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("family", FAMILIES)
def test_family_matches_the_oracle_bits(family: str, sample: str) -> None:
    taken = family_plans(family, KERNELS, ORDERING, sample)
    assert taken
    for plan in sample_plans(taken, sample):
        case = plan.case
        try:
            check_op(case.op, *case.operands(), capacity=case.room, **case.attrs)
        except AssertionError as error:
            raise AssertionError(f"{case.text()}: {error}") from error


@pytest.mark.slow
@pytest.mark.parametrize("by", [1, -1])
def test_last_bit_of_reciprocals_and_roots_does_not_matter(by: int, slow_counts: Counts) -> None:
    """Every result of v_rcp_f32 and v_sqrt_f32 moved by one unit: kernels that use them keep the oracle's bits."""
    users = inexact_instructions().keys()
    wanted = (slow_counts(0, 1) and users) or {"rms_norm", "swiglu", "softcap"}
    seen: set[str] = set()
    for family, ordering in itertools.product(FAMILIES, (ORDERING, f"{ORDERING}-q8")):
        taken = [
            plan for plan in plan_cases(family_cases(family), KERNELS, ordering) if wanted & set(plan.kernels)
        ]
        for plan in thin_plans(taken, slow_counts(1, ALL)):
            case, device = plan.case, EngineDevice(level="off", perturb=perturb_results(by))
            check_op(case.op, *case.operands(), capacity=case.room, device=device, ordering=ordering, **case.attrs)
            seen |= users & set(plan.kernels)
    print(f"{len(seen)} of {len(users)} kernels with such instructions: {', '.join(sorted(seen))}")
    assert wanted <= seen


@pytest.mark.rest
def test_no_case_is_rejected() -> None:
    """Every width there is a case of, whatever the common ones are."""
    support = list_support(KERNELS, ORDERING)
    assert {item.op: item.refused for item in support if item.taken < item.cases} == {}
