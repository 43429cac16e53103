"""The device table, perf/predict/devices.yaml, and the assumptions of a prediction, rows of
zinc_rt/host/facts.yaml.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from zinc_rt.host import facts
from zinc_rt.host.errors import InputError, UsageError
from zinc_rt.host.files import load_yaml

FILE = Path(__file__).resolve().parent / "devices.yaml"
SCHEMA = "zinc-rt-devices/1"
PREDICTION = ("prediction",)  # the mark of those rows of facts.yaml
CASES = ("pessimistic", "likely", "optimistic")
SIMDS_A_CU = 2  # each issues one wave32 instruction a cycle (RDNA3 and RDNA4)


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """A device by its specification. Bandwidth is in 10^9 bytes per second, clock in MHz."""

    key: str
    name: str
    arch: str
    compute_units: int
    clock_mhz: float
    bus_bits: int
    gbps_a_pin: float
    memory_gb: float
    last_level_cache_mib: float
    board_w: float
    source: str
    unified_memory: bool = False  # the host reads the same memory, cached
    pcie_gts: float = 0.0  # of each lane; 0: host memory is the device's own
    pcie_lanes: int = 0

    @property
    def memory_gbps(self) -> float:
        return self.bus_bits / 8 * self.gbps_a_pin

    @property
    def pcie_gbps(self) -> float:
        """Return the link's bandwidth in each direction, without packet headers."""
        return self.pcie_gts * self.pcie_lanes * 128 / 130 / 8

    @property
    def issues_a_second(self) -> float:
        """Return the wave32 instructions per second of all SIMDs at the specified clock."""
        return self.compute_units * SIMDS_A_CU * self.clock_mhz * 1e6


@dataclass(frozen=True, slots=True)
class Assumption:
    """An assumption. `value` is pessimistic, likely, optimistic."""

    name: str
    value: tuple[float, float, float]
    why: str


@dataclass(frozen=True, slots=True)
class DeviceTable:
    devices: Mapping[str, DeviceRow]
    assumptions: Mapping[str, Assumption]

    def case(self, name: str) -> dict[str, float]:
        """Return every assumption's value in one of CASES."""
        return {each.name: each.value[CASES.index(name)] for each in self.assumptions.values()}

    def device(self, key: str) -> DeviceRow:
        """Return the row with that key or name. Raise UsageError with the known names."""
        for row in self.devices.values():
            if key.lower() in (row.key.lower(), row.name.lower()):
                return row
        raise UsageError(f"no device row {key!r}", next="one of " + ", ".join(self.devices))


@cache
def table() -> DeviceTable:
    return read_table(FILE)


def read_table(path: Path) -> DeviceTable:
    """Read the devices of a file. Raise InputError for anything unknown, missing or not positive."""
    try:
        document = load_yaml(path.read_text(encoding="utf-8"))
        if document["schema"] != SCHEMA:
            raise ValueError(f"schema {document['schema']!r}, this build reads {SCHEMA!r}")
        devices = {key: DeviceRow(key, **row) for key, row in document["devices"].items()}
        assumptions = {each.name: each for each in map(assumption, facts.table().values()) if each is not None}
    except (OSError, yaml.YAMLError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path}: {error}", next="docs/perf.md describes the file") from error
    for key, device in devices.items():
        if min(device.memory_gbps, device.issues_a_second, device.memory_gb) <= 0 or not device.source:
            raise InputError(f"{path}: {key}: expected positive figures and a source")
    return DeviceTable(devices, assumptions)


def assumption(row: facts.Fact) -> Assumption | None:
    """Convert a row of facts.yaml to an assumption; None for one that predictions do not use. Raise InputError for
    one without three figures.
    """
    if row.marks != PREDICTION:
        return None
    try:
        low, likely, high = (float(value) for value in row.value)
    except (TypeError, ValueError):
        raise InputError(
            f"{facts.FILE}: {row.id}: {row.value!r}, expected pessimistic, likely, optimistic"
        ) from None
    return Assumption(row.id, (low, likely, high), row.says)
