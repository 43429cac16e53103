"""The cases of validate/cases on a Vulkan driver, between poisoned pages and with launches reversed: some
of each kernel, with --slow all."""

from __future__ import annotations

import pytest
from kernels.spirv.harness import ORDERING, SpirvBench, launched_in_reverse
from support import Counts

from zinc_rt.backends.vulkan.device import PhysicalDevice
from zinc_rt.kernels.spirv.table import KERNELS
from zinc_rt.validate.cases.table import FAMILIES, cases
from zinc_rt.validate.kernel_test.select import plans, thinned

ALL = 1 << 30


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_the_oracles_bits(family: str, vulkan_driver: PhysicalDevice, slow_counts: Counts) -> None:
    taken = [plan for plan in plans(cases(family), KERNELS, ORDERING) if plan.kernels]
    assert taken
    with SpirvBench(vulkan_driver) as bench, launched_in_reverse():
        for plan in thinned(taken, slow_counts(2, ALL)):
            bench.check(plan.case)
