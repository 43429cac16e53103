"""The device table, devices.yaml: boards by their specifications."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from zinc_rt.host.errors import InputError
from zinc_rt.host.files import load_yaml

FILE = Path(__file__).resolve().parent / "devices.yaml"
SCHEMA = "zinc-rt-devices/1"
SIMDS_A_CU = 2  # each issues one wave32 instruction a cycle (RDNA3 and RDNA4)
OPS = ("f32", "f16", "bf16", "iu8", "iu4", "dot")  # of DeviceRow.ops_a_clock
_PCI_ID = re.compile(r"[0-9a-f]{4}:[0-9a-f]{4}(?::[0-9a-f]{2})?")


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
    ops_a_clock: Mapping[str, float]  # of a compute unit, by type: f32 vector; f16, bf16, iu8, iu4 matrix; dot
    lds_kib: float  # of a compute unit
    unified_memory: bool = False  # the host reads the same memory, cached
    pcie_gts: float = 0.0  # of each lane; 0: host memory is the device's own
    pcie_lanes: int = 0
    pci_ids: tuple[str, ...] = ()  # vendor:device, or vendor:device:revision, in lower case; empty: not known here
    idle_mhz: float = 0.0  # the lowest shader clock
    junction_c: float = 0.0  # the hot spot's limit
    firmware_minimum: Mapping[str, int] = field(default_factory=dict)  # for user queues, by name

    @property
    def memory_gbps(self) -> float:
        return self.bus_bits / 8 * self.gbps_a_pin

    def tera_ops(self, kind: str) -> float:
        """Return 10^12 operations per second of a type at the specified clock."""
        return self.ops_a_clock[kind] * self.compute_units * self.clock_mhz * 1e-6

    @property
    def pcie_gbps(self) -> float:
        """Return the link's bandwidth in each direction, without packet headers."""
        return self.pcie_gts * self.pcie_lanes * 128 / 130 / 8

    @property
    def issues_a_second(self) -> float:
        """Return the wave32 instructions per second of all SIMDs at the specified clock."""
        return self.compute_units * SIMDS_A_CU * self.clock_mhz * 1e6


@cache
def load_devices() -> Mapping[str, DeviceRow]:
    """Return the rows of devices.yaml by key."""
    return read_devices(FILE)


def read_devices(path: Path) -> Mapping[str, DeviceRow]:
    """Read the devices of a file. Raise InputError for anything unknown, missing or not positive."""
    try:
        document = load_yaml(path.read_text(encoding="utf-8"))
        if document["schema"] != SCHEMA:
            raise ValueError(f"schema {document['schema']!r}; this build reads {SCHEMA!r}")
        rows = {key: _parse_row(key, row) for key, row in document["devices"].items()}
    except (OSError, yaml.YAMLError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path}: {error}", next="docs/perf.md describes the file") from error
    for key, device in rows.items():
        if missing := [kind for kind in OPS if device.ops_a_clock.get(kind, 0) <= 0]:
            raise InputError(f"{path}: {key}: ops_a_clock is missing for {', '.join(missing)}")
        if min(device.memory_gbps, device.issues_a_second, device.memory_gb) <= 0 or not device.source:
            raise InputError(f"{path}: {key}: expected positive figures and a source")
    return rows


def find_board(
    vendor: int, device: int, revision: int, rows: Iterable[DeviceRow] | None = None
) -> DeviceRow | None:
    """Return the row of a board by its PCI ids, preferring a row with the revision; None if there is none."""
    short = f"{vendor:04x}:{device:04x}"
    known = list(load_devices().values() if rows is None else rows)
    for name in (f"{short}:{revision:02x}", short):
        for row in known:
            if name in row.pci_ids:
                return row
    return None


def _parse_row(key: str, row: dict[str, Any]) -> DeviceRow:
    ids = tuple(row.pop("pci_ids", ()))
    bad = [item for item in ids if not _PCI_ID.fullmatch(item)]
    if bad:
        raise ValueError(
            f"{key}: invalid pci_ids {', '.join(bad)}, expected for example 1002:7551 or 1002:7550:c0"
        )
    return DeviceRow(key, **row, pci_ids=ids)
