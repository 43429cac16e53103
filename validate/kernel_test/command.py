"""Test kernels bit for bit against the oracle; shrink failures."""

from __future__ import annotations

import argparse

from zinc_rt.backends import registry
from zinc_rt.cli import options
from zinc_rt.cli.command import Command
from zinc_rt.cli.output import add_json, choose_output_stream, finish_report, start_report
from zinc_rt.host.arguments import Parser

EPILOG = """\
examples:
  zinc-rt kernel-test                                all kernels of all sets; simulated without a GPU
  zinc-rt kernel-test --kernel 'matvec_q4*'          kernels with this name
  zinc-rt kernel-test --family attention --tier t1   a family of cases on one tier
  zinc-rt kernel-test --case 'ADD T=1 N=33 seed=4'   one case, from a failure's repro line
  zinc-rt kernel-test --quick --device sim           one case of each kernel, simulated: before each commit
  zinc-rt kernel-test --changed --tier t1            what has changed since it passed
  zinc-rt kernel-test --replace build/add.zrt --kernel add    test a kernel before committing it
  zinc-rt kernel-test --mode support                 table of opcode x weight type x kernel set, with reasons
  zinc-rt kernel-test --mode perf --kernel 'matvec_*'         time, bytes/s and flop/s of a call
  zinc-rt kernel-test --mode counters --device sim            hand-written kernels against RADV's, by counts

A case is a node with seeded operands: odd sizes around every tile, each weight type, values from ordinary ones to
denormals, ties, infinities and NaN. Its bits are compared with T-CPU's in the same ordering. On the simulated
device, a sanitizer finding is also a failure. See docs/kernel-test.md.

Exit code: 0 all cases passed, 1 a case failed, 2 unusable input, 77 nothing could run.
"""


def parser() -> argparse.ArgumentParser:
    parser = Parser(description=__doc__, epilog=EPILOG)
    parser.add_argument(
        "--mode",
        choices=("test", "perf", "support", "counters"),
        default="test",
        help="test: bits against the oracle (default); perf: time per call; support: table of supported cases; "
        "counters: waves, instructions and bytes of two kernel sets on the simulated device",
    )
    what = parser.add_argument_group("cases")
    what.add_argument(
        "--kernel",
        action="append",
        default=[],
        metavar="GLOB",
        help="run the cases that dispatch a kernel with this name",
    )
    what.add_argument(
        "--family", action="append", default=[], metavar="NAME", help="run the cases of one file in validate/cases"
    )
    what.add_argument(
        "--case", action="append", default=[], metavar="LINE", help="run exactly this case, without shrinking"
    )
    what.add_argument("--most", type=int, metavar="N", help="run N cases of each kernel group, evenly spread")
    what.add_argument("--quick", action="store_true", help="run one case of middling size for each kernel")
    what.add_argument(
        "--changed",
        action="store_true",
        help="run the kernels that have changed since all their cases passed here: their code, the oracle's, or "
        "that which plans them",
    )
    what.add_argument(
        "--replace",
        action="append",
        default=[],
        metavar="F.zrt",
        help="test this file instead of the committed kernel",
    )
    group = parser.add_argument_group("device")
    group.add_argument(
        "--tier",
        default="",
        metavar="TIER",
        help=f"{', '.join(row.tier for row in registry.built())}, separated by commas "
        "(default: one for each kernel set)",
    )
    options.add_device(
        group, "hw: never simulated; sim: always simulated (default auto: simulated without an AMD GPU)"
    )
    options.add_coherence(group)
    group.add_argument(
        "--ordering",
        choices=options.ORDERING_CHOICES,
        metavar="NAME",
        help=f"one of {', '.join(options.ORDERING_CHOICES)} (default: all that the tier supports)",
    )
    group.add_argument(
        "--jobs", type=int, metavar="N", help="number of processes (default: one per core; 1 on hardware)"
    )
    out = parser.add_argument_group("results")
    out.add_argument("--no-shrink", action="store_true", help="do not shrink the smallest failing case")
    add_json(parser)
    return parser


def _run_command(arguments: argparse.Namespace) -> int:
    from zinc_rt.cli.report import Report
    from zinc_rt.host.errors import UsageError
    from zinc_rt.host.files import check_writable
    from zinc_rt.validate.kernel_test import modes

    check_writable(report=arguments.json)
    for name in ("jobs", "most"):
        if (value := getattr(arguments, name)) is not None and value < 1:
            raise UsageError(f"--{name} {value}: expected 1 or more")
    report = start_report(Report("kernel-test", ordering=arguments.ordering or ""), arguments)
    modes.MODES[arguments.mode](arguments, report, choose_output_stream(arguments))
    return finish_report(report, arguments)


main = Command("kernel-test", parser, _run_command)
