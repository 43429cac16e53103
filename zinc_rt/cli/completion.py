"""Print a shell completion script for zinc-rt."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from zinc_rt.backends import registry
from zinc_rt.cli import options
from zinc_rt.cli.command import Command, find_commands
from zinc_rt.host.arguments import MODELS, Parser

SHELLS = ("bash", "zsh", "fish")
EXAMPLES = """\
to load it into the current shell (bash, zsh, fish):
  eval "$(zinc-rt completion bash)"
  eval "$(zinc-rt completion zsh)"
  zinc-rt completion fish | source

to install it:
  zinc-rt completion bash > ~/.local/share/bash-completion/completions/zinc-rt
  zinc-rt completion zsh > ~/.zfunc/_zinc-rt        with ~/.zfunc in $fpath
  zinc-rt completion fish > ~/.config/fish/completions/zinc-rt.fish

The script contains the commands of this version. Print it again after an update.
"""
DEVICES = (*options.DEVICES, *(row.tier for row in registry.built() if row.lists_devices))
NODES = "/dev/dri/renderD*"  # looked up by the shell, when it completes
FOLDERS = ("DIR", "FOLDER", "OUT")  # metavars that name a folder
FILES = ("FILE", "F", "LOG", "MODEL", "PATH", "REPORT", "BUNDLE", "OTHER")  # or one with an ending, F.json
_BASH_DEVICES = f'_zinc_rt_devices() {{ compgen -W "{" ".join(DEVICES)} $(ls {NODES} 2>/dev/null)" -- "$1"; }}'
_ZSH_DEVICES = f"_zinc_rt_devices() {{ local -a d; d=({' '.join(DEVICES)} {NODES}(N)); compadd -a d; }}"
DYNAMIC = {
    "bash": "_zinc_rt_devices",
    "zsh": "_zinc_rt_devices",
    "fish": f"({'; '.join(f'echo {device}' for device in DEVICES)}; ls {NODES} 2>/dev/null)",
}


def parser() -> argparse.ArgumentParser:
    parser = Parser(description=__doc__, epilog=EXAMPLES)
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"one of {', '.join(SHELLS)}")
    return parser


def _run_command(arguments: argparse.Namespace) -> int:
    import shtab

    preamble = {"bash": _BASH_DEVICES, "zsh": _ZSH_DEVICES}
    print(shtab.complete(build_full_parser(), shell=arguments.shell, preamble=preamble))  # type: ignore[arg-type]
    return 0


def build_full_parser() -> argparse.ArgumentParser:
    """Return one parser of `zinc-rt` with those of all commands, where each option states its completion."""
    root = argparse.ArgumentParser(prog="zinc-rt")
    root.add_argument("--version", action="store_true", help="print the version")
    commands = root.add_subparsers(dest="command", metavar="COMMAND")
    for name, parser in iterate_parsers():
        commands.add_parser(name, help=parser.description)
        commands.choices[name] = parser
        _set_completions(parser)
    return root


def iterate_parsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Return every command's name and parser."""
    for name, point in sorted(find_commands().items()):
        command: Command = point.load()
        parser = command.parser()
        parser.prog = f"zinc-rt {name}"
        yield name, parser


def _set_completions(parser: argparse.ArgumentParser) -> None:
    import shtab

    tiers = ("auto", *(row.tier for row in registry.built()))
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action.choices.values():
                _set_completions(choice)
        elif action.dest == "device" and action.choices is None:
            action.complete = DYNAMIC  # type: ignore[attr-defined]
        elif action.dest in ("tier", "tiers"):
            action.choices = tiers
        elif action.choices is None and action.metavar in FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif action.choices is None and _takes_file(action):
            action.complete = shtab.FILE  # type: ignore[attr-defined]


def _takes_file(action: argparse.Action) -> bool:
    name = str(action.metavar)
    return action.dest == MODELS or action.type is Path or name in FILES or "." in name


main = Command("completion", parser, _run_command)
