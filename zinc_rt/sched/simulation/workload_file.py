"""Workload files: JSON Lines, one request per line.

    {"arrival": 0.5, "tenant": "desk", "class": "interactive", "prompt": 100, "output": 20, "prefix": "chat-7"}
    # one line

`arrival`: seconds from the start, in any order. `prompt`, `output`: tokens. `class` and `prefix` are
optional: the default class is the tenant's, and the default prompt shares no prefix. A line may also be an
array of the six values in this order.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from zinc_rt.host.errors import InputError
from zinc_rt.host.input_files import make_read_error
from zinc_rt.sched.simulation.arrival import Arrival
from zinc_rt.sched.tenant import Priority, Tenant

# A field's other spellings, as other engines' traces have them.
FIELDS: dict[str, tuple[str, ...]] = {
    "arrival": ("arrival_s", "arrival_seconds", "arrival_time", "at"),
    "tenant": ("tenant_id",),
    "class": ("priority",),
    "prompt": ("prompt_tokens", "input_tokens"),
    "output": ("output_tokens", "max_tokens"),
    "prefix": ("prefix_id",),
}
OPTIONAL = ("class", "prefix")
MOST_TOKENS = 1 << 20
CLASS_NAMES = tuple(item.name.lower() for item in Priority)
_SPELLED = {spelling: name for name, others in FIELDS.items() for spelling in (name, *others)}
_Value = TypeVar("_Value")


def read_workload(path: str | Path) -> list[Arrival]:
    """Return the requests of a file. Raises InputError with the line, the field and the expected value."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise make_read_error(path, error, next="zinc-rt sched-test --list names workloads") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: not UTF-8 at byte {error.start}", next="JSON Lines, one request per line"
        ) from error
    arrivals = [
        _parse_arrival(f"{path}: line {number}", line, number)
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip()
    ]
    if not arrivals:
        raise InputError(
            f"{path}: contains no requests", next="zinc-rt sched-test --export chat prints an example"
        )
    return arrivals


def write_workload(arrivals: Iterable[Arrival], tenants: Sequence[Tenant]) -> str:
    """Return the text of a file with these requests."""
    priorities = {tenant.name: tenant.priority for tenant in tenants}
    return "".join(
        json.dumps(_make_fields(arrival, priorities)) + "\n" for arrival in sorted(arrivals, key=lambda a: a.at)
    )


def list_tenants(arrivals: Iterable[Arrival]) -> list[Tenant]:
    """Return the tenants of a workload in order of first request, each with the highest class that it
    requests."""
    result: dict[str, Priority] = {}
    for arrival in sorted(arrivals, key=lambda a: a.at):
        priority = Priority.STANDARD if arrival.priority is None else arrival.priority
        result[arrival.tenant] = min(result.get(arrival.tenant, priority), priority)
    return [Tenant(name, priority) for name, priority in result.items()]


def _make_fields(arrival: Arrival, priorities: dict[str, Priority]) -> dict[str, Any]:
    priority = priorities[arrival.tenant] if arrival.priority is None else arrival.priority
    whole = {
        "arrival": round(arrival.at, 6),
        "tenant": arrival.tenant,
        "class": priority.name.lower(),
        "prompt": arrival.prompt,
        "output": arrival.output,
    }
    return whole | ({"prefix": arrival.prefix} if arrival.prefix else {})


def _parse_arrival(where: str, line: str, number: int) -> Arrival:
    row = _parse_row(where, line)

    def read_field(name: str, read: Callable[[Any], _Value | None], expected: str) -> _Value:
        value = read(row[name])
        if value is None:
            raise InputError(f"{where}: invalid {name}: {json.dumps(row[name])}", next=f"expected {expected}")
        return value

    tokens = f"a whole number of tokens, 1 to {MOST_TOKENS:,}"
    return Arrival(
        at=read_field("arrival", _parse_seconds, "seconds, 0 or more"),
        tenant=read_field("tenant", _parse_name, "the tenant's name"),
        prompt=read_field("prompt", _parse_tokens, tokens),
        output=read_field("output", _parse_tokens, tokens),
        priority=None
        if row.get("class") is None
        else read_field("class", _parse_class, f"one of {', '.join(CLASS_NAMES)}"),
        prefix="" if row.get("prefix") is None else read_field("prefix", _parse_name, "a name or a number"),
        line=number,
    )


def _parse_row(where: str, line: str) -> dict[str, Any]:
    """The line's values by field."""
    try:
        row = json.loads(line)
    except ValueError as error:
        raise InputError(f"{where}: not JSON: {error}", next="one JSON object per line") from error
    if isinstance(row, list):
        if not len(FIELDS) - len(OPTIONAL) <= len(row) <= len(FIELDS):
            raise InputError(f"{where}: wrong number of values: {len(row)}", next=f"expected {', '.join(FIELDS)}")
        row = dict(zip(FIELDS, row, strict=False))
    if not isinstance(row, dict):
        raise InputError(f"{where}: expected an object, got {type(row).__name__}", next=_format_field_list())
    result: dict[str, Any] = {}
    for spelling, value in row.items():
        name = _SPELLED.get(spelling)
        if name is None:
            near = get_close_matches(spelling, _SPELLED, n=1)
            raise InputError(
                f"{where}: unknown field {spelling!r}",
                next=f"did you mean {near[0]}?" if near else _format_field_list(),
            )
        if name in result:
            raise InputError(f"{where}: {name} is given twice, once as {spelling!r}", next="leave one out")
        result[name] = value
    missing = [name for name in FIELDS if name not in result and name not in OPTIONAL]
    if missing:
        raise InputError(f"{where}: missing {' and '.join(missing)}", next=_format_field_list())
    return result


def _format_field_list() -> str:
    return (
        f"a request has {', '.join(n for n in FIELDS if n not in OPTIONAL)}, and may have {' and '.join(OPTIONAL)}"
    )


def _parse_seconds(value: Any) -> float | None:
    fits = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
    return float(value) if fits else None


def _parse_tokens(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= MOST_TOKENS:
        return None
    return int(value) if value == int(value) else None


def _parse_name(value: Any) -> str | None:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) and str(value) else None


def _parse_class(value: Any) -> Priority | None:
    """Parse a class by name or by number (0 is interactive)."""
    if isinstance(value, str) and value.lower() in CLASS_NAMES:
        return Priority[value.upper()]
    return (
        Priority(value) if isinstance(value, int) and not isinstance(value, bool) and value in (0, 1, 2) else None
    )
