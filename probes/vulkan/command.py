"""Probe a Vulkan driver step by step, with causes of failures."""

from __future__ import annotations

import argparse

from zinc_rt.cli.command import Command
from zinc_rt.cli.options import parse_device_name
from zinc_rt.cli.output import add_format
from zinc_rt.host.arguments import Parser
from zinc_rt.probes.command import parse_positive

EPILOG = """\
examples:
  zinc-rt vulkan-test                          the default device of --tier vulkan
  zinc-rt vulkan-test --device vulkan:1        another device of zinc-rt devices; also --device vulkan:NAME
  zinc-rt vulkan-test -k V06                   one probe; -k V08-V13 is a range, -k barrier a title word
  zinc-rt vulkan-test --may-hang               also an endless kernel: the screen may freeze for seconds
  VK_DRIVER_FILES=FILE zinc-rt vulkan-test     another driver for the same device

Exit code: 0 all probes that ran passed, 1 a probe failed, 2 wrong usage, 77 no Vulkan device or nothing ran.
"""


def parser() -> argparse.ArgumentParser:
    parser = Parser(description=__doc__, epilog=EPILOG)
    parser.add_argument(
        "--device",
        type=parse_device_name,
        default="auto",
        metavar="WHICH",
        help="auto, hw (a GPU), cpu (a software driver), vulkan:N or vulkan:NAME (default auto: the first device)",
    )
    parser.add_argument(
        "-k",
        default="",
        metavar="WHAT",
        dest="select",
        help="select probes by id, range of ids or words of the title",
    )
    parser.add_argument("--list", action="store_true", help="list all probes with the property that each proves")
    parser.add_argument("--may-hang", action="store_true", help="include deliberate hangs")
    parser.add_argument(
        "--timeout",
        type=parse_positive,
        default=0.0,
        metavar="S",
        help="seconds for each probe (default: the probe's own limit)",
    )
    out = parser.add_argument_group("results")
    add_format(out)
    out.add_argument("--json", metavar="F", help="write the JSON report (- for stdout)")
    out.add_argument("--junit", metavar="F", help="write JUnit XML for CI")
    out.add_argument("--tap", metavar="F", help="write TAP 14 (- for stdout)")
    out.add_argument("--strict", action="store_true", help="treat a skipped probe as a failure")
    parser.set_defaults(bundle=None, learn=None)
    return parser


def _run_command(arguments: argparse.Namespace) -> int:
    from zinc_rt.probes.vulkan.execution import run_command

    return run_command(arguments)


main = Command("vulkan-test", parser, _run_command)
