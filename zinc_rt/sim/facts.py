"""Facts measured on real cards where the references leave the behaviour open, and their effect on the
simulated device.

A facts file is JSON: {"version", "chip", "kernel", "firmware", "simulated", "facts": {name: {"value",
"how", "probe"}}}, as `zinc-rt-pm4-test --learn` writes it. Some facts have a switch here (SWITCHES); the
others are informative. A file learned from a simulated device would only confirm the simulator's own
assumptions: it is refused unless forced.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from zinc_rt.host.errors import InputError, UsageError
from zinc_rt.host.facts import load_table
from zinc_rt.host.input_files import make_read_error

VERSION = 1
WMMA_LENGTH = 16
Place = tuple[int, int, int]  # lane // 16, register, half: where an element of a row of A or column of B is


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Behaviour of the simulated device for which the references allow alternatives. The fields are rows of
    zinc_rt/host/facts.yaml by id, documented there. `stops_at`: findings after which a queue stops.
    `wmma_f16_order`: the order in which v_wmma_f32_16x16x16_f16 adds single products in wave32; empty:
    four per step, as captured."""

    ids_without_enables: str = load_table()["ids_without_enables"].value
    protected_fence: str = load_table()["protected_fence"].value
    dims_with_start: str = load_table()["dims_with_start"].value
    code_without_invalidate: str = load_table()["code_without_invalidate"].value
    bar_without_flush: str = load_table()["bar_without_flush"].value
    buffer_offset: str = load_table()["buffer_offset"].value
    wmma_f16_order: tuple[Place, ...] = ()
    stops_at: frozenset[str] = frozenset()


WORDS = tuple(field.name for field in fields(Behaviour) if isinstance(field.default, str))
DEFAULT = Behaviour()
"""The behaviour without a facts file."""


@dataclass(frozen=True, slots=True)
class FactValue:
    """The value of a fact, the method, and the probe that measured it."""

    value: Any
    how: str
    probe: str


@dataclass(frozen=True, slots=True)
class FactsFile:
    """A facts file."""

    chip: str
    kernel: str
    simulated: bool
    firmware: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, FactValue] = field(default_factory=dict)

    def behaviour(self) -> Behaviour:
        """Return the behaviour; facts that are missing keep their defaults. Raises InputError for a value that its
        switch does not accept.
        """
        result = {name: SWITCHES[name](name, self.facts[name].value) for name in SWITCHES if name in self.facts}
        return replace(DEFAULT, **result)

    def to_json(self) -> str:
        facts = {
            name: {"value": fact.value, "how": fact.how, "probe": fact.probe}
            for name, fact in sorted(self.facts.items())
        }
        head = {"version": VERSION, "chip": self.chip, "kernel": self.kernel, "firmware": dict(self.firmware)}
        return json.dumps({**head, "simulated": self.simulated, "facts": facts}, indent=1) + "\n"


def _make_choice_check(*values: str) -> Callable[[str, Any], str]:
    def check_choice(name: str, value: Any) -> str:
        if value not in values:
            raise InputError(f"fact {name} is {value!r}, expected {' or '.join(values)}", next=_AGAIN)
        return str(value)

    return check_choice


def _check_order(name: str, value: Any) -> tuple[Place, ...]:
    """Parse a permutation of positions, in which order products are added one by one. The default's name and
    "neither" keep the default order."""
    if value in (load_table()["wmma_f16_order"].value, "neither"):
        return ()
    every = {(group, register, half) for group in range(2) for register in range(4) for half in range(2)}
    places = [tuple(item) for item in value] if isinstance(value, list) and all(map(_is_list, value)) else []
    if len(places) != WMMA_LENGTH or set(places) != every:
        raise InputError(
            (
                f"fact {name} is {str(value)[:60]}, expected 'four a step', 'neither' or {WMMA_LENGTH} "
                "distinct positions [lane // 16, register 0 to 3, half]"
            ),
            next=_AGAIN,
        )
    return tuple((group, register, half) for group, register, half in places)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


_AGAIN = "write it again: zinc-rt-pm4-test --learn FACTS.json on the card"

SWITCHES: Mapping[str, Callable[[str, Any], Any]] = {
    **{name: _make_choice_check(load_table()[name].value, *load_table()[name].other) for name in WORDS},
    "wmma_f16_order": _check_order,
}
"""Facts that change the simulated device, each with the function that converts its value to a field of
Behaviour."""


def load(path: Path, *, chip: str = "", force: bool = False) -> FactsFile:
    """Load the facts for a device with gfx name `chip`. Raises InputError for an invalid facts file;
    UsageError for a file of another chip or one learned from a simulated device, unless forced."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise make_read_error(path, error) from None
    facts = parse(text, str(path))
    if facts.simulated and not force:
        raise UsageError(
            f"{path}: was learned from a simulated device, so it cannot calibrate the simulator",
            next="learn it from a card (pm4-test and sim accept it with --force-facts)",
        )
    if chip and facts.chip != chip and not force:
        raise UsageError(
            f"{path}: contains facts for {facts.chip}, but this device is {chip}",
            next=f"--chip {facts.chip}, or --force-facts",
        )
    facts.behaviour()
    return facts


def parse(text: str, source: str) -> FactsFile:
    """Parse a facts file. Raises InputError that names `source` and the first error."""
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise InputError(f"{source}: not JSON: {error}", next=_AGAIN) from None
    if not isinstance(raw, dict):
        raise InputError(f"{source}: expected an object, got {type(raw).__name__}", next=_AGAIN)
    if raw.get("version") != VERSION:
        raise InputError(f"{source}: version is {raw.get('version')!r}, expected {VERSION}", next=_AGAIN)
    for name, kind in _HEAD.items():
        if not isinstance(raw.get(name), kind):
            raise InputError(f"{source}: {name} is {raw.get(name)!r}, expected {kind.__name__}", next=_AGAIN)
    facts = {}
    for name, fact in raw["facts"].items():
        if not isinstance(fact, dict) or set(fact) != {"value", "how", "probe"}:
            raise InputError(f"{source}: fact {name} must have exactly value, how and probe", next=_AGAIN)
        if not isinstance(fact["how"], str) or not isinstance(fact["probe"], str):
            raise InputError(f"{source}: how and probe of fact {name} must be strings", next=_AGAIN)
        facts[name] = FactValue(fact["value"], fact["how"], fact["probe"])
    return FactsFile(raw["chip"], raw["kernel"], raw["simulated"], raw["firmware"], facts)


_HEAD = {"chip": str, "kernel": str, "simulated": bool, "firmware": dict, "facts": dict}
