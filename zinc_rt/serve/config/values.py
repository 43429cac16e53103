"""Parsers for configuration values with more than one notation."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

from zinc_rt.host.errors import UsageError
from zinc_rt.sched.speculation import parse_speculation
from zinc_rt.sched.tenant import Priority


def parse_auto(value: Any) -> Any:
    """Return None for `parse_auto`, which means unset."""
    return None if value == "auto" else value


def find_class(value: Any) -> Priority:
    """Return the class with this name."""
    names = {find_class_name(item): item for item in Priority}
    if isinstance(value, Priority):
        return value
    if not isinstance(value, str) or value not in names:
        raise ValueError(f"expected one of {', '.join(names)}")
    return names[value]


def find_class_name(priority: Priority) -> str:
    return priority.name.lower()


def parse_page_count(value: Any) -> int | float:
    """Return a page count: a number of pages, or a fraction of all pages, 0.0 to 1.0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("expected a number of pages, or a fraction from 0.0 to 1.0")
    if isinstance(value, float) and not 0 <= value <= 1:
        raise ValueError("expected a fraction from 0.0 to 1.0, or a whole number of pages")
    if value < 0:
        raise ValueError("expected 0 pages or more")
    return value


def check_speculation_text(value: str) -> str:
    """Return the text of a speculation option unchanged, if it is valid."""
    try:
        parse_speculation(value)
    except UsageError as error:
        raise ValueError(error.message) from None
    return value


def parse_pages(value: Any) -> tuple[int, ...] | None:
    """Return a page count, one per page group, or `parse_auto`."""
    if value is None or value == "auto":
        return None
    counts = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not counts or not all(
        isinstance(count, int) and not isinstance(count, bool) and count > 0 for count in counts
    ):
        raise ValueError("expected auto, a number of pages, or a list with one number per page group")
    return counts


def parse_utc_time(value: Any) -> datetime | None:
    """Return a date or a time; without a zone it is UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError("expected a date or a time like 2027-01-31 or 2027-01-31T12:00Z") from None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise ValueError("expected a date or a time like 2027-01-31 or 2027-01-31T12:00Z")
    return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
