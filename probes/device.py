"""Which device is meant, and how a process opens it: the machine's own kernel, or a simulated one."""

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
    """A driver for this process. Not to be used after a fork."""
    if not spec.simulated:
        return LinuxDriver()
    from zinc_rt.probes import simulated

    return simulated.open_driver(spec)


def parse(
    text: str,
    inject: Sequence[str],
    reorder: int | None = None,
    facts: str = "",
    force_facts: bool = False,
    flip: Sequence[str] = (),
) -> DeviceSpec:
    """The device that --device names. Raises UsageError for what is none, InputError for a facts file that is
    none."""
    if text == "sim" or text.startswith("sim:"):
        from zinc_rt.probes import simulated

        spec = DeviceSpec(
            True, text[4:], "", tuple(inject), simulated.TIME_SCALE, reorder, facts, force_facts, tuple(flip)
        )
        simulated.check(spec)
        return spec
    if reorder is not None:
        raise UsageError("--reorder: only a simulated device can be told to", next="add --device sim")
    if facts:
        raise UsageError("--facts: only a simulated device behaves by them", next="add --device sim")
    if flip:
        raise UsageError("--flip: only a simulated device can be told to", next="add --device sim")
    if inject:
        raise UsageError("--inject: faults can be ordered only from a simulated device", next="add --device sim")
    if text in ("auto", "hw"):
        return DeviceSpec()
    if not _RENDER.fullmatch(text):
        raise UsageError(f"--device {text!r}: wanted auto, hw, sim, sim:CHIP[@LINUX] or /dev/dri/renderDN")
    return DeviceSpec(render_path=text)


def require_amd_gpu(spec: DeviceSpec, command: str) -> None:
    """There is a device to run on. Raises UsageError for a named one that is missing, NothingRan where there is
    none: nothing is simulated unless asked for."""
    if spec.render_path and not Path(spec.render_path).exists():
        raise UsageError(f"--device {spec.render_path}: there is none", next="zinc-rt devices shows what there is")
    if spec.simulated or spec.render_path or amd_gpus(LinuxDriver()):
        return
    raise NothingRan(
        "this machine has no AMD GPU (no PCI display device of vendor 1002), so nothing ran",
        next=f"{command} --device sim  tests a simulated one instead, which says nothing about hardware",
    )


def amd_gpus(driver: Driver) -> list[str]:
    """PCI addresses of AMD's display devices, whatever driver they have."""
    found = []
    try:
        addresses = driver.list_dir(PCI)
    except OSError:
        return []
    for address in addresses:
        if (
            read(driver, f"{PCI}/{address}/vendor") == AMD
            and (read(driver, f"{PCI}/{address}/class") or "")[:4] in _DISPLAY_CLASSES
        ):
            found.append(address)
    return found


def read(driver: Driver, path: str) -> str | None:
    """A file's text; None where it cannot be read."""
    try:
        return driver.read_file(path).decode(errors="replace").strip()
    except OSError:
        return None
