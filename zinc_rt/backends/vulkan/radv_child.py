"""The child process that `radv` starts. It converts every NAME.spv of a folder to NAME.cache, a pipeline cache.

Its device is a null device. The driver settings are in told.json; the kernel in progress is in `now`.
"""

from __future__ import annotations

import ctypes
import json
import sys
from ctypes import byref
from dataclasses import replace
from pathlib import Path

from zinc_rt.backends.vulkan import api
from zinc_rt.backends.vulkan.api import make_struct
from zinc_rt.backends.vulkan.device import VulkanDevice, list_devices, open_device
from zinc_rt.host.errors import UnsupportedError, ZincError
from zinc_rt.spirv.modes import MODES, add_modes

AMD = 0x1002
WAVE = 32
ENTRY = b"main"


def main(folder: Path) -> None:
    amd_devices = [device for device in list_devices() if device.vendor_id == AMD]
    if not amd_devices:
        raise UnsupportedError("the driver has no AMD device: it does not support the chip, or it is not RADV")
    physical = amd_devices[0]
    if missing := sorted(set(MODES) - set(physical.float_modes)):
        raise UnsupportedError(f"{physical.name}: float mode {missing[0]} is not supported")
    words = physical.driver.split()  # radv Mesa 25.0.7-2~bpo12+1
    mesa = words[words.index("Mesa") + 1].partition("-")[0] if "Mesa" in words[:-1] else "unknown"
    output = {"mesa": mesa, "driver": f"{physical.name}, {physical.driver}"}
    (folder / "told.json").write_text(json.dumps(output), encoding="utf-8")
    with open_device(replace(physical, missing="")) as device:  # without hardware it lacks timeline semaphores
        layout = _create_layout(device)
        for path in sorted(folder.glob("*.spv")):
            (folder / "now").write_text(path.stem, encoding="utf-8")
            path.with_suffix(".cache").write_bytes(_create_cache(device, layout, path.read_bytes()))
        device.vk.vkDestroyPipelineLayout(device.handle, layout, None)


def _create_layout(device: VulkanDevice) -> int:
    """Create the layout of ABI vk-1: one push constant of 8 bytes."""
    range_ = make_struct("VkPushConstantRange", stageFlags=api.VK_SHADER_STAGE_COMPUTE_BIT, offset=0, size=8)
    created = make_struct("VkPipelineLayoutCreateInfo", pushConstantRangeCount=1, pPushConstantRanges=range_)
    layout = ctypes.c_uint64()
    device.vk.vkCreatePipelineLayout(device.handle, byref(created), None, byref(layout))
    return layout.value


def _create_cache(device: VulkanDevice, layout: int, spirv: bytes) -> bytes:
    """Create a pipeline cache with only this kernel, compiled for waves of 32."""
    vk = device.vk
    code = add_modes(spirv, tuple(MODES))
    words = ctypes.create_string_buffer(code, len(code))
    module, cache, pipeline = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_uint64()
    shader = make_struct("VkShaderModuleCreateInfo", codeSize=len(code), pCode=words)
    vk.vkCreateShaderModule(device.handle, byref(shader), None, byref(module))
    vk.vkCreatePipelineCache(device.handle, byref(make_struct("VkPipelineCacheCreateInfo")), None, byref(cache))
    wave = make_struct("VkPipelineShaderStageRequiredSubgroupSizeCreateInfo", requiredSubgroupSize=WAVE)
    stage = make_struct(
        "VkPipelineShaderStageCreateInfo",
        pNext=wave,
        stage=api.VK_SHADER_STAGE_COMPUTE_BIT,
        module=module.value,
        pName=ENTRY,
    )
    create_info = make_struct("VkComputePipelineCreateInfo", stage=stage, layout=layout, basePipelineIndex=-1)
    vk.vkCreateComputePipelines(device.handle, cache.value, 1, byref(create_info), None, byref(pipeline))
    size = ctypes.c_size_t()
    vk.vkGetPipelineCacheData(device.handle, cache.value, byref(size), None)
    data = ctypes.create_string_buffer(size.value)
    vk.vkGetPipelineCacheData(device.handle, cache.value, byref(size), data)
    vk.vkDestroyPipeline(device.handle, pipeline.value, None)
    vk.vkDestroyPipelineCache(device.handle, cache.value, None)
    vk.vkDestroyShaderModule(device.handle, module.value, None)
    return data.raw[: size.value]


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except ZincError as error:
        print(error.message, file=sys.stderr)
        sys.exit(1)
