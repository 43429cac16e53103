"""Vulkan's functions, from the system's loader or, without a loader, from an installed driver.

vulkan = loader.load()
vulkan.vkEnumerateInstanceVersion(byref(version))      # before there is an instance
vulkan.of(instance).vkEnumeratePhysicalDevices(...)    # an instance's functions
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from typing import Any

from zinc_rt.backends.vulkan import icd
from zinc_rt.backends.vulkan.api import COMMANDS, find_function_type
from zinc_rt.backends.vulkan.errors import VulkanError
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.host.machine import count_available_cores

LIBRARIES = ("libvulkan.so.1", "libvulkan.so", "vulkan-1.dll", "libvulkan.1.dylib", "libMoltenVK.dylib")
# Negotiated with a driver before its vk_icdGetInstanceProcAddr (LoaderDriverInterface.md): drivers of version 5
# and later accept an application's apiVersion above their own.
NEGOTIATE, INTERFACE_VERSION = "vk_icdNegotiateLoaderICDInterfaceVersion", 5
INSTALL = (
    "a GPU's driver comes from its vendor; without a GPU: apt install mesa-vulkan-drivers libvulkan1 (lavapipe, "
    "software)"
)


class Vulkan:
    """Functions by their own names, resolved on first use. A function that returns a VkResult raises VulkanError
    for negative values and returns the others (VK_TIMEOUT, VK_INCOMPLETE)."""

    def __init__(self, find: Callable[[int | None, bytes], int | None], source: str, instance: int | None = None):
        """Create from `find`, a vkGetInstanceProcAddr. `source` is the library that it comes from."""
        self._find, self.source, self._instance = find, source, instance

    def of(self, instance: int) -> Vulkan:
        """Return the functions of an instance, including its layers."""
        return Vulkan(self._find, self.source, instance)

    def __getattr__(self, name: str) -> Any:
        if name not in COMMANDS:
            raise AttributeError(f"{name}: this command is not in the list of ci/vulkan_api.py")
        address = self._find(self._instance, name.encode())
        if not address:
            raise UnsupportedError(f"{self.source} has no {name}", next="update the Vulkan driver or loader")
        function = find_function_type(name)(address)
        if COMMANDS[name].startswith("i32 "):
            function = _check_result(name, function)
        setattr(self, name, function)
        return function


def _check_result(name: str, function: Any) -> Any:
    def call(*arguments: Any) -> int:
        result: int = function(*arguments)
        if result < 0:
            raise VulkanError(result, name)
        return result

    return call


@cache
def load_vulkan() -> Vulkan:
    """Load Vulkan for this process. Raise UnsupportedError if there is neither a loader nor a driver.

    lavapipe uses every core of the machine: its thread count is set to the cores available to this process, unless
    the user set it.
    """
    os.environ.setdefault("LP_NUM_THREADS", str(count_available_cores()))
    for library in LIBRARIES:
        if handle := _open_library(library):
            return Vulkan(_make_finder(handle.vkGetInstanceProcAddr), library)
    drivers = icd.list_installed_drivers()
    for driver in drivers:
        if not driver.trouble and (vulkan := _load_driver(driver)):
            return vulkan
    troubles = "; ".join(f"{driver.manifest}: {driver.trouble}" for driver in drivers if driver.trouble)
    raise UnsupportedError(
        f"no Vulkan loader (libvulkan.so.1) and no loadable driver{f' ({troubles})' if troubles else ''}",
        next=INSTALL,
    )


def _open_library(library: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(library)
    except OSError:
        return None


def _load_driver(driver: icd.InstalledDriver) -> Vulkan | None:
    """Return a driver's own functions if it can be used without a loader."""
    handle = ctypes.CDLL(driver.library)
    if not hasattr(handle, "vk_icdGetInstanceProcAddr"):
        return None
    if hasattr(handle, NEGOTIATE):
        getattr(handle, NEGOTIATE)(ctypes.byref(ctypes.c_uint32(INTERFACE_VERSION)))
    return Vulkan(_make_finder(handle.vk_icdGetInstanceProcAddr), driver.library)


def _make_finder(function: Any) -> Callable[[int | None, bytes], int | None]:
    function.restype, function.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]
    return lambda instance, name: function(instance, name) or function(None, name)
