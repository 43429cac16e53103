"""The cases of validate/cases on a Vulkan driver, between poisoned pages and with launches reversed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kernels.case_samples import SAMPLES, family_plans, sample_plans
from kernels.spirv.harness import ORDERING, SpirvBench, launched_in_reverse
from vulkan_driver import require_driver

from zinc_rt.kernels.spirv.table import KERNELS
from zinc_rt.validate.cases.table import FAMILIES


@pytest.fixture(scope="module")
def guarded_bench() -> Iterator[SpirvBench]:
    """One backend for all families, because a software driver compiles a kernel once per backend."""
    with SpirvBench(require_driver()) as bench, launched_in_reverse():
        yield bench


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("family", FAMILIES)
def test_family_matches_the_oracle_bits(guarded_bench: SpirvBench, family: str, sample: str) -> None:
    taken = family_plans(family, KERNELS, ORDERING, sample)
    assert taken
    for plan in sample_plans(taken, sample, maximum=2, group_count=1):
        guarded_bench.check(plan.case)
