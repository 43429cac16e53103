"""Whether Vulkan works here as models need it: one probe a step, and for each failure its cause and what to do."""

from __future__ import annotations

import argparse

from zinc_rt.cli.command import Command
from zinc_rt.cli.options import device_name
from zinc_rt.host.arguments import Parser
from zinc_rt.probes.command import positive

EPILOG = """\
examples:
  zinc-rt vulkan-test                          the device that --tier vulkan takes
  zinc-rt vulkan-test --device vulkan:1        another: zinc-rt devices lists them, --device vulkan:NAME also does
  zinc-rt vulkan-test -k V06                   one probe; -k V08-V13 a range, -k barrier a word
  zinc-rt vulkan-test --may-hang               also a kernel that never ends: the screen may freeze for seconds
  VK_DRIVER_FILES=FILE zinc-rt vulkan-test     another driver of the same device

Exit code: 0 everything that ran passed, 1 a probe failed, 2 wrong usage, 77 no Vulkan device or nothing ran.
"""


def parser() -> argparse.ArgumentParser:
    made = Parser(description=__doc__, epilog=EPILOG)
    made.add_argument(
        "--device",
        type=device_name,
        default="auto",
        metavar="WHICH",
        help="auto, hw (a GPU), cpu (a driver in software) or vulkan:N or vulkan:NAME (default auto: the first)",
    )
    made.add_argument("-k", default="", metavar="WHAT", dest="select", help="ids, ranges or words of a title")
    made.add_argument("--list", action="store_true", help="all probes, and what each proves")
    made.add_argument("--may-hang", action="store_true", help="also what hangs the device on purpose")
    made.add_argument(
        "--timeout", type=positive, default=0.0, metavar="S", help="for each probe (default its own)"
    )
    out = made.add_argument_group("results")
    out.add_argument("--json", metavar="F", help="the whole report (- for standard output)")
    out.add_argument("--junit", metavar="F", help="JUnit XML for CI")
    out.add_argument("--tap", metavar="F", help="TAP 14 (- for standard output)")
    out.add_argument("--strict", action="store_true", help="a skipped probe fails")
    made.set_defaults(bundle=None, learn=None)
    return made


def _body(arguments: argparse.Namespace) -> int:
    from zinc_rt.probes.vulkan.execution import execute

    return execute(arguments)


main = Command("vulkan-test", parser, _body)
