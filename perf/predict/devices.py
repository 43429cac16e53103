"""The tables of a prediction: the devices (zinc_rt/host/devices.yaml), and the assumptions, rows of facts.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from zinc_rt.host import facts
from zinc_rt.host.devices import FILE, DeviceRow, read_devices
from zinc_rt.host.errors import InputError, UsageError

PREDICTION = ("prediction",)  # the mark of those rows of facts.yaml
CASES = ("pessimistic", "likely", "optimistic")


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
        return {assumption.name: assumption.value[CASES.index(name)] for assumption in self.assumptions.values()}

    def device(self, key: str) -> DeviceRow:
        """Return the row with that key or name. Raise UsageError with the known names."""
        for row in self.devices.values():
            if key.lower() in (row.key.lower(), row.name.lower()):
                return row
        raise UsageError(f"no device row {key!r}", next="one of " + ", ".join(self.devices))


@cache
def load_table() -> DeviceTable:
    return read_table(FILE)


def read_table(path: Path) -> DeviceTable:
    """Read the devices of a file, and the assumptions. Raise InputError for anything unknown, missing or not
    positive."""
    rows = read_devices(path)
    assumptions = {
        item.name: item for item in map(parse_assumption, facts.load_table().values()) if item is not None
    }
    return DeviceTable(rows, assumptions)


def parse_assumption(row: facts.Fact) -> Assumption | None:
    """Convert a row of facts.yaml to an assumption; return None if predictions do not use it. Raise InputError for
    a row without three figures.
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
