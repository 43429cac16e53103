"""The simulated device in the notation of --device: sim, sim:CHIP, sim:CHIP@LINUX, sim:@LINUX."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from zinc_rt.host.errors import UsageError
from zinc_rt.kmd.driver import Driver
from zinc_rt.sim import chips, facts, flip, inject, profiles
from zinc_rt.sim.in_process import SimDriver
from zinc_rt.sim.interfaces import DeviceFinding
from zinc_rt.sim.serve.client import SimClient

if TYPE_CHECKING:
    from zinc_rt.probes.device_spec import DeviceSpec

CHIP = "r9700"
LINUX = "7.0"
TIME_SCALE = 0.1  # the simulated driver waits a tenth of the real one's time for a hung queue


def split_profile(profile: str) -> tuple[str, str]:
    """Return the chip and the Linux version."""
    chip, _, linux = profile.partition("@")
    return chip or CHIP, linux or LINUX


def check_profile(spec: DeviceSpec) -> None:
    """Check the description of the device. Raises UsageError for an unknown profile or injection,
    InputError for an invalid facts file."""
    chip, linux = split_profile(spec.profile)
    try:
        chips.find_chip(chip)
        profiles.find_profile(linux)
        for item in spec.inject:
            inject.parse(item)
        flip.find_rows(spec.flip)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if spec.facts:
        facts.load(Path(spec.facts), chip=chips.find_chip(chip).gfx, force=spec.force_facts)


def open_driver(spec: DeviceSpec) -> SimDriver | SimClient:
    """Open the simulated device. A named device runs in a separate process, which is started if necessary;
    it runs for half a second after its last client, so that the probe after a crash connects to the device that
    crashed.
    """
    chip, linux = split_profile(spec.profile)
    options: dict[str, Any] = {
        "chip": chip,
        "linux": linux,
        "inject": list(spec.inject),
        "time_scale": spec.time_scale,
    }
    if spec.reorder is not None:
        options["reorder"] = spec.reorder
    if spec.coherence:
        options["coherence"] = spec.coherence
    if spec.sanitizer:
        options["sanitizer"] = spec.sanitizer
    if spec.facts:
        options |= {"facts": spec.facts, "force_facts": spec.force_facts}
    if spec.flip:
        options["flip"] = list(spec.flip)
    if spec.shared:
        return SimClient(name=spec.shared, **options)
    return SimDriver(**options)


class DeviceNews:
    """The findings and log lines of a simulated device since this object was created; the device may be
    older than this client. Empty for other devices."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver if isinstance(driver, SimDriver | SimClient) else None
        self._findings, self._log = self._read()
        self._period = self._read_coverage(0)[0]

    def news(self) -> tuple[list[DeviceFinding], list[str]]:
        """Return findings, without repeated sentences, and lines of the kernel log."""
        findings, log = self._read()
        new = {(finding.rule, finding.sentence): finding for finding in findings[len(self._findings) :]}
        return list(new.values()), log[len(self._log) :]

    def marks(self) -> list[str]:
        """Return the coverage marks of the device."""
        return self._read_coverage(self._period)[1]

    def _read_coverage(self, period: int) -> tuple[int, list[str]]:
        try:
            return self._driver.consulted(period) if self._driver is not None else (0, [])
        except OSError:  # the device has ended: the probe says so
            return 0, []

    def _read(self) -> tuple[list[DeviceFinding], list[str]]:
        if self._driver is None:
            return [], []
        try:
            return self._driver.findings(), self._driver.read_file("/dev/kmsg").decode().splitlines()
        except OSError:  # the device has ended: the probe says so
            return [], []
