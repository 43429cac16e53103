"""Select the streams of a command's text and of its report."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, TextIO

from zinc_rt.cli.observer import make_observer
from zinc_rt.host.table_format import FORMATS

if TYPE_CHECKING:
    from zinc_rt.cli.report import Report


def add_json(parser: argparse.ArgumentParser, *, tables: bool = True) -> None:
    """Add --json, and --format if the command prints `tables`."""
    if tables:
        add_format(parser)
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="write the JSON report (schema zinc-rt-report/1); - writes it to stdout and "
        "all other output to stderr",
    )


def add_format(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add --format; `Command` applies it to every table that `host.terminal` shows."""
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        help="format of the tables: text, github (Markdown) or csv; with the latter two only the tables go to "
        "stdout, everything else to stderr (default text)",
    )


def choose_output_stream(arguments: argparse.Namespace) -> TextIO:
    """Return the stream for tables and text: stdout, or stderr if --json - takes stdout. A Python caller
    (zinc_rt.harness) passes its own stream to `Command.parse`.
    """
    screen: TextIO | None = getattr(arguments, "screen", None)
    return screen or (sys.stderr if arguments.json == "-" else sys.stdout)


def start_report(report: Report, arguments: argparse.Namespace) -> Report:
    """Begin a command's report and notify the command's observer. `finish_report` writes it."""
    make_observer(arguments).report_begun(report)
    return report


def finish_report(report: Report, arguments: argparse.Namespace) -> int:
    """Write the report as --json requests. Return the exit code."""
    from zinc_rt.cli.report import write_text

    if arguments.json == "-":
        print(report.to_json())
    elif arguments.json:
        write_text(arguments.json, report.to_json() + "\n")
    return report.exit_code()


def format_simulated_note(report: Report) -> str:
    """Return the note for a verdict to which a simulated device contributed, with its tiers; empty if none
    did."""
    if not report.simulated:
        return ""
    whole = report.device.get("simulated") and "devices" not in report.details  # the one device there was
    tiers = "" if whole else ", ".join(report.simulated_tiers())
    return f" on a SIMULATED device{f' ({tiers})' if tiers else ''}: says nothing about hardware"


def printable(text: str, width: int = 0) -> str:
    """Make text from a file safe for a terminal: escape control characters, and truncate to `width` if given."""
    if width and len(text) > width:
        text = text[: width - 1] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def format_size(size_bytes: int) -> str:
    """Format a size exactly and rounded: `1,234,567 B (1.18 MiB)`."""
    value, unit = float(size_bytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    exact = f"{size_bytes:,} B"
    return exact if unit == "B" else f"{exact} ({value:.2f} {unit})"
