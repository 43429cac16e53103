"""Probe a GPU step by step; failures have a cause and next step."""

from __future__ import annotations

import argparse
from pathlib import Path

from zinc_rt.cli.command import Command
from zinc_rt.cli.output import add_format
from zinc_rt.host.arguments import Parser, parse_positive
from zinc_rt.probes.device_options import add_device_options

EPILOG = """\
examples:
  zinc-rt pm4-test                                   the machine's GPU, without deliberate hangs
  zinc-rt pm4-test --hazard 1                        also on a GPU that drives your display: save your work first
  zinc-rt pm4-test --device sim                      a simulated R9700; proves nothing about hardware
  zinc-rt pm4-test -k P20 --tiers t1                 one probe; -k P18-P24 is a range, -k fence a title word
  zinc-rt pm4-test --device sim --inject no-eop      show the effect of a missing EOP buffer
  zinc-rt pm4-test --learn facts.json                measure undocumented behaviour of the card
  zinc-rt pm4-test --device sim --facts facts.json   simulate a device with that behaviour
  zinc-rt pm4-test --hazard 2 --bundle out/          include faults and hangs, and write a bundle to send

Exit code: 0 all probes that ran passed, 1 a probe failed, 2 wrong usage, 77 no AMD GPU or nothing ran.
"""


def parser() -> argparse.ArgumentParser:
    parser = Parser(description=__doc__, epilog=EPILOG)
    add_choice(parser)
    add_hazard(parser)
    parser.add_argument(
        "--again", action="store_true", help="also run the probe that was running when the machine was reset"
    )
    parser.add_argument(
        "--learn",
        metavar="FACTS.json",
        help="measure hardware behaviour that the documentation does not specify, and write it to this facts file",
    )
    parser.add_argument(
        "--soak",
        type=parse_positive,
        default=0.0,
        metavar="MINUTES",
        help="duration of the mixed-packet soak in P56",
    )
    parser.add_argument(
        "--manual", action="store_true", help="include the step of P56 that asks you to suspend the machine"
    )
    parser.add_argument(
        "--journal",
        type=Path,
        metavar="FILE",
        help="journal file that records each probe before it starts, synced to disk",
    )
    add_results(parser)
    return parser


def add_choice(parser: argparse.ArgumentParser) -> None:
    """Add the options that select the device and the probes."""
    add_device_options(parser)
    parser.add_argument(
        "--tiers", metavar="t1,t2", help="t1 (KFD) and/or t2 (user queues); a tier listed here must be available"
    )
    parser.add_argument(
        "-k",
        default="",
        metavar="WHAT",
        dest="select",
        help="select probes by id, range of ids or words of the title",
    )
    parser.add_argument("--list", action="store_true", help="list all probes with the property that each proves")
    parser.add_argument(
        "--reorder",
        type=int,
        metavar="SEED",
        help="complete concurrent work of the simulated device in a random order with this seed",
    )
    parser.add_argument(
        "--coherence",
        default="",
        choices=("bar", "direct", "caches"),
        help="memory model of the simulated device: bar (CPU and GPU views of VRAM are separate copies), direct "
        "(one copy), caches (like bar, but caches of waves can be stale) (default bar)",
    )
    parser.add_argument(
        "--facts",
        default="",
        metavar="F",
        help="make the simulated device behave like the card measured with --learn F",
    )
    parser.add_argument(
        "--force-facts", action="store_true", help="accept facts of another chip or of a simulated device"
    )
    parser.add_argument(
        "--flip",
        action="append",
        default=[],
        metavar="ID",
        help="negate an assumption of the simulated device (zinc-rt assumptions lists them)",
    )
    parser.add_argument(
        "--expect", type=Path, metavar="FILE", help="file of known failures of this chip, with reasons"
    )
    parser.add_argument(
        "--timeout",
        type=parse_positive,
        default=0.0,
        metavar="S",
        help="seconds for each probe (default: the probe's own limit)",
    )


def add_hazard(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hazard",
        type=int,
        choices=(0, 1, 2),
        help="0: probes that cannot hang, 1: also probes that may hang, 2: also deliberate hangs (default 1; 0 "
        "on a GPU "
        "that drives a display, 2 on a simulated device)",
    )
    parser.add_argument("--force", action="store_true", help="allow hazard 2 on a GPU that drives a display")


def add_results(parser: argparse.ArgumentParser) -> None:
    out = parser.add_argument_group("results")
    add_format(out)
    out.add_argument("--json", metavar="F", help="write the JSON report (- for stdout)")
    out.add_argument("--junit", metavar="F", help="write JUnit XML for CI")
    out.add_argument("--tap", metavar="F", help="write TAP 14 (- for stdout)")
    out.add_argument(
        "--bundle",
        type=Path,
        metavar="OUT",
        help="write a bundle for remote support: report, hangs, kernel log and machine description, without "
        "private data; a "
        "folder, or a .tar.gz or .tar.zst file (zinc-rt bundle)",
    )
    out.add_argument("--strict", action="store_true", help="treat a skipped probe as a failure")


def _run_command(arguments: argparse.Namespace) -> int:
    from zinc_rt.probes.execution import run_command
    from zinc_rt.probes.learning.learn import PROBES as FACTS
    from zinc_rt.probes.registry import PROBES

    return run_command(arguments, "pm4-test", FACTS if arguments.learn else PROBES)


main = Command("pm4-test", parser, _run_command)
