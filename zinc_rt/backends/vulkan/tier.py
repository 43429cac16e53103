"""Tier vulkan: any device with a Vulkan 1.2 driver. It is used only if named explicitly."""

from __future__ import annotations

import platform
from contextlib import ExitStack
from dataclasses import replace

from zinc_rt.backends.base import Backend, Device
from zinc_rt.backends.spec import Availability, Host, OnDevice, Opening
from zinc_rt.backends.vulkan import icd, layers
from zinc_rt.backends.vulkan.choose import SOFTWARE, choose_device
from zinc_rt.backends.vulkan.device import list_devices, open_device
from zinc_rt.backends.vulkan.errors import VulkanError
from zinc_rt.backends.vulkan.loader import INSTALL
from zinc_rt.backends.vulkan.physical_device import PhysicalDevice, format_version
from zinc_rt.host.errors import UnsupportedError, ZincError
from zinc_rt.host.files import cache_folder
from zinc_rt.host.object_cache import ObjectCache

ANOTHER = "update its driver, or use another device: zinc-rt vulkan-test shows what each one lacks"


def probe(host: Host) -> Availability:
    """Probe every device of every driver, and select one. Raise UsageError if `host.device` matches none of
    them.
    """
    try:
        devices = require_devices()
    except ZincError as error:
        return Availability(False, error.message, error.next)
    rows = tuple(_make_row(device) for device in devices)
    try:
        _, reason = choose_device(devices, host.device)
    except UnsupportedError as error:
        return Availability(False, error.message, error.next, devices=rows)
    return Availability(True, reason, devices=rows)


def open(opening: Opening) -> Backend:
    """Open the backend. Raise UnsupportedError if no device can be used, or if its results differ from
    canonical-1, with the name of the operation; UsageError for a device that does not exist."""
    from zinc_rt.backends.vulkan import self_test  # imports NumPy and kernels, which a probe does not need
    from zinc_rt.backends.vulkan.backend import VulkanBackend, VulkanOptions
    from zinc_rt.kernels.spirv.table import KERNELS

    with ExitStack() as undo:
        undo.callback(opening.after)
        if not opening.spec.computes(opening.ordering):
            computes = ", ".join(opening.spec.orderings)
            raise UnsupportedError(f"vulkan supports {computes}, not {opening.ordering}", next="use t_cpu")
        physical, _ = choose_device(require_devices(), opening.device)
        device = open_device(physical)
        undo.callback(device.close)
        after = undo.pop_all().close
    options = VulkanOptions(cache=ObjectCache(cache_folder() / "vulkan"))
    backend = VulkanBackend(opening.spec, opening.ordering, device, KERNELS, options, after=after)
    backend.device = describe_device(physical)
    try:
        if refusal := self_test.find_refusal(backend):
            raise UnsupportedError(refusal, next=ANOTHER)
        identity = {
            "pipeline_cache_uuid": device.pipeline_cache_uuid.hex(),
            "float_modes": ", ".join(device.float_modes),
            "self_test": self_test.digest_inputs(backend),
        }
        backend.device = replace(backend.device, identity=identity)
    except BaseException:
        backend.close()
        raise
    return backend


def describe_device(physical: PhysicalDevice) -> Device:
    """Describe a device for reports."""
    return Device(
        physical.name,
        "vulkan",
        profile=physical.driver,
        kernel=platform.release(),
        firmware=f"Vulkan {format_version(physical.api_version)}",
        software=physical.is_cpu,
        driver_files=icd.find_manifest_override(),
        layers=layers.list_active_layers(),
    )


def require_devices() -> tuple[PhysicalDevice, ...]:
    """Return all devices, at least one. Raise UnsupportedError with the reason if there is none, based on the
    drivers' manifests, because a loader that reads a broken manifest may return any error.
    """
    problem = ""
    try:
        if devices := list_devices():
            return devices
    except VulkanError as error:
        problem = f" ({error.message})"
    drivers = icd.list_installed_drivers()
    named = f"{name}: " if (name := icd.find_manifest_override()) else ""
    if not drivers:
        raise UnsupportedError(f"{named}the Vulkan loader is installed, but no driver is{problem}", next=INSTALL)
    broken = [driver for driver in drivers if driver.trouble]
    because = "; ".join(f"{item.manifest}: {item.trouble}" for item in broken) or f"{len(drivers)} installed"
    mend = f"reinstall or remove {', '.join(item.manifest for item in broken)}; " if broken else ""
    raise UnsupportedError(f"{named}no Vulkan driver found a device ({because}){problem}", next=mend + INSTALL)


def _make_row(device: PhysicalDevice) -> OnDevice:
    facts = {
        "device": device.option,
        "kind": device.kind,
        "driver": device.driver,
        "api_version": format_version(device.api_version),
        "memory_bytes": device.memory,
        "software": device.is_cpu,
        "driver_files": icd.find_manifest_override(),
        "layers": list(layers.list_active_layers()),
    }
    label = f"{device.option} {device.name}"
    if device.missing:
        return OnDevice(label, False, device.missing, ANOTHER, facts)
    text = f"{device.driver}, Vulkan {format_version(device.api_version)}, {device.memory >> 20:,} MiB"
    return OnDevice(label, True, f"{text}; {SOFTWARE}" if device.is_cpu else text, "", facts)
