"""Whether a Vulkan driver is here that can run models, for tests that need one."""

from __future__ import annotations

from functools import cache

import pytest

from zinc_rt.backends.vulkan.device import PhysicalDevice, list_devices
from zinc_rt.backends.vulkan.loader import INSTALL
from zinc_rt.host.errors import ZincError


@cache
def found() -> PhysicalDevice | str:
    """The first device that can be used, else why none can."""
    try:
        devices = list_devices()
    except ZincError as error:
        return error.message
    usable = [device for device in devices if not device.missing]
    return (
        usable[0] if usable else "; ".join(f"{device.name}: {device.missing}" for device in devices) or "no device"
    )


def required() -> PhysicalDevice:
    """The device; skips the test, saying why and what to install, where there is none."""
    device = found()
    if isinstance(device, str):
        pytest.skip(f"no Vulkan driver ({device}): {INSTALL}")
    return device
