"""A loader whose devices are what a test says: what is asked of one before it opens, and how opening fails."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from zinc_rt.backends.vulkan import api
from zinc_rt.backends.vulkan.errors import VulkanError
from zinc_rt.backends.vulkan.physical_device import FEATURES, FLOAT_CONTROLS, INVOCATIONS, SHARED_BYTES

BY_STYPE = {number: name for name, number in api.STYPES.items()}
DISCRETE, INTEGRATED, CPU = 2, 1, 4


@dataclass(frozen=True)
class FakeDevice:
    name: str = "Fake 9000"
    kind: int = DISCRETE
    version: tuple[int, int, int] = (1, 3, 230)
    features: frozenset[str] = frozenset(FEATURES)
    float_controls: frozenset[str] = frozenset(FLOAT_CONTROLS)
    heap_bytes: int = 8 << 30
    invocations: int = INVOCATIONS
    shared_bytes: int = SHARED_BYTES
    grid: int = 65535
    queue_flags: tuple[int, ...] = (api.VK_QUEUE_GRAPHICS_BIT | api.VK_QUEUE_COMPUTE_BIT,)
    opens: int = 0  # the VkResult of vkCreateDevice


@dataclass
class FakeVulkan:
    """Vulkan's functions over fake devices; handles start at 100. `instance`: the result of vkCreateInstance."""

    devices: tuple[FakeDevice, ...] = (FakeDevice(),)
    instance: int = 0
    source: str = "libfake.so.1"
    calls: list[str] = field(default_factory=list)

    def of(self, instance: int) -> FakeVulkan:
        return self

    def vkEnumerateInstanceExtensionProperties(self, layer: Any, count: Any, rows: Any) -> int:
        count._obj.value = 0
        return 0

    def vkCreateInstance(self, info: Any, allocator: Any, handle: Any) -> int:
        self._fails(self.instance, "vkCreateInstance")
        handle._obj.value = 1
        return 0

    def vkDestroyInstance(self, instance: int, allocator: Any) -> None:
        self.calls.append("vkDestroyInstance")

    def vkEnumeratePhysicalDevices(self, instance: int, count: Any, handles: Any) -> int:
        count._obj.value = len(self.devices)
        for i in range(len(handles or ())):
            handles[i] = 100 + i
        return 0

    def vkGetPhysicalDeviceProperties2(self, handle: int, first: Any) -> None:
        device = self.devices[handle - 100]
        for name, item in chained(first._obj):
            if name == "VkPhysicalDeviceProperties2":
                item.properties.deviceName = device.name.encode()
                item.properties.deviceType = device.kind
                major, minor, patch = device.version
                item.properties.apiVersion = major << 22 | minor << 12 | patch
                limits = item.properties.limits
                limits.maxComputeWorkGroupCount[:] = [device.grid] * 3
                limits.maxComputeWorkGroupInvocations = device.invocations
                limits.maxComputeSharedMemorySize = device.shared_bytes
            if name == "VkPhysicalDeviceVulkan11Properties":
                item.deviceUUID[0] = handle
            if name == "VkPhysicalDeviceVulkan12Properties":
                item.driverName, item.driverInfo = b"fakedrv", b"7.1"
                for control in device.float_controls:
                    setattr(item, control, 1)

    def vkGetPhysicalDeviceFeatures2(self, handle: int, first: Any) -> None:
        for _, item in chained(first._obj):
            holder = item.features if hasattr(item, "features") else item
            for feature in self.devices[handle - 100].features & {name for name, *_ in holder._fields_}:
                setattr(holder, feature, 1)

    def vkGetPhysicalDeviceMemoryProperties2(self, handle: int, made: Any) -> None:
        memory_properties = made._obj.memoryProperties
        memory_properties.memoryHeapCount = memory_properties.memoryTypeCount = 1
        memory_properties.memoryTypes[0].propertyFlags = api.VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT
        memory_properties.memoryHeaps[0].size = self.devices[handle - 100].heap_bytes
        memory_properties.memoryHeaps[0].flags = api.VK_MEMORY_HEAP_DEVICE_LOCAL_BIT

    def vkGetPhysicalDeviceQueueFamilyProperties(self, handle: int, count: Any, rows: Any) -> None:
        flags = self.devices[handle - 100].queue_flags
        count._obj.value = len(flags)
        for row, flag in zip(rows or (), flags, strict=False):
            row.queueFlags, row.queueCount = flag, 1

    def vkEnumerateDeviceExtensionProperties(self, handle: int, layer: Any, count: Any, rows: Any) -> int:
        count._obj.value = 0
        return 0

    def vkCreateDevice(self, handle: int, info: Any, allocator: Any, made: Any) -> int:
        self._fails(self.devices[handle - 100].opens, "vkCreateDevice")
        made._obj.value = 1000
        return 0

    def vkGetDeviceQueue(self, device: Any, family: int, index: int, made: Any) -> None:
        self.calls.append(f"vkGetDeviceQueue {family}")
        made._obj.value = 2000

    def vkDestroyDevice(self, device: int, allocator: Any) -> None:
        self.calls.append("vkDestroyDevice")

    def _fails(self, result: int, call: str) -> None:
        self.calls.append(call)
        if result < 0:
            raise VulkanError(result, call)


def chained(first: Any) -> Iterator[tuple[str, Any]]:
    """Yield every struct of a pNext chain, with its name."""
    member = first
    while True:
        name = BY_STYPE[member.sType]
        yield name, member
        if not member.pNext:
            return
        number = ctypes.c_int32.from_address(member.pNext).value
        member = api.find_struct_type(BY_STYPE[number]).from_address(member.pNext)
