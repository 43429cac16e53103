"""Replay a log on any tier and find where outputs diverge."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from zinc_rt.cli import options
from zinc_rt.cli.command import Command
from zinc_rt.cli.output import add_json, choose_output_stream, finish_report, format_simulated_note, start_report
from zinc_rt.host import terminal
from zinc_rt.host.arguments import Parser
from zinc_rt.host.terminal import Column, Table

if TYPE_CHECKING:
    from pathlib import Path

    from zinc_rt.cli.report import Report, Result
    from zinc_rt.engine.devices import Choice
    from zinc_rt.replay.bisect_result import BisectResult
    from zinc_rt.replay.report import ReplayReport
    from zinc_rt.replay.run import ReplayOutcome

EXAMPLES = """\
The log uses the model's buffer names, so a log of one tier replays on another. Weights come from the model file
named in the log, or from --model; a file with other bytes is refused. zinc-rt-trace records logs; docs/zlog.md
describes the format.

examples:
  zinc-rt-replay run.zlog                          on the recorded tier
  zinc-rt-replay run.zlog --tiers t1,t_cpu         on other tiers; t1 is simulated without an AMD GPU
  zinc-rt-replay run.zlog --info                   show the log's content
  zinc-rt-replay run.zlog --tiers t1 --bisect --emit-repro found
  zinc-rt-replay run.zlog --tiers t1 --emit-repro case.c    one step as a C program for a driver bug report
  zinc-rt-replay run.zlog --diff other.zlog        find where two logs diverge

