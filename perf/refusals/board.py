"""Check a report's device against the board's row in zinc_rt/host/devices.yaml: name, chip, memory, PCI id, Linux,
firmware, and the sensor samples under load.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from zinc_rt.doctor.chips import CHIPS
from zinc_rt.doctor.read_machine import parse_version
from zinc_rt.host.devices import DeviceRow, load_devices
from zinc_rt.host.facts import load_table as facts
from zinc_rt.perf.gate.offered import SubmittedReport, check_number
from zinc_rt.perf.machine import EVERY_SECONDS
from zinc_rt.probes.accept.sensors import LEAST_CLOCK_SHARE

# Words of a device name that do not distinguish boards.
GENERIC_WORDS = {"amd", "ati", "radeon", "graphics", "tm", "r"}
MEMORY = (0.90, 1.005)  # of memory_gb in GiB: firmware reserves some of it
BANDWIDTH = 0.03  # of the specified one: memory clocks are reported in whole MHz
MOST_CLOCK = 1.15  # of clock_mhz: boards boost beyond the specification, in any one sample
IDLE_POWER = 0.01  # of board_w, in any one sample
LEAST_POWER = 0.15  # of board_w, in the median under load
MOST_POWER = 1.25  # of board_w: partner boards and raised limits
JOULES_A_BYTE = 24e-12  # 3 pJ/bit, below any published figure of GDDR6 with its controller
COLDEST_C = 10.0  # room
DEGREES_A_WATT = 0.03  # of the chip's edge above the coolant, below any cooler's
NEWEST_SERIES = 1  # major versions of Linux after the newest one in facts.yaml
USER_QUEUES = ("t2",)  # tiers that need them
MIN_SAMPLES = 3


def find_case_row(case: SubmittedReport) -> DeviceRow | None:
    """Return the row of the board that a criterion names; None if devices.yaml has none."""
    return find_row(case.criterion.hardware["device"])


def find_row(name: str) -> DeviceRow | None:
    return next((row for key, row in load_devices().items() if key.lower() == name.lower()), None)


def is_named(name: str, board: str) -> bool:
    """Return whether a device name refers to a board: it has the board's words, except for vendor words and a
    driver's remark in brackets at the end. `board` is a key of devices.yaml, or part of a name for a board without
    a row.
    """
    words = _split_words(name)
    row = find_row(board)
    if row is None:
        return set(_split_words(board)) <= set(words)
    return set(_split_words(row.key)) <= set(words) <= set(_split_words(row.name))


def _split_words(name: str) -> list[str]:
    plain = re.sub(r"\s*\((?!tm\b|r\b)[^()]*\)\s*$", "", name.strip(), flags=re.IGNORECASE)
    return [word for word in re.findall(r"[\w'+-]+", plain.lower()) if word not in GENERIC_WORDS]


def board(case: SubmittedReport) -> str | None:
    """Require the board's own chip, memory and PCI id, and a Linux and firmware that can run the tier."""
    row, device = find_case_row(case), case.evidence.device
    if row is None:
        return f"devices.yaml has no row for {case.criterion.hardware['device']}: its figures cannot be checked"
    return (
        _check_memory(row, device)
        or _check_pci_id(row, device)
        or _check_linux(case, row)
        or _check_firmware(case, row)
    )


def _check_memory(row: DeviceRow, device: Mapping[str, Any]) -> str | None:
    if "memory_bytes" in device:
        gib = check_number(device["memory_bytes"], "device.memory_bytes") / 2**30
        low, high = (share * row.memory_gb for share in MEMORY)
        if not low <= gib <= high:
            return f"{gib:.4g} GiB of memory, {row.name} has {row.memory_gb:g}"
    gbps = check_number(device.get("memory_bytes_per_second"), "device.memory_bytes_per_second") / 1e9
    if abs(gbps - row.memory_gbps) > BANDWIDTH * row.memory_gbps:
        return f"a memory of {gbps:.4g} GB/s, {row.name} has {row.memory_gbps:g}"
    return None


def _check_pci_id(row: DeviceRow, device: Mapping[str, Any]) -> str | None:
    """Compare the PCI id; in a report without one, the name was derived from it."""
    if "pci_id" not in device:
        return None
    known = {":".join(pci_id.split(":")[:2]) for pci_id in row.pci_ids}
    if device["pci_id"] not in known:
        return f"PCI id {device['pci_id'] or 'unknown'}, {row.name} is {' or '.join(sorted(known))}"
    return None


def _check_linux(case: SubmittedReport, row: DeviceRow) -> str | None:
    """Require a Linux that drives the chip, and one with user queues for a tier that submits to them."""
    release, system = case.evidence.device.get("kernel"), case.evidence.details.get("host", {}).get("system", "")
    host, machine_ = case.evidence.details.get("host", {}), case.evidence.details.get("machine", {})
    if parts := [name for name in host if name in machine_ and host[name] != machine_[name]]:
        return f"the report names two machines: {parts[0]} differs"
    if (machine := case.evidence.details.get("machine", {}).get("system", system)) != system:
        return f"the report names two systems: {system} and {machine}"
    running = parse_version(str(release)) or ()
    if len(running) < 2:
        return f"Linux {release!r}, expected a release like 6.18.2"
    if system.split() != ["Linux", release]:
        return f"the device was driven by Linux {release}, the host runs {system or 'an unknown system'}"
    newest = max(map(_parse_numbers, facts()["kernel/release"].versions))
    if running[0] > newest[0] + NEWEST_SERIES:
        return f"Linux {release} does not exist: the newest known is {'.'.join(map(str, newest))}"
    needs = {"drives this chip": _find_first_linux(row)}
    if case.criterion.tier in USER_QUEUES:
        offered = facts()["kernel/userq"].versions
        needs["has user queues"] = min(_parse_numbers(name) for name, has in offered.items() if has)
    for what, first in needs.items():
        if running[:2] < first[:2]:
            return f"Linux {release}, the first that {what} is {'.'.join(map(str, first))}"
    return None


