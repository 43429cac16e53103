"""The used subset of KCIDB's report format (kcidb-io, schema v5.3), and a validator for it.

KCIDB is the Linux kernel's common database of test results. Objects refer to each other by id; an id
begins with the name of the originating system and a colon. Members must not be null or unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

MAJOR, MINOR = 5, 3
STATUS = ("FAIL", "ERROR", "MISS", "PASS", "DONE", "SKIP")
MOST_LOG = 16384
ORIGIN = r"[a-z0-9_]+"
ID = rf"{ORIGIN}:[^\0]*"
TEXT = r"[^\0]*"
PATH = r"[.a-zA-Z0-9_-]*"


@dataclass(frozen=True, slots=True)
class KcidbField:
    kind: Any  # a type, or several
    pattern: str = ""
    required: bool = False
    most: int = 0
    time: bool = False


_COMMON = {
    "id": KcidbField(str, ID, required=True),
    "origin": KcidbField(str, ORIGIN, required=True),
    "comment": KcidbField(str, TEXT),
    "misc": KcidbField(dict),
    "start_time": KcidbField(str, time=True),
}
OBJECTS: Mapping[str, Mapping[str, KcidbField]] = {
    "checkouts": {
        **_COMMON,
        "tree_name": KcidbField(str, TEXT),
        "git_commit_name": KcidbField(str, TEXT),
        "valid": KcidbField(bool),
    },
    "builds": {
        **_COMMON,
        "checkout_id": KcidbField(str, ID, required=True),
        "architecture": KcidbField(str, "[a-z0-9_]*"),
        "config_name": KcidbField(str, TEXT),
        "status": KcidbField(str, "|".join(STATUS)),
    },
    "tests": {
        **_COMMON,
        "build_id": KcidbField(str, ID, required=True),
        "path": KcidbField(str, PATH),
        "status": KcidbField(str, "|".join(STATUS)),
        "duration": KcidbField((int, float)),
        "log_excerpt": KcidbField(str, TEXT, most=MOST_LOG),
        "environment": KcidbField(dict),
    },
}
ENVIRONMENT = {"comment": KcidbField(str, TEXT), "misc": KcidbField(dict), "compatible": KcidbField(list)}


def find_problems(report: Mapping[str, Any]) -> Iterator[str]:
    """Return the errors for which KCIDB would reject the report, as sentences."""
    if report.get("version") != {"major": MAJOR, "minor": MINOR}:
        yield f"version is {report.get('version')!r}, expected {MAJOR}.{MINOR}"
    for name in report.keys() - {"version", *OBJECTS}:
        yield f"{name!r} is not a member of a report"
    ids: dict[str, set[str]] = {}
    for name, fields in OBJECTS.items():
        rows = report.get(name, [])
        ids[name] = {str(row.get("id")) for row in rows}
        if len(ids[name]) != len(rows):
            yield f"{name}: duplicate id"
        for row in rows:
            yield from _check_object(f"{name} {row.get('id')}", row, fields)
            yield from _check_object(
                f"{name} {row.get('id')} environment", row.get("environment", {}), ENVIRONMENT
            )
            if not str(row.get("id")).startswith(f"{row.get('origin')}:"):
                yield f"{name} {row.get('id')}: the id does not begin with its origin"
    for name, member, target in (("builds", "checkout_id", "checkouts"), ("tests", "build_id", "builds")):
        for row in report.get(name, []):
            if row.get(member) not in ids[target]:
                yield f"{name} {row.get('id')}: {member} {row.get(member)!r} is not in {target}"


def _check_object(where: str, row: Mapping[str, Any], fields: Mapping[str, KcidbField]) -> Iterator[str]:
    for name in row.keys() - fields.keys():
        yield f"{where}: {name!r} is no member"
    for name, field in fields.items():
        if name not in row:
            if field.required:
                yield f"{where}: {name!r} is missing"
            continue
        value: Any = row[name]
        if not isinstance(value, field.kind) or (isinstance(value, bool) and field.kind is not bool):
            yield f"{where}: {name} is {value!r}"
        elif field.pattern and not re.fullmatch(field.pattern, value):
            yield f"{where}: {name} {value!r} is not as {field.pattern}"
        elif field.most and len(value) > field.most:
            yield f"{where}: {name} is longer than {field.most}"
        elif field.time and not _is_time(value):
            yield f"{where}: {name} {value!r} is not a time with a time zone"


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False
