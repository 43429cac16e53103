"""What a machine's Vulkan devices say, and how one opens: on whatever driver is here."""

from __future__ import annotations

import pytest

from zinc_rt.backends.vulkan import layers
from zinc_rt.backends.vulkan.device import PhysicalDevice, open_device
from zinc_rt.backends.vulkan.physical_device import API_VERSION, FEATURES, format_version
from zinc_rt.backends.vulkan.tier import describe_device


def test_device_opens_with_required_features_and_closes(vulkan_driver: PhysicalDevice) -> None:
    assert vulkan_driver.api_version >= API_VERSION and vulkan_driver.memory > 0
    with open_device(vulkan_driver) as device:
        assert set(FEATURES) <= device.features
        assert device.handle and all(queue.handle for queue in device.queues)
        assert {"RoundingModeRTE", "SignedZeroInfNanPreserve"} <= set(device.float_modes)
    assert not device.handle and not device.instance


def test_report_describes_device_driver_and_layers(
    vulkan_driver: PhysicalDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VK_DRIVER_FILES", "/mine.json")
    output = describe_device(vulkan_driver)
    assert (output.name, output.arch, output.profile) == (vulkan_driver.name, "vulkan", vulkan_driver.driver)
    assert output.firmware == f"Vulkan {format_version(vulkan_driver.api_version)}"
    assert output.software is (vulkan_driver.kind == "cpu") and not output.simulated
    assert output.driver_files == "VK_DRIVER_FILES=/mine.json" and output.layers == layers.list_active_layers()


def test_two_devices_can_be_open_at_once(vulkan_driver: PhysicalDevice) -> None:
    with open_device(vulkan_driver) as first, open_device(vulkan_driver) as second:
        assert first.instance != second.instance
