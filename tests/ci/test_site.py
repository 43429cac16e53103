"""The pages build as a site, offline and without a broken link; every format that the code writes is listed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from zinc_rt.golden import format as golden
from zinc_rt.ir import serial
from zinc_rt.kernels import zrt
from zinc_rt.sim import facts
from zinc_rt.sim.serve import wire
from zinc_rt.trace import frame

ROOT = Path(__file__).resolve().parents[2]
STABILITY = (ROOT / "docs" / "stability.md").read_text(encoding="utf-8")
CODE = ("zinc_rt", "ci", "examples", ".ci")
SCHEMA = re.compile(r"zinc-rt-[a-z-]+(?:/| )[0-9]+\b")


@pytest.mark.rest
def test_site_builds_every_page_without_broken_links(tmp_path: Path) -> None:
    words = ["build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(
        [sys.executable, "-m", "properdocs", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = {path.stem for path in (tmp_path / "site").glob("*.html")}
    assert {path.stem for path in (ROOT / "docs").glob("*.md")} <= result


@pytest.mark.rest
def test_site_pages_load_no_external_resources(tmp_path: Path) -> None:
    """It is read on machines without a network: the theme's own files are all it loads."""
    words = ["build", "--quiet", "--site-dir", str(tmp_path / "site")]
    subprocess.run([sys.executable, "-m", "properdocs", *words], cwd=ROOT, capture_output=True, check=True)
    loads = re.compile(r"<(?:script|link|img)[^>]+(?:src|href)=\"(https?:[^\"]+)")
    texts = [
        f"{page.name}: {link}"
        for page in (tmp_path / "site").glob("*.html")
        for link in loads.findall(page.read_text(encoding="utf-8"))
    ]
    assert not texts


def schemas_in_code() -> set[str]:
    """Return every schema string in the code and its data, without tests."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("no git checkout")
    result = set()
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if (
            (name.startswith("tests/") and not name.startswith("tests/faults/"))  # a command of its own
            or path.suffix not in (".py", ".yaml", ".yml", ".jinja", ".c", ".json")
            or not path.is_file()
        ):
            continue
        result |= set(SCHEMA.findall(path.read_text(encoding="utf-8")))
    return result


def test_every_schema_in_the_code_is_listed_with_its_version() -> None:
    result = schemas_in_code()
    assert "zinc-rt-report/1" in result
    assert not [schema for schema in sorted(result) if f"| `{schema}` |" not in STABILITY], (
        "add a row to docs/stability.md"
    )


def test_every_listed_schema_still_exists() -> None:
    listed = set(re.findall(r"^\| `(zinc-rt-[a-z-]+[/ ][0-9]+)` \|", STABILITY, re.MULTILINE))
    assert listed and listed <= schemas_in_code()


@pytest.mark.parametrize(
    ("row", "version"),
    [
        ("log, `.zlog`", frame.VERSION),
        ("kernel, `.zrt`", zrt.ABI_VERSION),
        ("graph, byte form", serial.VERSION),
        ("golden, `.npz`", golden.FORMAT),
        ("facts of a card", facts.VERSION),
        ("socket of the simulated device", wire.VERSION),
    ],
)
def test_every_numbered_format_is_listed_with_its_version(row: str, version: int) -> None:
    (line,) = [line for line in STABILITY.splitlines() if line.startswith(f"| {row} |")]
    assert line.split(" | ")[2].partition(";")[0] == str(version), line
