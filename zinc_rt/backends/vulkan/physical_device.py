"""Query a device's properties before it is opened, and why it cannot run a model."""

from __future__ import annotations

import ctypes
from ctypes import byref
from dataclasses import dataclass
from typing import Any

from zinc_rt.backends.vulkan import api
from zinc_rt.backends.vulkan.api import make_struct
from zinc_rt.backends.vulkan.loader import Vulkan

# In the order of `zinc-rt devices`.
KINDS = {
    api.VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: "discrete",
    api.VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: "integrated",
    api.VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU: "virtual",
    api.VK_PHYSICAL_DEVICE_TYPE_OTHER: "other",
    api.VK_PHYSICAL_DEVICE_TYPE_CPU: "cpu",
}
API_VERSION = (1, 2)  # timeline semaphores, buffer addresses and float controls in core
# The limits of kernels/spirv: the minimums of Vulkan 1.2.
INVOCATIONS, SHARED_BYTES, GRID_YZ = 128, 16 << 10, 65535
# Each with the reason why it is required.
FEATURES = {
    "bufferDeviceAddress": "kernels reach memory by address",
    "timelineSemaphore": "waits for replays use timeline values",
    "scalarBlockLayout": "arguments have the layout of a kernarg block",
    "shaderInt64": "kernels compute 64-bit addresses",
}
FLOAT_CONTROLS = {
    "shaderRoundingModeRTEFloat32": "canonical orderings require rounding to nearest even",
    "shaderSignedZeroInfNanPreserveFloat32": "canonical orderings require -0, infinities and NaN",
}
OPTIONAL_FEATURES = ("shaderIntegerDotProduct", "subgroupSizeControl", "computeFullSubgroups")
MODES = {  # SPIR-V's execution modes, by the property that offers each for float32
    "shaderRoundingModeRTEFloat32": "RoundingModeRTE",
    "shaderSignedZeroInfNanPreserveFloat32": "SignedZeroInfNanPreserve",
    "shaderDenormPreserveFloat32": "DenormPreserve",
}


@dataclass(frozen=True, slots=True)
class MemoryType:
    """A memory type. `flags`: VK_MEMORY_PROPERTY_*."""

    flags: int
    heap: int


@dataclass(frozen=True, slots=True)
class MemoryHeap:
    size_bytes: int
    device_local: bool


@dataclass(frozen=True, slots=True)
class QueueFamily:
    """A queue family. `flags`: VK_QUEUE_*; `timestamp_bits` 0: no timestamps."""

    flags: int
    queues: int
    timestamp_bits: int


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """The limits from VkPhysicalDeviceLimits and later structs that apply to kernels and memory."""

    grid: tuple[int, int, int]
    invocations: int
    shared_bytes: int
    push_constant_bytes: int
    allocations: int
    allocation_bytes: int  # maximum size of one vkAllocateMemory
    buffer_bytes: int
    non_coherent_atom_bytes: int
    map_alignment_bytes: int
    import_alignment_bytes: int  # alignment of imported host memory; 0: not supported
    timestamp_period_ns: float
    subgroup: int


@dataclass(frozen=True, slots=True)
class PhysicalDevice:
    """A device as its driver describes it. `index`: its number in `zinc-rt devices` and --device vulkan:N;
    `position`: in vkEnumeratePhysicalDevices; `memory`: bytes of its device-local heaps; `missing`: the reason if
    it cannot run models, else "".
    """

    position: int
    name: str
    kind: str
    driver: str
    api_version: tuple[int, int, int]
    vendor_id: int
    device_id: int
    uuid: str
    pipeline_cache_uuid: bytes
    limits: DeviceLimits
    heaps: tuple[MemoryHeap, ...]
    memory_types: tuple[MemoryType, ...]
    queue_families: tuple[QueueFamily, ...]
    features: frozenset[str]
    float_controls: frozenset[str]
    extensions: frozenset[str]
    missing: str = ""
    index: int = -1

    @property
    def memory(self) -> int:
        return sum(heap.size_bytes for heap in self.heaps if heap.device_local)

    @property
    def is_cpu(self) -> bool:
        """Return whether it is a software device: its results are valid, its speed is not meaningful."""
        return self.kind == "cpu"

    @property
    def float_modes(self) -> tuple[str, ...]:
        """Return the execution modes that it supports, by their SPIR-V names."""
        return tuple(mode for name, mode in MODES.items() if name in self.float_controls)

    @property
    def option(self) -> str:
        return f"vulkan:{self.index}"

    @property
    def compute_family(self) -> int | None:
        """Return the first compute-only queue family, else the first with compute."""
        families = [i for i, item in enumerate(self.queue_families) if item.flags & api.VK_QUEUE_COMPUTE_BIT]
        alone = [i for i in families if not self.queue_families[i].flags & api.VK_QUEUE_GRAPHICS_BIT]
        return next(iter([*alone, *families]), None)


