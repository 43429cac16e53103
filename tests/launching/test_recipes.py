"""The recipes of docs/launch.md, from source to verdict, as they are written there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import zinc_rt
from zinc_rt.launching.source import find_toolchains

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "launch.md").read_text(encoding="utf-8")
SECTION = re.compile(r"^### ([^\n]+)\n(.*?)(?=^##)", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (.+)$", re.MULTILINE)
VERDICT = re.compile(r"^Verdict: (PASS|FAIL)(?:, `([^`]+)`)?", re.MULTILINE)
RECIPES = dict(SECTION.findall(PAGE[PAGE.index("## Recipes") : PAGE.index("## Options")] + "\n## "))
NEEDS = {"Triton": "triton", "C with ziglang, compiled by hand": "ziglang"}


def test_every_compiler_has_a_recipe_of_at_most_three_commands() -> None:
    assert list(RECIPES) == ["OpenCL C", "HIP", "C with ziglang, compiled by hand", "Assembly", "Triton"]
    for text in RECIPES.values():
        assert 1 <= len(COMMAND.findall(text)) <= 3 and FILE.findall(text) and VERDICT.findall(text)


@pytest.mark.rest
@pytest.mark.parametrize("name", list(RECIPES))
def test_recipe_gives_its_verdict(name: str, tmp_path: Path) -> None:
    package = NEEDS.get(name)
    if package is not None and find_spec(package) is None:
        pytest.skip(f"the package {package} is not installed")
    if find_spec("elftools") is None:
        pytest.skip("the package pyelftools is not installed")
    if package is None and not list(find_toolchains()):
        pytest.skip("no clang for gfx1201 in PATH, and the package ziglang is not installed")
    text = RECIPES[name]
    for file, content in FILE.findall(text):
        (tmp_path / file).write_text(content)
    python = f"{sys.executable} -m zinc_rt.cli"
    environment = {**os.environ, "PYTHONPATH": str(Path(zinc_rt.__file__).parents[1]), "COLUMNS": "120"}
    output = ""
    for command in COMMAND.findall(text):
        words = shlex.split(command.replace("zinc-rt", python, 1).replace("python3 ", f"{sys.executable} ", 1))
        result = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        output = result.stdout
        assert command.startswith("zinc-rt") or result.returncode == 0, result.stderr
    ((verdict, finding),) = VERDICT.findall(text)
    assert output.splitlines()[-1].startswith(f"{verdict}  "), output + result.stderr
    assert result.returncode == (verdict == "FAIL")
    assert any(line.startswith(finding) for line in output.splitlines()), output
