"""Measure this server and llama-server with the same requests, in turns."""

from __future__ import annotations

import argparse
import shlex
import shutil
from typing import TYPE_CHECKING

from zinc_rt.cli.output import choose_output_stream, finish_report, start_report
from zinc_rt.host import terminal
from zinc_rt.host.arguments import add_models

if TYPE_CHECKING:
    from zinc_rt.cli.report import Result
    from zinc_rt.perf.serving.measure import ComparedServer, Measured

OWN = "zinc-rt serve"
HELP = "measure this server beside llama-server: ready, first token, speed, gaps"
EXAMPLES = """\
llama-server must be on PATH; without it, or with --alone, only this server is measured. Both are started anew in
each round, with 16 slots of 1,024 tokens and their own default threads. Each client asks for 64 tokens after a
prompt of 64 random ids. Speed counts the prompts' time; gaps are from token to token. Values are medians over
rounds; ratios are theirs to ours, above 1 where ours is better. For an idle machine: the load is printed.

examples:
  zinc-rt perf serving --model M.gguf
  zinc-rt perf serving --model M.gguf --ours "--ordering canonical-1-q8" --rounds 5 --json serving.json
  zinc-rt perf serving --model M.gguf --theirs "-ctk f32 -ctv f32" --format github

exit codes: 0 measured, 2 wrong usage, or a server did not start.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    add_models(parser)
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="rounds (default 3)")
    parser.add_argument("--ours", default="", metavar="OPTIONS", help="more options of zinc-rt serve")
    parser.add_argument("--theirs", default="", metavar="OPTIONS", help="more options of llama-server")
    parser.add_argument("--alone", action="store_true", help="measure only this server")


def run(arguments: argparse.Namespace) -> int:
    from zinc_rt.cli.describe import describe_model
    from zinc_rt.cli.options import print_status, read_model
    from zinc_rt.cli.report import Report
    from zinc_rt.host.errors import InputError, UsageError
    from zinc_rt.host.files import check_writable
    from zinc_rt.perf.machine import describe_machine
    from zinc_rt.perf.serving.measure import measure_servers

    if arguments.rounds < 1:
        raise UsageError(f"--rounds {arguments.rounds}: expected 1 or more")
    if arguments.alone and arguments.theirs:
        raise UsageError("--theirs has no effect with --alone")
    if arguments.theirs and not shutil.which("llama-server"):
        raise UsageError("llama-server is not on PATH", next="install llama.cpp, or omit --theirs")
    check_writable(report=arguments.json)
    out, gguf = choose_output_stream(arguments), read_model(arguments.model)
    tokens = gguf.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not tokens:
        raise InputError(f"{arguments.model}: the file has no vocabulary, which a server needs")
    report = start_report(Report("perf serving", model=describe_model(gguf)), arguments)
    machine = report.details["machine"] = describe_machine()
    load = machine["load_average"][0]
    terminal.show(f"machine   {machine['cores']} cores, {machine['processor']}, load {load}\n", out=out)
    try:
        measured = measure_servers(
            _list_servers(arguments), str(gguf.path), len(tokens), arguments.rounds, print_status
        )
    except RuntimeError as error:
        raise InputError(f"a server rejected a request: {error}") from error
    report.results += _make_results(measured, load)
    report.details["servers"] = {item.server.name: item.command for item in measured}
    terminal.show(_make_table(measured), out=out)
    return finish_report(report, arguments)


def _list_servers(arguments: argparse.Namespace) -> list[ComparedServer]:
    from zinc_rt.perf.serving.measure import ComparedServer
    from zinc_rt.validate.judge.engines import ENGINES

    servers = [ComparedServer(OWN, ENGINES["ours"], tuple(shlex.split(arguments.ours)))]
    if not arguments.alone and shutil.which("llama-server"):
        servers.append(
            ComparedServer("llama-server", ENGINES["llama-server"], tuple(shlex.split(arguments.theirs)))
        )
    return servers


def _make_results(measured: list[Measured], load: float) -> list[Result]:
    from zinc_rt.cli.report import Result
    from zinc_rt.perf.serving.measure import FIGURES

    return [
        Result(
            f"{item.server.name}/{figure.id}",
            "speed",
            "pass",
            measure={"values": item.values[figure.id], "unit": figure.unit, "load": load},
        )
        for item in measured
        for figure in FIGURES
    ]


def _make_table(measured: list[Measured]) -> terminal.Table:
    from zinc_rt.perf.serving.measure import FIGURES

    names = [item.server.name for item in measured]
    columns = [terminal.Column("", key="measure"), *(terminal.Column(name, right=True) for name in names)]
    rows = []
    for figure in FIGURES:
        row = [f"{figure.title}, {figure.unit}"]
        for item in measured:
            low, high = min(item.values[figure.id]), max(item.values[figure.id])
            row.append(f"{item.median(figure.id):.3g} ({low:.3g} to {high:.3g})")
        if len(measured) > 1:
            ours, theirs = (item.median(figure.id) for item in measured)
            row.append(f"{theirs / ours if figure.better == 'less' else ours / theirs:.2f}")
        rows.append(row)
    if len(measured) > 1:
        columns.append(terminal.Column("ratio", right=True))
    return terminal.Table(columns, rows)
