"""The one command that shows a result again."""

from __future__ import annotations

import argparse
import shlex

from zinc_rt.devices import Choice


def bisect_command(arguments: argparse.Namespace, choice: Choice) -> str:
    words = ["zinc-rt-replay", str(arguments.log), "--tiers", choice.tier, "--bisect"]
    if choice.simulated:
        words += ["--device", "sim"]
    if arguments.model:
        words += ["--model", str(arguments.model)]
    return shlex.join(words)
