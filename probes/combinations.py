"""The matrix of combinations (combinations.yaml): rows, their conditions, and matching with a machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from zinc_rt.host.errors import InputError
from zinc_rt.host.files import load_yaml
from zinc_rt.host.input_files import make_read_error

SCHEMA = "zinc-rt-combinations/1"
FILE = Path(__file__).with_name("combinations.yaml")
VERDICTS = ("bad", "good", "suspect")
_REQUIRED = ("id", "verdict", "chips", "what", "source", "date")
_OPTIONAL = ("kernel", "module", "module_version", "firmware", "packages", "parameters", "symptoms", "next")
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: bool(a == b),
    "!=": lambda a, b: bool(a != b),
    "<=": lambda a, b: bool(a <= b),
    ">=": lambda a, b: bool(a >= b),
    "<": lambda a, b: bool(a < b),
    ">": lambda a, b: bool(a > b),
}
_COMPARISON = re.compile(r"(==|!=|<=|>=|<|>)\s*(\S+)")


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """The configuration of a machine. None or a missing key means unknown: no condition on it is true."""

    chip: str
    kernel: str | None = None
    module: str | None = None  # dkms or in-tree
    module_version: str | None = None
    firmware: Mapping[str, int] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)

    def to_row(self) -> dict[str, Any]:
        """Return the configuration in the format of a row; id, verdict, what, source and date must be
        added."""
        firmware = {name: f"== 0x{value:x}" for name, value in sorted(self.firmware.items())}
        row = {"chips": [self.chip], "kernel": self.kernel, "module": self.module, "firmware": firmware}
        row |= {"module_version": self.module_version, "packages": dict(self.packages)}
        return {name: value for name, value in row.items() if value}


@dataclass(frozen=True, slots=True)
class Combination:
    id: str
    verdict: str
    chips: tuple[str, ...]
    what: str
    source: str
    date: date
    kernel: str = ""
    module: str = ""
    module_version: str = ""
    firmware: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    symptoms: tuple[str, ...] = ()
    next: str = ""

    def _check_conditions(self, facts: MachineFacts) -> list[tuple[str, str, str | int | None]]:
        """Yield each condition with its kind and this machine's value; None if the value is unknown."""
        single = (
            ("kernel", self.kernel, facts.kernel),
            ("module", self.module, facts.module),
            ("module", self.module_version, facts.module_version),
        )
        rows: list[tuple[str, str, str | int | None]] = [row for row in single if row[1]]
        rows += [("firmware", condition, facts.firmware.get(name)) for name, condition in self.firmware.items()]
        rows += [("packages", condition, facts.packages.get(name)) for name, condition in self.packages.items()]
        return rows + [
            ("parameters", condition, facts.parameters.get(name)) for name, condition in self.parameters.items()
        ]

    def matches_facts(self, facts: MachineFacts) -> bool:
        """Return whether every condition is true for the known values."""
        return facts.chip in self.chips and all(_is_true(row[1], row[2]) for row in self._check_conditions(facts))

    def find_deciding_unknowns(self, facts: MachineFacts) -> tuple[str, ...]:
        """Return the kinds of unknown values on which a match depends: some condition is true and none is
        false.
        """
        rows = self._check_conditions(facts) if facts.chip in self.chips else []
        known = [_is_true(condition, value) for _, condition, value in rows if value is not None]
        missing = tuple(dict.fromkeys(kind for kind, _, value in rows if value is None))
        return missing if known and all(known) else ()

    def format_statement(self) -> str:
        """Return one line with the statement and its source."""
        return f"{self.verdict} ({self.id}): {self.what} [{self.source}, {self.date}]"


@cache
def load_combinations(path: Path = FILE) -> tuple[Combination, ...]:
    """Read and validate every row. Raises InputError naming the file, the row and the error."""
    try:
        document = load_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise make_read_error(path, error) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not YAML: {str(error).splitlines()[0]}") from error
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA or not isinstance(document.get("rows"), list):
        raise InputError(f"{path}: schema is {schema!r}, expected {SCHEMA} with a list of rows")
    rows = tuple(_parse_row(item, f"{path}: row {index + 1}") for index, item in enumerate(document["rows"]))
    twice = {row.id for row in rows if sum(other.id == row.id for other in rows) > 1}
    if twice:
        raise InputError(f"{path}: duplicate row ids: {', '.join(sorted(twice))}")
    return rows


def find_matching(facts: MachineFacts, rows: Iterable[Combination] | None = None) -> tuple[Combination, ...]:
    """Return the matching rows, bad ones first."""
    matches = [row for row in (load_combinations() if rows is None else rows) if row.matches_facts(facts)]
    return tuple(sorted(matches, key=lambda row: ("bad", "suspect", "good").index(row.verdict)))


