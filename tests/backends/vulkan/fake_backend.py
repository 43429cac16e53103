"""VulkanBackends over the fake Vulkan, which learn what lies where from the graphs that they build."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backends.vulkan.fake_vulkan import FakeVulkan

from zinc_rt.backends import registry
from zinc_rt.backends.vulkan.backend import VulkanBackend, VulkanOptions
from zinc_rt.backends.vulkan.executable import VulkanExecutable
from zinc_rt.exec import Buffer
from zinc_rt.kernels.launch import Operand, Ref, Temp
from zinc_rt.kernels.sets import SpirvKernelSet
from zinc_rt.kernels.spirv.table import KERNELS
from zinc_rt.lower import Dispatch, LoweredGraph

OPTIONS = VulkanOptions()


class FakeBackend(VulkanBackend):
    """Reports the name and location of every dispatch's operands to the fake, so that it can distinguish parts of
    an arena.
    """

    def __init__(
        self, fake: FakeVulkan, options: VulkanOptions = OPTIONS, kernels: SpirvKernelSet = KERNELS
    ) -> None:
        device = fake.device()
        super().__init__(registry.spec("vulkan"), "canonical-1", device, kernels, options, after=device.close)
        self.fake = fake

    def build(self, lowered: LoweredGraph, buffers: Mapping[str, Buffer]) -> VulkanExecutable:
        result = super().build(lowered, buffers)
        block = result.block.gpu_va
        for step in result.plan.dispatches:
            where = [operand_range(buffer, step, block, lowered, buffers) for buffer in step.launch.buffers]
            self.fake.places[block + step.arguments_offset] = where
        return result


def operand_range(
    operand: Operand | None, step: Dispatch, block_va: int, lowered: LoweredGraph, buffers: Mapping[str, Buffer]
) -> tuple[int, int, str]:
    """First address, end address (exclusive), name."""
    if operand is None:
        return 0, 0, ""
    if isinstance(operand, Temp):
        start = block_va + step.temps[operand.name]
        return start, start + operand.size_bytes, f"{operand.name} of {step.node!r}"
    assert isinstance(operand, Ref)
    return buffer_range(operand.name, lowered, buffers)


def buffer_range(name: str, lowered: LoweredGraph, buffers: Mapping[str, Buffer]) -> tuple[int, int, str]:
    if name in buffers:
        va: Any = buffers[name].gpu_va
        return va, va + buffers[name].size_bytes, name
    placement = lowered.plan.placements[name]
    va = buffers[placement.allocation].gpu_va
    start = va + placement.offset_bytes
    return start, start + placement.size_bytes, name