def query_device(vulkan: Vulkan, handle: int, position: int) -> PhysicalDevice:
    """Query all properties of a device. `vulkan`: an instance's functions."""
    properties = make_struct("VkPhysicalDeviceProperties2")
    vulkan.vkGetPhysicalDeviceProperties2(handle, byref(properties))
    version = split_version(properties.properties.apiVersion)
    extensions = _list_extensions(vulkan, handle)
    p11, p12 = make_struct("VkPhysicalDeviceVulkan11Properties"), make_struct("VkPhysicalDeviceVulkan12Properties")
    host = make_struct("VkPhysicalDeviceExternalMemoryHostPropertiesEXT")
    maintenance = make_struct("VkPhysicalDeviceMaintenance4Properties")
    f12, f13 = make_struct("VkPhysicalDeviceVulkan12Features"), make_struct("VkPhysicalDeviceVulkan13Features")
    features = make_struct("VkPhysicalDeviceFeatures2")
    if version >= API_VERSION:
        more = [p11, p12]
        more += [host] if "VK_EXT_external_memory_host" in extensions else []
        more += [maintenance] if version >= (1, 3) or "VK_KHR_maintenance4" in extensions else []
        vulkan.vkGetPhysicalDeviceProperties2(handle, byref(api.link_structs(properties, *more)))
        api.link_structs(features, f12, *([f13] if version >= (1, 3) else []))
    vulkan.vkGetPhysicalDeviceFeatures2(handle, byref(features))
    memory = make_struct("VkPhysicalDeviceMemoryProperties2")
    vulkan.vkGetPhysicalDeviceMemoryProperties2(handle, byref(memory))
    heaps, types = _list_memory(memory.memoryProperties)
    core, limits = properties.properties, properties.properties.limits
    asked = (*FEATURES, *OPTIONAL_FEATURES)
    return PhysicalDevice(
        position,
        core.deviceName.decode(errors="replace"),
        KINDS.get(core.deviceType, "other"),
        " ".join(word.decode(errors="replace") for word in (p12.driverName, p12.driverInfo) if word)
        or f"driver {core.driverVersion:#x}",
        version,
        core.vendorID,
        core.deviceID,
        bytes(p11.deviceUUID).hex(),
        bytes(core.pipelineCacheUUID),
        DeviceLimits(
            tuple(limits.maxComputeWorkGroupCount),
            limits.maxComputeWorkGroupInvocations,
            limits.maxComputeSharedMemorySize,
            limits.maxPushConstantsSize,
            limits.maxMemoryAllocationCount,
            p11.maxMemoryAllocationSize or 1 << 30,  # the minimum of every device
            maintenance.maxBufferSize or p11.maxMemoryAllocationSize or 1 << 30,
            limits.nonCoherentAtomSize,
            limits.minMemoryMapAlignment,
            host.minImportedHostPointerAlignment,
            limits.timestampPeriod,
            p11.subgroupSize,
        ),
        heaps,
        types,
        _list_queue_families(vulkan, handle),
        frozenset(name for name in asked for item in (features.features, f12, f13) if getattr(item, name, 0)),
        frozenset(name for name in MODES if getattr(p12, name)),
        extensions,
    )


def find_missing_feature(device: PhysicalDevice) -> str:
    """Return the name of the first required feature that a device lacks; "" if it has all."""
    on = f"its driver {device.driver}"
    if device.api_version[:2] < API_VERSION:
        return f"{on} supports Vulkan {format_version(device.api_version)}, but 1.2 is required"
    for names, offered in ((FEATURES, device.features), (FLOAT_CONTROLS, device.float_controls)):
        for name, reason in names.items():
            if name not in offered:
                return f"{on} lacks {name} ({reason})"
    if device.compute_family is None:
        return f"{on} has no compute queue"
    visible = api.VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT
    if not device.memory or not any(memory_type.flags & visible for memory_type in device.memory_types):
        return f"{on} offers no memory {'of its own' if not device.memory else 'that the host can map'}"
    limits = device.limits
    for name, actual, minimum in (
        ("maxComputeWorkGroupInvocations", limits.invocations, INVOCATIONS),
        ("maxComputeSharedMemorySize", limits.shared_bytes, SHARED_BYTES),
        ("maxComputeWorkGroupCount", min(limits.grid), GRID_YZ),
    ):
        if actual < minimum:
            return f"{on} has {name} {actual}, but {minimum} is required"
    return ""


def format_version(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def split_version(number: int) -> tuple[int, int, int]:
    """Split a version number: VK_API_VERSION_MAJOR, _MINOR, _PATCH."""
    return number >> 22 & 0x7F, number >> 12 & 0x3FF, number & 0xFFF


def _list_extensions(vulkan: Vulkan, handle: int) -> frozenset[str]:
    count = ctypes.c_uint32()
    vulkan.vkEnumerateDeviceExtensionProperties(handle, None, byref(count), None)
    rows = (api.find_struct_type("VkExtensionProperties") * count.value)()
    vulkan.vkEnumerateDeviceExtensionProperties(handle, None, byref(count), rows)
    result: Any = rows
    return frozenset(row.extensionName.decode() for row in result)


def _list_memory(properties: Any) -> tuple[tuple[MemoryHeap, ...], tuple[MemoryType, ...]]:
    heaps = properties.memoryHeaps[: properties.memoryHeapCount]
    types = properties.memoryTypes[: properties.memoryTypeCount]
    local = api.VK_MEMORY_HEAP_DEVICE_LOCAL_BIT
    return (
        tuple(MemoryHeap(heap.size, bool(heap.flags & local)) for heap in heaps),
        tuple(MemoryType(item.propertyFlags, item.heapIndex) for item in types),
    )


def _list_queue_families(vulkan: Vulkan, handle: int) -> tuple[QueueFamily, ...]:
    count = ctypes.c_uint32()
    vulkan.vkGetPhysicalDeviceQueueFamilyProperties(handle, byref(count), None)
    rows = (api.find_struct_type("VkQueueFamilyProperties") * count.value)()
    vulkan.vkGetPhysicalDeviceQueueFamilyProperties(handle, byref(count), rows)
    result: Any = rows
    return tuple(QueueFamily(row.queueFlags, row.queueCount, row.timestampValidBits) for row in result)
