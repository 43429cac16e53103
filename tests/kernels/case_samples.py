"""Which of validate's cases a test runs: a few by default, one of each kernel with the rest, all with --slow."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from selection import kept_cases

from zinc_rt.kernels.sets import KernelSet
from zinc_rt.validate.cases.table import family_cases
from zinc_rt.validate.kernel_test.select import (
    PlannedCase,
    pick_one_plan_per_kernel,
    plan_cases,
    thin_plans,
)

FEW = 2  # groups of kernels; on a device that compiles them, each costs about a second
PLANNED = 40  # cases that are planned to find them: planning the thousands of a family takes seconds
SAMPLES = [
    pytest.param("few", id="few"),
    pytest.param("more", id="more", marks=pytest.mark.rest),
    pytest.param("all", id="all", marks=pytest.mark.slow),
]


def family_plans(
    family: str, kernels: KernelSet, ordering: str, sample: str, maximum: int = PLANNED
) -> list[PlannedCase]:
    """Return the plans of a family's cases, without those that are rejected; `few`: of about `maximum` cases."""
    known = list(family_cases(family))
    taken = known[:: max(1, len(known) // maximum)] if sample == "few" else known
    return [plan for plan in plan_cases(taken, kernels, ordering) if plan.kernels]


def sample_plans(
    plans: Sequence[PlannedCase], sample: str, *, maximum: int = 0, group_count: int = FEW
) -> list[PlannedCase]:
    """Return a sample of the plans. `group_count`: one case for each of `group_count` groups of kernels whose
    names differ most; `more`: at most `maximum` cases of each group, 0 for one of each kernel; `all`: every plan.
    """
    if sample == "all":
        return list(plans)
    if sample == "more":
        return thin_plans(plans, maximum) if maximum else pick_one_plan_per_kernel(plans)
    one = thin_plans(plans, 1)
    kept = kept_cases(["-".join(plan.kernels).replace("_", "-").split("-") for plan in one], group_count)
    return [plan for index, plan in enumerate(one) if index in kept]
