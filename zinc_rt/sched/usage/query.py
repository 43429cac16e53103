"""Query a usage database: sums by tenant, model and time, with the device's sums of the same minutes."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from zinc_rt.host.errors import UsageError
from zinc_rt.sched.usage.balance import Sums
from zinc_rt.sched.usage.database import UPSERTS
from zinc_rt.sched.usage.ledger import PEAK

DAY = 1440  # minutes
END = 253_402_300_800 // 60  # the year 10000, which no calendar here has
GROUPS = {  # cast, since a damaged file may hold anything
    "tenant": "CAST(tenant AS TEXT)",
    "model": "CAST(model AS TEXT)",
    "day": "date(minute * 60, 'unixepoch')",
    "minute": "strftime('%Y-%m-%dT%H:%MZ', minute * 60, 'unixepoch')",
}
_SUM = f"CAST(CASE WHEN counter = '{PEAK}' THEN max(value) ELSE sum(value) END AS INTEGER)"


@dataclass(frozen=True, slots=True)
class UsageGroup:
    """The counters of one group: `key` has one value for each grouping field."""

    key: tuple[str, ...]
    counters: Sums


@dataclass(frozen=True, slots=True)
class UsageResult:
    """`usage` and `device` are the two sides over the whole range, which balance. `first`, `last`: the
    minutes in it that have data, None without data."""

    groups: list[UsageGroup]
    usage: Sums
    device: Sums
    first: int | None
    last: int | None


def find_usage(
    connection: sqlite3.Connection,
    *,
    first_minute: int = 0,
    before_minute: int = END,
    group_by: Sequence[str] = ("tenant",),
) -> UsageResult:
    """Return the sums over the minutes [first_minute, before_minute), from one snapshot of the file. Accounts
    that are not tenants (`:cache`, `:free`) are separate groups. Raises UsageError for an unknown grouping
    field."""
    for word in group_by:
        if word not in GROUPS:
            raise UsageError(f"unknown grouping {word!r}", next=f"any of {', '.join(GROUPS)}, separated by commas")
    where, span = "WHERE minute >= ? AND minute < ?", (first_minute, before_minute)
    keys = "".join(f"{GROUPS[word]}, " for word in group_by)
    by = ", ".join(str(index + 1) for index in range(len(group_by) + 1))
    groups: dict[tuple[str, ...], dict[str, int]] = {}
    connection.execute("BEGIN")  # one moment for both sides
    try:
        select = f"SELECT {keys}CAST(counter AS TEXT), {_SUM} FROM usage {where} GROUP BY {by} ORDER BY {by}"
        for *key, counter, value in connection.execute(select, span):
            groups.setdefault(tuple(key), {})[counter] = value
        usage, device = (_read_side(connection, f"FROM {side} {where}", span) for side in ("usage", "device"))
        ends = "CAST(min(minute) AS INTEGER), CAST(max(minute) AS INTEGER)"
        first, last = connection.execute(f"SELECT {ends} FROM device {where}", span).fetchone()
    finally:
        connection.execute("ROLLBACK")
    return UsageResult([UsageGroup(key, counters) for key, counters in groups.items()], usage, device, first, last)


def _read_side(connection: sqlite3.Connection, of: str, span: tuple[int, int]) -> Sums:
    return dict(connection.execute(f"SELECT CAST(counter AS TEXT), {_SUM} {of} GROUP BY counter", span).fetchall())


def fold(connection: sqlite3.Connection, *, before_minute: int) -> None:
    """At midnight, merge the minutes of previous days into one row per day. Sums of whole days do not
    change. Raises sqlite3.Error without changes."""
    old = f"minute < {before_minute // DAY * DAY} AND minute % {DAY} <> 0"
    try:
        connection.execute("BEGIN IMMEDIATE")
        for table, keys, value in (
            ("usage", "tenant, model, counter", _SUM),
            ("device", "model, counter", _SUM),
            ("batch", "model, process", "min(first_step), max(last_step), sum(count)"),
        ):
            connection.execute(
                f"INSERT INTO {table} SELECT minute / {DAY} * {DAY}, {keys}, {value} FROM {table} WHERE {old} "
                f"GROUP BY minute / {DAY}, {keys} {UPSERTS[table]}"
            )
            connection.execute(f"DELETE FROM {table} WHERE {old}")
        connection.execute("COMMIT")
    except sqlite3.Error:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
