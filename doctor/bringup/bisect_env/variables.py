"""The differences between a working machine and a failing one: parse and validate VARIABLES.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from zinc_rt.host.errors import InputError, UsageError
from zinc_rt.host.input_files import make_read_error

SCHEMA = "zinc-rt-bisect-env/1"
MAX_VALUES_UNORDERED = 6  # any set of them may be bad: 16 sets
MAX_PATTERNS = 60  # in all; pairs of them are what is computed with
TEST_MINUTES = 10.0  # one run of the test, and of whoever sits before the machine
MAX_VERSIONS = 512  # possible steps of a speed bisection, in all
NOISE = 0.03  # of a speed, if the file does not say
LEAST_RATE = 0.001  # nothing is taken for impossible: one wrong answer must not end in a contradiction
DOCS = "for an example see docs/bisect-env.md or run zinc-rt bisect-env example"


@dataclass(frozen=True, slots=True)
class VariableKind:
    """A kind of variable. `once_minutes` is the cost shared by all changes made together (a reboot),
    `each_minutes` the cost per variable. `how` is the instruction for variables without a `set` of their own."""

    once_minutes: float
    each_minutes: float
    once: str
    how: str


_GRUB = "sudo grub-reboot 'MENU ENTRY OF {value}' && sudo reboot  (names: grep menuentry /boot/grub/grub.cfg)"
_CMDLINE = "put {value} into GRUB_CMDLINE_LINUX of /etc/default/grub; sudo update-grub && sudo reboot"
_OPTION = "echo 'options amdgpu {name}={value}' | sudo tee /etc/modprobe.d/bisect-{name}.conf; reload amdgpu"
_FIRMWARE = "unpack linux-firmware {value} into /lib/firmware/amdgpu; sudo update-initramfs -u && sudo reboot"

KINDS: Mapping[str, VariableKind] = {
    "bios": VariableKind(4.0, 1.0, "a reboot", "reboot into the firmware setup, set {name} to {value}"),
    "cmdline": VariableKind(4.0, 0.0, "a reboot", _CMDLINE),
    "firmware": VariableKind(4.0, 0.5, "a reboot", _FIRMWARE),
    "hardware": VariableKind(10.0, 2.0, "a shutdown", "shut down, then change {name}: {value}"),
    "kernel": VariableKind(4.0, 0.0, "a reboot", _GRUB),
    "module": VariableKind(
        1.0, 0.5, "a reload of amdgpu", "sudo modprobe -r amdgpu; install {value}; sudo modprobe amdgpu"
    ),
    "parameter": VariableKind(1.0, 0.0, "a reload of amdgpu", _OPTION),
    "package": VariableKind(0.0, 0.0, "", "install {name} {value} with the package manager"),
    "power": VariableKind(0.0, 0.0, "", "set {name} to {value}"),
    "other": VariableKind(0.0, 0.0, "", "set {name} to {value}"),
}


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable of the file. `good` and `bad` are indices in `values`. `suspect`: its prior weight
    relative to other variables. `seen_in`: a file that contains the value's text once it is set, so
    that a wrong boot is detected."""

    name: str
    values: tuple[str, ...]
    good: int
    bad: int
    kind: str = "other"
    ordered: bool = True
    suspect: float = 1.0
    set_text: str = ""
    set_of: tuple[str, ...] = ()
    seen_in: str = ""

    def describe_setting(self, value: int) -> str:
        """Return the instruction that sets the value."""
        text = (self.set_of[value] if self.set_of else "") or self.set_text or KINDS[self.kind].how
        return text.replace("{value}", self.values[value]).replace("{name}", self.name)

    def bad_value_sets(self) -> tuple[frozenset[int], ...]:
        """Return the sets of values that may be the bad ones: for an ordered variable all values from some
        value on, towards `bad`; otherwise any set with `bad` and without `good`."""
        if self.ordered:
            step = 1 if self.bad > self.good else -1
            last = len(self.values) if step > 0 else -1
            return tuple(
                frozenset(range(first, last, step)) for first in range(self.good + step, self.bad + step, step)
            )
        others = [index for index in range(len(self.values)) if index not in (self.good, self.bad)]
        return tuple(
            frozenset({self.bad, *(other for bit, other in enumerate(others) if chosen >> bit & 1)})
            for chosen in range(1 << len(others))
        )


