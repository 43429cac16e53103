"""Judge an engine with the OpenAI API: tokens, probabilities, isolation."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from zinc_rt.cli import options
from zinc_rt.cli.command import Command
from zinc_rt.cli.output import add_json, choose_output_stream, finish_report, start_report
from zinc_rt.host import terminal
from zinc_rt.host.arguments import Parser, parse_context_length

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import ExitStack

    from zinc_rt.cli.report import Report
    from zinc_rt.validate.judge.judgement import EngineJudgement, JudgeOptions

EXAMPLES = """\
The engine must have /v1/completions and serve the GGUF file given with --model. Its answers are compared with this
runtime's reference: tokens of texts and conversations, greedy tokens, log-probabilities, stop strings, seeds and
top_p, each request alone and in crowds. docs/judge.md explains the findings.

examples:
  zinc-rt judge http://127.0.0.1:8080 --model M.gguf
  zinc-rt judge --engine llama-server --model M.gguf --html judge.html -- -ngl 99 -fa on
  zinc-rt judge --engine llama-server --model M.gguf --sweep         # which setting makes it right
  zinc-rt judge --engine ours --model M.gguf --quick
  zinc-rt judge http://127.0.0.1:8080 --model M.gguf --full          # distributions of samples as well

Exit code: 0 the engine is right; 1 there are findings; 2 unusable input, or the engine does not answer.
"""
QUICK_ANSWERS, SAMPLING = 40, 400
UNCHANGED = "(unchanged)"


def parser() -> argparse.ArgumentParser:
    parser = Parser(description=__doc__, epilog=EXAMPLES)
    parser.add_argument(
        "url", nargs="?", metavar="URL", help="address of the engine, such as http://127.0.0.1:8080"
    )
    parser.add_argument(
        "-m", "--model", metavar="FILE", required=True, help="the GGUF file that the engine serves"
    )
    engine = parser.add_argument_group("engine")
    engine.add_argument(
        "--engine", metavar="NAME",
        help="start this engine and stop it afterwards: llama-server, or ours; options after -- are passed to it",
    )  # fmt: skip
    engine.add_argument(
        "--name", default="", metavar="NAME", help="the model's name (default: the first one listed)"
    )
    engine.add_argument(
        "--key-env", metavar="VARIABLE", help="environment variable that contains the API key (default: no key)"
    )
    engine.add_argument(
        "--sweep", action="store_true", help="with --engine: find the option that makes the answers right"
    )
    what = parser.add_argument_group("questions")
    what.add_argument(
        "--answers",
        type=int,
        default=200,
        metavar="N",
        help="minimum number of answers of each kind (default 200)",
    )
    what.add_argument(
        "--full", action="store_true",
        help=f"also compare {SAMPLING} sampled tokens each of temperatures, top_p, top_k and penalties with the "
        "reference's distribution",
    )  # fmt: skip
    what.add_argument("--quick", action="store_true", help=f"only {QUICK_ANSWERS} answers of each kind")
    what.add_argument(
        "--crowd", type=int, default=8, metavar="N", help="number of concurrent requests (default 8)"
    )
    what.add_argument(
        "-c",
        "--ctx",
        type=parse_context_length,
        metavar="N",
        help="maximum length of prompt and answer in tokens (default: up to 1024)",
    )
    what.add_argument(
        "--tie", type=float, default=0.125, metavar="NATS",
        help="treat a greedy token as wrong if the reference prefers another by more than this (default 0.125)",
    )  # fmt: skip
    what.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the questions (default 1)")
    what.add_argument(
        "--budget", type=float, default=600.0, metavar="S",
        help="time budget in seconds; fewer questions are asked if the engine is slow (default 600)",
    )  # fmt: skip
    what.add_argument(
        "--python", default="", metavar="FILE",
        help="a Python interpreter with torch and transformers: compare the reference with a second one",
    )  # fmt: skip
    out = parser.add_argument_group("output")
    out.add_argument("--html", metavar="F", help="write a page to attach to an issue")
    out.add_argument("--junit", metavar="F", help="write JUnit XML for CI")
    out.add_argument(
        "--share", action="store_true", help="remove addresses, folders and names from the output and its files"
    )
    add_json(parser, tables=False)
    return parser


def _run_command(arguments: argparse.Namespace) -> int:
    from contextlib import ExitStack
    from pathlib import Path

    from zinc_rt.cli.describe import describe_model
    from zinc_rt.cli.junit import to_junit
    from zinc_rt.cli.report import Report, write_text
    from zinc_rt.host.files import check_writable
    from zinc_rt.validate.judge import report as reporting
    from zinc_rt.validate.judge.share import ENGINE_URL, without_private_data

    check_writable(arguments.html, arguments.junit, report=arguments.json)
    _check(arguments)
    out = choose_output_stream(arguments)
    gguf = options.read_model(arguments.model)
    report = start_report(Report("judge", ordering="canonical-1", model=describe_model(gguf)), arguments)
    with ExitStack() as stack:
        url = _find_url(arguments, stack, arguments.wrapped or [])
        judgement = _judge(arguments, url, python=arguments.python)
        if arguments.share:
            url, judgement = ENGINE_URL, without_private_data(judgement)
            report.model["path"] = Path(arguments.model).name
        report.ctx = judgement.features.ctx or 0
        report.results = reporting.make_results(judgement, url, arguments.key_env or "")
        report.details |= _make_details(judgement, url)
    for line in reporting.format_lines(judgement, report):
        terminal.show(line, out=out)
    if arguments.sweep and judgement.findings:
        report.details["sweep"] = swept = _sweep(arguments)
        for setting, kinds in swept.items():
            terminal.show(f"sweep     {setting:<28} {', '.join(kinds) or 'right'}", out=out)
        terminal.show(f"sweep     {_summarise_sweep(swept)}", out=out)
    for line in _compare_values(arguments, judgement, report):
        terminal.show(line, out=out)
    terminal.show(reporting.format_verdict(judgement), out=out)
    if arguments.html:
        page = reporting.to_html(judgement, report, url=url, key=arguments.key_env or "")
        write_text(arguments.html, page)
    if arguments.junit:
        write_text(arguments.junit, to_junit(report))
    return finish_report(report, arguments)


def _check(arguments: argparse.Namespace) -> None:
    import shutil

    from zinc_rt.host.errors import UsageError
    from zinc_rt.validate.judge.engines import ENGINES

    if (arguments.url is None) == (arguments.engine is None):
        raise UsageError("give the URL of a running engine, or --engine to start one")
    if arguments.engine is not None and arguments.engine not in ENGINES:
        raise UsageError(f"--engine {arguments.engine}: unknown engine; expected one of {', '.join(ENGINES)}")
    if arguments.url is not None and (arguments.sweep or arguments.wrapped):
        raise UsageError(
            "--sweep and options after -- need --engine: this command cannot restart a running engine"
        )
    if arguments.python and shutil.which(arguments.python) is None:
        raise UsageError(f"--python {arguments.python}: no such program")
    for name, minimum in (("answers", 1), ("crowd", 2)):
        if getattr(arguments, name) < minimum:
            raise UsageError(f"--{name} {getattr(arguments, name)}: expected {minimum} or more")
    for name in ("budget", "tie"):
        if not 0 < getattr(arguments, name) < float("inf"):
            raise UsageError(f"--{name} {getattr(arguments, name):g}: expected more than 0")


def _find_url(arguments: argparse.Namespace, stack: ExitStack, words: list[str]) -> str:
    from zinc_rt.validate.judge.engines import ENGINES, start_engine

    if arguments.url is not None:
        return str(arguments.url)
    program = ENGINES[arguments.engine]
    slots, ctx = max(arguments.crowd, 8), arguments.ctx or 1024
    url, line = stack.enter_context(start_engine(program, arguments.model, words, slots=slots, ctx=ctx))
    terminal.show(f"started   {line}", out=choose_output_stream(arguments))
    return url


def _judge(arguments: argparse.Namespace, url: str, *, quick: bool = False, python: str = "") -> EngineJudgement:
    import os

    from zinc_rt.host.errors import UsageError
    from zinc_rt.validate.judge.engine_client import EngineClient
    from zinc_rt.validate.judge.judgement import judge_engine

    key = ""
    if arguments.key_env:
        key = os.environ.get(arguments.key_env, "")
        if not key:
            raise UsageError(f"--key-env {arguments.key_env}: the environment variable is not set")
    client = EngineClient(url, model=arguments.name, key=key)
    return judge_engine(client, arguments.model, _make_options(arguments, quick=quick, python=python))


def _make_options(arguments: argparse.Namespace, *, quick: bool, python: str) -> JudgeOptions:
    from zinc_rt.validate.judge.judgement import JudgeOptions

    return JudgeOptions(
        answers=min(arguments.answers, QUICK_ANSWERS) if quick or arguments.quick else arguments.answers,
        at_once=arguments.crowd,
        seed=arguments.seed,
        ctx=arguments.ctx,
        tie_nats=arguments.tie,
        budget_seconds=arguments.budget,
        sampling=SAMPLING if arguments.full else 0,
        python=python,
    )


def _make_details(judgement: EngineJudgement, url: str) -> dict[str, object]:
    from dataclasses import asdict

    features = judgement.features
    return {
        "url": url,
        "engine": {"model": features.model, "software": features.software, "ctx": features.ctx},
        "answers": judgement.answers,
        "numerics": judgement.numerics,
        "expected_numerics": judgement.expected,
        "second_reference": None if judgement.second is None else asdict(judgement.second),
        "tokens_per_second": judgement.tokens_per_second,
        "sampling": [asdict(test) for test in judgement.sampling],
        "skipped": judgement.skipped,
        "seconds": round(judgement.seconds, 1),
    }


def _sweep(arguments: argparse.Namespace) -> dict[str, list[str]]:
    """Judge the engine again with each change of its options, first without one. Return the classes of findings by
    the change. Only few answers are asked for if these show the defect.
    """
    import shlex

    from zinc_rt.validate.judge.engines import ENGINES

    unchanged = _judge_changed(arguments, (), quick=True)
    if not (quick := bool(unchanged)):
        unchanged = _judge_changed(arguments, (), quick=False)
    settings = ENGINES[arguments.engine].settings if unchanged else ()
    changed = {shlex.join(setting): _judge_changed(arguments, setting, quick=quick) for setting in settings}
    return {UNCHANGED: unchanged, **changed}


def _compare_values(arguments: argparse.Namespace, judgement: EngineJudgement, report: Report) -> Sequence[str]:
    """Compare the engine's values for a request that shows a finding, if wrong values can explain it. Return the
    lines that describe them.
    """
    from pathlib import Path

    from zinc_rt.host.errors import ZincError
    from zinc_rt.validate.judge import layers
    from zinc_rt.validate.judge.engines import ENGINES

    tokens = layers.choose_prompt(judgement)
    if not tokens:
        return ()
    if arguments.engine is None:
        compared = layers.LayerComparison(tokens, problem=layers.NOT_STARTED, next=layers.DUMPER)
    else:
        program, words = ENGINES[arguments.engine], arguments.wrapped or []
        slots, ctx = max(arguments.crowd, 8), arguments.ctx or 1024
        try:
            compared = layers.compare_layers(program, arguments.model, words, tokens, slots=slots, ctx=ctx)
        except ZincError as error:
            problem = "the engine did not start again" if arguments.share else str(error)
            compared = layers.LayerComparison(tokens, problem=problem, next=layers.DUMPER)
    if arguments.share:
        compared.next = compared.next.replace(arguments.model, Path(arguments.model).name)
    report.details["layers"] = compared.as_dict()
    return list(compared.format_lines())


def _judge_changed(arguments: argparse.Namespace, setting: Sequence[str], *, quick: bool) -> list[str]:
    """Return the classes of findings of the engine with further options, or the reason why it does not start."""
    from contextlib import ExitStack

    from zinc_rt.host.errors import ZincError

    try:
        with ExitStack() as stack:
            url = _find_url(arguments, stack, [*(arguments.wrapped or []), *setting])
            return [finding.kind for finding in _judge(arguments, url, quick=quick).findings]
    except ZincError as error:
        return [f"not usable: {error}"]


def _summarise_sweep(outcome: Mapping[str, Sequence[str]]) -> str:
    """Return which changes make the engine right."""
    if not outcome[UNCHANGED]:
        return "the defect did not occur again without a change: run it with more --answers"
    right = [setting for setting, kinds in outcome.items() if not kinds]
    return f"right with {', or with '.join(right)}" if right else "no change makes it right"


main = Command("judge", parser, _run_command, before_another=("--",))
