"""docs/command-processor.md lists every rule the command processor can report, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CALLS = {"finding", "unverified", "report", "_report_once"}


def rules() -> Iterator[str]:
    folder = ROOT / "zinc_rt" / "sim"
    for path in [*(folder / "cp").rglob("*.py"), folder / "shader_engine.py"]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CALLS:
                for word in node.args:
                    if isinstance(word, ast.Constant) and re.fullmatch(r"[a-z]+(-[a-z]+)*", str(word.value)):
                        yield str(word.value)


def test_every_rule_has_its_row():
    text = (ROOT / "docs" / "command-processor.md").read_text(encoding="utf-8")
    table = text.split("| rule | what was seen |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| ([a-z-]+) \|", table, re.MULTILINE)
    chosen_elsewhere = {"predicate", "value", "value-unverified", "reserved-bits"}
    assert set(rows) == set(rules()) | chosen_elsewhere
    assert rows == sorted(rows)
