"""Compare a board with its row of zinc_rt/host/devices.yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from zinc_rt.cli.report import Result
from zinc_rt.host.devices import DeviceRow
from zinc_rt.kmd.driver import Driver, list_folder
from zinc_rt.probes.combinations import MachineFacts, find_matching
from zinc_rt.probes.device import read_file

GIB, MICRO = 1 << 30, 1_000_000
# Shares of the row's figure. Firmware reserves some memory.
LEAST_MEMORY, LEAST_POWER, LEAST_CLOCK = 0.93, 0.95, 0.9
_OTHER = "it is another board, or parts of it are disabled"
_LIMIT = "a limit set by an overdrive tool, or the VBIOS"
_CAP = "power1_cap was lowered, or a quiet VBIOS is active"


@dataclass(frozen=True, slots=True)
class BoardReading:
    """The data that sysfs and the driver report for a board. None: unknown. Clocks in MHz, power in W, links in
    GT/s.
    """

    vendor: int
    device: int
    revision: int
    vram_bytes: int | None
    compute_units: int | None
    clock_mhz: tuple[int, int] | None  # lowest and highest level
    power_cap_w: float | None
    link: tuple[float, int] | None  # now
    link_max: tuple[float, int] | None  # of the board
    port_max: tuple[float, int] | None  # of the slot above it
    firmware: Mapping[str, int]


def read_board(
    driver: Driver, folder: str, compute_units: int | None, firmware: Mapping[str, int]
) -> BoardReading:
    """Read a board. `folder`: its device folder in sysfs."""

    def read_number(name: str, base: int = 10) -> int | None:
        text = read_file(driver, f"{folder}/{name}")
        try:
            return int(text, base) if text else None
        except ValueError:
            return None

    levels = [
        int(mhz) for mhz in re.findall(r"\d+: (\d+)Mhz", read_file(driver, f"{folder}/pp_dpm_sclk") or "", re.I)
    ]
    cap = None
    if hwmon := find_hwmon(driver, folder):
        cap = read_number(f"{hwmon}/power1_cap")
    return BoardReading(
        read_number("vendor", 16) or 0,
        read_number("device", 16) or 0,
        read_number("revision", 16) or 0,
        read_number("mem_info_vram_total"),
        compute_units,
        (min(levels), max(levels)) if levels else None,
        cap / MICRO if cap else None,
        read_link(driver, folder, "current"),
        read_link(driver, folder, "max"),
        read_link(driver, f"{folder}/..", "max"),
        dict(firmware),
    )


def find_hwmon(driver: Driver, folder: str) -> str:
    """Return the board's hwmon folder, relative to `folder`; "" if there is none."""
    names = sorted(list_folder(driver, f"{folder}/hwmon"))
    return f"hwmon/{names[0]}" if names else ""


def read_link(driver: Driver, folder: str, which: str) -> tuple[float, int] | None:
    """Return (GT/s, lanes) of a PCIe link, `which` current or max; None if sysfs does not report it."""
    speed = re.match(r"([\d.]+) GT/s", read_file(driver, f"{folder}/{which}_link_speed") or "")
    width = read_file(driver, f"{folder}/{which}_link_width") or ""
    return (float(speed[1]), int(width)) if speed and width.isdecimal() and int(width) else None


def check_board(reading: BoardReading, row: DeviceRow | None, facts: MachineFacts) -> list[Result]:
    """Return one result per property. A property that cannot be read is skipped. Without a row, only combinations
    that are known to be bad are checked.
    """
    results = [_check_known_bad(facts)]
    if row is None:
        name = f"{reading.vendor:04x}:{reading.device:04x} revision {reading.revision:02x}"
        advice = "add a row to zinc_rt/host/devices.yaml with its source"
        return [_make_skip("board", f"{name} has no row in zinc_rt/host/devices.yaml", advice), *results]
    memory = None if reading.vram_bytes is None else reading.vram_bytes / GIB
    clock = None if reading.clock_mhz is None else reading.clock_mhz[1]
    return [
        Result("board", "accept", "pass", reason=row.name),
        _check_at_least("memory", memory, row.memory_gb, LEAST_MEMORY, "GiB", _OTHER),
        _check_at_least("compute-units", reading.compute_units, row.compute_units, 1.0, "", _OTHER),
        _check_at_least("clock", clock, row.clock_mhz, LEAST_CLOCK, "MHz", _LIMIT),
        _check_at_least("power-limit", reading.power_cap_w, row.board_w, LEAST_POWER, "W", _CAP),
        _check_link(reading),
        _check_firmware(reading, row),
        *results,
    ]


def _check_at_least(
    name: str, value: float | None, expected: float, share: float, unit: str, cause: str
) -> Result:
    if value is None:
        return _make_skip(name, "the driver does not say it")
    shown = f"{value:.4g} {unit}".strip()
    if value < expected * share:
        reason = f"{shown}, the board has {expected:g} {unit}".strip()
        return Result(name, "accept", "fail", reason=reason, cause=cause, measure={name: value})
    return Result(name, "accept", "pass", reason=shown, measure={name: value})


def _check_link(reading: BoardReading) -> Result:
    if reading.link is None or reading.link_max is None:
        return _make_skip("link-width", "sysfs does not say it")
    lanes, maximum = reading.link[1], reading.link_max[1]
    if reading.port_max is not None:
        maximum = min(maximum, reading.port_max[1])
    if lanes < maximum:
        return Result(
            "link-width", "accept", "fail", reason=f"{lanes} lanes, board and slot have {maximum}",
            cause="a dirty or loose contact, a riser, or lanes that another slot shares",
            advice="reseat the board; try another slot without a riser", measure={"lanes": lanes},
        )  # fmt: skip
    return Result("link-width", "accept", "pass", reason=f"{lanes} lanes", measure={"lanes": lanes})


def _check_firmware(reading: BoardReading, row: DeviceRow) -> Result:
    old = [
        f"{name} {reading.firmware[name]} (minimum {minimum})"
        for name, minimum in row.firmware_minimum.items()
        if name in reading.firmware and reading.firmware[name] < minimum
    ]
    if not reading.firmware or not row.firmware_minimum:
        return _make_skip("firmware", "the driver does not say its versions")
    if old:
        return Result(
            "firmware", "accept", "fail", reason=f"too old for user queues: {', '.join(old)}",
            cause="linux-firmware is older than the kernel",
            advice="update linux-firmware, then rebuild the initramfs",
        )  # fmt: skip
    return Result("firmware", "accept", "pass", reason="at or above the minimum of user queues")


def _check_known_bad(facts: MachineFacts) -> Result:
    bad = [row for row in find_matching(facts) if row.verdict == "bad"]
    if bad:
        return Result("known-bad", "accept", "fail", reason=bad[0].format_statement(), advice=bad[0].next)
    return Result("known-bad", "accept", "pass", reason="no combination that is known to fail")


def _make_skip(name: str, reason: str, advice: str = "") -> Result:
    return Result(name, "accept", "skip", reason=reason, advice=advice)
