"""Where the results of a run go beside the terminal: --json, --tap and --junit."""

from __future__ import annotations

import argparse

from zinc_rt.errors import NothingRan, UsageError
from zinc_rt.files import check_writable
from zinc_rt.junit import to_junit
from zinc_rt.probes.output import bundle
from zinc_rt.probes.output.tap import to_tap
from zinc_rt.report import Report, Result, to_json, write_text


def write_results(arguments: argparse.Namespace, report: Report) -> None:
    for path, content in (
        (arguments.json, to_json(report, strict=arguments.strict)),
        (arguments.tap, to_tap(report)),
        (arguments.junit, to_junit(report)),
    ):
        if path == "-":
            print(content)
        elif path:
            write_text(path, content)


def check_outputs(arguments: argparse.Namespace) -> None:
    """What is written at the end can be, asked before hours of probes. Raises OutputError or UsageError."""

    if arguments.json == arguments.tap == "-":
        raise UsageError("--json - and --tap -: stdout holds one of them", next="name a file for the other")
    tap = None if arguments.tap == "-" else arguments.tap
    check_writable(arguments.junit, tap, arguments.learn, report=arguments.json)
    if arguments.bundle is not None:
        bundle.check(arguments.bundle)


def report_of(nothing: NothingRan, name: str) -> Report:
    """For who reads reports and not words: that nothing ran, and why."""

    device = {"name": "", "arch": "", "simulated": False}
    return Report(
        name,
        device=device,
        results=[Result("device", "probe", "skip", reason=nothing.message, advice=nothing.next)],
    )
