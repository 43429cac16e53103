"""The command line: `zinc-rt NAME ...`. Each command is also installed as a separate program, `zinc-rt-NAME`.

Commands register in pyproject.toml under [project.entry-points."zinc_rt.commands"], so the runtime imports no
harness module. `zinc_rt/cli/overview.py` prints the lists of commands.
"""

from __future__ import annotations

import sys

from zinc_rt.cli.command import Command, find_commands, run_guarded
from zinc_rt.host.arguments import suggest_word
from zinc_rt.host.errors import UsageError
from zinc_rt.host.version import __version__


def main(argv: list[str] | None = None) -> int:
    return run_guarded("zinc-rt", lambda: _main(sys.argv[1:] if argv is None else argv), program=argv is None)


def _main(argv: list[str]) -> int:
    if argv[:1] in (["--version"], ["version"]):
        print(f"zinc-rt {__version__}")
        return 0
    commands = find_commands()
    if not argv:
        from zinc_rt.cli.overview import format_overview

        print(format_overview(commands))
        return 0
    if argv[0] in ("-h", "--help") or argv == ["help"]:
        from zinc_rt.cli.overview import format_full_help

        print(format_full_help(commands))
        return 0
    name, words = argv[0], argv[1:]
    if name == "help":
        name, words = words[0], [*words[1:], "--help"]
    if name not in commands:
        names = sorted([*commands, "help", "version"])
        near = suggest_word(name, names)
        known = "" if near else f"one of {', '.join(names)}; "
        raise UsageError(f"no command {name!r}{near}", next=f"{known}zinc-rt --help")
    command: Command = commands[name].load()
    return command(words)
