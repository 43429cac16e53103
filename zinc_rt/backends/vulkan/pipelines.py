"""Compute pipelines by kernel, created together, and a file cache of the driver's code."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterable, Mapping
from ctypes import byref
from dataclasses import dataclass
from typing import Any

from zinc_rt.backends.vulkan import api
from zinc_rt.backends.vulkan.device import VulkanDevice
from zinc_rt.host.object_cache import ObjectCache
from zinc_rt.kernels.sets import SpirvKernelSet
from zinc_rt.spirv.kernarg import Kernarg, read_kernarg
from zinc_rt.spirv.modes import add_modes
from zinc_rt.spirv.module import read_module

PUSH_BYTES = 8  # ABI vk-1: the kernarg block's address
ENTRY_POINT = b"main"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A VkPipeline, and the arguments of its kernel."""

    name: str
    handle: int
    takes: Kernarg


def make_cache_key(device: VulkanDevice, kernels: SpirvKernelSet) -> str:
    """Return the key of the driver's code: pipelineCacheUUID (build and device), float modes, and every kernel's
    bytes."""
    digest = hashlib.sha256(repr(device.float_modes).encode())
    for name in kernels.names():
        digest.update(f"{name}\n".encode() + kernels.module(name))
    return f"{device.pipeline_cache_uuid.hex()}-{digest.hexdigest()[:32]}"


class Pipelines:
    """The pipelines of one backend. They are kept until it closes."""

    def __init__(self, device: VulkanDevice, kernels: SpirvKernelSet, cache: ObjectCache | None) -> None:
        """Create without pipelines. `cache` stores the driver's compiled code; None disables it."""
        self._device, self._vk = device, device.vk
        self._kernels = kernels
        self._cache_file = cache
        self._cache_key = make_cache_key(device, kernels) if cache is not None else ""
        self._made: dict[str, Pipeline] = {}
        self._takes: dict[str, Kernarg] = {}
        self._grew = False
        self.layout = self._create_layout()
        self._cache = self._create_driver_cache(cache.load(self._cache_key) if cache is not None else None)

    def get(self, kernels: Iterable[str]) -> tuple[Mapping[str, Pipeline], list[Pipeline]]:
        """Return pipelines by kernel, and which of them were created by this call. Raise UnsupportedError for an
        unknown kernel."""
        names = tuple(dict.fromkeys(kernels))
        missing = [name for name in names if name not in self._made]
        if missing:
            self._create(missing)
        return {name: self._made[name] for name in names}, [self._made[name] for name in missing]

    def close(self, *, keep: bool) -> None:
        """Destroy all pipelines. `keep`: store new driver code for the next process. It must be false for a lost
        device."""
        if keep and self._grew and self._cache_file is not None:
            self._cache_file.store(self._cache_key, self._read_cache_data())
        for pipeline in self._made.values():
            self._vk.vkDestroyPipeline(self._device.handle, pipeline.handle, None)
        self._made.clear()
        self._vk.vkDestroyPipelineCache(self._device.handle, self._cache, None)
        self._vk.vkDestroyPipelineLayout(self._device.handle, self.layout, None)

    # Inside

    def _create(self, names: list[str]) -> None:
        modules: dict[str, int] = {}
        try:
            for name in names:
                modules[name] = self._create_module(name)
            infos = [self._create_info(modules[name]) for name in names]
            array = (type(infos[0]) * len(infos))(*infos)
            handles = (ctypes.c_uint64 * len(infos))()
            self._vk.vkCreateComputePipelines(self._device.handle, self._cache, len(infos), array, None, handles)
            for name, handle in zip(names, handles, strict=True):
                self._made[name] = Pipeline(name, handle, self._takes[name])
            self._grew = True
        finally:
            for module in modules.values():
                self._vk.vkDestroyShaderModule(self._device.handle, module, None)

    def _create_module(self, name: str) -> int:
        data = self._kernels.module(name)
        if name not in self._takes:
            self._takes[name] = read_kernarg(read_module(data, name), name)
        code = add_modes(data, self._device.float_modes)
        words = ctypes.create_string_buffer(code, len(code))
        info = api.make_struct("VkShaderModuleCreateInfo", codeSize=len(code), pCode=words)
        handle = ctypes.c_uint64()
        self._vk.vkCreateShaderModule(self._device.handle, byref(info), None, byref(handle))
        return handle.value

    def _create_info(self, module: int) -> Any:
        stage = api.make_struct(
            "VkPipelineShaderStageCreateInfo",
            stage=api.VK_SHADER_STAGE_COMPUTE_BIT,
            module=module,
            pName=ENTRY_POINT,
        )
        return api.make_struct(
            "VkComputePipelineCreateInfo", stage=stage, layout=self.layout, basePipelineIndex=-1
        )

    def _create_layout(self) -> int:
        push = api.make_struct("VkPushConstantRange", stageFlags=api.VK_SHADER_STAGE_COMPUTE_BIT, size=PUSH_BYTES)
        info = api.make_struct("VkPipelineLayoutCreateInfo", pushConstantRangeCount=1, pPushConstantRanges=push)
        handle = ctypes.c_uint64()
        self._vk.vkCreatePipelineLayout(self._device.handle, byref(info), None, byref(handle))
        return handle.value

    def _create_driver_cache(self, data: bytes | None) -> int:
        """Create the driver cache from a file's content if it is intact. The driver ignores data that it did not
        create.
        """
        content = ctypes.create_string_buffer(data, len(data)) if data else None
        info = api.make_struct(
            "VkPipelineCacheCreateInfo", initialDataSize=len(data) if data else 0, pInitialData=content
        )
        handle = ctypes.c_uint64()
        self._vk.vkCreatePipelineCache(self._device.handle, byref(info), None, byref(handle))
        return handle.value

    def _read_cache_data(self) -> bytes:
        size = ctypes.c_size_t()
        self._vk.vkGetPipelineCacheData(self._device.handle, self._cache, byref(size), None)
        content = ctypes.create_string_buffer(max(1, size.value))
        self._vk.vkGetPipelineCacheData(self._device.handle, self._cache, byref(size), content)
        return content.raw[: size.value]
