"""One name, one meaning: no class name is defined in two rooms."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

from zinc_rt.host.packages import HARNESS

pytestmark = pytest.mark.rest

ROOT = Path(__file__).resolve().parent.parent
SAY_NOTHING = frozenset(
    ["Context", "Expected", "Facts", "Found", "Item", "Options", "Parts", "Record", "Row", "Rows", "Run", "Wanted"]
)


def rooms_by_class() -> dict[str, dict[str, str]]:
    """Return the packages that define each public class, each package with one of its files."""
    result: dict[str, dict[str, str]] = defaultdict(dict)
    for folder in ("zinc_rt", "ci", *HARNESS):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if any(parent.is_symlink() for parent in path.parents):
                continue
            parts = path.relative_to(ROOT).with_suffix("").parts
            room = parts[1] if parts[0] == "zinc_rt" else parts[0]
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    result[node.name].setdefault(room, str(path.relative_to(ROOT)))
    return result


def test_class_names_are_not_reused_with_another_meaning() -> None:
    shared = {name: rooms for name, rooms in rooms_by_class().items() if len(rooms) > 1}
    assert not shared


def test_class_names_are_descriptive() -> None:
    assert not {name: rooms for name, rooms in rooms_by_class().items() if name in SAY_NOTHING}
