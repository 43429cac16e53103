"""Run a program with its Triton kernels on a simulated GPU."""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from zinc_rt.cli.command import Command
from zinc_rt.cli.launch import add_judged_checks, show_findings
from zinc_rt.cli.output import add_json, choose_output_stream, finish_report, start_report
from zinc_rt.host import terminal
from zinc_rt.host.arguments import Parser
from zinc_rt.host.errors import InputError, UsageError
from zinc_rt.isa.target import DEFAULT_ARCH

if TYPE_CHECKING:
    from zinc_rt.cli.report import Report, Status
    from zinc_rt.launching.suppressions import Suppressed
    from zinc_rt.launching.triton_startup import SanitizeReport

WAVE = 32  # of Triton's kernels on RDNA
EPILOG = """\
Every Python process of PROGRAM that imports triton gets a simulated chip as
Triton's active driver. Its kernels take torch tensors on the CPU (the device
cuda means the CPU) and NumPy arrays. Findings are listed after the program's own
output, each with FILE:LINE.

examples:
  zinc-rt sanitize -- python3 train.py --steps 2
  zinc-rt sanitize --tool memcheck,racecheck -- python3 -m pytest tests/kernels
  zinc-rt sanitize --suppress known.yaml --json report.json -- ./run.sh

exit codes: that of the program; if it is 0 and there are findings,
--error-exitcode (default 1); 77 if no kernel was launched; 2 for invalid options
or a program that cannot be started.
"""


def parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="zinc-rt sanitize",
        description="Run a program whose Triton kernels run on a simulated GPU, and report what is wrong in them.",
        epilog=EPILOG,
        usage="zinc-rt sanitize [options] -- PROGRAM [ARGUMENT ...]",
    )
    parser.add_argument(
        "--chip", default=DEFAULT_ARCH, metavar="NAME", help=f"simulated chip (default {DEFAULT_ARCH})"
    )
    parser.add_argument(
        "--no-cuda",
        action="store_true",
        help="do not make torch's device cuda an alias of the CPU",
    )
    add_judged_checks(parser)
    parser.add_argument(
        "--timeout",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="time limit of one launch in seconds (default 600)",
    )
    parser.add_argument("--junit", metavar="F", help="write JUnit XML for CI")
    add_json(parser)
    return parser


def _run_command(arguments: argparse.Namespace) -> int:
    from zinc_rt.cli.junit import to_junit
    from zinc_rt.cli.report import Report, write_text
    from zinc_rt.host.files import check_writable
    from zinc_rt.launching.launch_findings import choose_tools
    from zinc_rt.launching.suppressions import apply_suppressions, read_suppressions
    from zinc_rt.launching.triton_startup import SanitizeOptions, read_reports
    from zinc_rt.sim.chips import find_chip

    wrapped: list[str] | None = arguments.wrapped
    if not wrapped:
        raise UsageError("no program", next="zinc-rt sanitize -- python3 script.py")
    check_writable(arguments.junit, report=arguments.json)
    entries = read_suppressions(arguments.suppress)
    choose_tools(arguments.sanitizer, arguments.tool)
    try:
        row = find_chip(arguments.chip)
    except ValueError as error:
        raise UsageError(f"--chip: {error}") from None
    report = start_report(Report("sanitize"), arguments)
    report.device = {"name": row.name, "arch": row.gfx, "simulated": True}
    with tempfile.TemporaryDirectory(prefix="zinc-rt-sanitize-") as folder:
        options = SanitizeOptions(
            folder,
            arguments.chip,
            arguments.sanitizer,
            arguments.tool,
            arguments.coherence,
            arguments.reorder,
            arguments.timeout,
            cuda=not arguments.no_cuda,
        )
        output = sys.stderr if arguments.json == "-" else None
        code = _run_program(wrapped, options.make_environment(dict(os.environ)), output)
        reported = read_reports(Path(folder))
    result = apply_suppressions(reported.findings, entries)
    _show_result(arguments, reported, result, code)
    _fill_report(report, arguments, reported, result, code)
    if arguments.junit:
        write_text(arguments.junit, to_junit(report))
    status = finish_report(report, arguments)
    only_findings = result.left and not (code or (arguments.strict and result.unused))
    return code or (arguments.error_exitcode if only_findings else status)


