"""Bring a GPU up from nothing: one probe a step, and for each failure its cause and what to do."""

from __future__ import annotations

import argparse
from pathlib import Path

from zinc_rt.cli.command import Command
from zinc_rt.host.arguments import Parser, positive

EPILOG = """\
examples:
  zinc-rt pm4-test                                   the machine's GPU, nothing that hangs on purpose
  zinc-rt pm4-test --hazard 1                        also where that GPU lights your display: save your work first
  zinc-rt pm4-test --device sim                      a simulated R9700: says nothing about hardware
  zinc-rt pm4-test -k P20 --tiers t1                 one probe; -k P18-P24 a range, -k fence a word
  zinc-rt pm4-test --device sim --inject no-eop      what a missing EOP buffer looks like
  zinc-rt pm4-test --learn facts.json                what no manual says, asked of the card
  zinc-rt pm4-test --device sim --facts facts.json   a simulated device that behaves as that card does
  zinc-rt pm4-test --hazard 2 --bundle out/          faults and hangs too, with everything worth sending on

Exit code: 0 everything that ran passed, 1 a probe failed, 2 wrong usage, 77 no AMD GPU or nothing ran.
"""


def parser() -> argparse.ArgumentParser:
    made = Parser(description=__doc__, epilog=EPILOG)
    add_choice(made)
    add_hazard(made)
    made.add_argument("--again", action="store_true", help="also what was running when the machine was reset")
    made.add_argument(
        "--learn", metavar="FACTS.json", help="ask the device what the references leave open, and write it down"
    )
    made.add_argument("--soak", type=positive, default=0.0, metavar="MINUTES", help="mixed packets in P56")
    made.add_argument("--manual", action="store_true", help="P56 asks you to suspend the machine")
    made.add_argument("--journal", type=Path, metavar="FILE", help="where begun probes are noted, synced to disk")
    add_results(made)
    return made


def add_choice(made: argparse.ArgumentParser) -> None:
    """Which device, which probes."""
    made.add_argument(
        "--device",
        default="auto",
        metavar="WHICH",
        help="auto or hw (never simulated), sim, sim:CHIP[@LINUX] or /dev/dri/renderDN (default auto)",
    )
    made.add_argument("--tiers", metavar="t1,t2", help="t1 (KFD), t2 (user queues); named ones must exist")
    made.add_argument("-k", default="", metavar="WHAT", dest="select", help="ids, ranges or words of a title")
    made.add_argument("--list", action="store_true", help="all probes, and what each proves")
    made.add_argument(
        "--inject", action="append", default=[], metavar="NAME", help="a fault of the simulated device"
    )
    made.add_argument(
        "--reorder",
        type=int,
        metavar="SEED",
        help="a simulated device finishes concurrent work in any order, seeded",
    )
    made.add_argument(
        "--coherence",
        default="",
        choices=("bar", "direct", "caches"),
        help="what a simulated device's memory is: bar two copies of VRAM, direct one, caches: waves' caches go "
        "stale, too (default bar)",
    )
    made.add_argument(
        "--facts", default="", metavar="F", help="a simulated device behaves as --learn F found a card to"
    )
    made.add_argument("--force-facts", action="store_true", help="facts of another chip, or of a simulated device")
    made.add_argument(
        "--flip",
        action="append",
        default=[],
        metavar="ID",
        help="a simulated device takes an assumption at its other value (zinc-rt assumptions names them)",
    )
    made.add_argument(
        "--expect", type=Path, metavar="FILE", help="known failures of this chip, with their reasons"
    )
    made.add_argument(
        "--timeout", type=positive, default=0.0, metavar="S", help="for each probe (default its own)"
    )


def add_hazard(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--hazard",
        type=int,
        choices=(0, 1, 2),
        help="0 cannot hang, 1 may, 2 hangs on purpose (default 1; 0 on a GPU that lights a display, 2 on a "
        "simulated device)",
    )
    made.add_argument("--force", action="store_true", help="hazard 2 even on a GPU that drives a display")


def add_results(made: argparse.ArgumentParser) -> None:
    out = made.add_argument_group("results")
    out.add_argument("--json", metavar="F", help="the whole report (- for standard output)")
    out.add_argument("--junit", metavar="F", help="JUnit XML for CI")
    out.add_argument("--tap", metavar="F", help="TAP 14 (- for standard output)")
    out.add_argument(
        "--bundle",
        type=Path,
        metavar="OUT",
        help="report, hangs, kernel log and what the machine is, without private things, to send on: a folder, or "
        "a file that ends in .tar.gz or .tar.zst (zinc-rt bundle)",
    )
    out.add_argument("--strict", action="store_true", help="a skipped probe fails")


def _body(arguments: argparse.Namespace) -> int:
    from zinc_rt.probes.execution import execute
    from zinc_rt.probes.learning.learn import PROBES as FACTS
    from zinc_rt.probes.registry import PROBES

    return execute(arguments, "pm4-test", FACTS if arguments.learn else PROBES)


main = Command("pm4-test", parser, _body)
