"""The record of measured reports: append-only JSON lines, each with the hash of the previous line.

An edited, dropped or reordered line breaks the chain from there on. A completely rewritten file is a valid chain
with another head: record the head elsewhere (`zinc-rt perf history` prints it) and check it with --head.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from zinc_rt.cli.report import Report
from zinc_rt.host.errors import InputError, OutputError

SCHEMA = "zinc-rt-history/1"
GENESIS = "0" * 64


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """An entry. `report` is the digest of the whole report; `figures` are by result id and field."""

    sequence: int
    at: str
    kind: str
    report: str
    context: Mapping[str, Any]
    figures: Mapping[str, float]
    hash: str


@dataclass(frozen=True, slots=True)
class History:
    """A history. `problem` states where the chain is broken; it is empty for a valid history."""

    entries: tuple[HistoryEntry, ...]
    problem: str = ""

    @property
    def head(self) -> str:
        return self.entries[-1].hash if self.entries else GENESIS

    def entry(self, report_digest: str) -> HistoryEntry | None:
        """Return the first record of a report."""
        return next((entry for entry in self.entries if entry.report == report_digest), None)

    def contains_report(self, report_digest: str) -> bool:
        return self.entry(report_digest) is not None


def compute_digest(report: Mapping[str, Any]) -> str:
    """Return the digest of a report's content, independent of its layout. The wall time is excluded, because it
    changes while the report is written.
    """
    return hashlib.sha256(_encode_canonical({k: v for k, v in report.items() if k != "wall_seconds"})).hexdigest()


HEADLINES = {
    "decode": "tokens_per_second",
    "aggregate": "tokens_per_second",
    "prefill": "tokens_per_second",
    "ttft": "seconds",
    "power": "watts",
    "against": "ratio",
    "ttft_warm": "seconds",
    "idle_to_stream": "seconds",
    "fairness": "p99_over_p50",
    "endurance": "tokens",
}
LOWER_IS_BETTER = ("ttft", "power", "ttft_warm", "idle_to_stream", "fairness")


def collect_figures(report: Mapping[str, Any]) -> dict[str, float]:
    """Return the figure of each result that has one, by result id: {"decode": 12.3}."""
    figures = {}
    for result in report.get("results", []):
        name = HEADLINES.get(result.get("id", ""))
        if name and name in result.get("measure", {}):
            figures[result["id"]] = float(result["measure"][name])
    return figures


def append_entry(path: Path, kind: str, report: Mapping[str, Any], figures: Mapping[str, float]) -> HistoryEntry:
    """Record a report. Raise InputError if the chain is already broken, OutputError if it cannot be written."""
    try:
        with path.open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # concurrent runs append one at a time
            file.seek(0)
            text = file.read()
            known = _parse(text)
            if known.problem:
                raise InputError(f"{path}: {known.problem}", next="start another file; this one is left unchanged")
            entry = _seal_row(known, kind, report, figures)
            file.write(("" if not text or text.endswith("\n") else "\n") + json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OutputError(f"{path}: cannot write: {error.strerror}") from error
    return _parse_entry(entry)


def record_report(path: Path, report: Report, figures: Callable[[Mapping[str, Any]], Mapping[str, float]]) -> str:
    """Record a command's report with its figures and return the line to print. Raises as `append_entry`."""
    content = json.loads(report.to_json())
    entry = append_entry(path, report.command, content, figures(content))
    return f"recorded  {path}, entry {entry.sequence}, head {entry.hash}"


def read(path: Path) -> History:
    """Read a history. Raise InputError if it is unreadable; defects of its contents are in `problem`."""
    try:
        return _parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}", next="zinc-rt perf bench --history makes one") from error


def _parse(text: str) -> History:
    entries: list[HistoryEntry] = []
    previous = GENESIS
    for number, line in enumerate(text.splitlines(), 1):
        try:
            row = json.loads(line)
            sealed = row.pop("hash")
            if row["schema"] != SCHEMA:
                return History(tuple(entries), f"line {number}: schema {row['schema']!r}, expected {SCHEMA!r}")
            if row["previous"] != previous or row["sequence"] != number:
                return History(tuple(entries), f"line {number} does not follow the line before it: edited history")
            if hashlib.sha256(_encode_canonical(row)).hexdigest() != sealed:
                return History(tuple(entries), f"line {number} was changed after it was written: edited history")
            entries.append(_parse_entry({**row, "hash": sealed}))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return History(tuple(entries), f"line {number} is no entry: {error}")
        previous = sealed
    return History(tuple(entries))


def _seal_row(
    known: History, kind: str, report: Mapping[str, Any], figures: Mapping[str, float]
) -> dict[str, Any]:
    row = {
        "schema": SCHEMA,
        "sequence": len(known.entries) + 1,
        "previous": known.head,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "kind": kind,
        "report": compute_digest(report),
        "context": find_context(report),
        "figures": dict(figures),
    }
    return {**row, "hash": hashlib.sha256(_encode_canonical(row)).hexdigest()}


def find_context(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that must be equal for two figures to be comparable."""
    device, details = report.get("device", {}), report.get("details", {})
    return {
        "device": device.get("name", ""),
        "arch": device.get("arch", ""),
        "simulated": bool(device.get("simulated")),
        "tier": device.get("tier", ""),
        "model": str(report.get("model", {}).get("digest", ""))[:16],
        "ordering": report.get("ordering", ""),
        "code": str(details.get("code", ""))[:16],
        "workload": details.get("workload", {}),
    }


def _parse_entry(row: Mapping[str, Any]) -> HistoryEntry:
    figures = {str(name): float(value) for name, value in row["figures"].items()}
    return HistoryEntry(
        row["sequence"], row["at"], row["kind"], row["report"], row["context"], figures, row["hash"]
    )


def _encode_canonical(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
