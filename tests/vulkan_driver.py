"""Whether a Vulkan driver is here that can run models, for tests that need one."""

from __future__ import annotations

from functools import cache

import pytest

from zinc_rt.backends.vulkan.device import PhysicalDevice, list_devices
from zinc_rt.backends.vulkan.loader import INSTALL
from zinc_rt.host.errors import ZincError


@cache
def find_driver() -> PhysicalDevice | str:
    """Return the first usable device, else the reason why there is none."""
    try:
        devices = list_devices()
    except ZincError as error:
        return error.message
    usable = [device for device in devices if not device.missing]
    return (
        usable[0] if usable else "; ".join(f"{device.name}: {device.missing}" for device in devices) or "no device"
    )


def require_driver() -> PhysicalDevice:
    """Return the device; if there is none, skip the test with the reason and what to install."""
    device = find_driver()
    if isinstance(device, str):
        pytest.skip(f"no Vulkan driver ({device}): {INSTALL}")
    return device
