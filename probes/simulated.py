"""The simulated device as --device names it: sim, sim:CHIP, sim:CHIP@KERNEL, sim:@KERNEL."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from zinc_rt.errors import UsageError
from zinc_rt.kmd.driver import Driver
from zinc_rt.sim import chips, inject, profiles
from zinc_rt.sim.driver import SimDriver

if TYPE_CHECKING:
    from zinc_rt.probes.device import DeviceSpec

CHIP = "r9700"
KERNEL = "7.0"
TIME_SCALE = 0.1  # the simulated driver waits a tenth of the real one's time for a hung queue


def parts(profile: str) -> tuple[str, str]:
    """Chip and kernel."""
    chip, _, kernel = profile.partition("@")
    return chip or CHIP, kernel or KERNEL


def check(spec: DeviceSpec) -> None:
    """Raises UsageError for a profile or an injection that does not exist."""
    chip, kernel = parts(spec.profile)
    try:
        chips.chip(chip)
        profiles.kernel(kernel)
        for each in spec.inject:
            inject.parse(each)
    except ValueError as error:
        raise UsageError(str(error)) from error


def open_driver(spec: DeviceSpec) -> Driver:
    chip, kernel = parts(spec.profile)
    return SimDriver(chip=chip, kernel=kernel, inject=spec.inject, time_scale=spec.time_scale)


def findings(driver: Driver) -> Iterable[str]:
    """What the simulated device found odd about what it was sent, each once."""
    if not isinstance(driver, SimDriver):
        return ()
    return dict.fromkeys(f"{each.rule}: {each.sentence}" for each in driver.findings())
