"""A bench that runs single nodes on this machine's Vulkan driver, poison around every allocation."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from vulkan_driver import require_driver

from zinc_rt.backends.spec import BackendSpec
from zinc_rt.backends.vulkan.backend import VulkanBackend, VulkanOptions
from zinc_rt.backends.vulkan.device import open_device
from zinc_rt.kernels.spirv.table import KERNELS
from zinc_rt.validate.kernel_test.bench import CaseBench


@pytest.fixture(scope="session")
def bench() -> Iterator[CaseBench]:
    physical = require_driver()

    def open_bench() -> VulkanBackend:
        device = open_device(physical)
        spec, options = BackendSpec("vulkan", "Vulkan"), VulkanOptions(guarded=True)
        return VulkanBackend(spec, "canonical-1", device, KERNELS, options, after=device.close)

    with CaseBench(open_bench) as bench:
        yield bench
