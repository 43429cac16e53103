"""Rows of facts.yaml that a simulated machine negates because of its `flip` option."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from zinc_rt.host.errors import UsageError
from zinc_rt.host.facts import OPPOSITE, STOPS, Fact, fact, table
from zinc_rt.sim.chips import Chip
from zinc_rt.sim.facts import SWITCHES, Behaviour
from zinc_rt.sim.profiles import LinuxProfile

PERTURBED = "function_bits"  # its other value: moved by up to one ULP


def flippable() -> tuple[Fact, ...]:
    return tuple(item for item in table().values() if item.other)


def rows(ids: Iterable[str]) -> tuple[Fact, ...]:
    """Return the rows. Raises UsageError for an id that does not exist or that the device cannot negate."""
    facts = tuple(fact(id) for id in ids)
    for item in facts:
        if not item.other:
            can = ", ".join(row.id for row in flippable())
            raise UsageError(f"{item.id} has no alternative value for a device", next=f"one of {can}")
    return facts


def behaviour(known: Behaviour, flipped: Iterable[Fact]) -> Behaviour:
    changes: dict[str, Any] = {
        fact.id: SWITCHES[fact.id](fact.id, fact.other[0]) for fact in flipped if fact.id in SWITCHES
    }
    stops = known.stops_at | {fact.id for fact in flipped if fact.other == (STOPS,)}
    return replace(known, **changes, stops_at=stops)


def chip(known: Chip, flipped: Iterable[Fact]) -> Chip:
    changes = {}
    for negated in flipped:
        kind, *rest = negated.id.split("/")
        if kind == "chip" and rest[0] in ("*", known.key):
            changes[rest[1]] = negated.other[0]
    return replace(known, **changes)


def linux(known: LinuxProfile, flipped: Iterable[Fact]) -> LinuxProfile:
    changes: dict[str, Any] = {}
    version = known.version.partition("+")[0]
    for negated in flipped:
        kind, *rest = negated.id.split("/")
        if kind == "kernel" and len(rest) == 2 and rest[0] == version and negated.other == (OPPOSITE,):
            changes[rest[1]] = not getattr(known, rest[1])
    return replace(known, **changes)


def perturb(seed: int, flipped: Iterable[str]) -> int:
    return seed or int(PERTURBED in flipped)
