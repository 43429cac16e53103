"""The context of a Vulkan probe: one device, opened as far as needed, and all resources released at the
end."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from zinc_rt.backends.vulkan.device import PhysicalDevice, VulkanDevice, list_devices, open_device
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.probes.device_spec import DeviceSpec
from zinc_rt.probes.kit.context import ProbeOptions
from zinc_rt.probes.vulkan.bench import VulkanBench

if TYPE_CHECKING:
    from zinc_rt.sim.interfaces import DeviceFinding


class VulkanProbeContext:
    """One Vulkan device in one process. `spec.render_path` is its option, vulkan:N. A context manager."""

    def __init__(self, spec: DeviceSpec, tier: str, options: ProbeOptions) -> None:
        self.spec, self.tier, self.options = spec, tier, options
        self._stack = ExitStack()

    @cached_property
    def devices(self) -> tuple[PhysicalDevice, ...]:
        return list_devices()

    @property
    def physical(self) -> PhysicalDevice:
        for device in self.devices:
            if device.option == self.spec.option:
                return device
        raise UnsupportedError(f"{self.spec.option} no longer exists", next="zinc-rt devices")

    @cached_property
    def device(self) -> VulkanDevice:
        return self._stack.enter_context(open_device(self.physical))

    @cached_property
    def bench(self) -> VulkanBench:
        return self._stack.enter_context(VulkanBench(self.device))

    def news(self) -> tuple[list[DeviceFinding], list[str]]:
        """Return nothing: no Vulkan device is simulated."""
        return [], []

    def marks(self) -> list[str]:
        return []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._stack.close()
