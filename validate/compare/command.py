"""Compare a model on all tiers and other engines: values, speed."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, TextIO

from zinc_rt.cli import options
from zinc_rt.cli.command import Command
from zinc_rt.cli.output import (
    add_json,
    choose_output_stream,
    finish_report,
    format_simulated_note,
    printable,
    start_report,
)
from zinc_rt.host import terminal
from zinc_rt.host.arguments import Parser, add_models, parse_context_length

if TYPE_CHECKING:
    from pathlib import Path

    from zinc_rt.cli.report import Report, Result
    from zinc_rt.model.gguf import GGUFFile
    from zinc_rt.validate.compare.judge import Distance
    from zinc_rt.validate.compare.peer import ComparedPeer, PeerOutcome, PeerTask

DEFAULT_PROMPT = "The quick brown fox jumps over the lazy dog while the other dogs are asleep."
EXAMPLES = """\
Each peer runs in a separate process, one after the other: every built tier of this runtime, each build of
llama.cpp, llama-cpp-python, tinygrad. A missing peer is skipped with an installation hint. A crash or time-out is
reported as a row of the table. docs/compare.md explains the figures.

examples:
  zinc-rt compare --model M.gguf
  zinc-rt compare --model M.gguf --llama-dir rocm=~/llama.cpp/build-hip --llama-dir vulkan=~/llama.cpp/build-vulkan
  zinc-rt compare --model M.gguf --python tinygrad=~/tinygrad/venv/bin/python --peers t1,tinygrad,t_cpu
  zinc-rt compare --model M.gguf --peers t1,t2,t_cpu --device sim --no-speed --json compare.json