def _find_first_linux(row: DeviceRow) -> tuple[int, ...]:
    known = [CHIPS[code] for pci_id in row.pci_ids if (code := int(pci_id.split(":")[1], 16)) in CHIPS]
    return min((chip.linux for chip in known), default=(0, 0))


def _parse_numbers(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.split(".") if part.isdecimal())


def _check_firmware(case: SubmittedReport, row: DeviceRow) -> str | None:
    """Require readable firmware versions; for user queues, at least the board's minimum."""
    text = str(case.evidence.device.get("firmware", ""))
    versions = {name: int(value) for name, value in re.findall(r"\b([A-Z]+) (\d+)\b", text)}
    if not any(versions.values()):
        return f"firmware {text!r}, expected a version like MEC 3100"
    if case.criterion.tier not in USER_QUEUES:
        return None
    for name, minimum in row.firmware_minimum.items():
        if name in versions and versions[name] < minimum:
            return f"firmware {name} {versions[name]}, user queues need {minimum}"
    if row.firmware_minimum and not set(versions) & set(row.firmware_minimum):
        return f"firmware {text!r} names none of {', '.join(row.firmware_minimum)}"
    return None


def sensors(case: SubmittedReport) -> str | None:
    """Require clocks, powers and temperatures that the board can have under this load, sampled during the run."""
    row, samples = find_case_row(case), case.evidence.details.get("samples", [])
    if row is None:
        return None  # the rule `board` refuses it
    return (
        _check_sampling(case, samples)
        or _check_clocks(row, samples)
        or _check_powers(case, row, samples)
        or _check_temperatures(row, samples)
    )


def _read_values(samples: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [check_number(sample[name], name) for sample in samples if name in sample]


def _check_sampling(case: SubmittedReport, samples: Sequence[Mapping[str, Any]]) -> str | None:
    """Require sample times in order, at least one sampling interval apart, and within the report's wall time."""
    times = _read_values(samples, "at_seconds")
    if times and len(times) < len(samples):
        return f"{len(samples) - len(times)} samples have no time"
    if any(after - before < EVERY_SECONDS - 1e-3 for before, after in pairwise(times)):
        return f"samples are out of order or less than {EVERY_SECONDS} s apart"
    wall = check_number(case.evidence.report.get("wall_seconds"), "wall_seconds")
    if times and not 0 <= times[0] <= times[-1] <= wall:
        return f"samples from {times[0]:g} to {times[-1]:g} s, the report took {wall:g} s"
    return None


def _check_clocks(row: DeviceRow, samples: Sequence[Mapping[str, Any]]) -> str | None:
    values = _read_values(samples, "gpu_clock_mhz")
    if not values:
        return "no sample of the clock"
    minimum, maximum = LEAST_CLOCK_SHARE * row.clock_mhz, MOST_CLOCK * row.clock_mhz
    if min(values) < 0 or max(values) > maximum:
        worst = min(values) if min(values) < 0 else max(values)
        return f"a clock of {worst:g} MHz, {row.name} reaches {row.clock_mhz:g}, at most {maximum:.0f} overclocked"
    if statistics.median(values) < minimum:
        return f"{statistics.median(values):g} MHz in the median, under load {row.name} has {minimum:.0f} or more"
    return None


def _check_powers(case: SubmittedReport, row: DeviceRow, samples: Sequence[Mapping[str, Any]]) -> str | None:
    """Compare with the board's range and with the energy of reading the weights."""
    values = _read_values(samples, "power_w")
    if len(values) < MIN_SAMPLES:
        return f"{len(values)} samples of power, expected {MIN_SAMPLES} or more"
    low, high = IDLE_POWER * row.board_w, MOST_POWER * row.board_w
    if worst := next((value for value in values if not low <= value <= high), None):
        return f"{worst:g} W, {row.name} takes {low:.0f} to {high:.0f}"
    if min(values) <= 0:
        return f"{min(values):g} W"
    minimum = LEAST_POWER * row.board_w + JOULES_A_BYTE * _compute_byte_rate(case)
    if statistics.median(values) < minimum:
        return f"{statistics.median(values):g} W in the median, this load takes {minimum:.0f} or more"
    return None


def _compute_byte_rate(case: SubmittedReport) -> float:
    """Return the minimum number of weight bytes read per second of decode; 0.0 if the report has no decode."""
    from zinc_rt.perf.gate.figures import compute_speeds
    from zinc_rt.perf.refusals.graph import find_weight_bytes

    decoded = case.evidence.result("decode")
    return statistics.median(compute_speeds(decoded["measure"])) * find_weight_bytes(case) if decoded else 0.0


def _check_temperatures(row: DeviceRow, samples: Sequence[Mapping[str, Any]]) -> str | None:
    values, watts = _read_values(samples, "gpu_temperature_c"), _read_values(samples, "power_w")
    if not values:
        return "no sample of the temperature"
    if row.junction_c and max(values) > row.junction_c:
        return f"{max(values):g} °C, {row.name} stops at {row.junction_c:g}"
    minimum = COLDEST_C + DEGREES_A_WATT * statistics.median(watts)
    if statistics.median(values) < minimum:
        return (
            f"{statistics.median(values):g} °C at {statistics.median(watts):g} W, expected {minimum:.0f} or more"
        )
    if min(values) < COLDEST_C:
        return f"a temperature of {min(values):g} °C"
    return None