Assignment = tuple[int, ...]  # a place in `values` for every variable


@dataclass(frozen=True, slots=True)
class Rates:
    """The flakiness of the test. `bad_passes`: a run with the fault passes by chance; `good_fails`: one
    without it fails."""

    bad_passes: float
    good_fails: float


@dataclass(frozen=True, slots=True)
class SpeedMeasure:
    """The measurement of a speed bisection. `noise`: the relative standard deviation of a run. `check`:
    how to tell whether the output is right."""

    unit: str
    higher_is_better: bool = True
    noise: float = NOISE
    check: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """A file of variables. `rates` None: the flakiness is unknown and is estimated. With `measure`, the bisection
    searches for a loss of speed instead of a failure.
    """

    variables: tuple[Variable, ...]
    test: str = ""
    test_minutes: float = TEST_MINUTES
    rates: Rates | None = None
    now_bad: bool = True
    measure: SpeedMeasure | None = None

    @property
    def good(self) -> Assignment:
        return tuple(variable.good for variable in self.variables)

    @property
    def bad(self) -> Assignment:
        return tuple(variable.bad for variable in self.variables)

    def index(self, name: str) -> int:
        """Return the index of the variable. Raises UsageError with the existing names."""
        for index, variable in enumerate(self.variables):
            if variable.name == name:
                return index
        known = ", ".join(variable.name for variable in self.variables)
        raise UsageError(f"no variable {name!r}", next=f"one of {known}")

    def value(self, index: int, text: str) -> int:
        """Return the index of the value. Raises UsageError."""
        variable = self.variables[index]
        if text not in variable.values:
            raise UsageError(f"{variable.name} has no value {text!r}", next=f"one of {', '.join(variable.values)}")
        return variable.values.index(text)


def load_problem(path: Path) -> tuple[Problem, dict[str, Any]]:
    """Return the problem, and the unmodified document for the journal. Raises InputError with the error.

    Every value is read as a string: 6.10 is not parsed as a number, nor on as a boolean.
    """
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader)
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a text file", next=DOCS) from None
    except OSError as error:
        raise make_read_error(path, error, next=DOCS) from None
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not YAML: {' '.join(str(error).split())}", next=DOCS) from None
    return parse_problem(document, str(path)), document


def parse_problem(document: Any, source: str) -> Problem:
    """Parse a document. Raises InputError with `source` and the row."""

    def input_error(what: str) -> InputError:
        return InputError(f"{source}: {what}", next=DOCS)

    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        seen = document.get("schema") if isinstance(document, dict) else type(document).__name__
        raise input_error(f"schema is {seen!r}; this build reads {SCHEMA!r}")
    unknown = set(document) - {"schema", "test", "test_minutes", "flaky", "now", "variables", "measure"}
    if unknown:
        raise input_error(f"unknown keys: {', '.join(sorted(map(str, unknown)))}")
    rows = document.get("variables")
    if not isinstance(rows, dict) or not rows:
        raise input_error("variables: expected one row per variable, by name")
    variables = tuple(_parse_variable(str(name), row, input_error) for name, row in rows.items())
    measure = _parse_measure(document.get("measure"), input_error)
    if measure and (document.get("flaky") or not all(variable.ordered for variable in variables)):
        raise input_error("measure: a speed bisection requires ordered values and does not accept flaky rates")
    max_versions = MAX_VERSIONS if measure else MAX_PATTERNS
    if sum(len(variable.bad_value_sets()) for variable in variables) > max_versions:
        raise input_error(f"more than {max_versions} possible first bad values; remove values or variables")
    now = document.get("now", "bad")
    if now not in ("good", "bad"):
        raise input_error(f"now is {now!r}: expected good or bad, depending on which values are set now")
    return Problem(
        variables,
        str(document.get("test", "")),
        _parse_number(document.get("test_minutes", TEST_MINUTES), "test_minutes", input_error, minimum=0.01),
        _parse_rates(document.get("flaky"), input_error),
        now == "bad",
        measure,
    )


