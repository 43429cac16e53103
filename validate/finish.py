"""The end of a validation of layers or of mixes: its verdict and its reports."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from zinc_rt.cli.junit import to_junit
from zinc_rt.cli.report import Report, write_text
from zinc_rt.host.terminal import Part
from zinc_rt.validate.table import format_verdict


def finish(report: Report, arguments: argparse.Namespace, models: int, show: Callable[[Part], None]) -> int:
    """Print the verdict on `models` models, write --json and --junit, and return the exit code."""
    show(format_verdict(report, models, strict=arguments.strict))
    if arguments.json == "-":
        print(report.to_json(strict=arguments.strict))
    elif arguments.json:
        write_text(arguments.json, report.to_json(strict=arguments.strict))
    if arguments.junit:
        write_text(arguments.junit, to_junit(report))
    return report.exit_code(strict=arguments.strict)
