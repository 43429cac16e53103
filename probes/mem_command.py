"""Stress GPU memory: allocation, reuse, data, teardown."""

from __future__ import annotations

import argparse

from zinc_rt.cli.command import Command
from zinc_rt.host.arguments import Parser
from zinc_rt.probes.command import add_choice, add_hazard, add_results

EPILOG = """\
examples:
  zinc-rt mem-test                       the machine's GPU, both tiers
  zinc-rt mem-test --hazard 1            also on a GPU that drives your display: uses one of its queues
  zinc-rt mem-test --device sim -k M03   random allocations on a simulated device

Exit code: 0 all probes that ran passed, 1 something failed, 2 wrong usage, 77 no AMD GPU or nothing ran.
"""


def parser() -> argparse.ArgumentParser:
    parser = Parser(description=__doc__, epilog=EPILOG)
    add_choice(parser)
    add_hazard(parser)
    add_results(parser)
    parser.set_defaults(again=False, soak=0.0, manual=False, journal=None, learn=None)
    return parser


def _run_command(arguments: argparse.Namespace) -> int:
    from zinc_rt.probes.execution import run_command
    from zinc_rt.probes.memory_stress import PROBES

    return run_command(arguments, "mem-test", PROBES)


main = Command("mem-test", parser, _run_command)
