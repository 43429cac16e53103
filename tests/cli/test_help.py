"""Help is quick: it imports nothing heavy. And it teaches."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points

import pytest

NAMES = ("run", "inspect", "logits", "tokenize", "serve")
HEAVY = (
    "numpy",
    "gguf",
    "jinja2",
    "rich",
    "shtab",
    "fastapi",
    "uvicorn",
    "pydantic",
    "prometheus_client",
    "llguidance",
)


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize("name", NAMES)
def test_help_imports_no_heavy_module(name: str) -> None:
    program = (
        "import sys\n"
        f"from zinc_rt.cli.{name} import main\n"
        "try:\n    main(['--help'])\n"
        "except SystemExit as exit:\n    assert exit.code == 0\n"
        f"heavy = [name for name in {HEAVY} if name in sys.modules]\n"
        "print('heavy:', *heavy)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "heavy:"
    assert f"usage: zinc-rt {name}" in result.stdout and "examples:" in result.stdout


def test_each_command_is_registered_under_its_name() -> None:
    registered = {point.name: point.value for point in entry_points(group="zinc_rt.commands")}
    scripts = {point.name: point.value for point in entry_points(group="console_scripts")}
    for name in NAMES:
        assert registered[name] == scripts[f"zinc-rt-{name}"] == f"zinc_rt.cli.{name}:main"


class ParserReached(Exception):
    """A command has its parser ready."""


@pytest.mark.parametrize("name", sorted(point.name for point in entry_points(group="zinc_rt.commands")))
def test_every_usage_names_the_whole_command(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[argparse.ArgumentParser] = []

    def record_parser(parser: argparse.ArgumentParser, words: list[str] | None = None) -> argparse.Namespace:
        asked.append(parser)
        raise ParserReached

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", record_parser)
    monkeypatch.setattr(sys, "argv", ["/somewhere/program.py"])
    (point,) = entry_points(group="zinc_rt.commands", name=name)
    with pytest.raises(ParserReached):
        point.load()(["--help"])
    (parser,) = asked
    for words, item in walk_parsers(f"zinc-rt {name}", parser):
        assert item.format_usage().startswith(f"usage: {words} "), words


def walk_parsers(words: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Return this parser and those of its actions, each with its command words."""
    yield words, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, choice in action.choices.items():
                yield from walk_parsers(f"{words} {name}", choice)