Exit code: 0 all outputs are bit-exact, 1 an output differs, 2 unusable input, 77 nothing to compare.
"""


def parser() -> argparse.ArgumentParser:
    parser = Parser(description=__doc__, epilog=EXAMPLES)
    parser.add_argument("log", metavar="LOG", help="a .zlog file; a truncated one is accepted")
    what = parser.add_argument_group("instead of replaying").add_mutually_exclusive_group()
    what.add_argument("--info", action="store_true", help="show how the log was recorded and what it contains")
    what.add_argument("--to-json", action="store_true", help="print every record, one JSON object per line")
    what.add_argument("--diff", metavar="OTHER", help="compare with another log, record by record")
    how = parser.add_argument_group("replay")
    how.add_argument("--tiers", metavar="A,B", help="tiers to replay on (default: the recorded one)")
    options.add_device(how, "device of the GPU tiers (default auto: simulated without an AMD GPU)")
    options.add_coherence(how)
    how.add_argument("-m", "--model", metavar="FILE", help="the recorded model, if its path changed")
    how.add_argument("--until", type=int, metavar="N", help="stop after step N (default: the last)")
    how.add_argument(
        "--from", dest="start", type=int, default=0, metavar="N",
        help="compare from step N on; earlier steps run too, because later state depends on them (default 0)",
    )  # fmt: skip
    options.add_timeout(how)
    how.add_argument("--threads", type=int, default=0, metavar="N", help="CPU threads (default: all cores)")
    find = parser.add_argument_group("divergence")
    find.add_argument(
        "--bisect", action="store_true", help="find the first step, node and element that differ from t_cpu"
    )
    find.add_argument(
        "--emit-repro",
        metavar="PATH",
        help="FILE.c: write the last step (with --until N: step N) as a C program that needs only the driver; "
        "with --bisect, a folder: write the diverging node as a log, a pytest file and a C program",
    )
    find.add_argument(
        "--trace-lane",
        action="store_true",
        help="with --bisect: trace every instruction of the lane that stored the first wrong element (simulated "
        "tiers)",
    )
    add_json(parser)
    return parser


def _run_command(arguments: argparse.Namespace) -> int:
    from zinc_rt.host.errors import UsageError
    from zinc_rt.host.files import check_writable

    check_writable(report=arguments.json)
    if arguments.trace_lane and not arguments.bisect:
        raise UsageError("--trace-lane requires --bisect", next="add --bisect")
    if arguments.emit_repro and (arguments.info or arguments.to_json or arguments.diff):
        raise UsageError("--emit-repro requires running the log", next="remove --info, --to-json or --diff")
    if arguments.threads < 0:
        raise UsageError(f"--threads {arguments.threads}: expected 1 or more, 0 for every core")
    if arguments.info or arguments.to_json:
        return _show_log(arguments)
    if arguments.diff:
        return _diff_logs(arguments)
    if arguments.emit_repro and not arguments.bisect:
        return _emit_repro(arguments)
    return finish_report(replay_log(arguments), arguments)


def _show_log(arguments: argparse.Namespace) -> int:
    from zinc_rt.replay.show import describe_log, to_json_lines
    from zinc_rt.trace.reader import LogReader

    out = choose_output_stream(arguments)
    with LogReader(arguments.log) as log:
        if arguments.to_json:
            for line in to_json_lines(log):
                print(line, file=out)
        else:
            for line in describe_log(log):
                terminal.show(line, out=out)
        for problem in log.problems:
            terminal.show(f"warning: {problem}", out=sys.stderr)
    return 0


def _diff_logs(arguments: argparse.Namespace) -> int:
    from zinc_rt.cli.report import Report, Result
    from zinc_rt.replay.diff import diff_logs

    out = choose_output_stream(arguments)
    difference = diff_logs(arguments.log, arguments.diff)
    for line in difference.lines:
        terminal.show(line, out=out)
    report = start_report(Report("replay"), arguments)
    status: Any = "fail" if difference.first else "pass" if difference.compared else "skip"
    reason = difference.first or (
        f"{difference.compared} values are the same" if difference.compared else "nothing in common"
    )
    report.results.append(
        Result(
            "diff",
            "diff",
            status,
            reason=reason,
            measure={"compared": difference.compared},
            first_bad=difference.bad,
        )
    )
    terminal.show(_format_verdict(report, reason), out=out)
    return finish_report(report, arguments)


def _emit_repro(arguments: argparse.Namespace) -> int:
    from pathlib import Path

    from zinc_rt.cli.report import Report, Result
    from zinc_rt.host.errors import UsageError
    from zinc_rt.host.files import check_writable
    from zinc_rt.replay.repro_commands import emit_command, run_command
    from zinc_rt.replay.standalone import write_program
    from zinc_rt.trace.reader import LogReader

    path = Path(arguments.emit_repro)
    if path.suffix != ".c":
        raise UsageError(
            f"--emit-repro {path}: expected a name that ends in .c",
            next="for a folder with only the failing node, add --bisect",
        )
    check_writable(str(path))
    with LogReader(arguments.log) as log:
        recorded = str(log.header.get("tier", "t_cpu"))
    choices = _choose_tiers(arguments, recorded)
    if len(choices) != 1:
        raise UsageError("--emit-repro FILE accepts only one tier", next="--tiers t1")
    (choice,) = choices
    captured = write_program(
        arguments.log,
        choice,
        path,
        step=arguments.until,
        model=arguments.model,
        timeout_seconds=options.parse_timeout(arguments),
        command=emit_command(arguments, choice),
    )
    report = start_report(Report("replay"), arguments)
    report.results.append(
        Result(
            "emit-repro",
            "emit-repro",
            "pass",
            tier=choice.tier,
            reason=f"{captured.title}: {path}",
            measure={
                "bytes": path.stat().st_size,
                "buffers": len(captured.regions),
                "dwords": len(captured.words),
            },
            artifacts=[str(path)],
            repro=run_command(path),
        )
    )
    out = choose_output_stream(arguments)
    for note in captured.notes:
        terminal.show(f"note      {note}", out=out)
    terminal.show(f"run       {run_command(path)}", out=out)
    terminal.show(_format_verdict(report, f"{path}: {captured.title}, {path.stat().st_size >> 10} KiB"), out=out)
    return finish_report(report, arguments)


def replay_log(arguments: argparse.Namespace) -> ReplayReport:
    """Replay the log on every tier, or bisect it with --bisect, and show each result.

    Raises InputError for a log or model that cannot be used, UsageError for wrong options.
    """
    from zinc_rt.replay.report import ReplayReport
    from zinc_rt.trace.reader import LogReader
    from zinc_rt.trace.tape import read_tape, require_inputs

    with LogReader(arguments.log) as log:
        tape = read_tape(log)
        require_inputs(log, tape)
    header = tape.header
    report = ReplayReport("replay", ordering=str(header.get("ordering", "")), ctx=int(header.get("ctx", 0)))
    start_report(report, arguments)
    report.model = dict(tape.header.get("model", {}))
    report.device = {"recorded": tape.header.get("device", {})}
    choices = _choose_tiers(arguments, str(tape.header.get("tier", "t_cpu")))
    for choice in choices:
        if choice.simulated:
            report.shortcuts.append(f"{choice.tier}: simulated device: says nothing about hardware")
        if choice.shortcut:
            report.shortcuts.append(choice.shortcut)
    if arguments.bisect:
        _bisect(arguments, choices, report)
    else:
        _run_each(arguments, choices, report, len(tape.steps))
    out = choose_output_stream(arguments)
    for shortcut in report.shortcuts:
        terminal.show(f"shortcut  {shortcut}", out=out)
    failed = next((result for result in report.results if result.status == "fail"), None)
    if failed is not None and failed.repro:
        terminal.show(f"repro     {failed.repro}", out=out)
    terminal.show(_format_verdict(report, "; ".join(result.reason for result in report.results)), out=out)
    return report


def _choose_tiers(arguments: argparse.Namespace, recorded: str) -> list[Choice]:
    from zinc_rt.engine.devices import ORACLE, choose_tier

    names = arguments.tiers.split(",") if arguments.tiers else [recorded]
    simulator = options.simulation_options(arguments)
    choices = [
        choose_tier(name.strip(), arguments.device, simulate=True, unchecked=arguments.unchecked, **simulator)
        for name in names
    ]
    options.check_options_used([*choices, ORACLE] if arguments.bisect else choices, arguments)
    return choices


# Wide enough for what comes, since each row is shown when its tier is done.
OUTCOME: tuple[str | Column, ...] = (
    Column("tier", width=6),
    *(
        Column(name, right=True, width=width)
        for name, width in (("steps", 6), ("outputs", 8), ("differ", 7), ("seconds", 9))
    ),
    "recorded",
)


def _run_each(arguments: argparse.Namespace, choices: list[Choice], report: ReplayReport, steps: int) -> None:
    from zinc_rt.cli.progress import show_progress
    from zinc_rt.replay.run import replay

    out = choose_output_stream(arguments)
    shown = False
    for choice in choices:
        with show_progress(steps, f"replay {choice.tier}", "step") as advance:
            outcome = replay(
                arguments.log,
                choice,
                model=arguments.model,
                until=arguments.until,
                start=arguments.start,
                threads=arguments.threads,
                timeout_seconds=options.parse_timeout(arguments),
                advance=advance,
            )
        figures = (outcome.steps, outcome.compared, len(outcome.differences), f"{outcome.seconds:.3f}")
        recorded = f"{outcome.live_seconds:.3f} s on {outcome.recorded_tier}"
        terminal.show(Table(OUTCOME, [[outcome.tier, *figures, recorded]], headings=not shown), out=out)
        shown = True
        report.outcomes.append(outcome)
        report.results.append(_make_result(arguments, choice, outcome))
        for problem in outcome.problems:
            terminal.show(f"       {problem}", out=out)
        if outcome.differences and outcome.tier == outcome.recorded_tier:
            terminal.show(
                (
                    "suspect    the log: it cannot be reproduced on the tier that recorded it. Either it "
                    "lacks data, or the code has changed since"
                ),
                out=out,
            )
        for finding in outcome.findings[:8]:
            terminal.show(f"       found by the simulated device: {finding}", out=out)


def _make_result(arguments: argparse.Namespace, choice: Choice, outcome: ReplayOutcome) -> Result:
    from zinc_rt.cli.report import Result
    from zinc_rt.replay.repro_commands import bisect_command

    bad: dict[str, Any] = {}
    if outcome.differences:
        first = outcome.differences[0]
        bad = {
            "step": first.step,
            "buffer": first.buffer,
            "node": first.label,
            "want": first.want,
            "got": first.got,
        }
    failed = bool(outcome.differences or outcome.departures or outcome.findings)
    reason = outcome.text if outcome.compared or not failed else f"{outcome.tier}: {outcome.findings[0]}"
    return Result(
        f"replay/{outcome.tier}",
        "replay",
        "fail" if failed else "pass" if outcome.compared else "skip",
        tier=outcome.tier,
        reference=f"recorded on {outcome.recorded_tier}",
        reason=reason,
        measure={
            "steps": outcome.steps,
            "outputs": outcome.compared,
            "differ": len(outcome.differences),
            "seconds": outcome.seconds,
            "recorded_seconds": outcome.live_seconds,
            "findings": len(outcome.findings),
            "departures": len(outcome.departures),
            "simulated": choice.simulated,
        },
        limit={"differ": 0, "findings": 0, "departures": 0},
        first_bad=bad,
        cause=outcome.findings[0] if outcome.findings else "",
        repro=bisect_command(arguments, choice) if failed else "",
    )


def _bisect(arguments: argparse.Namespace, choices: list[Choice], report: ReplayReport) -> None:
    from zinc_rt.cli.report import Result
    from zinc_rt.replay.bisect import bisect
    from zinc_rt.replay.one_node_log import emit_repro
    from zinc_rt.replay.repro_commands import bisect_command

    out = choose_output_stream(arguments)
    for choice in choices:
        bisected = bisect(
            arguments.log,
            choice,
            model=arguments.model,
            until=arguments.until,
            threads=arguments.threads,
            timeout_seconds=options.parse_timeout(arguments),
        )
        report.bisections.append(bisected)
        for line in bisected.lines:
            terminal.show(line, out=out)
        result = Result(
            f"bisect/{choice.tier}",
            "bisect",
            "fail",  # also if it is not reproduced: there was a failure to find
            tier=choice.tier,
            reference="t_cpu",
            reason=bisected.text,
            measure={"replays": bisected.replays, "allowed": bisected.allowed, "simulated": choice.simulated},
            first_bad=bisected.as_dict(),
            cause=bisected.cause,
            repro=bisect_command(arguments, choice),
        )
        if bisected.where is not None and arguments.emit_repro:
            emitted = emit_repro(arguments.log, bisected, arguments.emit_repro, choice, model=arguments.model)
            result.artifacts = [
                str(path) for path in (*emitted.paths, *_write_programs(arguments, emitted.log, choice))
            ]
            result.repro = emitted.command
        if arguments.trace_lane:
            lane = _trace_lane(arguments, bisected, choice)
            report.details.setdefault("lane", {})[choice.tier] = lane
            for line in lane:
                terminal.show(f"  {line}", out=out)
        report.results.append(result)


def _write_programs(arguments: argparse.Namespace, node_log: Path, choice: Choice) -> list[Path]:
    """Write the single node as a C program, if the tier submits packets."""
    from zinc_rt.host.errors import ZincError
    from zinc_rt.replay.standalone import write_program

    if not choice.spec.simulable:
        return []
    path = node_log.with_name("repro.c")
    try:
        write_program(node_log, choice, path, timeout_seconds=options.parse_timeout(arguments))
    except ZincError as error:  # a device that hangs may take no more; the log is there
        terminal.show(f"no standalone program: {error}", out=sys.stderr)
        return []
    return [path]


def _trace_lane(arguments: argparse.Namespace, bisected: BisectResult, choice: Choice) -> list[str]:
    from tempfile import TemporaryDirectory

    from zinc_rt.replay.lane_trace import trace_lane
    from zinc_rt.replay.one_node_log import emit_repro

    where = bisected.where
    if where is None or not where.stored or not where.tapped:
        return ["no lane to trace: this needs an element stored by a node of a simulated tier"]
    with TemporaryDirectory() as folder:
        emitted = emit_repro(arguments.log, bisected, folder, choice, model=arguments.model)
        lane = trace_lane(emitted.log, where.stored)
    return [*lane, f"stored {where.got}, t_cpu has {where.want}"]


def _format_verdict(report: Report, text: str) -> str:
    return f"{report.verdict()['status']:<9} {text}{format_simulated_note(report)}"


main = Command("replay", parser, _run_command)
