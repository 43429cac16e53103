"""Sensors and error counters of a board under load: read from sysfs, and judged over time."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from zinc_rt.cli.report import Result
from zinc_rt.host.devices import DeviceRow
from zinc_rt.kmd.driver import Driver
from zinc_rt.probes.accept.board import MICRO, find_hwmon, read_link
from zinc_rt.probes.device import read_file

MILLI = 1000
IN_A_ROW = 3  # samples: a single reading may be a glitch or the moment of a change
WARM_UP_SHARE = 0.1  # of the samples: clocks and link rise from idle
LEAST_CLOCK_SHARE = 0.6  # of the board's clock, in the median under load
MOST_CORRECTED_AN_HOUR = 10  # of the PCIe link: a few are usual after a change of its state
LEAST_HOURS = 0.1  # that counters are judged by, if the run was shorter
_RESET = re.compile(r"GPU reset begin|ring \S+ reset succeeded|soft recovered", re.IGNORECASE)
_RAS = "a memory cell or its supply is weak: run it again cool; if it repeats, return the board"
_LINK = "reseat the board, try without riser, or set the slot to a lower generation"
_RESETS = "`dmesg | grep -i amdgpu` names the ring and the reason; `zinc-rt bundle` collects it"
# Result, field of SensorSample, number that is allowed in an hour, what is counted, advice.
_COUNTERS = (
    ("memory-uncorrected", "uncorrected", 0, "memory errors that ECC could not correct", _RAS),
    ("memory-corrected", "corrected", 0, "memory errors that ECC corrected", _RAS),
    ("link-fatal", "link_fatal", 0, "uncorrected errors of the PCIe link", _LINK),
    ("link-corrected", "link_corrected", MOST_CORRECTED_AN_HOUR, "corrected errors of the PCIe link", _LINK),
    ("resets", "resets", 0, "resets of the GPU in the kernel log", _RESETS),
)


@dataclass(frozen=True, slots=True)
class SensorSample:
    """One reading, `seconds` since the start. None: unknown. Counters count since boot, resets since the start."""

    seconds: float
    junction_c: float | None = None
    clock_mhz: float | None = None
    power_w: float | None = None
    link_gts: float | None = None
    corrected: int | None = None
    uncorrected: int | None = None
    link_corrected: int | None = None
    link_fatal: int | None = None
    resets: int | None = None


class SensorReader:
    """Reads samples of one board. `log` returns the kernel log, or None if it cannot be read."""

    def __init__(self, driver: Driver, folder: str, log: Callable[[], Sequence[str] | None]) -> None:
        self._driver, self._folder, self._log = driver, folder, log
        self._hwmon = find_hwmon(driver, folder)
        self._junction = ""
        for number in range(1, 6):
            if read_file(driver, f"{folder}/{self._hwmon}/temp{number}_label") == "junction":
                self._junction = f"{self._hwmon}/temp{number}_input"

    def take_sample(self, seconds: float) -> SensorSample:
        number, hwmon = self._read_number, self._hwmon
        link = read_link(self._driver, self._folder, "current")
        errors = read_file(self._driver, f"{self._folder}/ras/umc_err_count") or ""
        counts = {name: int(value) for name, value in re.findall(r"(ue|ce): (\d+)", errors)}
        lines = self._log()
        power = number(f"{hwmon}/power1_average") or number(f"{hwmon}/power1_input")
        clock = number(f"{hwmon}/freq1_input")
        junction = number(self._junction) if self._junction else None
        return SensorSample(
            seconds,
            None if junction is None else junction / MILLI,
            None if clock is None else clock / MICRO,
            None if power is None else power / MICRO,
            link[0] if link else None,
            counts.get("ce"),
            counts.get("ue"),
            self._read_total("correctable", "COR"),
            _add_values(self._read_total("nonfatal", "NONFATAL"), self._read_total("fatal", "FATAL")),
            None if lines is None else sum(bool(_RESET.search(line)) for line in lines),
        )

    def _read_number(self, name: str) -> int | None:
        text = read_file(self._driver, f"{self._folder}/{name}") or ""
        return int(text) if text.lstrip("-").isdecimal() else None

    def _read_total(self, kind: str, name: str) -> int | None:
        match = re.search(
            rf"TOTAL_ERR_{name} (\d+)", read_file(self._driver, f"{self._folder}/aer_dev_{kind}") or ""
        )
        return int(match[1]) if match else None


def judge_samples(
    samples: Sequence[SensorSample], row: DeviceRow | None, link_max: tuple[float, int] | None
) -> list[Result]:
    """Return one result per rule. A rule whose sensor reported nothing is skipped."""
    loaded = samples[int(len(samples) * WARM_UP_SHARE) :]
    hours = max((samples[-1].seconds - samples[0].seconds) / 3600, LEAST_HOURS) if samples else LEAST_HOURS
    return [
        _check_temperature([s.junction_c for s in loaded], row),
        _check_clock([s.clock_mhz for s in loaded], row),
        _check_link_speed([s.link_gts for s in loaded], link_max),
        *(
            _check_counter(
                name, [getattr(item, field) for item in samples], int(an_hour * max(hours, 0.1)), what, advice
            )
            for name, field, an_hour, what, advice in _COUNTERS
        ),
    ]


def _drop_missing(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _check_temperature(values: Sequence[float | None], row: DeviceRow | None) -> Result:
    known = _drop_missing(values)
    if not known or row is None or not row.junction_c:
        return Result(
            "temperature", "accept", "skip", reason="no sensor of the hot spot, or no limit in the board's row"
        )
    measure = {"max_c": max(known), "median_c": statistics.median(known)}
    if _are_consecutive([value >= row.junction_c for value in known]):
        return Result(
            "temperature", "accept", "fail", reason=f"the hot spot stays at its limit of {row.junction_c:g} °C",
            cause="too little air, a fan that does not turn, or the cooler's contact", measure=measure,
            advice="check fans and case; if it is clean and cool around, return the board",
        )  # fmt: skip
    return Result("temperature", "accept", "pass", reason=f"at most {max(known):g} °C", measure=measure)


def _check_clock(values: Sequence[float | None], row: DeviceRow | None) -> Result:
    known = _drop_missing(values)
    if not known or row is None:
        return Result("clock-under-load", "accept", "skip", reason="no clock in hwmon, or the board has no row")
    median = statistics.median(known)
    measure = {"median_mhz": median, "max_mhz": max(known)}
    if median < LEAST_CLOCK_SHARE * row.clock_mhz:
        return Result(
            "clock-under-load", "accept", "fail", measure=measure,
            reason=f"{median:g} MHz in the median under load, the board reaches {row.clock_mhz:g}",
            cause="a limit of power or temperature, a forced performance level, or a missing power cable",
            advice="check the power cables, then `cat power_dpm_force_performance_level` (auto)",
        )  # fmt: skip
    return Result("clock-under-load", "accept", "pass", reason=f"{median:g} MHz in the median", measure=measure)


def _check_link_speed(values: Sequence[float | None], link_max: tuple[float, int] | None) -> Result:
    known = _drop_missing(values)
    if not known or link_max is None:
        return Result("link-under-load", "accept", "skip", reason="sysfs does not say the link's speed")
    usual = max(known)
    if _are_consecutive([value < usual for value in known]) or usual < link_max[0] / 2:
        low = min(known)
        return Result(
            "link-under-load", "accept", "fail", reason=f"{low:g} GT/s under load, the board can {link_max[0]:g}",
            cause="the link was retrained to a lower speed after errors", advice=_LINK, measure={"gts": low},
        )  # fmt: skip
    return Result("link-under-load", "accept", "pass", reason=f"{usual:g} GT/s", measure={"gts": usual})


def _check_counter(name: str, values: Sequence[int | None], allowed: int, what: str, advice: str) -> Result:
    known = [value for value in values if value is not None]
    if not known:
        return Result(name, "accept", "skip", reason="nothing counts them, or the log cannot be read")
    rise = known[-1] - known[0]
    measure, limit = {"rise": rise}, {"rise": allowed}
    if rise > allowed:
        return Result(name, "accept", "fail", reason=f"{rise} {what}", advice=advice, measure=measure, limit=limit)
    return Result(name, "accept", "pass", reason=f"{rise} {what}", measure=measure, limit=limit)


def _are_consecutive(conditions: Sequence[bool]) -> bool:
    run = 0
    for condition in conditions:
        run = run + 1 if condition else 0
        if run >= IN_A_ROW:
            return True
    return False


def _add_values(one: int | None, other: int | None) -> int | None:
    return None if one is None and other is None else (one or 0) + (other or 0)