def _run_program(words: list[str], environment: dict[str, str], output: TextIO | None) -> int:
    """Run the program to its end, with its stdout redirected to `output`; None: use the stdout of this process.

    Return its exit code, or 128 + N if signal N ended it.
    """
    try:
        with subprocess.Popen(words, env=environment, stdout=output) as child:
            while True:
                try:
                    code = child.wait()
                    break
                except KeyboardInterrupt:  # the terminal sent it to the program too, which ends in its own way
                    continue
    except OSError as error:
        raise InputError(f"{words[0]}: {error.strerror}") from None
    return code if code >= 0 else 128 - code


def _list_reasons(
    arguments: argparse.Namespace, reported: SanitizeReport, findings: Suppressed, code: int
) -> list[str]:
    from zinc_rt.launching.finding_groups import count_rules

    reasons = [f"{count} x {rule}" for rule, count in count_rules(findings.left).items()]
    if code:
        reasons.append(f"{arguments.wrapped[0]} ended with exit code {code}")
    if arguments.strict:
        reasons += [f"unused suppression: {item}" for item in findings.unused]
    return reasons


def _show_result(arguments: argparse.Namespace, reported: SanitizeReport, findings: Suppressed, code: int) -> None:
    from zinc_rt.launching.located import format_remarks

    out = choose_output_stream(arguments)
    show_findings(findings.left, WAVE, out, verbose=arguments.verbose)
    if arguments.verbose:
        show_findings(reported.remarks, WAVE, out, verbose=True, remark=True)
    elif reported.remarks:
        terminal.show(format_remarks(reported.remarks), out=out)
    if findings.suppressed:
        terminal.show(f"suppressed: {len(findings.suppressed)}; --json lists them with their reasons", out=out)
    for entry in findings.unused:
        terminal.show(f"unused suppression: {entry}", out=out)
    reasons = _list_reasons(arguments, reported, findings, code)
    mark = "FAIL" if reasons else "PASS" if reported.launches else "SKIP"
    launches = f"{reported.launches} launch{'es' if reported.launches != 1 else ''}"
    what = "; ".join(reasons) or ("no finding" if reported.launches else "no Triton kernel was launched")
    note = " on a SIMULATED device: says nothing about hardware" if reported.launches else ""
    terminal.show(f"{mark}  {what}, {launches} on {arguments.chip}{note}", out=out)


def _fill_report(
    report: Report, arguments: argparse.Namespace, reported: SanitizeReport, findings: Suppressed, code: int
) -> None:
    from zinc_rt.cli.report import Result
    from zinc_rt.launching.located import format_finding

    reasons = _list_reasons(arguments, reported, findings, code)
    measure = {
        "exit_code": code,
        "launches": reported.launches,
        "kernels": [
            {"kernel": name, "launches": kernel.launches, "code_objects": len(kernel.code_objects)}
            for name, kernel in sorted(reported.kernels.items())
        ],
        "findings": [asdict(item) for item in findings.left],
        "remarks": [asdict(remark) for remark in reported.remarks],
        "suppressed": [{**asdict(item), "reason": entry.reason} for item, entry in findings.suppressed],
        "unused_suppressions": [asdict(item) for item in findings.unused],
    }
    status: Status = "fail" if reasons else "pass" if reported.launches else "skip"
    reason = "; ".join(reasons) or ("" if reported.launches else "no Triton kernel was launched")
    result = Result(shlex.join(arguments.wrapped), "sanitize", status, reason=reason, measure=measure)
    result.cause = "\n".join(line for item in findings.left for line in format_finding(item, WAVE))
    result.repro = arguments.line
    report.results.append(result)


main = Command("sanitize", parser, _run_command, before_another=("--",))
