"""Command buffer contents as data, under Vulkan's own names. `record` writes a list of them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from ctypes import byref
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from zinc_rt.backends.vulkan import api
from zinc_rt.backends.vulkan.device import VulkanDevice

COMPUTE = api.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT
INDIRECT = api.VK_PIPELINE_STAGE_DRAW_INDIRECT_BIT
TRANSFER = api.VK_PIPELINE_STAGE_TRANSFER_BIT
HOST = api.VK_PIPELINE_STAGE_HOST_BIT
SHADER_WRITE = api.VK_ACCESS_SHADER_WRITE_BIT
TRANSFER_WRITE = api.VK_ACCESS_TRANSFER_WRITE_BIT
BY_SHADER = api.VK_ACCESS_SHADER_READ_BIT | SHADER_WRITE | api.VK_ACCESS_INDIRECT_COMMAND_READ_BIT
BY_TRANSFER = api.VK_ACCESS_TRANSFER_READ_BIT | TRANSFER_WRITE


class VulkanCommand(Protocol):
    def record(self, vk: Any, buffer: int) -> None:
        """Record into a command buffer that was begun."""


@dataclass(frozen=True, slots=True)
class CmdBindPipeline:
    pipeline: int

    def record(self, vk: Any, buffer: int) -> None:
        vk.vkCmdBindPipeline(buffer, api.VK_PIPELINE_BIND_POINT_COMPUTE, self.pipeline)


@dataclass(frozen=True, slots=True)
class CmdPushConstants:
    """Push constants of ABI vk-1: only the address of the kernarg block."""

    layout: int
    kernarg_va: int

    def record(self, vk: Any, buffer: int) -> None:
        value = ctypes.c_uint64(self.kernarg_va)
        vk.vkCmdPushConstants(buffer, self.layout, api.VK_SHADER_STAGE_COMPUTE_BIT, 0, 8, byref(value))


@dataclass(frozen=True, slots=True)
class CmdDispatch:
    groups: tuple[int, int, int]

    def record(self, vk: Any, buffer: int) -> None:
        vk.vkCmdDispatch(buffer, *self.groups)


@dataclass(frozen=True, slots=True)
class CmdDispatchIndirect:
    """An indirect dispatch. The grid is three dwords at an offset of a VkBuffer."""

    handle: int
    offset_bytes: int

    def record(self, vk: Any, buffer: int) -> None:
        vk.vkCmdDispatchIndirect(buffer, self.handle, self.offset_bytes)


@dataclass(frozen=True, slots=True)
class CmdPipelineBarrier:
    """A global memory barrier: the `writes` of stages `after` complete and become visible to the `reads` of stages
    `before`."""

    after: int
    before: int
    writes: int
    reads: int

    def record(self, vk: Any, buffer: int) -> None:
        info = _make_memory_barrier(self.writes, self.reads)
        vk.vkCmdPipelineBarrier(buffer, self.after, self.before, 0, 1, byref(info), 0, None, 0, None)


@dataclass(frozen=True, slots=True)
class CmdFillBuffer:
    """A fill with a repeated dword. Offset and size are multiples of 4."""

    handle: int
    offset_bytes: int
    size_bytes: int
    dword: int = 0

    def record(self, vk: Any, buffer: int) -> None:
        vk.vkCmdFillBuffer(buffer, self.handle, self.offset_bytes, self.size_bytes, self.dword)


@dataclass(frozen=True, slots=True)
class CmdCopyBuffer:
    source: int
    source_offset_bytes: int
    target: int
    target_offset_bytes: int
    size_bytes: int

    def record(self, vk: Any, buffer: int) -> None:
        region = api.make_struct(
            "VkBufferCopy",
            srcOffset=self.source_offset_bytes,
            dstOffset=self.target_offset_bytes,
            size=self.size_bytes,
        )
        vk.vkCmdCopyBuffer(buffer, self.source, self.target, 1, byref(region))


@dataclass(frozen=True, slots=True)
class CmdResetQueryPool:
    pool: int
    count: int

    def record(self, vk: Any, buffer: int) -> None:
        vk.vkCmdResetQueryPool(buffer, self.pool, 0, self.count)


@dataclass(frozen=True, slots=True)
class CmdWriteTimestamp:
    """A timestamp that is written after all earlier commands have finished."""

    pool: int
    query: int

    def record(self, vk: Any, buffer: int) -> None:
        vk.vkCmdWriteTimestamp(buffer, api.VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, self.pool, self.query)


@cache
def _make_memory_barrier(writes: int, reads: int) -> Any:
    return api.make_struct("VkMemoryBarrier", srcAccessMask=writes, dstAccessMask=reads)


# Submissions of one queue may overlap: make earlier writes and the host's visible to everything later.
BEGIN = CmdPipelineBarrier(
    COMPUTE | TRANSFER | HOST,
    COMPUTE | INDIRECT | TRANSFER,
    SHADER_WRITE | TRANSFER_WRITE | api.VK_ACCESS_HOST_WRITE_BIT,
    BY_SHADER | BY_TRANSFER,
)
BETWEEN = CmdPipelineBarrier(COMPUTE, COMPUTE | INDIRECT, SHADER_WRITE, BY_SHADER)
END = CmdPipelineBarrier(COMPUTE | TRANSFER, HOST, SHADER_WRITE | TRANSFER_WRITE, api.VK_ACCESS_HOST_READ_BIT)
# In a debug build each barrier's number is written at its position.
TO_CHECKPOINT = CmdPipelineBarrier(
    COMPUTE | TRANSFER, COMPUTE | INDIRECT | TRANSFER, SHADER_WRITE | TRANSFER_WRITE, BY_SHADER | BY_TRANSFER
)


class CommandPool:
    """The command buffers of one queue family, each of which can be freed separately."""

    def __init__(self, device: VulkanDevice) -> None:
        self._vk, self._device = device.vk, device.handle
        info = api.make_struct(
            "VkCommandPoolCreateInfo",
            flags=api.VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
            queueFamilyIndex=device.queues[0].family,
        )
        handle = ctypes.c_uint64()
        self._vk.vkCreateCommandPool(self._device, byref(info), None, byref(handle))
        self._pool = handle.value

    def record(self, commands: Iterable[VulkanCommand], *, replayed: bool) -> int:
        """Record a new command buffer. `replayed`: it is submitted repeatedly, even while still pending."""
        info = api.make_struct(
            "VkCommandBufferAllocateInfo",
            commandPool=self._pool,
            level=api.VK_COMMAND_BUFFER_LEVEL_PRIMARY,
            commandBufferCount=1,
        )
        handle = ctypes.c_void_p()
        self._vk.vkAllocateCommandBuffers(self._device, byref(info), byref(handle))
        buffer = handle.value
        assert buffer
        try:
            usage = (
                api.VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT
                if replayed
                else api.VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT
            )
            begin = api.make_struct("VkCommandBufferBeginInfo", flags=usage)
            self._vk.vkBeginCommandBuffer(buffer, byref(begin))
            for command in commands:
                command.record(self._vk, buffer)
            self._vk.vkEndCommandBuffer(buffer)
        except BaseException:
            self.free(buffer)
            raise
        return buffer

    def free(self, buffer: int) -> None:
        self._vk.vkFreeCommandBuffers(self._device, self._pool, 1, byref(ctypes.c_void_p(buffer)))

    def close(self) -> None:
        """Destroy the pool with all its remaining command buffers."""
        self._vk.vkDestroyCommandPool(self._device, self._pool, None)
