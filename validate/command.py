"""Compare tiers layer by layer; find where they first diverge."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from dataclasses import astuple
from functools import partial
from typing import TYPE_CHECKING

from zinc_rt.cli import options
from zinc_rt.cli.command import Command
from zinc_rt.cli.output import add_format, choose_output_stream, start_report
from zinc_rt.cli.progress import ProgressStage, show_stages
from zinc_rt.host import terminal
from zinc_rt.host.arguments import Parser, add_models
from zinc_rt.host.errors import UsageError
from zinc_rt.host.terminal import Part
from zinc_rt.sched.checks.drafters import KINDS

if TYPE_CHECKING:
    from zinc_rt.cli.report import Status
    from zinc_rt.host.settings import Settings
    from zinc_rt.validate.report import IsolationReport, ValidationReport
    from zinc_rt.validate.runner import ValidationJob

EPILOG = """\
examples:
  zinc-rt validate --tiers t_cpu                       the embedded models against llama.cpp
  zinc-rt validate --model M.gguf --tiers t_cpu        batched against stepwise prefill, canonical-1 against BLAS
  zinc-rt validate --model M.gguf --golden G.npz       against values recorded from llama.cpp or your engine
  zinc-rt validate --model M.gguf --tiers t_cpu,t_cpu:float32-dequant --layers 3:5 --input random:7
  zinc-rt validate --isolation --tiers t1,t_cpu        concurrent requests against solo runs
  zinc-rt validate --coverage                          what the commands compute, and what none does

