"""Query the driver's reason for a lost device: VK_EXT_device_fault."""

from __future__ import annotations

import ctypes
from ctypes import byref

from zinc_rt.backends.vulkan import api
from zinc_rt.backends.vulkan.device import VulkanDevice
from zinc_rt.backends.vulkan.errors import VulkanError

EXTENSION = "VK_EXT_device_fault"
ADDRESS_TYPES = (  # VkDeviceFaultAddressTypeEXT
    "an address",
    "an invalid read",
    "an invalid write",
    "an invalid execute",
    "an instruction of unknown kind",
    "an invalid instruction",
    "a faulting instruction",
)


def describe_device_fault(device: VulkanDevice) -> str:
    """Return the driver's description of a lost device's fault, with the addresses that it names; "" if it has
    none."""
    if EXTENSION not in device.extensions:
        return ""
    counts = api.make_struct("VkDeviceFaultCountsEXT")
    try:
        device.vk.vkGetDeviceFaultInfoEXT(device.handle, byref(counts), None)
        addresses = (api.find_struct_type("VkDeviceFaultAddressInfoEXT") * max(1, counts.addressInfoCount))()
        vendors = (api.find_struct_type("VkDeviceFaultVendorInfoEXT") * max(1, counts.vendorInfoCount))()
        counts.vendorBinarySize = 0
        info = api.make_struct("VkDeviceFaultInfoEXT", pAddressInfos=addresses, pVendorInfos=vendors)
        device.vk.vkGetDeviceFaultInfoEXT(device.handle, byref(counts), byref(info))
    except VulkanError:
        return ""
    lines = [info.description.decode(errors="replace")]
    for index in range(counts.addressInfoCount):
        lines.append(_format_address(addresses[index]))
    for index in range(counts.vendorInfoCount):
        lines.append(vendors[index].description.decode(errors="replace"))
    return "; ".join(line for line in lines if line)


def _format_address(info: ctypes.Structure) -> str:
    """Format an address. The precision is a power of two: the fault is in the aligned block of that size around
    the address."""
    kind, va, precision = info.addressType, info.reportedAddress, info.addressPrecision
    name = ADDRESS_TYPES[kind] if kind < len(ADDRESS_TYPES) else f"fault type {kind}"
    return f"{name} at {va:#x}" + (f" (to {precision} bytes)" if precision > 1 else "")
