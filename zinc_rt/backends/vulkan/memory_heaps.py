"""Map a plan's heaps to memory types of a device, and report free memory."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import byref

from zinc_rt.backends.vulkan import api
from zinc_rt.backends.vulkan.device import VulkanDevice
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.mem.heaps import BufferHeap

LOCAL = api.VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
VISIBLE = api.VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT
COHERENT = api.VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
CACHED = api.VK_MEMORY_PROPERTY_HOST_CACHED_BIT

READ_BACK = (VISIBLE | COHERENT | CACHED, VISIBLE | CACHED, VISIBLE | COHERENT, VISIBLE)
WANTED: Mapping[str, tuple[int, ...]] = {  # property flags, the best first
    BufferHeap.DEVICE_LOCAL: (LOCAL,),
    BufferHeap.BAR: READ_BACK,  # the host reads it after each replay
    BufferHeap.HOST_VISIBLE: READ_BACK,
}
ALL_MAPPED = (LOCAL | VISIBLE | COHERENT, LOCAL | VISIBLE, LOCAL)  # resizable BAR, integrated devices, lavapipe


def choose_memory_type(device: VulkanDevice, heap: str, allowed: int, name: str) -> int:
    """Return the memory type for `name`, from those whose bits are set in `allowed`. Raise UnsupportedError if
    none fits."""
    required = ALL_MAPPED if heap == BufferHeap.DEVICE_LOCAL and is_heap_mappable(device) else WANTED[heap]
    for flags in required:
        for number, kind in enumerate(device.memory_types):
            if allowed >> number & 1 and kind.flags & flags == flags:
                return number
    raise UnsupportedError(f"{name}: the device has no memory of heap {heap}", next="use --tier t_cpu")


def is_heap_mappable(device: VulkanDevice) -> bool:
    """Return whether the host can map all of the device's largest heap."""
    local = [device.heaps[kind.heap].size_bytes for kind in device.memory_types if kind.flags & LOCAL]
    both = LOCAL | VISIBLE
    mapped = [device.heaps[kind.heap].size_bytes for kind in device.memory_types if kind.flags & both == both]
    return bool(mapped) and max(mapped) == max(local)


def count_free_bytes(device: VulkanDevice, heap_index: int, held_bytes: int) -> int:
    """Return the free bytes of a heap for this process: from VK_EXT_memory_budget, else its size minus the
    allocated bytes."""
    if "VK_EXT_memory_budget" not in device.extensions:
        return device.heaps[heap_index].size_bytes - held_bytes
    budget = api.make_struct("VkPhysicalDeviceMemoryBudgetPropertiesEXT")
    chain = api.link_structs(api.make_struct("VkPhysicalDeviceMemoryProperties2"), budget)
    device.vk.vkGetPhysicalDeviceMemoryProperties2(device.physical_handle, byref(chain))
    return int(budget.heapBudget[heap_index]) - int(budget.heapUsage[heap_index])
