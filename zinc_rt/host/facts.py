"""Facts with provenance: facts.yaml has one row for each rule of the simulated device and each constant of a chip.
The rules of its sanitizer are rows of sanitizer_rules.py.

A row states its source: a document, source code, a measurement, or none (assumed), and in that case how to verify
it. A simulated device records marks for the features it executes (an ioctl, a packet, an instruction). Rows list
the marks that depend on them, so a result can list the assumed rows that it depends on. See docs/facts.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from zinc_rt.host.errors import InputError, UsageError
from zinc_rt.host.files import load_yaml
from zinc_rt.host.sanitizer_rules import RULES, SanitizerRule

FILE = Path(__file__).parent / "facts.yaml"
SCHEMA = "zinc-rt-facts/1"
ORIGINS = ("documented", "source", "measured", "assumed")
SHOWN = 4  # of the assumptions in one line
OPPOSITE, STOPS = (
    "opposite",
    "stops",
)  # alternatives: of a truth value; of a finding, after which the queue goes on

flipped: ContextVar[tuple[str, ...]] = ContextVar("flipped", default=())
"""Rows that simulated devices opened from now on take at their other value."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A row of the table.

    `where`: the document, file or bundle; for an assumed row, the reason for the assumption. `value`: the device's
    behaviour, if a word or number can express it; `other`: alternative values that the device accepts.
    `settled_by`: probes, --learn facts, or an action. `marks`: patterns, one of which means that the result
    depends on the row (`A + B`: both are needed). `code`: MODULE:NAME of a constant. `versions`: the value from
    each Linux version on.
    """

    id: str
    says: str
    origin: str
    where: str
    value: Any = None
    other: tuple[Any, ...] = ()
    settled_by: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    code: str = ""
    versions: Mapping[str, Any] = field(default_factory=dict)

    @property
    def assumed(self) -> bool:
        return self.origin == "assumed"

    @property
    def kind(self) -> str:
        """The first part of the id (chip, kernel, ioctl, packet, sdma), or rule for an id without parts."""
        return self.id.partition("/")[0] if "/" in self.id else "rule"

    def matches(self, marks: Collection[str]) -> bool:
        return any(all(_matches_mark(part, marks) for part in pattern.split(" + ")) for pattern in self.marks)


def report_rows(facts: Iterable[Fact]) -> list[dict[str, Any]]:
    """Return the entries for "assumptions" in a report's details."""
    return [
        {"id": row.id, "says": row.says, "where": row.where, "settled_by": list(row.settled_by)} for row in facts
    ]


def format_dependency_suffix(ids: Sequence[str]) -> str:
    """Return the suffix of a verdict that lists the assumptions it depends on; empty if there are none."""
    if not ids:
        return ""
    shown = ", ".join(ids[:SHOWN]) + (f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else "")
    return f", depends on {len(ids)} unverified assumption{'s' * (len(ids) > 1)}: {shown}"


def _matches_mark(pattern: str, marks: Collection[str]) -> bool:
    return pattern in marks or ("*" in pattern and any(fnmatchcase(mark, pattern) for mark in marks))


@cache
def load_table() -> Mapping[str, Fact]:
    return read_table(FILE)


def find_fact(id: str) -> Fact:
    """Return the fact with this id. Raise UsageError with similar ids if there is none."""
    row = load_table().get(id)
    if row is None:
        near = [item for item in load_table() if id.lower() in item.lower()][:6]
        raise UsageError(
            f"no fact {id!r}", next=f"did you mean {', '.join(near)}?" if near else "zinc-rt assumptions --all"
        )
    return row


def find_assumed_facts(marks: Iterable[str]) -> tuple[Fact, ...]:
    """Return the assumed rows for the marks of a device, in the table's order."""
    seen = frozenset(marks)
    return tuple(item for item in load_table().values() if item.assumed and item.matches(seen))


def read_table(path: Path) -> Mapping[str, Fact]:
    """Read the table. Raise InputError, naming the invalid row."""
    try:
        document = load_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise InputError(f"{path}: expected schema {SCHEMA!r}", next="docs/facts.md")
    rows: dict[str, Fact] = {}
    for section in document.get("facts", ()):
        shared = {key: value for key, value in section.items() if key not in ("section", "rows")}
        facts = (
            [_convert_rule(rule) for rule in RULES.values()]
            if shared.pop("rules", None) == "all"
            else [_parse_fact(f"{path}: {id}", str(id), {**shared, **row}) for id, row in section["rows"].items()]
        )
        for fact in facts:
            if fact.id in rows:
                raise InputError(f"{path}: row {fact.id} appears twice")
            rows[fact.id] = fact
    return rows


def _convert_rule(rule: SanitizerRule) -> Fact:
    return Fact(
        rule.id,
        rule.says,
        rule.origin,
        rule.where,
        other=rule.other,
        settled_by=rule.settled_by,
        marks=_make_default_mark(rule.id),
        code=rule.code,
    )


def _parse_fact(where: str, id: str, row: Mapping[str, Any]) -> Fact:
    unknown = set(row) - {"says", "from", "where", "value", "or", "settled", "marks", "code", "versions"}
    if unknown or not {"says", "from", "where"} <= set(row):
        raise InputError(
            f"{where}: expected says, from and where; unknown keys: {sorted(unknown)}", next="docs/facts.md"
        )
    if row["from"] not in ORIGINS:
        raise InputError(f"{where}: from {row['from']!r}, expected one of {', '.join(ORIGINS)}")
    settled = _format_value(row.get("settled", ()))
    if row["from"] == "assumed" and not settled:
        raise InputError(
            f"{where}: an assumed row must have the key `settled`", next="settled: a probe, or a sentence"
        )
    return Fact(
        id,
        str(row["says"]),
        str(row["from"]),
        str(row["where"]),
        row.get("value"),
        tuple(row.get("or", ())),
        settled,
        _format_value(row.get("marks", ())) or _make_default_mark(id),
        str(row.get("code", "")),
        row.get("versions", {}),
    )


def _format_value(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(map(str, value))


def _make_default_mark(id: str) -> tuple[str, ...]:
    """Return the default mark of a row without marks: the call for ioctl/X, the chip for chip/K/..., the finding
    for a rule.
    """
    kind, slash, rest = id.partition("/")
    if not slash:
        return (f"finding {id}",)
    return (f"{kind} {rest.partition('/')[0]}",)
