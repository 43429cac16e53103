"""A stream's 64-bit timeline: a timeline semaphore, which each submission raises to the next value."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref

from zinc_rt.backends.vulkan import api
from zinc_rt.backends.vulkan.device import VulkanDevice

VK_TIMEOUT = 2
_LOST = 1 << 64  # above every value: all waits end


class SemaphoreTimeline:
    """Values 1, 2, 3, … of one stream. `submitted` is the last allocated value, `seen` the last value read."""

    def __init__(
        self, name: str, device: VulkanDevice, wait: Callable[[SemaphoreTimeline, int, float], None]
    ) -> None:
        """Create a timeline. `wait(timeline, value, seconds)` blocks until the value is reached, or raises."""
        self.name = name
        self.submitted = 0
        self.seen = 0
        self.last_good = 0  # `seen` before the timeline was lost
        self.error: BaseException | None = None
        self.wait = wait
        self.next_value = ctypes.c_uint64(1)  # referenced by prepared submissions
        self._vk, self._device = device.vk, device.handle
        self._counter = ctypes.c_uint64()
        kind = api.make_struct("VkSemaphoreTypeCreateInfo", semaphoreType=api.VK_SEMAPHORE_TYPE_TIMELINE)
        info = api.link_structs(api.make_struct("VkSemaphoreCreateInfo"), kind)
        semaphore = ctypes.c_uint64()
        self._vk.vkCreateSemaphore(self._device, byref(info), None, byref(semaphore))
        self.semaphore = semaphore
        self._awaited = ctypes.c_uint64()
        self._wait_info = api.make_struct(
            "VkSemaphoreWaitInfo", semaphoreCount=1, pSemaphores=semaphore, pValues=self._awaited
        )

    def record_submission(self) -> int:
        """Record a submission and return its value."""
        self.submitted += 1
        self.next_value.value = self.submitted + 1
        return self.submitted

    def poll(self) -> int:
        """Read the semaphore's value."""
        if self.error is None:
            self._vk.vkGetSemaphoreCounterValue(self._device, self.semaphore, byref(self._counter))
            self.seen = self._counter.value
        return self.seen

    def reached(self, value: int, timeout_seconds: float) -> bool:
        """Block until the value is reached. Return False after the timeout."""
        self._awaited.value = value
        nanoseconds = min(max(0, int(timeout_seconds * 1e9)), (1 << 63) - 1)
        if self._vk.vkWaitSemaphores(self._device, byref(self._wait_info), nanoseconds) == VK_TIMEOUT:
            return False
        self.seen = max(self.seen, value)
        return True

    def lose(self, error: BaseException) -> None:
        """Mark the timeline as lost: every pending fence completes with `error`."""
        if self.error is None:
            self.last_good, self.seen, self.error = self.seen, _LOST, error

    def close(self) -> None:
        self._vk.vkDestroySemaphore(self._device, self.semaphore, None)


class SemaphoreFence:
    """An exec.Fence over a timeline."""

    __slots__ = ("timeline", "value")

    def __init__(self, timeline: SemaphoreTimeline, value: int) -> None:
        self.timeline = timeline
        self.value = value

    def __repr__(self) -> str:
        return f"SemaphoreFence({self.timeline.name!r}, {self.value})"

    def done(self) -> bool:
        return self.value <= self.timeline.seen or self.value <= self.timeline.poll()

    def wait(self, timeout_seconds: float) -> None:
        """Wait. Raise DeadlineMissed after the timeout, or the error that lost the device."""
        timeline = self.timeline
        if self.value > timeline.seen:
            timeline.wait(timeline, self.value, timeout_seconds)
        if timeline.error is not None and self.value > timeline.last_good:
            raise timeline.error
