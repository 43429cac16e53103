"""What the actions of bisect-env share: the journal's path, printed parts, names of variables."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from zinc_rt.cli.output import choose_output_stream
from zinc_rt.host import terminal
from zinc_rt.host.terminal import Table

if TYPE_CHECKING:
    from zinc_rt.doctor.bringup.bisect_env.journal import BisectSession


def show(arguments: argparse.Namespace, part: str | Table) -> None:
    terminal.show(part, out=choose_output_stream(arguments))


def find_journal(arguments: argparse.Namespace) -> Path:
    from zinc_rt.doctor.bringup.bisect_env.journal import default_path

    path: Path = arguments.journal or default_path()
    return path


def format_journal_option(arguments: argparse.Namespace) -> str:
    return f" --journal {arguments.journal}" if arguments.journal else ""


def find_boot_name(arguments: argparse.Namespace) -> str:
    from zinc_rt.doctor.bringup.bisect_env.journal import read_boot_id

    return arguments.boot or read_boot_id()


def format_variable_names(session: BisectSession, places: Sequence[int]) -> list[str]:
    return [session.problem.variables[at].name for at in places]