def find_statements(device: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the rows that match the device of a report. A simulated device matches none."""
    if device.get("simulated") or not device.get("arch"):
        return ()
    return tuple(row.format_statement() for row in find_matching(read_facts(device)) if row.verdict != "good")


def read_facts(device: Mapping[str, Any]) -> MachineFacts:
    """Return the configuration that a report's device describes."""
    module = device.get("module")
    return MachineFacts(
        str(device.get("arch") or ""),
        device.get("kernel") or None,
        None if module is None else "dkms" if module else "in-tree",
        module or None,
        device.get("firmware") or {},
        parameters=device.get("parameters") or {},
    )


def _parse_row(value: Any, where: str) -> Combination:
    if not isinstance(value, dict):
        raise InputError(f"{where}: not a mapping")
    where = f"{where} ({value.get('id', 'without id')})"
    missing = [name for name in _REQUIRED if not value.get(name)]
    unknown = [name for name in value if name not in _REQUIRED + _OPTIONAL]
    if missing or unknown:
        problems = [f"lacks {', '.join(missing)}"] * bool(missing) + [f"has unknown {', '.join(unknown)}"] * bool(
            unknown
        )
        raise InputError(f"{where}: {'; '.join(problems)}")
    if value["verdict"] not in VERDICTS:
        raise InputError(f"{where}: verdict is {value['verdict']!r}, expected {', '.join(VERDICTS)}")
    if value.get("module", "dkms") not in ("dkms", "in-tree"):
        raise InputError(f"{where}: module is {value['module']!r}, expected dkms or in-tree")
    if not str(value["source"]).startswith("https://"):
        raise InputError(f"{where}: source {value['source']!r} is not a link")
    if not isinstance(value["date"], date):
        raise InputError(f"{where}: date is {value['date']!r}, expected YYYY-MM-DD")
    chips, symptoms = value["chips"], value.get("symptoms", [])
    tables = {name: value.get(name, {}) for name in ("firmware", "packages", "parameters")}
    if not isinstance(chips, list) or not isinstance(symptoms, list):
        raise InputError(f"{where}: chips and symptoms must be lists")
    if not all(isinstance(table, dict) for table in tables.values()):
        raise InputError(f"{where}: firmware, packages and parameters must map names to conditions")
    if not any([*tables.values(), value.get("kernel"), value.get("module_version"), value.get("module")]):
        raise InputError(f"{where}: the chip is the only condition, so the row would match every machine")
    conditions = {name: {str(key): str(item) for key, item in table.items()} for name, table in tables.items()}
    return Combination(
        id=str(value["id"]),
        verdict=value["verdict"],
        chips=tuple(map(str, chips)),
        what=str(value["what"]),
        source=str(value["source"]),
        date=value["date"],
        kernel=str(value.get("kernel", "")),
        module=str(value.get("module", "")),
        module_version=str(value.get("module_version", "")),
        firmware=conditions["firmware"],
        packages=conditions["packages"],
        parameters=conditions["parameters"],
        symptoms=tuple(map(str, symptoms)),
        next=str(value.get("next", "")),
    )


def _is_true(condition: str, value: str | int | None) -> bool:
    """Compare versions: >= 6.17 and < 6.18 numerically, a plain version as a prefix."""
    if not condition:
        return True
    if value is None:
        return False
    comparisons = _COMPARISON.findall(condition)
    if not comparisons:
        text = re.sub(r"^\d+:", "", str(value))  # the epoch of a Debian package
        whole = "(?![0-9])" if condition[-1].isdigit() else ""  # 6.1 is not the beginning of 6.17
        return re.match(re.escape(condition) + whole, text) is not None
    return all(
        _COMPARE[sign](*_pad_versions(_parse_number(value), _parse_number(limit))) for sign, limit in comparisons
    )


def _parse_number(value: str | int) -> tuple[int, ...]:
    if isinstance(value, int):
        return (value,)
    if re.fullmatch(r"-?\d+|0x[0-9a-fA-F]+", value):
        return (int(value, 16 if value.startswith("0x") else 10),)
    matched = re.match(r"(?:\d+:)?(\d+(?:\.\d+)*)", value)
    return tuple(int(part) for part in matched[1].split(".")) if matched else ()


def _pad_versions(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Pad versions to equal length, because 6.18 and 6.18.0 are the same version."""
    maximum = max(len(a), len(b))
    return a + (0,) * (maximum - len(a)), b + (0,) * (maximum - len(b))
