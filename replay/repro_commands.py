"""The commands that reproduce a result."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from zinc_rt.cli.options import find_simulated_chip, order_options
from zinc_rt.engine.devices import Choice


def bisect_command(arguments: argparse.Namespace, choice: Choice) -> str:
    words = ["zinc-rt-replay", str(arguments.log), "--tiers", choice.tier, "--bisect"]
    if choice.simulated:
        words += ["--device", find_simulated_chip(choice.options), *order_options(choice.options)]
    if arguments.model:
        words += ["--model", str(arguments.model)]
    return shlex.join(words)


def emit_command(arguments: argparse.Namespace, choice: Choice) -> str:
    """Return the command that wrote the program of a step; it is included in the program."""
    words = ["zinc-rt-replay", Path(arguments.log).name, "--tiers", choice.tier]
    if choice.simulated:
        words += ["--device", find_simulated_chip(choice.options), *order_options(choice.options)]
    if arguments.until is not None:
        words += ["--until", str(arguments.until)]
    return shlex.join([*words, "--emit-repro", Path(arguments.emit_repro).name])


def run_command(path: Path) -> str:
    """Return the command that runs an emitted program."""
    name = shlex.quote(str(path))
    program = shlex.quote(str(path.resolve().with_suffix("")))
    return f"cc -O1 {name} -o {program} && {program}"
