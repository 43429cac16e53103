"""Values of a configuration that may be written in more than one way."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

from zinc_rt.sched.tenant import Priority


def auto(value: Any) -> Any:
    """`auto` is what nobody said."""
    return None if value == "auto" else value


def class_named(value: Any) -> Priority:
    """Of a class by its name."""
    names = {name_of_class(each): each for each in Priority}
    if isinstance(value, Priority):
        return value
    if not isinstance(value, str) or value not in names:
        raise ValueError(f"wanted one of {', '.join(names)}")
    return names[value]


def name_of_class(priority: Priority) -> str:
    return priority.name.lower()


def page_count(value: Any) -> int | float:
    """Pages: a number of them, or a share of all, 0.0 to 1.0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("wanted a number of pages, or a share of them from 0.0 to 1.0")
    if isinstance(value, float) and not 0 <= value <= 1:
        raise ValueError("wanted a share from 0.0 to 1.0, or a whole number of pages")
    if value < 0:
        raise ValueError("wanted 0 pages or more")
    return value


def pages_or_auto(value: Any) -> tuple[int, ...] | None:
    """A number of pages, one for each page group, or `auto`."""
    if value is None or value == "auto":
        return None
    counts = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not counts or not all(isinstance(each, int) and not isinstance(each, bool) and each > 0 for each in counts):
        raise ValueError("wanted auto, a number of pages, or a list of one for each page group")
    return counts


def utc_time(value: Any) -> datetime | None:
    """A day or a moment; without a zone it is UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError("wanted a day or a moment, as 2027-01-31 or 2027-01-31T12:00Z") from None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise ValueError("wanted a day or a moment, as 2027-01-31 or 2027-01-31T12:00Z")
    return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
