"""Record a run to a replayable log, or show a log's statistics."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from zinc_rt.cli.command import Command, find_commands
from zinc_rt.cli.output import add_format
from zinc_rt.host import terminal
from zinc_rt.host.arguments import Parser
from zinc_rt.host.errors import UsageError

if TYPE_CHECKING:
    from zinc_rt.trace.reader import LogReader

EXAMPLES = """\
The command after -- runs in this process, and every engine that it opens is recorded: the first to LOG, a second
to LOG with .2 before the suffix, and so on. Levels: digest (digests of the outputs; cheap), inputs (everything
that zinc-rt-replay needs), full (the bytes of every node's result). For a command that opens no engine, such as
the probes, the results are recorded. --attach is a synonym of --. LOG alone shows its statistics, as --stats does.

examples:
  zinc-rt-trace -o run.zlog -- run --model M.gguf --tokens 1,2,3
  zinc-rt-trace -o v.zlog --level digest -- validate --tiers t_cpu
  zinc-rt-trace -o p.zlog --attach pm4-test --device sim
  zinc-rt-trace run.zlog
  zinc-rt-trace --plan run.zlog
  zinc-rt-trace --chrome timeline.json run.zlog    for https://ui.perfetto.dev; dispatches need --times
  zinc-rt-trace --show Qcur-0 --step 2 run.zlog    values of a node after a step
  zinc-rt-trace --show 'l_out-*' --export layers.npz run.zlog

Exit code: the wrapped command's; 1 if that is 0 but the log is incomplete (for example on a full disk); 2 if the
log cannot be written or read.
"""
LEVELS = ("digest", "inputs", "full")  # without importing NumPy for --help


def parser() -> argparse.ArgumentParser:
    parser = Parser(
        description=__doc__,
        epilog=EXAMPLES,
        usage="%(prog)s -o LOG [--level LEVEL] [--embed-weights]\n"
        "           (-- | --attach) COMMAND [ARGUMENT ...]\n"
        "       %(prog)s [--stats | --plan | --plan-json FILE | --chrome FILE] LOG\n"
        "       %(prog)s --show NODE [--step N] [--export F.npz]\n"
        "           [--tier T] [--model FILE] LOG",
    )
    recording = parser.add_argument_group("record")
    recording.add_argument("-o", "--out", metavar="LOG", help="log to write")
    recording.add_argument(
        "--level", choices=LEVELS, default="inputs", help="amount of data to record (default inputs)"
    )
    recording.add_argument(
        "--times",
        action="store_true",
        help="record the start and end of each dispatch, for --chrome; makes dispatches run one at a time",
    )
    recording.add_argument(
        "--embed-weights", action="store_true", help="store the weights in the log, so that it needs no model file"
    )
    looking = parser.add_argument_group("show a log").add_mutually_exclusive_group()
    looking.add_argument(
        "--stats", action="store_true", help="show bytes by kind, bytes per token and time per step (default)"
    )
    looking.add_argument("--plan", action="store_true", help="show the memory map of every variant that ran")
    looking.add_argument("--plan-json", metavar="FILE", help="write the memory plan of every variant as JSON")
    looking.add_argument("--chrome", metavar="FILE", help="write a timeline for Chrome or Perfetto")
    looking.add_argument(
        "--show",
        metavar="NODE",
        help="show values after a step; selects a node by label, buffer or number, or with a pattern (*)",
    )
    add_format(parser)
    values = parser.add_argument_group("with --show")
    values.add_argument("--step", type=int, metavar="N", help="step to show (default: the last)")
    values.add_argument("--export", metavar="F.npz", help="also write the complete values to F.npz")
    values.add_argument(
        "--tier", metavar="T", help="tier that recomputes values that the log does not contain (default t_cpu)"
    )
    values.add_argument("-m", "--model", metavar="FILE", help="the recorded model, if its path changed")
    parser.add_argument("log", metavar="LOG", nargs="?", help="log to show")
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _run_command(arguments: argparse.Namespace) -> int:
    wrapped: list[str] = arguments.wrapped or []
    named = arguments.log is not None and arguments.out is None and not wrapped and not arguments.command
    written = arguments.plan_json or arguments.chrome
    looks = arguments.stats or arguments.plan or written or arguments.show is not None or named
    for name in ("step", "export", "tier", "model"):
        if getattr(arguments, name) is not None and arguments.show is None:
            raise UsageError(f"--{name} requires --show NODE")
    if looks:
        if wrapped or arguments.out:
            raise UsageError(
                "--stats, --plan, --plan-json, --chrome and --show read a log and cannot record one",
                next="remove one of them",
            )
        if arguments.command:
            raise UsageError(
                f"unexpected argument {arguments.command[0]} after the log",
                next=f"put options before {arguments.log}",
            )
        if arguments.log is None:
            raise UsageError("no log given", next="zinc-rt-trace --stats LOG")
        return _show_log(arguments)
    if arguments.out is None:
        raise UsageError("nothing to do", next="-o LOG -- run --model FILE ..., or --stats LOG")
    if not wrapped or arguments.log is not None:
        raise UsageError("no command to record", next="put it after --: -o LOG -- run --model FILE ...")
    return _record(arguments, wrapped)


def _record(arguments: argparse.Namespace, wrapped: list[str]) -> int:
    from zinc_rt.host.files import check_writable
    from zinc_rt.trace.recordings import Recordings

    check_writable(arguments.out)
    command = _find_command(wrapped[0])
    recordings = Recordings(
        arguments.out,
        arguments.level,
        embed_weights=arguments.embed_weights,
        times=arguments.times,
        argv=wrapped,
        say=_print_note,
    )
    try:
        code = command(wrapped[1:], observer=recordings)
    finally:
        recordings.finish()
    for line in recordings.summary():
        _print_note(line)
    return code or (0 if recordings.complete else 1)


def _find_command(name: str) -> Command:
    """Return the command of that name. Raises UsageError if there is no such command or if it opens no engine."""
    points = find_commands()
    if name not in points or name in ("trace", "replay"):
        known = sorted(set(points) - {"trace", "replay"})
        raise UsageError(f"unknown command {name!r}", next=f"one of {', '.join(known)}")
    command: Command = points[name].load()
    return command


def _show_log(arguments: argparse.Namespace) -> int:
    from zinc_rt.host.files import check_writable
    from zinc_rt.trace.reader import LogReader

    check_writable(arguments.chrome, arguments.plan_json, arguments.export)
    with LogReader(arguments.log) as log:
        if arguments.chrome:
            from zinc_rt.host.chrome_trace import write_chrome
            from zinc_rt.trace.chrome import build_timeline

            write_chrome(build_timeline(log), arguments.chrome)
            terminal.show(f"wrote {arguments.chrome}; open it in https://ui.perfetto.dev or chrome://tracing")
        elif arguments.plan_json:
            from zinc_rt.cli.report import write_text
            from zinc_rt.trace.show import describe_memory_maps

            plans = describe_memory_maps(log)
            write_text(arguments.plan_json, json.dumps(plans, indent=1) + "\n")
            terminal.show(f"wrote {arguments.plan_json}: the memory plans of {len(plans['plans'])} variants")
        elif arguments.show is not None:
            _show(log, arguments)
        else:
            from zinc_rt.trace.show import format_memory_maps, format_statistics

            for line in format_memory_maps(log) if arguments.plan else format_statistics(log):
                terminal.show(line)
        for problem in log.problems:
            _print_note(f"warning: {problem}")
    return 0


def _show(log: LogReader, arguments: argparse.Namespace) -> None:
    from pathlib import Path

    from zinc_rt.cli.progress import show_progress
    from zinc_rt.trace.show import export, format_value, select_values

    with show_progress(0, "replay", "step") as advance:
        step_values = select_values(
            log,
            arguments.show,
            arguments.step,
            tier=arguments.tier or "t_cpu",
            model=arguments.model,
            advance=advance,
        )
    for value in step_values:
        for line in format_value(value):
            terminal.show(line)
    if arguments.export:
        export(step_values, log, Path(arguments.export))
        terminal.show(f"wrote {arguments.export}: {len(step_values)} arrays, and `meta`")


def _print_note(line: str) -> None:
    terminal.show(line, out=sys.stderr)


main = Command("trace", parser, _run_command, before_another=("--", "--attach"))
