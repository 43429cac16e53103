"""Evaluate the criteria of milestones."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zinc_rt.cli import options
from zinc_rt.cli.observer import make_observer
from zinc_rt.cli.output import choose_output_stream, finish_report, format_simulated_note, start_report
from zinc_rt.host import terminal
from zinc_rt.host.terminal import Column, Table

if TYPE_CHECKING:
    from zinc_rt.cli.report import Result
    from zinc_rt.perf.gate.verdict import GateReport

HELP = "evaluate a milestone, criterion by criterion, with evidence"
EXAMPLES = """\
Structural criteria are measured now, on the AMD GPU or, without one, on a simulated device. Speeds come only from
reports of zinc-rt perf bench on the named hardware, and CPU speeds from reports of zinc-rt perf native. A report
is refused, with the rule's name and reason, if it is from a simulated device, other code or another model, has an
active clamp, fewer than 128 tokens, drifting clocks or no proof of bit-identity, or is not in the history as
recorded. A history counts only with its head hash, which must be stored where the writer of the file has no write
access, or with a head that one of --signers has signed. A speed's target is shown next to its sealed forecast
(docs/forecasts.md): the limits by bytes and by operations, and what would have to be true to reach it.

examples:
  zinc-rt perf gate --milestone M1
  zinc-rt perf gate --milestone M1 --evidence runs/ --history runs/history.jsonl --head HASH --models M.gguf
  zinc-rt perf gate --milestone M1 --evidence runs/ --history history.jsonl --head head.json --signers ci/signers
  zinc-rt perf gate --milestone M1 --only one-submit
  zinc-rt perf gate --milestone cpu --evidence native.json --history history.jsonl --head HASH
  zinc-rt perf gate --list

exit codes: 0 all criteria passed, 1 one failed, 77 one is blocked, 2 unusable evidence.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--milestone", metavar="M", help="M0 to M8 or cpu; separate several with commas")
    parser.add_argument("--only", default="", metavar="ID", help="evaluate only this criterion")
    parser.add_argument("--list", action="store_true", help="list every criterion with limit, source and command")
    group = parser.add_argument_group("evidence")
    group.add_argument(
        "--evidence",
        nargs="+",
        type=Path,
        default=[],
        metavar="PATH",
        help="reports and statements, or folders of them",
    )
    group.add_argument(
        "--history", type=Path, metavar="F.jsonl", help="history in which the reports were recorded"
    )
    group.add_argument(
        "--head",
        default="",
        metavar="HASH",
        help="hash of an entry that the history must contain, as printed by bench or history; or a signed head "
        "file",
    )
    group.add_argument(
        "--signers", type=Path, metavar="FILE", help="allowed signers of the head: NAME KEYTYPE KEY, one per line"
    )
    group.add_argument(
        "--models",
        nargs="+",
        type=Path,
        default=[],
        metavar="M.gguf",
        help="model files that the speeds were measured with; digest and shape are read from the files",
    )
    group.add_argument(
        "--model-digest",
        default="",
        metavar="SHA256",
        help="digests of the models that the speeds were measured with; separate several with commas",
    )
    how = parser.add_argument_group("structural criteria")
    how.add_argument("-m", "--model", type=Path, metavar="FILE", help="a GGUF file (default: the embedded models)")
    how.add_argument(
        "--device",
        choices=("auto", "hw", "cpu", "sim"),
        default="auto",
        help="auto: this machine's AMD GPU, or a simulated one if there is none; hw: never simulate",
    )


def run(arguments: argparse.Namespace) -> int:
    from zinc_rt.host.files import check_writable

    check_writable(report=arguments.json)
    if arguments.list:
        return _list(arguments)
    return finish_report(evaluate_milestones(arguments), arguments)


def evaluate_milestones(arguments: argparse.Namespace) -> GateReport:
    """Evaluate the milestones that the options name and show each criterion.

    Raises UsageError for wrong options, InputError for unusable evidence, NothingRan if --device hw finds no GPU.
    """
    from zinc_rt.engine.devices import require_gpu
    from zinc_rt.host.errors import UsageError
    from zinc_rt.perf.gate.milestones import find_milestone

    require_gpu(arguments.device)
    if not arguments.milestone:
        raise UsageError("no milestone is named", next="--milestone M1, or --list")
    requested = [find_milestone(name.strip()) for name in arguments.milestone.split(",")]
    if arguments.only and not any(arguments.only == criterion.id for m in requested for criterion in m.criteria):
        ids = ", ".join(criterion.id for m in requested for criterion in m.criteria)
        raise UsageError(f"--only {arguments.only}: no such criterion", next=f"one of {ids}")
    return _judge_milestones(arguments, requested)


