"""Write one HTML page from a folder of reports."""

from __future__ import annotations

import argparse
from pathlib import Path

from zinc_rt.cli.output import choose_output_stream, finish_report, start_report
from zinc_rt.host import terminal

HELP = "write one page: gates, speeds, predictions, trends, probes, validation, logs"
EXAMPLES = """\
Reads every report below the folder (of gate, bench, predict, validate, pm4-test, replay) and the summary of a
nightly run if there is one. The page contains its style and pictures. Its links are relative, so the folder can be
moved as a whole.

examples:
  zinc-rt perf report zinc-rt-nightly -o zinc-rt-nightly/index.html
  zinc-rt perf report runs/ --history runs/history.jsonl -o page.html

exit codes: 0 written, 2 a folder without reports. The verdict on the page is that of the nightly run or the gates.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of reports")
    parser.add_argument("-o", "--out", required=True, metavar="F.html", help="page to write, atomically")
    parser.add_argument(
        "--history", type=Path, metavar="F.jsonl", help="history to include (default: the history in the folder)"
    )


def run(arguments: argparse.Namespace) -> int:
    from zinc_rt.cli.report import Report, Result, write_text
    from zinc_rt.host.errors import InputError
    from zinc_rt.host.files import check_writable
    from zinc_rt.perf.gate.report_files import collect_reports
    from zinc_rt.perf.history.chain import read
    from zinc_rt.perf.report.links import PageLinks
    from zinc_rt.perf.report.page import PageSources, read_summary, to_html

    check_writable(arguments.out, report=arguments.json)
    if not arguments.folder.is_dir():
        raise InputError(f"{arguments.folder}: no such folder")
    reports, _ = collect_reports([arguments.folder])
    if not reports:
        raise InputError(f"{arguments.folder}: contains no reports", next="commands write them with --json")
    path = arguments.history or next(iter(sorted(arguments.folder.glob("history*.jsonl"))), None)
    sources = PageSources(
        arguments.folder,
        reports,
        read(path) if path is not None else None,
        read_summary(arguments.folder),
        PageLinks(Path(arguments.out)),
    )
    write_text(arguments.out, to_html(sources))
    if sources.links is not None and sources.links.copied:
        print(f"copied {sources.links.copied} files to {sources.links.beside}, which goes where the page goes",
              file=choose_output_stream(arguments))  # fmt: skip
    report = start_report(Report("perf report"), arguments)
    report.results.append(
        Result("page", "page", "pass", reason=f"{len(reports)} reports", artifacts=[str(arguments.out)])
    )
    terminal.show(f"wrote {arguments.out}: {len(reports)} reports", out=choose_output_stream(arguments))
    return finish_report(report, arguments)
