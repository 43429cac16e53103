"""Rows of facts.yaml that a simulated machine negates because of its `flip` option."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from zinc_rt.host.errors import UsageError
from zinc_rt.host.facts import OPPOSITE, STOPS, Fact, find_fact, load_table
from zinc_rt.sim.chips import Chip
from zinc_rt.sim.facts import SWITCHES, Behaviour
from zinc_rt.sim.profiles import LinuxProfile

PERTURBED = "function_bits"  # its other value: moved by up to one ULP


def list_negatable() -> tuple[Fact, ...]:
    return tuple(item for item in load_table().values() if item.other)


def find_rows(ids: Iterable[str]) -> tuple[Fact, ...]:
    """Return the rows. Raises UsageError for an id that does not exist or that the device cannot negate."""
    facts = tuple(find_fact(id) for id in ids)
    for item in facts:
        if not item.other:
            can = ", ".join(row.id for row in list_negatable())
            raise UsageError(f"{item.id} has no alternative value for a device", next=f"one of {can}")
    return facts


def negate_behaviour(current: Behaviour, negated: Iterable[Fact]) -> Behaviour:
    changes: dict[str, Any] = {
        fact.id: SWITCHES[fact.id](fact.id, fact.other[0]) for fact in negated if fact.id in SWITCHES
    }
    stops = current.stops_at | {fact.id for fact in negated if fact.other == (STOPS,)}
    return replace(current, **changes, stops_at=stops)


def negate_chip(current: Chip, flipped: Iterable[Fact]) -> Chip:
    changes = {}
    for negated in flipped:
        kind, *rest = negated.id.split("/")
        if kind == "chip" and rest[0] in ("*", current.key):
            changes[rest[1]] = negated.other[0]
    return replace(current, **changes)


def negate_linux(current: LinuxProfile, flipped: Iterable[Fact]) -> LinuxProfile:
    changes: dict[str, Any] = {}
    version = current.version.partition("+")[0]
    for negated in flipped:
        kind, *rest = negated.id.split("/")
        if kind == "kernel" and len(rest) == 2 and rest[0] == version and negated.other == (OPPOSITE,):
            changes[rest[1]] = not getattr(current, rest[1])
    return replace(current, **changes)


def choose_perturbation(seed: int, negated: Iterable[str]) -> int:
    return seed or int(PERTURBED in negated)