def _parse_number(value: Any, what: str, input_error: Any, *, minimum: float, maximum: float = 1e6) -> float:
    try:
        result = float(value)
    except (TypeError, ValueError):
        result = -1.0
    if not minimum <= result <= maximum:
        raise input_error(f"{what} is {value!r}: expected a number from {minimum:g} to {maximum:g}")
    return result


def _parse_rates(row: Any, input_error: Any) -> Rates | None:
    if row is None:
        return None
    if not isinstance(row, dict) or set(row) != {"bad_passes", "good_fails"}:
        raise input_error(
            "flaky: expected exactly bad_passes and good_fails, as fractions of 1; omit flaky if the rates are "
            "unknown"
        )
    numbers = [
        _parse_number(row[name], f"flaky.{name}", input_error, minimum=0, maximum=0.49)
        for name in ("bad_passes", "good_fails")
    ]
    return Rates(*(max(number, LEAST_RATE) for number in numbers))


def _parse_measure(row: Any, input_error: Any) -> SpeedMeasure | None:
    if row is None:
        return None
    if not isinstance(row, dict) or "unit" not in row or set(row) - {"unit", "better", "noise", "check"}:
        raise input_error("measure: expected unit, and optionally better, noise and check")
    better = row.get("better", "higher")
    if better not in ("higher", "lower"):
        raise input_error(f"measure.better is {better!r}: expected higher or lower")
    noise = _parse_number(row.get("noise", NOISE), "measure.noise", input_error, minimum=0.001, maximum=0.3)
    return SpeedMeasure(str(row["unit"]), better == "higher", noise, str(row.get("check", "")))


def _parse_variable(name: str, row: Any, input_error: Any) -> Variable:
    known = {"good", "bad", "values", "kind", "ordered", "suspect", "set", "seen_in"}
    if not isinstance(row, dict) or not {"good", "bad"} <= set(row):
        raise input_error(f"{name}: expected good and bad, its values on a working and on a failing machine")
    if set(row) - known:
        raise input_error(f"{name}: unknown keys: {', '.join(sorted(map(str, set(row) - known)))}")
    good, bad = str(row["good"]), str(row["bad"])
    if good == bad:
        raise input_error(f"{name}: good and bad are both {good!r}: it cannot be the cause; remove it")
    argument = row.get("values", [good, bad])
    if not isinstance(argument, list):
        raise input_error(f"{name}: expected values to be a list")
    values = tuple(str(item) for item in argument)
    if len(set(values)) != len(values) or good not in values or bad not in values:
        raise input_error(f"{name}: expected distinct values, including {good!r} and {bad!r}")
    kind = row.get("kind", "other")
    if kind not in KINDS:
        raise input_error(f"{name}: unknown kind {kind!r}: expected one of {', '.join(KINDS)}")
    if str(row.get("ordered", "true")).lower() not in ("true", "false"):
        raise input_error(f"{name}: ordered: expected true or false")
    ordered = str(row.get("ordered", "true")).lower() == "true"
    if not ordered and len(values) > MAX_VALUES_UNORDERED:
        raise input_error(f"{name}: {len(values)} unordered values, but the maximum is {MAX_VALUES_UNORDERED}")
    ways = row.get("set", "")
    if isinstance(ways, dict):
        texts = {str(key): str(item) for key, item in ways.items()}
        if set(texts) - set(values):
            raise input_error(
                f"{name}: set contains unknown values: {', '.join(sorted(set(texts) - set(values)))}"
            )
        set_text, set_of = "", tuple(texts.get(value, "") for value in values)
    else:
        set_text, set_of = str(ways), ()
    return Variable(
        name,
        values,
        values.index(good),
        values.index(bad),
        kind,
        ordered,
        _parse_number(row.get("suspect", 1.0), f"{name}.suspect", input_error, minimum=0.01, maximum=100),
        set_text,
        set_of,
        str(row.get("seen_in", "")),
    )
