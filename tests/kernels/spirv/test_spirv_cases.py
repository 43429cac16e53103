"""The cases of validate/cases on a Vulkan driver, between poisoned pages and with launches reversed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kernels.case_samples import SAMPLES, family_plans, sampled
from kernels.spirv.harness import ORDERING, SpirvBench, launched_in_reverse
from vulkan_driver import required

from zinc_rt.kernels.spirv.table import KERNELS
from zinc_rt.validate.cases.table import FAMILIES


@pytest.fixture(scope="module")
def guarded() -> Iterator[SpirvBench]:
    """One backend for all families, because a software driver compiles a kernel once per backend."""
    with SpirvBench(required()) as bench, launched_in_reverse():
        yield bench


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("family", FAMILIES)
def test_family_matches_the_oracle_bits(guarded: SpirvBench, family: str, sample: str) -> None:
    taken = family_plans(family, KERNELS, ORDERING, sample)
    assert taken
    for plan in sampled(taken, sample, maximum=2, few=1):
        guarded.check(plan.case)
