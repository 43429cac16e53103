"""No two functions have the same body: what several places need is shared."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

from zinc_rt.host.packages import HARNESS

pytestmark = pytest.mark.rest

ROOT = Path(__file__).resolve().parent.parent
LEAST_LINES = 3
# By name, with the reason why both stay
ALLOWED: set[str] = set()


def function_bodies() -> dict[str, list[tuple[str, str]]]:
    """Map each body, without docstring and layout, to (place, name) of the functions that have it."""
    paths = [path for folder in ("zinc_rt", "ci", *HARNESS) for path in (ROOT / folder).rglob("*.py")]
    result: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for path in paths:
        if any(parent.is_symlink() for parent in path.parents):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                statements = node.body[1:] if ast.get_docstring(node) is not None else node.body
                text = "\n".join(map(ast.unparse, statements))
                if text.count("\n") + 1 >= LEAST_LINES:
                    result[text].append((f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", node.name))
    return result


def test_function_bodies_are_unique() -> None:
    groups = function_bodies()
    assert len(groups) > 4000
    twice = [group for group in groups.values() if len(group) > 1]
    assert [
        [location for location, _ in group] for group in twice if not {name for _, name in group} <= {*ALLOWED}
    ] == []
    assert {name for group in twice for _, name in group} == {*ALLOWED}, "an entry that is not needed any more"
