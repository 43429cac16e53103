"""Enumerate Vulkan devices, and open one."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref
from dataclasses import dataclass, replace
from typing import Any

from zinc_rt.backends.vulkan import api, loader, physical_device
from zinc_rt.backends.vulkan.api import make_struct
from zinc_rt.backends.vulkan.errors import VulkanError
from zinc_rt.backends.vulkan.loader import Vulkan
from zinc_rt.backends.vulkan.physical_device import (
    FEATURES,
    KINDS,
    OPTIONAL_FEATURES,
    DeviceLimits,
    MemoryHeap,
    MemoryType,
    PhysicalDevice,
    find_missing_feature,
)
from zinc_rt.host.errors import UnsupportedError

ASKED_VERSION = 1 << 22 | 3 << 12  # VK_API_VERSION_1_3: the newest whose structs are used
PORTABILITY = "VK_KHR_portability_enumeration"  # without it the loader hides MoltenVK
# Enabled if a device has them. The last must be enabled if it exists.
EXTENSIONS = (
    "VK_EXT_external_memory_host",
    "VK_EXT_memory_budget",
    "VK_EXT_device_fault",
    "VK_KHR_portability_subset",
)
MOST_QUEUES = 4
# Results of Vulkan-Loader without a driver, and with drivers that have no device.
NO_DEVICE = (
    ("vkCreateInstance", "VK_ERROR_INCOMPATIBLE_DRIVER"),
    ("vkEnumeratePhysicalDevices", "VK_ERROR_INITIALIZATION_FAILED"),
)


@dataclass(frozen=True, slots=True)
class DeviceQueue:
    """A queue to submit to; `handle` is a VkQueue."""

    family: int
    index: int
    handle: int


@dataclass(slots=True)
class VulkanDevice:
    """An open device: its instance, functions and queues. The opener closes it last."""

    physical: PhysicalDevice
    vk: Vulkan
    instance: int
    physical_handle: int
    handle: int
    queues: tuple[DeviceQueue, ...]
    extensions: frozenset[str]  # enabled
    features: frozenset[str]  # enabled

    @property
    def memory_types(self) -> tuple[MemoryType, ...]:
        return self.physical.memory_types

    @property
    def heaps(self) -> tuple[MemoryHeap, ...]:
        return self.physical.heaps

    @property
    def limits(self) -> DeviceLimits:
        return self.physical.limits

    @property
    def is_cpu(self) -> bool:
        return self.physical.is_cpu

    @property
    def float_modes(self) -> tuple[str, ...]:
        """Return the execution modes to add to every kernel, by their SPIR-V names."""
        return self.physical.float_modes

    @property
    def timestamp_period(self) -> float:
        """Return the nanoseconds per tick."""
        return self.physical.limits.timestamp_period_ns

    @property
    def valid_bits(self) -> int:
        """Return the valid bits of a timestamp; 0 if the queue has no timestamps."""
        return self.physical.queue_families[self.queues[0].family].timestamp_bits

    @property
    def external_memory_host(self) -> bool:
        """Return whether host memory can be imported."""
        return "VK_EXT_external_memory_host" in self.extensions

    @property
    def pipeline_cache_uuid(self) -> bytes:
        return self.physical.pipeline_cache_uuid

    def close(self) -> None:
        """Destroy the device. The caller must have destroyed all its objects."""
        if self.handle:
            self.vk.vkDestroyDevice(self.handle, None)
            self.vk.vkDestroyInstance(self.instance, None)
        self.handle = self.instance = 0

    def abandon(self) -> None:
        """Leave the device open until the process ends, because work on it does not finish. `close` then does
        nothing."""
        self.handle = self.instance = 0

    def __enter__(self) -> VulkanDevice:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def list_devices() -> tuple[PhysicalDevice, ...]:
    """Return every device of every driver: discrete ones first, then integrated, virtual and CPU, each kind in the
    drivers' order; () if no driver has one. Raise UnsupportedError if there is no loader, VulkanError if it cannot
    create an instance."""
    try:
        with open_shared_instance() as (vulkan, instance):
            handles = _list_handles(vulkan, instance)
            physical_devices = [
                physical_device.query_device(vulkan, handle, i) for i, handle in enumerate(handles)
            ]
    except VulkanError as error:
        if (error.call, error.result) in NO_DEVICE:
            return ()
        raise
    order = list(KINDS.values())
    physical_devices.sort(
        key=lambda physical_device: (order.index(physical_device.kind), physical_device.position)
    )
    return tuple(
        replace(item, index=i, missing=find_missing_feature(item)) for i, item in enumerate(physical_devices)
    )


def open_device(physical: PhysicalDevice) -> VulkanDevice:
    """Open a device with its own instance. Raise UnsupportedError if it lacks features that models need or
    is no longer present; VulkanError if the driver refuses."""
    if physical.missing:
        raise UnsupportedError(f"{physical.name}: {physical.missing}", next="zinc-rt devices lists the others")
    vulkan, instance = _create_instance()
    try:
        handles = _list_handles(vulkan, instance)
        here = handles[physical.position] if physical.position < len(handles) else 0
        if not here or physical_device.query_device(vulkan, here, physical.position).uuid != physical.uuid:
            raise UnsupportedError(
                f"{physical.name} is no longer available", next="list the devices with zinc-rt devices"
            )
        try:
            return _create_device(vulkan, instance, here, physical)
        except VulkanError as error:
            raise error.of(f"{physical.name} ({physical.driver})") from None
    except BaseException:
        vulkan.vkDestroyInstance(instance, None)
        raise


def _create_device(vulkan: Vulkan, instance: int, here: int, physical: PhysicalDevice) -> VulkanDevice:
    family = physical.compute_family
    assert family is not None, "why_not looks for one"
    count = min(physical.queue_families[family].queues, MOST_QUEUES)
    queue = make_struct(
        "VkDeviceQueueCreateInfo",
        queueFamilyIndex=family,
        queueCount=count,
        pQueuePriorities=(ctypes.c_float * count)(*[1.0] * count),
    )
    enabled = frozenset({*FEATURES, *OPTIONAL_FEATURES} & physical.features)
    names = sorted(set(EXTENSIONS) & physical.extensions)
    created = make_struct(
        "VkDeviceCreateInfo",
        pNext=_make_feature_chain(physical, enabled),
        queueCreateInfoCount=1,
        pQueueCreateInfos=queue,
        enabledExtensionCount=len(names),
        ppEnabledExtensionNames=_make_string_array(names),
    )
    handle = ctypes.c_void_p()
    vulkan.vkCreateDevice(here, byref(created), None, byref(handle))
    queues = []
    for index in range(count):
        c_void_p = ctypes.c_void_p()
        vulkan.vkGetDeviceQueue(handle, family, index, byref(c_void_p))
        queues.append(DeviceQueue(family, index, c_void_p.value or 0))
    return VulkanDevice(
        physical, vulkan, instance, here, handle.value or 0, tuple(queues), frozenset(names), enabled
    )


def _make_feature_chain(physical: PhysicalDevice, names: frozenset[str]) -> Any:
    """Return a chain that enables features by name and no others: robustBufferAccess would add bounds checks."""
    features, f12 = make_struct("VkPhysicalDeviceFeatures2"), make_struct("VkPhysicalDeviceVulkan12Features")
    f13 = make_struct("VkPhysicalDeviceVulkan13Features")
    for item in (features.features, f12, f13):
        members = {member for member, *_ in item._fields_}
        for name in names & members:
            setattr(item, name, 1)
    more = [f13] if physical.api_version >= (1, 3) else []
    if "VK_EXT_device_fault" in physical.extensions:
        more.append(make_struct("VkPhysicalDeviceFaultFeaturesEXT", deviceFault=1))
    return api.link_structs(features, f12, *more)


@contextmanager
def open_shared_instance() -> Iterator[tuple[Vulkan, int]]:
    """Create an instance for queries. Yield its functions and handle."""
    vulkan, instance = _create_instance()
    try:
        yield vulkan, instance
    finally:
        vulkan.vkDestroyInstance(instance, None)


def _create_instance() -> tuple[Vulkan, int]:
    vulkan = loader.load_vulkan()
    portable = PORTABILITY in list_instance_extensions(vulkan)
    created = make_struct(
        "VkInstanceCreateInfo",
        flags=api.VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR if portable else 0,
        pApplicationInfo=make_struct("VkApplicationInfo", pApplicationName=b"zinc-rt", apiVersion=ASKED_VERSION),
        enabledExtensionCount=int(portable),
        ppEnabledExtensionNames=_make_string_array([PORTABILITY]),
    )
    handle = ctypes.c_void_p()
    vulkan.vkCreateInstance(byref(created), None, byref(handle))
    return vulkan.of(handle.value or 0), handle.value or 0


def list_instance_extensions(vulkan: Vulkan) -> frozenset[str]:
    """Return the instance extensions of the loader and all drivers."""
    count = ctypes.c_uint32()
    vulkan.vkEnumerateInstanceExtensionProperties(None, byref(count), None)
    rows = (api.find_struct_type("VkExtensionProperties") * count.value)()
    vulkan.vkEnumerateInstanceExtensionProperties(None, byref(count), rows)
    properties: Any = rows
    return frozenset(row.extensionName.decode() for row in properties)


def _list_handles(vulkan: Vulkan, instance: int) -> list[int]:
    count = ctypes.c_uint32()
    vulkan.vkEnumeratePhysicalDevices(instance, byref(count), None)
    handles = (ctypes.c_void_p * count.value)()
    vulkan.vkEnumeratePhysicalDevices(instance, byref(count), handles)
    return [handle or 0 for handle in handles[: count.value]]


def _make_string_array(names: list[str]) -> Any:
    return (ctypes.c_char_p * max(len(names), 1))(*[name.encode() for name in names])
