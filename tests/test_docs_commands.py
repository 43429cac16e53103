"""Every command line in the README and in docs/ parses as written, and every file they point at is there."""

from __future__ import annotations

import argparse
import re
import shlex
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OWN = (
    "test",
    "lint",
    "bench",
    "nightly",
    "nightly-step",
    "programs",
    "workflow",
    "lavapipe-driver",
    "clients",
    "faults",
    "differential",
    "compiled",
)  # of ci/run.py; what follows goes to pytest
POINTS = {point.name: point for point in entry_points(group="zinc_rt.commands")}
BEGINS = re.compile(r"(?:\S.* \| )?(?:zinc-rt[ -]|python3 ci/run\.py )")
NO_COMMAND = ("zinc-rt-ir 1",)  # a file's first line
LINK = re.compile(r"\]\(([^)#:]+)\)")


def command_lines(page: Path) -> list[str]:
    """Yield the command lines in fenced and indented blocks, joined after a backslash and without # comments."""
    result, fenced, whole = [], False, ""
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            fenced = not fenced
            continue
        whole += line.strip() if fenced or whole or line.startswith("    ") else ""
        if whole.endswith("\\"):
            whole = whole[:-1]
            continue
        if BEGINS.match(whole) and whole not in NO_COMMAND:
            result.append(" ".join(whole.partition(" # ")[0].split()))
        whole = ""
    return result


def split_line(line: str) -> tuple[str, list[str]]:
    """Return the command and its arguments, without a pipe before it or a redirection after it."""
    words = shlex.split(line.rpartition(" | ")[2].replace("[", "").replace("]", ""))
    words = words[: next((index for index, word in enumerate(words) if word in ("<", ">")), len(words))]
    if words[0] == "python3":
        return words[2], words[3:]
    if words[0] == "zinc-rt":
        return words[1], words[2:]
    return words[0].removeprefix("zinc-rt-"), words[1:]


CASES = [(page, line) for page in PAGES for line in command_lines(page)]


@pytest.mark.rest(keep=48)
@pytest.mark.parametrize(("page", "line"), CASES, ids=[f"{page.name}-{line}" for page, line in CASES])
def test_documented_command_parses(page: Path, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, arguments = split_line(line)
    if name in OWN or name == "--help" or (name == "COMMAND"):
        return
    assert name in POINTS, f"{page.name}: {line}: no command {name}"

    class ParseFinished(Exception):
        pass

    parse = argparse.ArgumentParser.parse_args

    def stop_after_parse(self: argparse.ArgumentParser, *given: object, **named: object) -> None:
        parse(self, *given, **named)
        raise ParseFinished

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop_after_parse)
    command = POINTS[name].load()
    try:
        command(arguments)
    except ParseFinished:
        return
    except SystemExit as ended:
        assert ended.code == 0, f"{page.name}: {line}"


def test_examples_are_found() -> None:
    names = {split_line(line)[0] for _, line in CASES}
    assert names >= {"validate", "pm4-test", "golden", "pm4"} and len(CASES) > 30


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_page_link_targets_exist(page: Path) -> None:
    text = re.sub(
        r"^```(?:diff|python)\n.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    assert [link for link in LINK.findall(text) if not (page.parent / link).exists()] == []


def test_architecture_page_names_every_package() -> None:
    """Its table has a row for each package."""
    table = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    packages = [path.parent for path in (ROOT / "zinc_rt").glob("*/__init__.py") if not path.parent.is_symlink()]
    assert not [package.name for package in packages if f"`zinc_rt/{package.name}/`" not in table]
    assert not [
        name for name in ("validate", "golden", "probes", "perf", "ci", "docs") if f"`{name}/`" not in table
    ]


def test_command_page_names_every_command() -> None:
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert not [name for name in POINTS if f"| `{name}` |" not in text]


def test_every_page_is_linked_from_the_front_pages() -> None:
    linked = set(LINK.findall((ROOT / "README.md").read_text(encoding="utf-8")))
    for name in ("index.md", "architecture.md"):
        links = LINK.findall((ROOT / "docs" / name).read_text(encoding="utf-8"))
        linked |= {f"docs/{link}" for link in links}
    assert {f"docs/{page.name}" for page in PAGES[1:]} <= linked
