"""The results that depend on each assumption: leaning.json, generated from reports of runs on the
simulated device.

`zinc-rt assumptions --record REPORT.json ...` regenerates it. The dependents of a row are run when the row
is negated.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from zinc_rt.host.errors import InputError
from zinc_rt.host.files import write_atomically

FILE = Path(__file__).resolve().parent / "leaning.json"
SCHEMA = "zinc-rt-leaning/1"
Leaning = Mapping[str, tuple[str, ...]]  # result: ids of the assumptions it leaned on


def load_dependencies(path: Path = FILE) -> Leaning:
    """Return the file's contents. Raises InputError."""
    document = _read_json(path)
    if document.get("schema") != SCHEMA:
        raise InputError(f"{path}: schema is {document.get('schema')!r}, expected {SCHEMA!r}")
    return {name: tuple(ids) for name, ids in document["results"].items()}


def read_reports(paths: Iterable[Path]) -> Leaning:
    """Return the dependencies of every result in reports of pm4-test and validate. Raises InputError if a
    report has none."""
    dependencies: dict[str, tuple[str, ...]] = {}
    for path in paths:
        report = _read_json(path)
        command = str(report.get("command", ""))
        rows = {
            f"{command} {result['id']}": tuple(result["measure"]["assumptions"])
            for result in report.get("results", ())
            if "assumptions" in result.get("measure", {}) and result.get("status") in ("pass", "fail", "flake")
        }
        if not rows:
            raise InputError(
                f"{path}: no result in the file lists assumptions",
                next="zinc-rt pm4-test --device sim --json REPORT.json writes a report that does",
            )
        dependencies |= rows
    return dependencies


def save_dependencies(leaning: Leaning, path: Path = FILE) -> None:
    """Write the file. Raises OutputError."""
    rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(list(ids))}" for name, ids in sorted(leaning.items()))
    text = f'{{\n "schema": "{SCHEMA}",\n "results": {{\n{rows}\n }}\n}}\n'
    write_atomically(path, lambda file: file.write(text.encode()))


def find_dependents(leaning: Leaning, id: str) -> tuple[str, ...]:
    """Return the results that depend on that row."""
    return tuple(name for name, ids in leaning.items() if id in ids)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    except ValueError as error:
        raise InputError(f"{path}: not JSON: {error}") from None
    if not isinstance(document, dict):
        raise InputError(f"{path}: expected a JSON object, not {type(document).__name__}")
    return document