Exit code: 0 all peers that ran succeeded; 1 a peer crashed, hung or gave non-finite numbers, or a tier of this
runtime differs in bits from the reference tier; 2 unusable input; 77 no peer could run.
"""


def parser() -> argparse.ArgumentParser:
    parser = Parser(description=__doc__, epilog=EXAMPLES)
    add_models(parser, several=True)
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "-p", "--prompt", metavar="TEXT", help="prompt for the values (default: a sentence of 20 words)"
    )
    which.add_argument(
        "--tokens",
        type=options.parse_tokens,
        metavar="1,2,3",
        help="token ids instead of a prompt; not all peers accept them",
    )
    who = parser.add_argument_group("peers")
    who.add_argument("--peers", metavar="A,B", help="only these peers (default: all); --peers help lists them")
    who.add_argument(
        "--llama-dir", action="append", default=[], metavar="[NAME=]DIR",
        help="a build of llama.cpp, or a checkout with several; repeatable (default: search PATH)",
    )  # fmt: skip
    who.add_argument(
        "--python", action="append", default=[], metavar="PEER=FILE",
        help="Python interpreter with llama-cpp-python, tinygrad or transformers",
    )  # fmt: skip
    who.add_argument(
        "--device", type=options.parse_device_name, metavar="WHICH", default="auto",
        help="device of this runtime's tiers; sim: a simulated R9700, which proves nothing about hardware "
        "(default auto)",
    )  # fmt: skip
    who.add_argument(
        "--reference", default="t_cpu", metavar="PEER", help="peer with the reference values (default t_cpu)"
    )
    who.add_argument(
        "--ordering",
        choices=options.ORDERING_CHOICES,
        metavar="NAME",
        default="canonical-1",
        help="order of arithmetic of this runtime's tiers: "
        f"{', '.join(options.ORDERING_CHOICES)} (default: the first)",
    )
    what = parser.add_argument_group("measurements")
    what.add_argument("--no-values", action="store_true", help="measure speed only")
    what.add_argument("--no-speed", action="store_true", help="compare values only")
    what.add_argument(
        "--prompt-tokens",
        type=int,
        default=128,
        metavar="N",
        help="number of prompt tokens in the speed runs (default 128)",
    )
    what.add_argument(
        "-n",
        "--new-tokens",
        type=int,
        default=64,
        metavar="N",
        help="number of generated tokens in the speed runs (default 64)",
    )
    what.add_argument(
        "--runs", type=int, default=3, metavar="N", help="number of measured runs after a warm-up (default 3)"
    )
    what.add_argument(
        "-c",
        "--ctx",
        type=parse_context_length,
        metavar="N",
        help="context length; 0: the trained length (default: each peer's own)",
    )
    what.add_argument(
        "--timeout",
        type=float,
        default=600.0,
        metavar="S",
        help="time limit for each peer in seconds (default 600)",
    )
    add_json(parser)
    return parser


def _run_command(arguments: argparse.Namespace) -> int:
    from zinc_rt.cli.report import merge_reports
    from zinc_rt.engine.devices import require_gpu
    from zinc_rt.host.files import check_writable

    check_writable(report=arguments.json)
    require_gpu(arguments.device)
    _check(arguments)
    out = choose_output_stream(arguments)
    peers = _list_peers(arguments)
    if arguments.peers == "help":
        for peer in peers:
            terminal.show(f"{peer.name:<24} {'ready' if peer.absent is None else peer.absent[0]}", out=out)
        return 0
    chosen = _select_peers(peers, arguments.peers, arguments.reference)
    reports = [_compare_model(arguments, model, chosen, out) for model in arguments.models]
    whole = merge_reports(reports)
    if len(reports) > 1:
        terminal.show(f"\n{_format_verdict(whole)}, {len(reports)} models", out=out)
    return finish_report(whole, arguments)


def _compare_model(arguments: argparse.Namespace, model: str, chosen: list[ComparedPeer], out: TextIO) -> Report:
    """Run one model on every peer."""
    import tempfile
    from pathlib import Path

    from zinc_rt.cli.describe import describe_model
    from zinc_rt.cli.progress import show_stages
    from zinc_rt.cli.report import Report
    from zinc_rt.engine.devices import IN_SOFTWARE
    from zinc_rt.validate.compare.peer import make_skipped

    gguf = options.read_model(model)
    report = start_report(
        Report(
            "compare",
            ordering=arguments.ordering,
            model=describe_model(gguf),
            ctx=_choose_ctx(arguments, gguf) or 0,
        ),
        arguments,
    )
    with tempfile.TemporaryDirectory() as folder:
        task = _make_task(arguments, gguf, Path(folder))
        outcomes = []
        for number, peer in enumerate(chosen, 1):
            if peer.absent is None:
                terminal.show(f"running {peer.name} ...", out=_progress_stream())
            with show_stages(plain=True) as stage:
                stage.say(f"peer {number} of {len(chosen)}: {peer.name}")
                outcomes.append(make_skipped(peer) if peer.absent is not None else peer.run(task))
    rows = _judge_outcomes(outcomes, arguments.reference)
    report.details |= {
        "task": {
            "tokens": list(task.tokens), "text": task.text, "prompt_tokens": task.prompt_tokens,
            "new_tokens": task.new_tokens, "runs": task.runs, "reference": arguments.reference,
        },
    }  # fmt: skip
    report.results = [make_result(outcome, values, arguments, task) for outcome, values in rows]
    report.shortcuts += [f"{o.peer}: simulated device: no evidence about hardware" for o, _ in rows if o.simulated]
    report.shortcuts += [f"{o.peer}: {IN_SOFTWARE}" for o, _ in rows if o.software]
    _show(rows, report, arguments, out)
    return report


def _progress_stream() -> TextIO:
    import sys

    return sys.stderr


def _check(arguments: argparse.Namespace) -> None:
    from zinc_rt.host.errors import UsageError

    if arguments.no_values and arguments.no_speed:
        raise UsageError("--no-values and --no-speed: leave nothing to compare")
    for name in ("prompt_tokens", "new_tokens", "runs"):
        if getattr(arguments, name) < 1:
            raise UsageError(f"--{name.replace('_', '-')} {getattr(arguments, name)}: expected 1 or more")
    if not 0 < arguments.timeout < float("inf"):
        raise UsageError(f"--timeout {arguments.timeout:g}: expected more than 0 seconds")


def _list_peers(arguments: argparse.Namespace) -> list[ComparedPeer]:
    from pathlib import Path

    from zinc_rt.host.errors import UsageError
    from zinc_rt.validate.compare import llama_programs, own_tiers, python_peers

    pythons = {}
    for text in arguments.python:
        name, equals, file = text.partition("=")
        if name not in python_peers.SCRIPTS or not equals:
            raise UsageError(
                f"--python {text}: expected PEER=FILE with PEER one of {', '.join(python_peers.SCRIPTS)}"
            )
        if not Path(file).expanduser().is_file():
            raise UsageError(f"--python {text}: no such file")
        pythons[name] = str(Path(file).expanduser())
    folders = []
    for text in arguments.llama_dir:
        name, equals, folder = text.rpartition("=")
        folders.append(f"{name}{equals}{Path(folder).expanduser()}")
    return [
        *own_tiers.list_tier_peers(arguments.device),
        *llama_programs.find_peers(folders),
        *python_peers.list_python_peers(pythons),
    ]


def _select_peers(peers: list[ComparedPeer], asked: str | None, reference: str) -> list[ComparedPeer]:
    """Return the peers to run, in the table's order. The name of a family ("llama.cpp") selects every build. The
    reference is included if it is available.
    """
    from zinc_rt.host.errors import UsageError

    if asked is None:
        return peers
    requested = [name.strip() for name in asked.split(",") if name.strip()]
    known = {peer.name for peer in peers} | {peer.name.split()[0] for peer in peers}
    if not requested or (unknown := next((name for name in requested if name not in known), None)):
        raise UsageError(
            f"--peers {asked}: unknown peer {unknown if requested else repr(asked)}", next="--peers help"
        )
    names = {*requested, reference}
    return [peer for peer in peers if peer.name in names or peer.name.split()[0] in names]


def _choose_ctx(arguments: argparse.Namespace, gguf: object) -> int | None:
    """Return --ctx, or None if it is not set. 0 becomes the trained length, because peers do not know that
    convention.
    """
    from zinc_rt.engine.engine import choose_default_ctx

    return None if arguments.ctx is None else choose_default_ctx(gguf, arguments.ctx)  # type: ignore[arg-type]


def _make_task(arguments: argparse.Namespace, gguf: GGUFFile, folder: Path) -> PeerTask:
    from zinc_rt.validate.compare.peer import PeerTask

    text = "" if arguments.tokens is not None else arguments.prompt or DEFAULT_PROMPT
    tokens = options.choose_model_tokens(gguf, arguments.tokens, text or None)
    return PeerTask(
        model=gguf.path, tokens=tuple(tokens), text=text, folder=folder,
        values=not arguments.no_values, speed=not arguments.no_speed, prompt_tokens=arguments.prompt_tokens,
        new_tokens=arguments.new_tokens, runs=arguments.runs, ctx=_choose_ctx(arguments, gguf),
        device=arguments.device,
        ordering=arguments.ordering, timeout_seconds=arguments.timeout,
    )  # fmt: skip


def _judge_outcomes(outcomes: list[PeerOutcome], reference: str) -> list[tuple[PeerOutcome, Distance]]:
    from zinc_rt.validate.compare.judge import Distance, measure_distance

    right = next(
        (outcome for outcome in outcomes if outcome.peer == reference and outcome.logits is not None), None
    )
    return [(outcome, Distance() if right is None else measure_distance(outcome, right)) for outcome in outcomes]


def make_result(outcome: PeerOutcome, distance: Distance, arguments: argparse.Namespace, task: PeerTask) -> Result:
    from zinc_rt.backends import registry
    from zinc_rt.cli.report import Result

    ours = outcome.peer in registry.names()
    other_bits = (
        ours and arguments.reference in registry.names() and distance.logits is not None and not distance.same_bits
    )
    problem = outcome.problem or distance.problem
    if distance.nonfinite:
        problem = problem or f"{distance.nonfinite} logits are no finite numbers"
    if other_bits and arguments.ordering.startswith("canonical"):
        problem = problem or f"other bits than {arguments.reference} in {arguments.ordering}"
    broken = outcome.failed or distance.nonfinite or (other_bits and arguments.ordering.startswith("canonical"))
    measure = {
        "prefill_tokens_per_second": outcome.prefill_tokens_per_second,
        "decode_tokens_per_second": outcome.decode_tokens_per_second,
        "hung": outcome.hung,
        "version": outcome.version,
        "backend": outcome.backend,
        "simulated": outcome.simulated,
        "software": outcome.software,
        "notes": outcome.notes,
        "commands": [
            {"command": item.command, "seconds": item.seconds, "exit_code": item.code, "timed_out": item.timed_out}
            for item in outcome.ran
        ],
        **(distance.as_dict() if distance.logits is not None else {}),
    }
    repro = next((item.command for item in outcome.ran if not item.ok), "")
    repro = repro.replace(f"{task.folder}/", "")  # that folder is gone
    return Result(
        outcome.peer,
        "compare",
        "skip" if outcome.skipped else "fail" if broken else "pass",
        tier=outcome.peer if ours else "",
        reference=arguments.reference,
        reason=problem,
        measure=measure,
        limit={"same_bits": True} if ours else {},
        advice=outcome.next or (_make_advice(arguments, task, outcome) if other_bits else ""),
        repro=repro,
    )


def _make_advice(arguments: argparse.Namespace, task: PeerTask, outcome: PeerOutcome) -> str:
    return f"zinc-rt validate --model {task.model} --tokens {task.ids} --tiers {outcome.peer},t_cpu"


def _show(
    rows: list[tuple[PeerOutcome, Distance]], report: Report, arguments: argparse.Namespace, out: TextIO
) -> None:
    from zinc_rt.validate.compare.table import make_table

    task = report.details["task"]
    parts = [] if arguments.no_values else [f"{len(task['tokens'])} tokens compared"]
    if not arguments.no_speed:
        parts.append(f"speed: prompt {task['prompt_tokens']}, then {task['new_tokens']}, {task['runs']} runs")
    terminal.show(f"{report.model.get('path', arguments.model)}  {'; '.join(parts)}", out=out)
    terminal.show(make_table(rows, arguments.reference), out=out)
    if not arguments.no_values and not any(values.logits is not None for _, values in rows):
        terminal.show(f"note      no values compared: the reference {arguments.reference} has none", out=out)
    for outcome, _ in rows:
        for note in outcome.notes:
            terminal.show(f"note      {outcome.peer}: {printable(note)}", out=out)
        if outcome.backend:
            terminal.show(f"device    {outcome.peer}: {printable(outcome.backend, 160)}", out=out)
    for result in report.results:
        if result.reason:
            terminal.show(f"{result.status:<9} {result.id}: {printable(result.reason)}", out=out)
        if result.repro:
            terminal.show(f"  repro   {result.repro}", out=out)
        if result.advice:
            terminal.show(f"  next    {result.advice}", out=out)
    for shortcut in report.shortcuts:
        terminal.show(f"shortcut  {shortcut}", out=out)
    terminal.show(_format_verdict(report), out=out)


def _format_verdict(report: Report) -> str:
    counts = report.counts()
    ran = counts.get("pass", 0) + counts.get("fail", 0)
    return (
        f"{report.verdict()['status']:<9} {ran} peers ran, {counts.get('fail', 0)} with trouble, "
        f"{counts.get('skip', 0)} skipped{format_simulated_note(report)}"
    )


main = Command("compare", parser, _run_command)
