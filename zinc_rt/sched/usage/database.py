"""The usage database: tables, locking, and transactions.

It is SQLite in WAL mode. A batch is one transaction with both sides of the ledger for the same steps, so the
database balances after a crash.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from zinc_rt.host import locks
from zinc_rt.host.errors import InputError, OutputError, UnsupportedError
from zinc_rt.host.input_files import make_read_error
from zinc_rt.host.version import __version__
from zinc_rt.sched.usage.ledger import PEAK, LedgerDelta

VERSION = 1
APPLICATION = 0x5A525455  # "ZRTU", in SQLite's header
UNREADABLE = (sqlite3.Error, UnicodeDecodeError)  # the second where SQLite's message quotes damaged bytes
BUSY_S = 0.25  # until a lock that somebody else has on the file counts as a failure

_TABLES = """
CREATE TABLE meta(version INTEGER NOT NULL, made_by TEXT NOT NULL);
CREATE TABLE usage(minute INTEGER, tenant TEXT, model TEXT, counter TEXT, value INTEGER NOT NULL,
    PRIMARY KEY(minute, tenant, model, counter)) WITHOUT ROWID;
CREATE TABLE device(minute INTEGER, model TEXT, counter TEXT, value INTEGER NOT NULL,
    PRIMARY KEY(minute, model, counter)) WITHOUT ROWID;
CREATE TABLE batch(minute INTEGER, model TEXT, process TEXT, first_step INTEGER NOT NULL,
    last_step INTEGER NOT NULL, count INTEGER NOT NULL, PRIMARY KEY(minute, model, process)) WITHOUT ROWID;
"""
_ADD = f"value = CASE counter WHEN '{PEAK}' THEN max(value, excluded.value) ELSE value + excluded.value END"
_JOIN = (
    "first_step = min(first_step, excluded.first_step), last_step = max(last_step, excluded.last_step), "
    "count = count + excluded.count"
)
# What an INSERT does where there is a row already; with the columns named, SQLite 3.24 will do.
UPSERTS = {
    "usage": f"ON CONFLICT(minute, tenant, model, counter) DO UPDATE SET {_ADD}",
    "device": f"ON CONFLICT(minute, model, counter) DO UPDATE SET {_ADD}",
    "batch": f"ON CONFLICT(minute, model, process) DO UPDATE SET {_JOIN}",
}


@dataclass(slots=True)
class UnwrittenUsage:
    """Counts that are not in the file yet: by (minute, tenant, model, counter), by (minute, model, counter),
    and the steps of each (minute, model), [first, last)."""

    usage: dict[tuple[int, str, str, str], int] = field(default_factory=dict)
    device: dict[tuple[int, str, str], int] = field(default_factory=dict)
    steps: dict[tuple[int, str], tuple[int, int]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.usage or self.device)

    def add(self, minute: int, model: str, delta: LedgerDelta) -> None:
        for (tenant, counter), value in delta.usage.items():
            key = (minute, tenant, model, counter)
            before = self.usage.get(key, 0)
            self.usage[key] = max(before, value) if counter == PEAK else before + value
        for counter, value in delta.device.items():
            self.device[minute, model, counter] = self.device.get((minute, model, counter), 0) + value
        if delta:
            first, _ = self.steps.get((minute, model), (delta.first_step, 0))
            self.steps[minute, model] = (first, delta.last_step)


def lock_file(path: Path) -> int:
    """Lock a database for the one process that writes it; closing the descriptor unlocks it.

    Raises OutputError with the current owner.
    """
    lock = path.with_name(path.name + ".lock")
    try:
        return locks.hold_lock(lock)
    except BlockingIOError:
        who = locks.read_holder(lock)
        raise OutputError(
            f"{path}: {who} is writing to this file",
            next="stop that process, or use another file; a file can have only one writer",
        ) from None
    except OSError as error:
        raise OutputError(f"{path}: cannot lock it: {error.strerror}", next="choose another path") from error


def open_to_write(path: Path, *, durable: bool) -> sqlite3.Connection:
    """Open the database, or create it. `durable`: a batch survives a power failure, not only a crash of this
    process.

    Raises InputError if it is not a usage database, UnsupportedError for another version.
    """
    try:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_S)
        connection.text_factory = _decode_text
        try:
            if not _list_tables(connection):
                _create(connection)
            check_version(connection, path)
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise OutputError(
                    f"{path}: the file system does not support shared memory", next="use a local disk"
                )
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        except BaseException:
            connection.close()
            raise
    except UNREADABLE as error:
        raise make_input_error(path, error) from error
    return connection


def open_to_read(path: Path) -> sqlite3.Connection:
    """Open the database for reading while others may write. Raises the errors of `open_to_write`, and an error if
    the file does not exist.
    """
    if not path.is_file():
        raise make_read_error(path, FileNotFoundError())
    try:
        connection = sqlite3.connect(path.resolve().as_uri() + "?mode=ro", uri=True, timeout=BUSY_S)
        connection.text_factory = _decode_text
        try:
            check_version(connection, path)
        except BaseException:
            connection.close()
            raise
    except UNREADABLE as error:
        raise make_input_error(path, error) from error
    return connection


def write_batch(connection: sqlite3.Connection, process: str, unwritten: UnwrittenUsage) -> None:
    """Write the batch atomically. Raises sqlite3.Error if the file is currently not writable."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        for table, rows in (("usage", unwritten.usage), ("device", unwritten.device)):
            places = ", ".join("?" * (5 if table == "usage" else 4))
            written = [(*key, value) for key, value in rows.items()]
            connection.executemany(f"INSERT INTO {table} VALUES ({places}) {UPSERTS[table]}", written)
        batches = [(minute, model, process, *span) for (minute, model), span in unwritten.steps.items()]
        connection.executemany(f"INSERT INTO batch VALUES (?, ?, ?, ?, ?, 1) {UPSERTS['batch']}", batches)
        connection.execute("COMMIT")
    except sqlite3.Error:
        with suppress(sqlite3.Error):  # a full disk has ended the transaction already
            connection.execute("ROLLBACK")
        raise


def check_version(connection: sqlite3.Connection, path: Path) -> None:
    """Raise an error for other files and for other versions."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION or "meta" not in _list_tables(connection):
        raise InputError(f"{path}: is not a usage database", next="use a file that a ledger wrote")
    version, made_by = connection.execute("SELECT version, made_by FROM meta").fetchone() or (0, "nobody")
    if version != VERSION:
        raise UnsupportedError(
            f"{path}: usage database has version {version}; this build reads and writes {VERSION}",
            next=f"ZINC_RT {made_by} wrote it and reads it; a new file can be begun beside it",
        )


def make_input_error(path: Path, error: Exception) -> InputError:
    """Return SQLite's error as an InputError."""
    if isinstance(error, sqlite3.OperationalError):  # no folder, no permission, a lock that somebody keeps
        return InputError(
            f"{path}: cannot use it: {error}",
            next="check its folder, its owner and the processes that have it open",
        )
    return InputError(f"{path}: not a usage database: {error}", next="restore it, or use another file")


def _decode_text(data: bytes) -> str:
    """Return names unmodified, even from a damaged file."""
    return data.decode(errors="replace")


def _list_tables(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def _create(connection: sqlite3.Connection) -> None:
    connection.executescript(
        f"BEGIN IMMEDIATE; PRAGMA application_id = {APPLICATION}; {_TABLES}"
        f"INSERT INTO meta VALUES ({VERSION}, '{__version__}'); COMMIT;"
    )
