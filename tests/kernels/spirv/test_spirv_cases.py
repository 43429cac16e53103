"""The cases of validate/cases on a Vulkan driver, between poisoned pages and with launches reversed: some
of each kernel, with --slow all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kernels.spirv.harness import ORDERING, SpirvBench, launched_in_reverse
from support import Counts
from vulkan_driver import required

from zinc_rt.kernels.spirv.table import KERNELS
from zinc_rt.validate.cases.table import FAMILIES, cases
from zinc_rt.validate.kernel_test.select import plans, thinned

ALL = 1 << 30


@pytest.fixture(scope="module")
def guarded() -> Iterator[SpirvBench]:
    """One for all families: a driver in software compiles a kernel once for a backend."""
    with SpirvBench(required()) as made, launched_in_reverse():
        yield made


@pytest.mark.parametrize("family", FAMILIES)
def test_family_matches_the_oracle_bits(guarded: SpirvBench, family: str, slow_counts: Counts) -> None:
    taken = [plan for plan in plans(cases(family), KERNELS, ORDERING) if plan.kernels]
    assert taken
    for plan in thinned(taken, slow_counts(2, ALL)):
        guarded.check(plan.case)
