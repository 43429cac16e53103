"""The command line: `zinc-rt NAME ...`, each NAME also a program of its own, `zinc-rt-NAME`.

Commands register in pyproject.toml under [project.entry-points."zinc_rt.commands"]; the table in `zinc-rt --help`
is made from there and from each module's docstring, so the runtime names no harness module.
"""

from __future__ import annotations

import ast
import shutil
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from zinc_rt.cli.command import Command, guarded, registered
from zinc_rt.host.arguments import meant
from zinc_rt.host.errors import UsageError
from zinc_rt.host.version import __version__

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def main(argv: list[str] | None = None) -> int:
    return guarded("zinc-rt", lambda: _main(sys.argv[1:] if argv is None else argv), program=argv is None)


def _main(argv: list[str]) -> int:
    commands = registered()
    if not argv or argv[0] in ("-h", "--help"):
        print(_help(commands))
        return 0 if argv else 2
    if argv[0] == "--version":
        print(f"zinc-rt {__version__}")
        return 0
    if argv[0] not in commands:
        near = meant(argv[0], sorted(commands))
        known = "" if near else f"one of {', '.join(sorted(commands))}; "
        raise UsageError(f"no command {argv[0]!r}{near}", next=f"{known}zinc-rt --help")
    command: Command = commands[argv[0]].load()
    return command(argv[1:])


def _help(commands: dict[str, EntryPoint]) -> str:
    width = max((len(name) for name in commands), default=0)
    screen = max(shutil.get_terminal_size().columns - 2, width + 20)
    rows = "\n".join(
        textwrap.fill(
            f"  {name:<{width}}  {_summary(point)}",
            screen,
            subsequent_indent=" " * (width + 4),
            break_on_hyphens=False,
        )
        for name, point in sorted(commands.items())
    )
    return (
        "ZINC_RT: bring-up and validation of GPUs for LLM inference, with the runtime\n"
        f"inside.\n\nusage: zinc-rt COMMAND [OPTION ...]\n\n{rows}\n\n"
        "`zinc-rt COMMAND --help` explains each. Settings from the environment:\n"
        "docs/settings.md. Completion of these words: zinc-rt completion --help."
    )


def _summary(point: EntryPoint) -> str:
    """The first line of the command module's docstring, without importing it."""
    spec = find_spec(point.module)
    if spec is None or spec.origin is None:
        return ""
    text = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]
