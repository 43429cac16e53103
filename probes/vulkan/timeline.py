"""A timeline semaphore and submissions that signal it, without the backend's streams, for tests of
semaphores."""

from __future__ import annotations

import ctypes
from ctypes import byref
from typing import Any

from zinc_rt.backends.vulkan import api
from zinc_rt.backends.vulkan.device import VulkanDevice
from zinc_rt.backends.vulkan.fence import VK_TIMEOUT


class ProbeTimeline:
    """One semaphore of a device's first queue. The creator closes it before the device."""

    def __init__(self, device: VulkanDevice) -> None:
        self._vk, self._device, self._queue = device.vk, device.handle, device.queues[0].handle
        kind = api.make_struct("VkSemaphoreTypeCreateInfo", semaphoreType=api.VK_SEMAPHORE_TYPE_TIMELINE)
        self.handle = ctypes.c_uint64()
        info = api.link_structs(api.make_struct("VkSemaphoreCreateInfo"), kind)
        self._vk.vkCreateSemaphore(self._device, byref(info), None, byref(self.handle))

    def submit(self, value: int, *, commands: int = 0, after: tuple[ProbeTimeline, int] | None = None) -> None:
        """Signal `value` when the command buffer, if any, has ended; it starts once `after` is reached."""
        waits = [after] if after is not None else []
        values: dict[str, Any] = {
            "signalSemaphoreValueCount": 1,
            "pSignalSemaphoreValues": ctypes.c_uint64(value),
            "waitSemaphoreValueCount": len(waits),
            "pWaitSemaphoreValues": (ctypes.c_uint64 * 1)(*(item for _, item in waits)),
        }
        info = api.make_struct(
            "VkSubmitInfo",
            commandBufferCount=1 if commands else 0,
            pCommandBuffers=ctypes.c_void_p(commands),
            signalSemaphoreCount=1,
            pSignalSemaphores=self.handle,
            waitSemaphoreCount=len(waits),
            pWaitSemaphores=(ctypes.c_uint64 * 1)(*(item.handle.value for item, _ in waits)),
            pWaitDstStageMask=ctypes.c_uint32(api.VK_PIPELINE_STAGE_ALL_COMMANDS_BIT),
        )
        chain = api.link_structs(info, api.make_struct("VkTimelineSemaphoreSubmitInfo", **values))
        self._vk.vkQueueSubmit(self._queue, 1, byref(chain), 0)

    def signal(self, value: int) -> None:
        """Signal from the host."""
        info = api.make_struct("VkSemaphoreSignalInfo", semaphore=self.handle.value, value=value)
        self._vk.vkSignalSemaphore(self._device, byref(info))

    def wait(self, value: int, seconds: float) -> bool:
        """Return whether the value was reached in time."""
        info = api.make_struct(
            "VkSemaphoreWaitInfo", semaphoreCount=1, pSemaphores=self.handle, pValues=ctypes.c_uint64(value)
        )
        answer: int = self._vk.vkWaitSemaphores(self._device, byref(info), int(seconds * 1e9))
        return answer != VK_TIMEOUT

    def value(self) -> int:
        counter = ctypes.c_uint64()
        self._vk.vkGetSemaphoreCounterValue(self._device, self.handle, byref(counter))
        return counter.value

    def close(self) -> None:
        self._vk.vkDestroySemaphore(self._device, self.handle, None)
