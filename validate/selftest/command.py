"""Check the checkers with planted faults and known samples."""

from __future__ import annotations

import argparse
import os
import shlex
from typing import TYPE_CHECKING

from zinc_rt.cli.command import Command
from zinc_rt.cli.output import add_json, choose_output_stream, finish_report, start_report
from zinc_rt.host.arguments import Parser

if TYPE_CHECKING:
    from zinc_rt.cli.report import Result, Status

EPILOG = """\
examples:
  zinc-rt selftest                                 everything but the models: about a minute
  zinc-rt selftest --only doctor                   one group: inject, doctor, numbers, recorder
  zinc-rt selftest --models                        also every odd model (docs/validate.md), on T1 and T-CPU
  zinc-rt selftest --only models --tiers t_cpu     the models alone, on T-CPU

inject: each fault of the simulated device must make its probe fail, with its cause and advice. doctor: each rule
must find the machine that it is about and not one that only resembles it. numbers: KL, ULP distances, histograms,
digests, limits, perplexity, percentiles and gates on samples whose results are known. recorder: a complete log
must replay, and one without a write must not.

Exit code: 0 every checker was right, 1 one was not, 2 unusable input.
"""


def parser() -> argparse.ArgumentParser:
    parser = Parser(description=__doc__, epilog=EPILOG)
    parser.add_argument(
        "--only", action="append", default=[], metavar="GROUP",
        help="run a group: inject, doctor, numbers, recorder or models (default: all but models)",
    )  # fmt: skip
    parser.add_argument("--models", action="store_true", help="also validate every generated odd model")
    parser.add_argument("--tiers", default="t1,t_cpu", metavar="A,B", help="tiers of --models (default t1,t_cpu)")
    parser.add_argument(
        "--jobs", type=int, default=2 * (os.cpu_count() or 1), metavar="N",
        help="at once (default: twice the cores, as most wait for a time-out of the driver)",
    )  # fmt: skip
    add_json(parser)
    return parser


def _run_command(arguments: argparse.Namespace) -> int:
    from zinc_rt.cli.report import Report, Result
    from zinc_rt.host import terminal
    from zinc_rt.host.errors import UsageError
    from zinc_rt.host.files import check_writable
    from zinc_rt.validate.selftest.checks import GROUPS, list_checks, run_checks

    check_writable(report=arguments.json)
    for name in arguments.only:
        if name not in (*GROUPS, "models"):
            raise UsageError(f"--only {name}: no such group", next=f"one of {', '.join((*GROUPS, 'models'))}")
    if arguments.jobs < 1:
        raise UsageError(f"--jobs {arguments.jobs}: expected 1 or more")
    out = choose_output_stream(arguments)
    report = start_report(Report("selftest"), arguments)
    checks = [check for check in list_checks() if not arguments.only or check.group in arguments.only]
    for check, problem in run_checks(checks, arguments.jobs):
        status: Status = "fail" if problem else "pass"
        if problem and check.group == "inject":  # whose deadlines are short: once more, with nothing beside it
            [(_, again)] = run_checks([check], 1)
            status = "fail" if again else "flake"
        repro = f"zinc-rt selftest --only {check.group}" if problem else ""
        report.results.append(Result(check.id, check.group, status, reason=problem, repro=repro))
        if problem:
            terminal.show(f"{status.upper()}  {check.id}: {problem}", out=out)
    if arguments.models or "models" in arguments.only:
        report.results += _validate_odd_models(arguments)
    for group in dict.fromkeys(result.kind for result in report.results):
        mine = [result.status for result in report.results if result.kind == group]
        terminal.show(f"{group:<10} {len(mine) - mine.count('fail')} of {len(mine)} right", out=out)
    failed = [result for result in report.results if result.status == "fail"]
    if failed:
        terminal.show(f"repro      {failed[0].repro}", out=out)
    terminal.show(
        f"{'FAIL' if failed else 'PASS'}  {len(report.results)} checks of checkers, {len(failed)} failed", out=out
    )
    return finish_report(report, arguments)


def _validate_odd_models(arguments: argparse.Namespace) -> list[Result]:
    """Validate every odd model, as `zinc-rt validate` does, and return one result for each."""
    from zinc_rt.cli.report import Result
    from zinc_rt.golden.odd_models import generate_odd_pair, load_odd_models
    from zinc_rt.validate.command import main as validate

    results = []
    for row in load_odd_models():
        pair = generate_odd_pair(row)
        words = ["--model", str(pair.model), "--golden", str(pair.golden), "--tiers", arguments.tiers]
        code = validate(words)
        reason = f"zinc-rt validate ended with exit code {code}" if code else ""
        repro = shlex.join(["zinc-rt", "validate", *words]) if code else ""
        passed: Status = "fail" if code else "pass"
        results.append(Result(f"models/{row.name}", "models", passed, reason=reason, repro=repro))
    return results


main = Command("selftest", parser, _run_command)
