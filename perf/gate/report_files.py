"""Evidence for a gate: reports written by commands with --json, and manual statements."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from zinc_rt.cli.report import SCHEMA
from zinc_rt.host.errors import InputError
from zinc_rt.perf.history.chain import compute_digest

STATEMENT = "zinc-rt-statement/1"
STATEMENT_KEYS = ("criterion", "by", "date", "saw")  # YAML reads a bare `on` as true


@dataclass(frozen=True)
class ReportFile:
    """A report written by a command. `digest` is that of its content."""

    path: Path
    report: Mapping[str, Any] = field(repr=False)

    @cached_property
    def digest(self) -> str:
        return compute_digest(self.report)

    @property
    def command(self) -> str:
        return str(self.report.get("command", ""))

    @property
    def started(self) -> str:
        return str(self.report.get("started", ""))

    @property
    def device(self) -> Mapping[str, Any]:
        return self.report.get("device", {})

    @property
    def details(self) -> Mapping[str, Any]:
        return self.report.get("details", {})

    @property
    def workload(self) -> Mapping[str, Any]:
        return self.details.get("workload", {})

    @property
    def model_digests(self) -> tuple[str, ...]:
        model = self.report.get("model", {})
        return tuple(str(model.get("digest", "")) for model in model.get("models", [model]))

    @property
    def results(self) -> list[Mapping[str, Any]]:
        return list(self.report.get("results", []))

    def result(self, id_: str) -> Mapping[str, Any] | None:
        return next((result for result in self.results if result.get("id") == id_), None)


@dataclass(frozen=True, slots=True)
class Statement:
    """A person's statement that a criterion is met, with name, date and observation."""

    path: Path
    criterion: str
    by: str
    on: date
    saw: str


def collect_reports(paths: Iterable[Path]) -> tuple[list[ReportFile], list[Statement]]:
    """Collect files and folders of them: *.json are reports, *.yaml statements. Raise InputError for others."""
    reports: list[ReportFile] = []
    statements: list[Statement] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(file for file in path.rglob("*") if file.suffix in (".json", ".yaml"))
            if not inside:
                raise InputError(f"{path}: no *.json or *.yaml in this folder")
        else:
            inside = [path]
        for file in inside:
            if file.suffix == ".yaml":
                statements.append(_read_statement(file))
            elif (report := _read_report(file, required=not path.is_dir())) is not None:
                reports.append(report)
    return reports, statements


def _read_report(path: Path, *, required: bool) -> ReportFile | None:
    """Read a report; return None for other JSON in a folder."""
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text, parse_constant=_reject_constant, object_pairs_hook=_reject_duplicates)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not a report: {error}") from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        if not required:
            return None
        raise InputError(f"{path}: expected a report of schema {SCHEMA}", next="write one with --json")
    return ReportFile(path, content)


def _reject_constant(word: str) -> float:
    raise ValueError(f"{word} is not a JSON number")


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Reject duplicate keys, because a JSON parser would silently use one of them."""
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)} occurs twice in one object")
    return members


def _read_statement(path: Path) -> Statement:
    try:
        row = yaml.safe_load(path.read_text(encoding="utf-8"))
        if row.pop("schema") != STATEMENT or set(row) != set(STATEMENT_KEYS):
            raise ValueError(f"expected schema {STATEMENT} and {', '.join(STATEMENT_KEYS)}")
        if not isinstance(row["date"], date) or row["date"] > date.today():
            raise ValueError("`date` must not be in the future: 2026-01-31")
        words = {name: str(row[name]).strip() for name in ("criterion", "by", "saw")}
        if not all(words.values()):
            raise ValueError("`by` and `saw` must not be empty")
        return Statement(path, words["criterion"], words["by"], row["date"], words["saw"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise InputError(f"{path}: not a statement: {error}", next="docs/perf.md shows one") from error
