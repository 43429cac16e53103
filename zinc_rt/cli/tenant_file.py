"""Tenants from a file, YAML or JSON: a list of them, or one below `tenants`.

tenants:
  - {id: desk, class: interactive, slots_guaranteed: 2, kv_reserved: 0.1}
  - {id: night, class: batch, slots_max: 8, decode_rate: 400, decode_burst: 2000}
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from zinc_rt.host.arguments import suggest_word
from zinc_rt.host.errors import InputError
from zinc_rt.host.input_files import make_read_error
from zinc_rt.sched.kv.pages import PageQuota
from zinc_rt.sched.tenant import Priority, Tenant

CLASS_NAMES = [item.name.lower() for item in Priority]
# What each field is, and what is wanted where it is not.
_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "id": (lambda v: isinstance(v, str) and bool(v), "a name"),
    "class": (lambda v: v in CLASS_NAMES, f"one of {', '.join(CLASS_NAMES)}"),
    "weight": (lambda v: _is_number(v) and 0.001 <= v <= 1000, "0.001 to 1000"),
    "slots_guaranteed": (lambda v: _is_whole_number(v, 0), "a number of slots"),
    "slots_max": (lambda v: _is_whole_number(v, 1), "a number of slots, 1 or more"),
    "kv_reserved": (lambda v: _is_page_count(v, 0), "pages, or a share of them from 0.0 to 1.0"),
    "kv_max": (lambda v: _is_page_count(v, 1), "pages, or a share of them up to 1.0"),
    "prefill_rate": (lambda v: _is_whole_number(v, 1), "tokens a second"),
    "prefill_burst": (lambda v: _is_whole_number(v, 1), "tokens"),
    "decode_rate": (lambda v: _is_whole_number(v, 1), "tokens a second"),
    "decode_burst": (lambda v: _is_whole_number(v, 1), "tokens"),
}


def read_tenants(path: str, *, pages: int) -> list[Tenant]:
    """Read the tenants of a file. `pages`: the total for shares. Raise InputError with the tenant and the
    field."""
    rows = _read_rows(path)
    tenants = [_parse_tenant(path, number, row, pages) for number, row in enumerate(rows, 1)]
    names = [tenant.name for tenant in tenants]
    if twice := next((name for index, name in enumerate(names) if name in names[:index]), None):
        raise InputError(f"{path}: tenant {twice!r} is listed twice", next="list each tenant once")
    return tenants


def _read_rows(path: str) -> list[Any]:
    import yaml

    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))  # JSON is YAML
    except OSError as error:
        raise make_read_error(path, error) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        raise InputError(f"{path}{where}: {getattr(error, 'problem', None) or 'not YAML'}") from error
    rows = content.get("tenants") if isinstance(content, dict) else content
    if not isinstance(rows, list) or not rows:
        raise InputError(f"{path}: expected a list of tenants", next="tenants: [{id: desk, class: interactive}]")
    return rows


def _parse_tenant(path: str, number: int, row: Any, pages: int) -> Tenant:
    if not isinstance(row, dict) or "id" not in row:
        raise InputError(f"{path}: tenant {number} has no id", next="tenants: [{id: desk, class: interactive}]")
    where = f"{path}: tenant {row['id']}"
    for name, value in row.items():
        if name not in _FIELDS:
            near = suggest_word(str(name), _FIELDS)
            raise InputError(f"{where}: unknown field {name!r}{near}", next=f"fields are {', '.join(_FIELDS)}")
        fits, expected = _FIELDS[name]
        if not fits(value):
            raise InputError(f"{where}: {name} {value!r}", next=f"expected {expected}")
    quota = PageQuota(_to_count(row.get("kv_reserved", 0), pages), _to_count(row.get("kv_max"), pages))
    return Tenant(
        row["id"],
        Priority[row.get("class", "standard").upper()],
        float(row.get("weight", 1.0)),
        row.get("slots_guaranteed", 0),
        row.get("slots_max"),
        (quota,) if quota != PageQuota() else (),
        _parse_bucket(where, "prefill", row),
        _parse_bucket(where, "decode", row),
    )


def _parse_bucket(where: str, kind: str, row: dict[str, Any]) -> tuple[int, int] | None:
    """Return a rate and its burst, by default the tokens of one second."""
    rate, burst = row.get(f"{kind}_rate"), row.get(f"{kind}_burst")
    if rate is None and burst is not None:
        raise InputError(f"{where}: {kind}_burst requires {kind}_rate", next=f"set {kind}_rate as well")
    return None if rate is None else (rate, rate if burst is None else burst)


def _to_count(value: Any, pages: int) -> Any:
    return int(value * pages) if isinstance(value, float) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole_number(value: Any, minimum: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= minimum


def _is_page_count(value: Any, minimum: int) -> bool:
    return (
        0 < value + (minimum == 0) <= 1 + (minimum == 0)
        if isinstance(value, float)
        else _is_whole_number(value, minimum)
    )
