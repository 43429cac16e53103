"""Suppression files: findings that are known and accepted, each with a reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from zinc_rt.host.errors import InputError
from zinc_rt.host.input_files import make_read_error
from zinc_rt.host.sanitizer_rules import RULES
from zinc_rt.launching.finding_groups import FindingGroup
from zinc_rt.launching.located import strip_parameter_types

SCHEMA = "zinc-rt-suppressions/1"
_KEYS = {"rule", "kernel", "line", "reason"}


@dataclass(frozen=True, slots=True)
class Suppression:
    """An entry. `rule` is a rule of docs/sanitizer.md; `kernel` and `line` (FILE:LINE) may contain * and ?. `file`
    is the suppression file."""

    rule: str
    kernel: str
    line: str
    reason: str
    file: str

    def __str__(self) -> str:
        return f"{self.file}: {self.rule}, kernel {self.kernel}, line {self.line}: {self.reason}"

    def covers(self, finding: FindingGroup) -> bool:
        """Return whether this entry suppresses a finding: FILE alone matches a path that ends with it."""
        names = {finding.kernel, strip_parameter_types(finding.kernel)}
        lines = {finding.line, Path(finding.line).name}
        return (
            self.rule == finding.rule
            and any(fnmatchcase(name, self.kernel) for name in names)
            and any(fnmatchcase(line, self.line) for line in lines)
        )


@dataclass(frozen=True, slots=True)
class Suppressed:
    """Findings after suppression: the remaining ones, each suppressed one with its entry, and the unused
    entries.
    """

    left: tuple[FindingGroup, ...]
    suppressed: tuple[tuple[FindingGroup, Suppression], ...] = ()
    unused: tuple[Suppression, ...] = ()


def read_suppressions(paths: Iterable[str]) -> list[Suppression]:
    """Read the entries of all files. Raise InputError for a file that is not a suppression file, an unknown rule
    or key, or an entry without a reason.
    """
    return [entry for path in paths for entry in _read(path)]


def _read(path: str) -> list[Suppression]:
    try:
        document: Any = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise make_read_error(path, error) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: no YAML: {error}") from None
    rows = (
        document.get("suppressions") if isinstance(document, dict) and document.get("schema") == SCHEMA else None
    )
    if not isinstance(rows, list):
        raise InputError(f"{path}: expected `schema: {SCHEMA}` and a list named `suppressions`")
    return parse_suppressions(path, rows)


def parse_suppressions(path: str, rows: Iterable[Any]) -> list[Suppression]:
    """Return the entries of a list in the file `path`. Raise InputError like read_suppressions."""
    return [_parse_entry(path, number, row) for number, row in enumerate(rows, 1)]


def _parse_entry(path: str, number: int, row: Any) -> Suppression:
    where = f"{path}: entry {number}"
    if not isinstance(row, dict) or not set(row) <= _KEYS or not {"rule", "reason"} <= set(row):
        raise InputError(f"{where}: expected rule and reason, and optionally kernel and line")
    texts = {key: str(value).strip() for key, value in row.items()}
    if not texts["reason"]:
        raise InputError(f"{where}: the reason is empty")
    if texts["rule"] not in RULES:
        raise InputError(f"{where}: unknown rule {texts['rule']}", next="docs/sanitizer.md lists the rules")
    return Suppression(texts["rule"], texts.get("kernel", "*"), texts.get("line", "*"), texts["reason"], path)


def apply_suppressions(findings: Iterable[FindingGroup], entries: Sequence[Suppression]) -> Suppressed:
    """Sort findings by the first entry that covers each. A finding that ends the launch is never suppressed."""
    left, suppressed = [], []
    for finding in findings:
        entry = next((entry for entry in entries if entry.covers(finding)), None)
        if entry is None or finding.error:
            left.append(finding)
        else:
            suppressed.append((finding, entry))
    used = {id(entry) for _, entry in suppressed}
    unused = tuple(entry for entry in entries if id(entry) not in used)
    return Suppressed(tuple(left), tuple(suppressed), unused)