Exit code: 0 all comparisons within limits, 1 a limit exceeded, 2 unusable input, 77 nothing to compare.
"""


def parser() -> argparse.ArgumentParser:
    parser = Parser(description=__doc__, epilog=EPILOG)
    add_models(parser, required=False, several=True)
    parser.add_argument(
        "--tiers",
        default="t_cpu",
        metavar="A,B",
        help="tiers to validate, each TIER[:KERNELSET][:ORDERING] (default t_cpu)",
    )
    what = parser.add_argument_group("workload")
    prompt = what.add_mutually_exclusive_group()
    prompt.add_argument("-p", "--prompt", metavar="TEXT", help="prompt, tokenised with the model's tokenizer")
    prompt.add_argument("--tokens", type=options.parse_tokens, metavar="1,2,3", help="token ids instead")
    what.add_argument(
        "-n",
        "--steps",
        type=int,
        metavar="N",
        help="number of greedy tokens after the prompt (default 2, or the number in the golden)",
    )
    what.add_argument(
        "--layers",
        default="all",
        metavar="I:J",
        help="only run these layers; --input is the input of the first (default all)",
    )
    what.add_argument(
        "--input",
        default="random:0",
        metavar="WHAT",
        help="input of layer I: oracle, random:SEED or an .npz with `input` or `l_out` (default random:0)",
    )
    what.add_argument(
        "--nodes", action="append", default=[], metavar="GLOB", help="also compare these nodes, e.g. 'attn_norm-*'"
    )
    mix = parser.add_argument_group("concurrent requests")
    mix.add_argument(
        "--isolation",
        action="store_true",
        help="run a mix of requests through the scheduler and compare each with its solo run, bit for bit",
    )
    mix.add_argument(
        "--requests", type=int, default=24, metavar="N", help="number of requests in the mix (default 24)"
    )
    mix.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the mix (default 0)")
    mix.add_argument(
        "--drafts",
        choices=(*KINDS, "mtp", "all"),
        help="decode speculatively with drafts of this kind, or by the file's layer for next-token prediction "
        "(mtp), or each mix with the next scripted kind (default: no speculation)",
    )
    mix.add_argument(
        "--mixes", type=int, default=1, metavar="N", help="number of mixes, of a pool of requests (default 1)"
    )
    against = parser.add_argument_group("reference")
    against.add_argument("--golden", metavar="F.npz", help="golden with recorded values (docs/golden.md)")
    against.add_argument(
        "--reference",
        metavar="TIER",
        help="tier to compare with (default: --golden, else t_cpu, else the last tier)",
    )
    against.add_argument(
        "--resync",
        action="store_true",
        help="also run with each layer's input reset to the reference: shows the error of each layer without "
        "drift "
        "(except for keys and values shared between layers)",
    )
    options.add_engine(parser, tier=False)
    options.add_prefill_ordering(parser, "decoded tokens keep --ordering; goldens are not compared")
    parser.add_argument(
        "--coverage",
        action="store_true",
        help="compute nothing: print which forms of nodes (opcode, attribute, operand or size, type of weights, "
        "ordering) each command computes, and which none does",
    )
    out = parser.add_argument_group("results")
    out.add_argument("-v", "--verbose", action="store_true", help="show full tables for passed checks too")
    add_format(out)
    out.add_argument("--json", metavar="F", help="write the JSON report (- for stdout)")
    out.add_argument("--junit", metavar="F", help="write JUnit XML for CI")
    out.add_argument("--html", metavar="F", help="write a self-contained HTML page")
    out.add_argument(
        "--emit-repro",
        metavar="DIR",
        help="if two tiers differ in bits, write logs of the run and of the diverging node",
    )
    out.add_argument(
        "--strict", action="store_true", help="fail on skipped checks and on tiers simulated without --device sim"
    )
    out.add_argument("--no-cache", action="store_true", help="ignore cached T-CPU results")
    parser.set_defaults(defaults={action.dest: action.default for action in parser._actions})
    return parser


def _run_command(arguments: argparse.Namespace) -> int:
    from zinc_rt.cli.report import write_text
    from zinc_rt.host.files import check_writable
    from zinc_rt.validate import html
    from zinc_rt.validate.finish import finish

    check_writable(arguments.junit, arguments.html, report=arguments.json)
    if arguments.coverage:
        return _show_coverage(arguments)
    if arguments.isolation:
        mixes = validate_isolation(arguments)
        return finish(mixes, arguments, mixes.models, _show(arguments))
    report = validate_models(arguments)
    code = finish(report, arguments, report.models, _show(arguments))
    if arguments.html:
        page = html.to_html(report, report.checks, report.matrices, strict=arguments.strict)
        write_text(arguments.html, page)
    return code


def validate_isolation(arguments: argparse.Namespace) -> IsolationReport:
    """Compare a mix of requests with solo runs, for every model that the options name."""
    from zinc_rt.validate.isolation.command import run_isolation

    settings = options.read_settings_once()
    return run_isolation(arguments, settings, _prepare_jobs(arguments, settings), _show(arguments))


def validate_models(arguments: argparse.Namespace) -> ValidationReport:
    """Validate every model that the options name and show each result. The caller prints the verdict line and
    writes the result files.
    """
    from zinc_rt.cli.describe import describe_executed
    from zinc_rt.golden.embedded import VOCABULARY
    from zinc_rt.golden.odd_models import list_missed_classes
    from zinc_rt.host.facts import load_table, report_rows
    from zinc_rt.validate.announce import announce_run
    from zinc_rt.validate.check_result import SanitizerMeasure
    from zinc_rt.validate.diagnosis.digest import diagnose_failures, diagnose_vocabulary
    from zinc_rt.validate.diagnosis.failures import ModelFailures
    from zinc_rt.validate.histograms import text as histogram_text
    from zinc_rt.validate.histograms.matrix import compare_sources
    from zinc_rt.validate.histograms.sources import collect_sources
    from zinc_rt.validate.host_checks import check_vocabulary
    from zinc_rt.validate.report import ValidationReport
    from zinc_rt.validate.run import validate
    from zinc_rt.validate.runner import ValidationRunner
    from zinc_rt.validate.table import format_sections

    settings, show = options.read_settings_once(), _show(arguments)
    report = ValidationReport(
        "validate", ordering=arguments.ordering, shortcuts=settings.list_shortcuts(), strict=arguments.strict
    )
    start_report(report, arguments)
    jobs = _prepare_jobs(arguments, settings)
    report.models = len(jobs)
    results, matrices = report.checks, report.matrices
    digest: list[str] = []  # of what failed, shown last
    for number, job in enumerate(jobs, 1):
        with (
            show_stages() as stage,
            ValidationRunner(job, partial(_show_stage, stage, number, len(jobs), job.name)) as runner,
        ):
            announce_run(runner, report, show)
            checked = list(validate(runner))
            describe_executed(report, runner.engine(job.tiers[0]))
            same_bits = runner.group_by_bits()
            matrices.append(compare_sources(job.name, list(collect_sources(runner))))
        results += checked
        report.results += [item.reported() for item in checked]
        report.details.setdefault("same_bits", {})[job.name] = same_bits
        report.details.setdefault("histograms", {})[job.name] = matrices[-1].as_dict()
        for page in format_sections(checked, runner.marks(), verbose=arguments.verbose):
            show(page)
        for page in histogram_text.format_pages(matrices[-1], verbose=arguments.verbose):
            show(page)
        digest += diagnose_failures(ModelFailures(job, checked, same_bits))
        for shortcut in report.shortcuts:
            show(f"shortcut  {shortcut}")
        if runner.from_disk:
            report.details.setdefault("from_disk", []).extend(f"{job.name}, {what}" for what in runner.from_disk)
            show(f"cached results: {'; '.join(runner.from_disk)} (--no-cache computes them)")
        show("")
    if not arguments.models:
        spoken = check_vocabulary(shlex.join(["zinc-rt", "validate", "--tiers", arguments.tiers]))
        results.append(spoken)
        report.results.append(spoken.reported())
        show(f"{VOCABULARY.model.name}  a tokenizer without tensors, compared with sentencepiece on the texts")
        for page in format_sections([spoken], verbose=arguments.verbose):
            show(page)
        digest += diagnose_vocabulary(spoken)
        show("")
        missed = list_missed_classes()
        report.details["not_reached"] = missed
        show(f"not reached: {', '.join(missed)}: zinc-rt selftest --models (all: zinc-rt validate --coverage)")
    if arguments.device != "sim" and report.simulated_tiers():
        report.details["simulated_unasked"] = report.simulated_tiers()
    measures = (result.measure for result in results)
    leans = {id for measure in measures if isinstance(measure, SanitizerMeasure) for id in measure.assumptions}
    if leans:
        report.details["assumptions"] = report_rows([item for item in load_table().values() if item.id in leans])
    failed = [result for result in report.results if result.status == "fail"]
    if digest:
        report.details["digest"] = digest
    for line in digest:
        show(line)
    if failed:
        shown = next((result for result in failed if result.artifacts), failed[0])
        show(f"repro      {shown.repro}")
    return report


def _prepare_jobs(arguments: argparse.Namespace, settings: Settings) -> list[ValidationJob]:
    """Yield a job for every named model in turn, or for the embedded models if none is named."""
    from zinc_rt.validate.prepare import prepare_jobs

    if len(arguments.models) > 1 and arguments.golden:
        raise UsageError(
            "--golden cannot be used with several models: it contains the values of one",
            next="name only that model",
        )
    namespaces = [
        argparse.Namespace(**{**vars(arguments), "model": model}) for model in arguments.models or [None]
    ]
    return [job for argument in namespaces for job in prepare_jobs(argument, settings)]


def _show_coverage(arguments: argparse.Namespace) -> int:
    from zinc_rt.cli.output import finish_report
    from zinc_rt.cli.report import Report, Result
    from zinc_rt.validate.coverage import format_coverage, measure_coverage

    report = start_report(Report("validate"), arguments)
    with show_stages() as stage:
        coverage = measure_coverage(stage.say)
    show = _show(arguments)
    show(format_coverage(coverage, verbose=arguments.verbose))
    for form, by in sorted(coverage.reached.items()):
        where = " ".join(astuple(form))
        status: Status = "pass" if by else "fail" if form in coverage.holes else "skip"
        report.results.append(Result(where, "coverage", status, reason=coverage.reasons.get(form, ""), repro=by))
    verdict = "FAIL" if coverage.holes else "PASS"
    show(f"{verdict}  {len(coverage.reached)} forms of nodes, {len(coverage.holes)} that no command computes")
    return finish_report(report, arguments)


def _show(arguments: argparse.Namespace) -> Callable[[Part], None]:
    if arguments.json == "-":
        return lambda text: None
    return partial(terminal.show, out=choose_output_stream(arguments))


def _show_stage(stage: ProgressStage, number: int, count: int, name: str, text: str) -> None:
    stage.say(f"model {number} of {count}: {name}, {text}")


main = Command("validate", parser, _run_command)
