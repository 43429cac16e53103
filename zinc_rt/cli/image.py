"""Write what a host in C needs to run a model."""

from __future__ import annotations

import argparse
from pathlib import Path

from zinc_rt.cli.command import Command
from zinc_rt.cli.options import add_computation, open_engine, read_model, read_settings_once
from zinc_rt.cli.output import add_json, choose_output_stream, finish_report, format_size, start_report
from zinc_rt.host import terminal
from zinc_rt.host.arguments import Parser, add_models
from zinc_rt.host.errors import UsageError

EXAMPLES = """\
The folder has model.zrx, an image: the model's programs for t_cpu_native, which map the weights from the model
file; exec.h; the library that replays images; and the kernels for this machine's CPU. A token and a prompt are
computed with them and compared with the engine's, bit for bit. examples/exec_host.c is a host.

examples:
  zinc-rt image --model M.gguf -o host
  zinc-rt image --model M.gguf -o host --ctx 8192 --slots 4 --ordering canonical-1-q8
"""
TIER = "t_cpu_native"
NO_DEVICE = {  # of the options that other commands have, for a tier without a device
    "device": "auto", "sanitizer": None, "unchecked": False, "coherence": None, "reorder": None, "facts": None,
}  # fmt: skip


def parser() -> argparse.ArgumentParser:
    parser = Parser(
        description="Write an image of a model, and the header and libraries with which a host in C replays it.",
        epilog=EXAMPLES,
    )
    add_models(parser)
    parser.add_argument("-o", "--out", type=Path, metavar="FOLDER", required=True, help="the folder to write")
    parser.add_argument("--slots", type=int, metavar="N", default=1, help="concurrent sequences (default 1)")
    add_computation(parser.add_argument_group("what the image computes"))
    parser.set_defaults(tier=TIER, **NO_DEVICE)
    add_json(parser, tables=False)
    return parser


def _run_command(arguments: argparse.Namespace) -> int:
    from zinc_rt.cli.describe import describe_model, describe_run
    from zinc_rt.cli.report import Report, Result
    from zinc_rt.engine.image import count_wrong_logits, write_host_folder
    from zinc_rt.host.files import check_writable

    if arguments.slots < 1:
        raise UsageError(f"--slots {arguments.slots}: expected 1 or more")
    check_writable(report=arguments.json)
    report = start_report(Report("image"), arguments)
    gguf = read_model(arguments.model)
    with open_engine(gguf, arguments, read_settings_once(), slots=arguments.slots) as engine:
        files = write_host_folder(engine, arguments.out)
        wrong = count_wrong_logits(engine, arguments.out)
        describe_run(report, engine)
    out = choose_output_stream(arguments)
    for file in files:
        terminal.show(f"{file.name:<24} {format_size(file.stat().st_size)}", out=out)
    reason = f"{wrong} logits of a token and a prompt differ from the engine's" if wrong else ""
    report.results.append(
        Result(
            "image",
            "image",
            "fail" if wrong else "pass",
            tier=TIER,
            reason=reason,
            measure={"wrong_logits": wrong},
            artifacts=[str(file) for file in files],
        )
    )
    terminal.show(f"wrote     {arguments.out}, {report.ordering}", out=out)
    terminal.show(f"compared  {reason or 'a token and a prompt have the bits of the engine'}", out=out)
    if arguments.json:
        report.model = describe_model(gguf)
    return finish_report(report, arguments)


main = Command("image", parser, _run_command)
