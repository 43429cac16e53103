"""A SQLite store of bundles from many machines: configurations, results, findings of doctor."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zinc_rt.cli.report import import_pandas
from zinc_rt.doctor.bundle.combination import SCALARS, MachineCombination, list_traits
from zinc_rt.doctor.bundle.format import Bundle
from zinc_rt.host.errors import InputError, OutputError
from zinc_rt.host.files import state_directory

if TYPE_CHECKING:
    import pandas

VERSION = 1  # PRAGMA user_version
APPLICATION = 0x5A525442  # PRAGMA application_id: "ZRTB"
RESULT_COLUMNS = ("bundle", "chip", "probe", "status", "reason", "seconds")
_TABLES = """
CREATE TABLE bundle (
    id TEXT PRIMARY KEY, created TEXT NOT NULL, imported TEXT NOT NULL, source TEXT NOT NULL,
    simulated INTEGER NOT NULL, chip TEXT NOT NULL, kernel TEXT NOT NULL, module TEXT NOT NULL,
    combination TEXT NOT NULL
);
CREATE TABLE result (
    bundle TEXT NOT NULL REFERENCES bundle(id) ON DELETE CASCADE, command TEXT NOT NULL, id TEXT NOT NULL,
    kind TEXT NOT NULL, tier TEXT NOT NULL, status TEXT NOT NULL, reason TEXT NOT NULL, cause TEXT NOT NULL,
    title TEXT NOT NULL, seconds REAL, started TEXT NOT NULL, PRIMARY KEY (bundle, command, id)
);
CREATE TABLE finding (
    bundle TEXT NOT NULL REFERENCES bundle(id) ON DELETE CASCADE, place INTEGER NOT NULL, id TEXT NOT NULL,
    severity TEXT NOT NULL, title TEXT NOT NULL, PRIMARY KEY (bundle, place)
);
CREATE INDEX result_by_id ON result (id, status);
"""


@dataclass(frozen=True, slots=True)
class StoredOutcome:
    """One result of one machine in the store."""

    command: str
    id: str
    kind: str
    tier: str
    status: str
    reason: str
    cause: str
    title: str
    seconds: float | None
    started: str


@dataclass(frozen=True, slots=True)
class StoredMachine:
    """One bundle in the store."""

    id: str
    created: str
    source: str
    simulated: bool
    combination: MachineCombination
    outcomes: tuple[StoredOutcome, ...]
    findings: tuple[tuple[str, str, str], ...]  # id, severity, title

    def probes(self) -> dict[str, StoredOutcome]:
        """Return the results of probes by id, P20/t1."""
        return {outcome.id: outcome for outcome in self.outcomes if outcome.kind == "probe"}


def default_path() -> Path:
    return state_directory() / "bundles.sqlite"


class BundleStore:
    """The store file, created if missing. Raises InputError for a file that is not a store of this
    version."""

    def __init__(self, path: Path, *, must_exist: bool = False) -> None:
        self.path = path
        if must_exist and not path.exists():
            raise InputError(
                f"{path}: the store does not exist", next="zinc-rt bundle import FILE.tar.gz creates one"
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(path, timeout=20.0)
            self._database.execute("PRAGMA foreign_keys = ON")
            self._create_tables()
        except sqlite3.DatabaseError as error:
            raise InputError(f"{path}: not a store of bundles: {error}", next="--store another file") from error
        except OSError as error:
            raise OutputError(f"{path}: cannot create the store: {error.strerror}") from error

    def add(self, bundle: Bundle) -> bool:
        """Add a bundle atomically. Return False if it is already present."""
        configuration = bundle.combination
        with self._begin_transaction():
            row = (
                bundle.id,
                str(bundle.manifest["created"]),
                time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                Path(bundle.source).name,
                int(bundle.manifest["simulated"]),
                configuration.chip,
                configuration.kernel,
                configuration.module,
                json.dumps(configuration.as_dict()),
            )
            cursor = self._database.execute("INSERT OR IGNORE INTO bundle VALUES (?,?,?,?,?,?,?,?,?)", row)
            if not cursor.rowcount:
                return False
            for outcome in read_outcomes(bundle.reports):
                self._database.execute(
                    "INSERT OR REPLACE INTO result VALUES (?,?,?,?,?,?,?,?,?,?,?)",
                    (bundle.id, *(getattr(outcome, name) for name in StoredOutcome.__dataclass_fields__)),
                )
            for location, finding in enumerate(bundle.findings):
                words = (str(finding.get(name, "")) for name in ("id", "severity", "title"))
                self._database.execute("INSERT INTO finding VALUES (?,?,?,?,?)", (bundle.id, location, *words))
        return True

    def machines(self) -> list[StoredMachine]:
        """Return every bundle, oldest first."""
        results: dict[str, list[StoredOutcome]] = {}
        names = ", ".join(StoredOutcome.__dataclass_fields__)
        for bundle, *values in self._database.execute(f"SELECT bundle, {names} FROM result ORDER BY bundle, id"):
            results.setdefault(bundle, []).append(StoredOutcome(*values))
        findings: dict[str, list[tuple[str, str, str]]] = {}
        for bundle, *words in self._database.execute(
            "SELECT bundle, id, severity, title FROM finding ORDER BY bundle, place"
        ):
            findings.setdefault(bundle, []).append((words[0], words[1], words[2]))
        query = "SELECT id, created, source, simulated, combination FROM bundle ORDER BY created, id"
        return [
            StoredMachine(
                key,
                created,
                source,
                bool(simulated),
                MachineCombination(**json.loads(combination)),
                tuple(results.get(key, ())),
                tuple(findings.get(key, ())),
            )
            for key, created, source, simulated, combination in self._database.execute(query)
        ]

    def to_frame(self) -> pandas.DataFrame:
        """Return `build_frame` of all machines in the store."""
        return build_frame(self.machines())

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> BundleStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _create_tables(self) -> None:
        [version] = self._database.execute("PRAGMA user_version").fetchone()
        [application] = self._database.execute("PRAGMA application_id").fetchone()
        if (version, application) == (VERSION, APPLICATION):
            return
        [tables] = self._database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables:
            word = (
                f"version {version}, this build reads {VERSION}"
                if application == APPLICATION
                else "another database"
            )
            raise InputError(f"{self.path}: not a store of bundles: {word}", next="--store another file")
        with self._begin_transaction():
            for statement in filter(str.strip, _TABLES.split(";")):
                self._database.execute(statement)
            self._database.execute(f"PRAGMA user_version = {VERSION}")
            self._database.execute(f"PRAGMA application_id = {APPLICATION}")

    @contextmanager
    def _begin_transaction(self) -> Iterator[None]:
        try:
            self._database.execute("BEGIN IMMEDIATE")
            with self._database:
                yield
        except sqlite3.OperationalError as error:
            raise OutputError(f"{self.path}: cannot write: {error}", next="--store FILE elsewhere") from error


def build_frame(machines: Sequence[StoredMachine]) -> pandas.DataFrame:
    """Return a DataFrame with one row per probe result of a machine.

    The columns are RESULT_COLUMNS, then the machine's configuration: `kernel`, `module`, `firmware.mec`,
    `parameter.user_queue`, `package.mesa-vulkan-drivers`; NaN where it is unknown. `chip` of a simulated machine
    ends in " (simulated)". Raises UnsupportedError if pandas (extra `report`) is not installed.
    """
    rows = []
    for machine in machines:
        values = {
            name if kind == "card" else f"{kind}.{name}": value
            for (kind, name), value in list_traits(machine.combination).items()
        }
        values["chip"] = f"{machine.combination.chip or 'unknown'}{' (simulated)' if machine.simulated else ''}"
        rows += [
            {"bundle": machine.id, "probe": name, "status": item.status, "reason": item.reason,
             "seconds": item.seconds, **values}
            for name, item in machine.probes().items()
        ]  # fmt: skip
    results: pandas.DataFrame = import_pandas().DataFrame(rows)
    return results.reindex(columns=list(dict.fromkeys([*RESULT_COLUMNS, *SCALARS, *results.columns])))


def read_outcomes(reports: Mapping[str, Mapping[str, Any]]) -> list[StoredOutcome]:
    """Return the results in a bundle's reports. A later result replaces an earlier one of the same command
    and id."""
    results = []
    for report in sorted(reports.values(), key=lambda report: str(report.get("started", ""))):
        for result in report.get("results", []):
            if not isinstance(result, dict) or not result.get("id"):
                continue
            measure: Any = result.get("measure")
            measure = measure if isinstance(measure, dict) else {}
            seconds = measure.get("seconds")
            results.append(
                StoredOutcome(
                    str(report.get("command", "")),
                    str(result["id"]),
                    str(result.get("kind", "")),
                    str(result.get("tier", "")),
                    str(result.get("status", "")),
                    str(result.get("reason", "")),
                    str(result.get("cause", "")),
                    str(measure.get("title", "")),
                    float(seconds) if isinstance(seconds, int | float) else None,
                    str(report.get("started", "")),
                )
            )
    return results
