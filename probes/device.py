"""Device selection, and opening it in a process: the machine's kernel driver, or a simulated device."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from zinc_rt.host.errors import NothingRan, UsageError
from zinc_rt.kmd.driver import Driver
from zinc_rt.kmd.linux import LinuxDriver
from zinc_rt.probes.device_spec import DeviceSpec

PCI = "/sys/bus/pci/devices"
AMD = "0x1002"
_DISPLAY_CLASSES = ("0x03", "0x12")  # display controllers, processing accelerators
_RENDER = re.compile(r"/dev/dri/renderD\d+")


def open_device(spec: DeviceSpec) -> Driver:
    """Open a driver for this process. It must not be used after a fork."""
    if not spec.simulated:
        return LinuxDriver()
    from zinc_rt.probes import simulated

    return simulated.open_driver(spec)


def parse_device(
    text: str,
    inject: Sequence[str],
    reorder: int | None = None,
    facts: str = "",
    force_facts: bool = False,
    flip: Sequence[str] = (),
) -> DeviceSpec:
    """Parse --device and related options. Raises UsageError for an invalid device, InputError for an
    invalid facts file."""
    if text == "sim" or text.startswith("sim:"):
        from zinc_rt.probes import simulated

        spec = DeviceSpec(
            True, text[4:], "", tuple(inject), simulated.TIME_SCALE, reorder, facts, force_facts, tuple(flip)
        )
        simulated.check_profile(spec)
        return spec
    if reorder is not None:
        raise UsageError("--reorder: supported only by a simulated device", next="add --device sim")
    if facts:
        raise UsageError("--facts: supported only by a simulated device", next="add --device sim")
    if flip:
        raise UsageError("--flip: supported only by a simulated device", next="add --device sim")
    if inject:
        raise UsageError("--inject: supported only by a simulated device", next="add --device sim")
    if text in ("auto", "hw"):
        return DeviceSpec()
    if not _RENDER.fullmatch(text):
        raise UsageError(f"--device {text!r}: expected auto, hw, sim, sim:CHIP[@LINUX] or /dev/dri/renderDN")
    return DeviceSpec(render_path=text)


def require_amd_gpu(spec: DeviceSpec, command: str) -> None:
    """Check that a device exists. Raises UsageError if a device selected by name is missing, NothingRan if there
    is no device: nothing is simulated unless requested.
    """
    if spec.render_path and not Path(spec.render_path).exists():
        raise UsageError(
            f"--device {spec.render_path}: no such render node", next="zinc-rt devices lists the devices"
        )
    if spec.simulated or spec.render_path or find_amd_gpus(LinuxDriver()):
        return
    raise NothingRan(
        "this machine has no AMD GPU (no PCI display device of vendor 1002), so nothing ran",
        next=f"{command} --device sim  tests a simulated one instead, which says nothing about hardware",
    )


def find_amd_gpus(driver: Driver) -> list[str]:
    """Return the PCI addresses of AMD's display devices, whatever their driver."""
    paths = []
    try:
        addresses = driver.list_dir(PCI)
    except OSError:
        return []
    for address in addresses:
        if (
            read_file(driver, f"{PCI}/{address}/vendor") == AMD
            and (read_file(driver, f"{PCI}/{address}/class") or "")[:4] in _DISPLAY_CLASSES
        ):
            paths.append(address)
    return paths


def read_file(driver: Driver, path: str) -> str | None:
    """Return a file's text; None if it cannot be read."""
    try:
        return driver.read_file(path).decode(errors="replace").strip()
    except OSError:
        return None
