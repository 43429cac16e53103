"""What a machine's Vulkan devices say, and how one opens: on whatever driver is here."""

from __future__ import annotations

from zinc_rt.backends.vulkan.device import PhysicalDevice, open_device
from zinc_rt.backends.vulkan.physical_device import API_VERSION, FEATURES


def test_a_device_opens_with_what_models_need_and_closes(vulkan_driver: PhysicalDevice) -> None:
    assert vulkan_driver.api_version >= API_VERSION and vulkan_driver.memory > 0
    with open_device(vulkan_driver) as device:
        assert set(FEATURES) <= device.features
        assert device.handle and all(queue.handle for queue in device.queues)
        assert {"RoundingModeRTE", "SignedZeroInfNanPreserve"} <= set(device.float_modes)
    assert not device.handle and not device.instance


def test_two_devices_are_open_at_a_time(vulkan_driver: PhysicalDevice) -> None:
    with open_device(vulkan_driver) as first, open_device(vulkan_driver) as second:
        assert first.instance != second.instance
