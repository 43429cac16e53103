"""Errors of Vulkan commands: the result by name, the object concerned, and advice."""

from __future__ import annotations

from zinc_rt.backends.vulkan.api import RESULTS
from zinc_rt.host.errors import ZincError

ADVICE = {
    "VK_ERROR_OUT_OF_HOST_MEMORY": "end other programs, or use a smaller model or --ctx",
    "VK_ERROR_OUT_OF_DEVICE_MEMORY": "use a smaller model or --ctx, or end other programs that use this device's "
    "memory",
    "VK_ERROR_INITIALIZATION_FAILED": "zinc-rt vulkan-test lists this driver's features; "
    "VK_LOADER_DEBUG=all shows what the loader tried",
    "VK_ERROR_DEVICE_LOST": "see the kernel log (dmesg) for the cause; zinc-rt vulkan-test shows what still works",
    "VK_ERROR_MEMORY_MAP_FAILED": "use a smaller model or --ctx: the host ran out of address space or memory",
    "VK_ERROR_LAYER_NOT_PRESENT": "VK_INSTANCE_LAYERS names a layer that is not installed: unset it or install it "
    "(apt install vulkan-validationlayers)",
    "VK_ERROR_EXTENSION_NOT_PRESENT": "update the driver; zinc-rt vulkan-test lists its features",
    "VK_ERROR_FEATURE_NOT_PRESENT": "update the driver, or choose another device: zinc-rt devices lists them",
    "VK_ERROR_INCOMPATIBLE_DRIVER": "no installed driver has a device here, or VK_DRIVER_FILES names no driver "
    "that works: zinc-rt vulkan-test shows the reason for each",
    "VK_ERROR_TOO_MANY_OBJECTS": "the driver allows no more allocations: use a smaller model",
    "VK_ERROR_INVALID_SHADER_NV": "the driver rejects a kernel: update it, and report this",
    "VK_ERROR_INVALID_EXTERNAL_HANDLE": "the driver rejects the host's memory: report this",
}


class VulkanError(ZincError):
    """A negative VkResult. `result`: its name; `call`: the command; `about`: the object or sizes concerned."""

    exit_code = 1

    def __init__(self, result: int, call: str, about: str = "") -> None:
        self.result = RESULTS.get(result, f"VkResult {result}")
        self.call, self.about = call, about
        message = f"{call} returned {self.result}"
        super().__init__(f"{about}: {message}" if about else message, next=ADVICE.get(self.result))

    @property
    def lost(self) -> bool:
        """Return whether the device is lost: waiting on it is impossible."""
        return self.result == "VK_ERROR_DEVICE_LOST"

    def of(self, about: str) -> VulkanError:
        """Return the same error with `about` set."""
        code = next((value for value, name in RESULTS.items() if name == self.result), 0)
        return VulkanError(code, self.call, about)
