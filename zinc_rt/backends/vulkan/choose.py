"""Select a Vulkan device: the best, the Nth, or one by a part of its name."""

from __future__ import annotations

from collections.abc import Sequence

from zinc_rt.backends.vulkan.physical_device import PhysicalDevice
from zinc_rt.host.errors import UnsupportedError, UsageError

ANY = ("", "hw", "cpu")  # the first device, the first GPU, the first software driver
SOFTWARE = "software driver: slower than a GPU"


def choose_device(devices: Sequence[PhysicalDevice], which: str) -> tuple[PhysicalDevice, str]:
    """Select a device that can run models, and describe the reason in a line. `which` is ANY, a number, or a part
    of a name. Raise UsageError for a number or name without a match, or a name with several; UnsupportedError if
    no allowed device can run a model."""
    chosen = pick_device(devices, which)
    if which in ANY and chosen.missing:
        text = "; ".join(f"{item.name}: {item.missing}" for item in _select_allowed_devices(devices, which))
        raise UnsupportedError(
            f"no Vulkan device can run models: {text}", next="update its driver, then run zinc-rt vulkan-test"
        )
    if chosen.missing:
        raise UnsupportedError(
            f"{chosen.name}: {chosen.missing}", next=f"choose another device: {format_devices(devices)}"
        )
    equal = [
        device for device in devices if device.name == chosen.name and not device.missing and device != chosen
    ]
    if which not in ANY or not equal:
        return chosen, format_device(chosen)
    more = f"the first of {len(equal) + 1} identical devices; --device {equal[0].option} selects the next"
    return chosen, f"{format_device(chosen)}; {more}"


def pick_device(devices: Sequence[PhysicalDevice], which: str) -> PhysicalDevice:
    """Select like `choose_device`, but return the first allowed device if none can run a model."""
    if which not in ANY:
        return _find_by_name(devices, which)
    allowed = _select_allowed_devices(devices, which)
    if not allowed:
        what = "software driver" if which == "cpu" else "GPU"
        raise UnsupportedError(
            f"--device {which}: this machine has no {what} with Vulkan support",
            next=f"choose one: {format_devices(devices)}",
        )
    return next((item for item in allowed if not item.missing), allowed[0])


def _select_allowed_devices(devices: Sequence[PhysicalDevice], which: str) -> list[PhysicalDevice]:
    return [device for device in devices if which == "" or device.is_cpu == (which == "cpu")]


def _find_by_name(devices: Sequence[PhysicalDevice], which: str) -> PhysicalDevice:
    if which.isdecimal() and int(which) < len(devices):
        return devices[int(which)]
    fit = [device for device in devices if which.lower() in device.name.lower()]
    if which.isdecimal() and not fit:
        text = "is one device" if len(devices) == 1 else f"are {len(devices)} devices"
        raise UsageError(
            f"--device vulkan:{which}: no such device; there {text}", next=f"choose one: {format_devices(devices)}"
        )
    if len(fit) != 1:
        fits = f"matches {' and '.join(item.option for item in fit)}" if fit else "matches no device"
        raise UsageError(
            f"--device vulkan:{which}: the name {fits}", next=f"choose one: {format_devices(devices)}"
        )
    return fit[0]


def format_device(device: PhysicalDevice) -> str:
    """Describe a device in one line."""
    return f"{device.name}, {device.driver}{f' ({SOFTWARE})' if device.is_cpu else ''}"


def format_devices(devices: Sequence[PhysicalDevice]) -> str:
    return ", ".join(f"{device.option} {device.name}" for device in devices)
