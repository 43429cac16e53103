"""Read the device's clock before and after each dispatch of a timed graph: two queries each."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref

from zinc_rt.backends.times import TimedDispatch, Times
from zinc_rt.backends.vulkan import api
from zinc_rt.backends.vulkan.device import VulkanDevice
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.ir.graph import Node

QUERIES = 2  # a dispatch
VK_NOT_READY = 1


class Timestamps:
    """A VkQueryPool for one executable. It must be reset before it is read. `dispatches`: the dispatch of each
    reading."""

    def __init__(self, device: VulkanDevice, dispatches: Sequence[tuple[Node | None, str]]) -> None:
        """Create the pool. Raise UnsupportedError if the queue has no timestamps."""
        if not device.valid_bits:
            raise UnsupportedError(
                f"{device.physical.name}: its queue does not support timestamps (timestampValidBits is 0)",
                next="time whole steps, or use another tier",
            )
        self.dispatches = tuple(dispatches)
        self.count = QUERIES * len(self.dispatches)
        self._device, self._vk = device, device.vk
        info = api.make_struct(
            "VkQueryPoolCreateInfo", queryType=api.VK_QUERY_TYPE_TIMESTAMP, queryCount=max(1, self.count)
        )
        pool = ctypes.c_uint64()
        self._vk.vkCreateQueryPool(device.handle, byref(info), None, byref(pool))
        self.pool = pool.value

    def read(self) -> Times:
        """Return the readings of the last replay, which must have finished; nothing before the first replay."""
        period = self._device.timestamp_period
        clock = f"the device's clock, {period:g} ns a tick"
        ticks = (ctypes.c_uint64 * max(1, self.count))()
        size = ctypes.sizeof(ticks)
        kind = api.VK_QUERY_RESULT_64_BIT
        if (
            not self.count
            or self._vk.vkGetQueryPoolResults(
                self._device.handle, self.pool, 0, self.count, size, ticks, ctypes.sizeof(ctypes.c_uint64), kind
            )
            == VK_NOT_READY
        ):
            return Times(clock, False, ())
        mask = (1 << self._device.valid_bits) - 1
        first = ticks[0]
        # relative to the first reading, because the counter may have wrapped
        nanoseconds = [round(((tick - first) & mask) * period) for tick in ticks[: self.count]]
        readings = zip(self.dispatches, nanoseconds[::2], nanoseconds[1::2], strict=True)
        return Times(clock, False, tuple(TimedDispatch(*whose, start, ended) for whose, start, ended in readings))

    def close(self) -> None:
        self._vk.vkDestroyQueryPool(self._device.handle, self.pool, None)
