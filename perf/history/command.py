"""Show recorded speeds, verify the hash chain and find level changes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from zinc_rt.cli.output import choose_output_stream, finish_report, start_report
from zinc_rt.host import terminal
from zinc_rt.host.terminal import Column, Table, number_column

if TYPE_CHECKING:
    from zinc_rt.perf.history.trends import Series

HELP = "show recorded speeds, verify the chain, find regressions"
EXAMPLES = """\
Each line of a history contains the hash of the previous line. An edited, dropped or swapped line breaks the chain,
and a gate then refuses the history. The head hash printed here, stored elsewhere, also detects a rewritten file.
--sign signs the head with an SSH key, so that it may be stored anywhere and still proves what was recorded.
Only figures of the same device, tier, model and workload are compared. A lasting drop by more than 3 % is a
regression.

examples:
  zinc-rt perf history runs/history.jsonl
  zinc-rt perf history runs/history.jsonl --add validate.json
  zinc-rt perf history runs/history.jsonl --figure decode --plot decode.html
  zinc-rt perf history runs/history.jsonl --csv history.csv
  zinc-rt perf history runs/history.jsonl --sign ~/.config/zinc-rt/nightly --signer gfx1201 --head-file head.json

exit codes: 0 done, 1 a broken chain or a regression, 2 an unreadable file.
"""
COLUMNS = (
    "series",
    number_column("runs"),
    number_column("last"),
    number_column("level before"),
    number_column("after"),
    "since",
    number_column("p"),
    Column("", key="verdict"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "history", type=Path, metavar="F.jsonl", help="history written by bench --history (JSON lines)"
    )
    parser.add_argument("--add", type=Path, nargs="+", default=[], metavar="REPORT", help="record these reports")
    parser.add_argument(
        "--figure", default="", metavar="NAME", help="show only this figure: decode, prefill, ttft ..."
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="plot the series as .html, or as .png with matplotlib"
    )
    parser.add_argument(
        "--csv",
        type=Path,
        metavar="F.csv",
        help="write one row per entry, with figures and context as columns; needs pandas",
    )

    signed = parser.add_argument_group("signed head")
    signed.add_argument("--sign", type=Path, metavar="KEY", help="private SSH key to sign the head with")
    signed.add_argument(
        "--signer", default="", metavar="NAME", help="name of the key in the list of allowed signers"
    )
    signed.add_argument(
        "--head-file", type=Path, metavar="F.json", help="file for the signed head (default: HISTORY.head.json)"
    )


def run(arguments: argparse.Namespace) -> int:
    from zinc_rt.cli.report import Report, Result
    from zinc_rt.host.errors import UsageError
    from zinc_rt.host.files import check_writable
    from zinc_rt.perf.gate.report_files import collect_reports
    from zinc_rt.perf.history.chain import append_entry, collect_figures, read
    from zinc_rt.perf.history.charts import write_plot
    from zinc_rt.perf.history.signed_head import sign_head
    from zinc_rt.perf.history.trends import group_series, write_csv

    if (arguments.head_file or arguments.signer) and not arguments.sign:
        raise UsageError("--head-file and --signer require --sign KEY")
    paths = [str(path) for path in (arguments.plot, arguments.csv, arguments.head_file) if path]
    check_writable(*paths, report=arguments.json)
    out = choose_output_stream(arguments)
    for evidence in collect_reports(arguments.add)[0]:
        entry = append_entry(
            arguments.history, evidence.command, evidence.report, collect_figures(evidence.report)
        )
        terminal.show(f"recorded  {evidence.path.name}, entry {entry.sequence}", out=out)
    known = read(arguments.history)
    report = start_report(
        Report("perf history", details={"head": known.head, "entries": len(known.entries)}), arguments
    )
    report.results.append(
        Result(
            "chain",
            "history",
            "fail" if known.problem else "pass",
            reason=known.problem or f"{len(known.entries)} entries",
            measure={"head": known.head},
        )
    )
    every = group_series(known.entries, arguments.figure)
    for series in every:
        worse, changes = series.find_regression(), series.find_changes()
        report.results.append(
            Result(
                f"{series.figure}/{series.context['tier']}/{series.context['model'][:8]}",
                "series",
                "fail" if worse else "pass",
                reason=series.title,
                measure={"values": series.values, "changes": [(c.index, c.before, c.after) for c in changes]},
            )
        )
    if every:
        terminal.show(Table(COLUMNS, [row for series in every for row in _format_rows(series)]), out=out)
    if arguments.plot:
        write_plot(arguments.plot, every)
    if arguments.csv:
        rows = write_csv(arguments.csv, known.entries, arguments.figure)
        terminal.show(f"wrote     {arguments.csv}, {rows} rows", out=out)
    if arguments.sign:
        path = arguments.head_file or arguments.history.with_name(f"{arguments.history.stem}.head.json")
        sign_head(known, arguments.sign, arguments.signer).write(path)
        terminal.show(f"signed    {path}", out=out)
    verdict = f"the chain is broken: {known.problem}" if known.problem else f"{len(known.entries)} entries"
    terminal.show(f"head      {known.head}", out=out)
    terminal.show(f"{'FAIL' if report.exit_code() else 'PASS'}  {arguments.history}: {verdict}", out=out)
    return finish_report(report, arguments)


def _format_rows(series: Series) -> list[list[str]]:
    """Format a series as one row, or as one row per change of its level."""
    start = [series.title, str(len(series.values)), f"{series.values[-1]:.4g}"]
    worse = series.find_regression()
    return [
        [
            *start,
            f"{change.before:.4g}",
            f"{change.after:.4g}",
            series.entries[change.index].at,
            f"{change.p:.3f}",
            "REGRESSION" if change == worse else "",
        ]
        for change in series.find_changes()
    ] or [[*start, "", "", "", "", ""]]