def _judge_milestones(arguments: argparse.Namespace, requested: list[Any]) -> GateReport:
    from zinc_rt.perf.gate.offered import GateInput
    from zinc_rt.perf.gate.report_files import collect_reports
    from zinc_rt.perf.gate.verdict import GateReport, evaluate
    from zinc_rt.perf.history.chain import read
    from zinc_rt.perf.structure.lab import Lab

    out = choose_output_stream(arguments)
    settings = options.read_settings_once()
    reports, statements = collect_reports(arguments.evidence)
    argument = GateInput(
        reports,
        statements,
        read(arguments.history) if arguments.history else None,
        arguments.model_digest,
        _read_head(arguments.head, arguments.signers),
        models=_describe_files(arguments.models),
    )
    report = GateReport("perf gate", ordering="canonical-1", shortcuts=settings.list_shortcuts())
    start_report(report, arguments)
    with Lab(
        device=arguments.device, model=arguments.model, settings=settings, observer=make_observer(arguments)
    ) as lab:
        for milestone in requested:
            terminal.show(f"{milestone.id}  {milestone.title}", out=out)
            for result in evaluate(milestone, lab, argument, only=arguments.only):
                report.results.append(result)
                _print(result, out)
        report.device = lab.describe_device()
    report.details = {
        "milestones": [item.id for item in requested],
        "only": arguments.only,
        "code": argument.code_version,
        "history_head": argument.history.head if argument.history else "",
    }
    verdict = report.verdict()
    counts = ", ".join(f"{count} {status}" for status, count in sorted(verdict["counts"].items()))
    names = ", ".join(item.id for item in requested) + (f", only {arguments.only}" if arguments.only else "")
    terminal.show(f"{verdict['status']}  {names}: {counts}{format_simulated_note(report)}", out=out)
    return report


def _read_head(text: str, signers: Path | None) -> str:
    """Return the hash of the noted head. Raise InputError for a file without a signature of an allowed signer,
    UsageError for a hash if a signature is required.
    """
    from zinc_rt.host.errors import UsageError
    from zinc_rt.perf.history.signed_head import read_head, verify_head

    is_file = text.endswith(".json")
    if is_file and signers is None:
        raise UsageError(f"--head {text}: a signed head needs --signers FILE", next="--signers ci/signers")
    if signers is None:
        return text
    if not is_file:
        raise UsageError("--signers requires a signed head file", next="--head F.json")
    head = read_head(Path(text))
    verify_head(head, signers)
    return head.head


def _describe_files(paths: list[Path]) -> dict[str, dict[str, Any]]:
    """Describe the model files by digest. Raise InputError for a file that is not a model."""
    from zinc_rt.cli.describe import describe_model

    described = [describe_model(options.read_model(str(path))) for path in paths]
    return {item["digest"]: item for item in described}


def _make_columns(first: str, *widths: int) -> list[str | Column]:
    """Return the columns of a table that is shown row by row: an indent, three columns of these widths, then
    text.
    """
    keys = (first, "criterion", "limit")
    return [
        "",
        *(Column("", width=width, key=key) for width, key in zip(widths, keys, strict=True)),
        Column("", key="what"),
    ]


def _print(result: Result, out: Any) -> None:
    value = result.measure.get("value")
    seen = "" if value is None else f"{value:g}"
    limit_text = f"{seen} {result.limit['compare']} {result.limit['unit']}".strip()
    name = result.id.partition("/")[2]
    row = ("", result.status.upper(), name, limit_text, result.measure["what"])
    terminal.show(Table(_make_columns("status", 6, 15, 26), [row], headings=False), out=out)
    forecast = result.measure.get("forecast")
    for text in (result.reason, forecast["text"] if forecast else ""):
        for line in textwrap.wrap(text, 92):
            terminal.show(f"          {'':<17}{line}", out=out)


def _list(arguments: argparse.Namespace) -> int:
    from zinc_rt.cli.report import Report, Result
    from zinc_rt.perf.gate.milestones import load_milestones

    out = choose_output_stream(arguments)
    report = start_report(Report("perf gate"), arguments)
    for milestone in load_milestones():
        terminal.show(f"{milestone.id}  {milestone.title}", out=out)
        for criterion in milestone.criteria:
            limit_text = f"{criterion.bound} {criterion.unit}"
            row = (
                "",
                criterion.type,
                criterion.id,
                limit_text,
                f"{criterion.what}  [{', '.join(criterion.source)}]",
            )
            terminal.show(Table(_make_columns("type", 10, 15, 22), [row], headings=False), out=out)
            report.results.append(
                Result(
                    criterion.name,
                    criterion.type,
                    "pass",
                    reason=criterion.what,
                    limit={"compare": limit_text},
                    repro=criterion.command,
                )
            )
        for note in milestone.notes:
            terminal.show(f"  note: {note}", out=out)
    return finish_report(report, arguments)
