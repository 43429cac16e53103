"""Sensors and error counters of a simulated card, as amdgpu and the PCI core show them in sysfs.

Temperatures, power and clock follow the load with a first-order lag. Their time is virtual: a doorbell is a
quantum of load, a reading without doorbells since the last one a quantum of rest. The figures are plausible, not
measured.
Injections make them sick (zinc_rt/sim/defects.py).
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp
from typing import Protocol

from zinc_rt.sim.chips import Chip
from zinc_rt.sim.inject import Injector

LOADED_AFTER = 4  # doorbells
HEATS_IN = 12.0  # doorbells: the time constant of a temperature under load
COOLS_IN = 6.0  # readings without load
CLOCK_SAG = 0.03  # of the clock, at the temperature of steady load
IDLE_MHZ = 30
LINK_GTS, LINK_LANES = {11: 16.0, 12: 32.0}, 16
CAPPED_MHZ = 1000
TEMPERATURES_C = {"edge": (44, 63), "junction": (47, 79), "mem": (52, 76)}  # idle, loaded
HOT_C = 110
RUNAWAY_C = 150  # to which "overheats" would heat the junction without throttling
DOORBELLS_PER_ERROR = 16
IDLE_W, BOARD_W = 21, 300


class SensedGpu(Protocol):
    """The state that sensors depend on."""

    chip: Chip
    injector: Injector
    doorbell_count: int


class _LoadModel:
    """The load as observed by one sensor. `heat`: 0 at rest, 1 after long load."""

    def __init__(self, gpu: SensedGpu) -> None:
        self._gpu, self._seen = gpu, 0
        self.heat, self.busy = 0.0, False

    def look(self) -> None:
        """Advance virtual time to this reading."""
        doorbells = self._gpu.doorbell_count - self._seen
        self._seen += doorbells
        self.busy = doorbells > 0 and self._seen >= LOADED_AFTER
        if doorbells:
            self.heat = 1 - (1 - self.heat) * exp(-doorbells / HEATS_IN)
        else:
            self.heat *= exp(-1 / COOLS_IN)


def make_sensor_files(gpu: SensedGpu) -> dict[str, str | Callable[[], str]]:
    """Return the files below a device's folder, by relative path."""
    on = gpu.injector.on

    def is_loaded() -> bool:
        return gpu.doorbell_count >= LOADED_AFTER

    def count_errors(name: str) -> int:
        return gpu.doorbell_count // DOORBELLS_PER_ERROR if on(name) else 0

    def format_celsius(sensor: str) -> Callable[[], str]:
        load, (low, high) = _LoadModel(gpu), TEMPERATURES_C[sensor]
        if sensor == "junction" and on("overheats"):
            high = RUNAWAY_C

        def read() -> str:
            load.look()
            return f"{1000 * min(HOT_C, round(low + load.heat * (high - low)))}\n"

        return read

    def make_clock() -> Callable[[], int]:
        load = _LoadModel(gpu)

        def compute_mhz() -> int:
            load.look()
            if not load.busy:
                return IDLE_MHZ
            return CAPPED_MHZ if on("clock-cap") else round(gpu.chip.engine_mhz * (1 - CLOCK_SAG * load.heat))

        return compute_mhz

    def format_power() -> Callable[[], str]:
        load = _LoadModel(gpu)

        def read() -> str:
            load.look()
            watts = BOARD_W - 30 - 10 * (1 - load.heat) if load.busy else IDLE_W  # leakage grows with heat
            return f"{round(watts * 1_000_000)}\n"

        return read

    level_mhz, clock_mhz = make_clock(), make_clock()

    def format_levels() -> str:
        low, high, now = 500, gpu.chip.engine_mhz, level_mhz()
        rows = [(low, now <= low), (now, low < now < high), (high, now >= high)]
        shown = [row for row in rows if row[1] or row[0] in (low, high)]
        return "".join(f"{n}: {mhz}Mhz{' *' * active}\n" for n, (mhz, active) in enumerate(shown))

    speed = LINK_GTS.get(gpu.chip.major, 16.0)
    cap_uw = BOARD_W * 1_000_000 // (2 if on("power-cap") else 1)
    files: dict[str, str | Callable[[], str]] = {
        "max_link_speed": f"{speed:.1f} GT/s PCIe\n",
        "max_link_width": f"{LINK_LANES}\n",
        "current_link_speed": lambda: f"{2.5 if on('link-drop') and is_loaded() else speed:.1f} GT/s PCIe\n",
        "current_link_width": f"{LINK_LANES // (2 if on('link-narrow') else 1)}\n",
        "pp_dpm_sclk": format_levels,
        "aer_dev_correctable": lambda: (
            f"BadTLP {count_errors('pcie-errors')}\nTOTAL_ERR_COR {count_errors('pcie-errors')}\n"
        ),
        "aer_dev_nonfatal": "TOTAL_ERR_NONFATAL 0\n",
        "aer_dev_fatal": "TOTAL_ERR_FATAL 0\n",
        "ras/umc_err_count": lambda: (
            f"ue: {int(on('ecc-uncorrected') and is_loaded())}\nce: {count_errors('ecc-corrected')}\n"
        ),
        "hwmon/hwmon3/name": "amdgpu\n",
        "hwmon/hwmon3/power1_average": format_power(),
        "hwmon/hwmon3/power1_cap": f"{cap_uw}\n",
        "hwmon/hwmon3/power1_cap_max": f"{cap_uw}\n",
        "hwmon/hwmon3/freq1_label": "sclk\n",
        "hwmon/hwmon3/freq1_input": lambda: f"{clock_mhz() * 1_000_000}\n",
    }
    for number, sensor in enumerate(TEMPERATURES_C, 1):
        files[f"hwmon/hwmon3/temp{number}_label"] = f"{sensor}\n"
        files[f"hwmon/hwmon3/temp{number}_input"] = format_celsius(sensor)
        files[f"hwmon/hwmon3/temp{number}_crit"] = f"{HOT_C * 1000}\n"
    return files
