"""`zinc-rt isa lint`: the static sanitizer over kernels."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from zinc_rt.cli.kernel_input import KernelInput, add_files, read_kernels
from zinc_rt.cli.output import add_json, choose_output_stream, finish_report, printable, start_report
from zinc_rt.host import terminal

if TYPE_CHECKING:
    from zinc_rt.cli.report import Report
    from zinc_rt.isa.lint import LintFinding

EXAMPLES = """\
Analyses every path through each kernel without running it. A finding names the instruction, the problem, the fix,
in brackets the instruction it depends on, and the source line if the file has line numbers. docs/isa.md lists the
rules. A rule that another compiler's code violates systematically gives remarks instead of findings
(docs/radv.md). The number of remarks is shown; --remarks lists them.

examples:
  zinc-rt isa lint kernel.zrt
  zinc-rt isa lint kernel.co --json findings.json
  zinc-rt isa lint --hex code.txt --vgprs 32

exit codes: 0 no findings, 1 findings, 2 an unreadable file.
"""


def add_command(actions: argparse._SubParsersAction) -> None:
    parser = actions.add_parser(
        "lint",
        help="find hazards and faults without running the code",
        description="Find hazards and faults in kernels without running them.",
        epilog=EXAMPLES,
    )
    add_files(parser)
    parser.add_argument("--remarks", action="store_true", help="also list remarks, which depend on the compiler")
    add_json(parser, tables=False)
    parser.set_defaults(body=_run_command)


def _run_command(arguments: argparse.Namespace) -> int:
    from zinc_rt.cli.report import Report
    from zinc_rt.host.errors import InputError
    from zinc_rt.host.files import check_writable
    from zinc_rt.isa.lint import RULES, lint
    from zinc_rt.kernels.remarks import split_remarks

    check_writable(report=arguments.json)
    out = choose_output_stream(arguments)
    report = start_report(Report("isa"), arguments)
    report.details = {"rules": RULES}
    bad = findings = remarks = 0
    for kernel in read_kernels(arguments):
        all_findings = lint(
            kernel.section.code, kernel.target, kernel.limits, entry=kernel.entry, kernel=kernel.kernel
        )
        counted, of_compiler = split_remarks(all_findings, kernel.compiler)
        for finding in all_findings if arguments.remarks else counted:
            words = f"{'remark: ' if finding in of_compiler else ''}{printable(finding.sentence())}"
            terminal.show(f"{printable(kernel.name)} {words}{_format_location(kernel, finding.pc)}", out=out)
        _add_result(report, kernel, counted, of_compiler)
        bad, findings, remarks = bad + bool(counted), findings + len(counted), remarks + len(of_compiler)
    if not report.results:
        raise InputError(
            "these files contain no kernel", next="use a code object with symbols, or pass bare code with --hex"
        )
    kernels = len(report.results)
    also = f", {_format_count(remarks, 'remark')}" if remarks else ""
    if bad:
        terminal.show(f"repro {report.results[[r.status for r in report.results].index('fail')].repro}", out=out)
        terminal.show(
            f"FAIL  {_format_count(findings, 'finding')} in {bad} of {_format_count(kernels, 'kernel')}{also}",
            out=out,
        )
    else:
        terminal.show(f"PASS  {_format_count(kernels, 'kernel')}, no finding{also}", out=out)
    return finish_report(report, arguments)


def _format_count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _format_location(kernel: KernelInput, pc: int) -> str:
    location = kernel.section.place_at(pc)
    return f"  {printable(location)}" if location else ""


def _make_row(kernel: KernelInput, finding: LintFinding) -> dict[str, Any]:
    line = kernel.section.line_at(finding.pc)
    row = {
        "rule": finding.rule,
        "pc": finding.pc,
        "text": finding.text,
        "message": finding.message,
        "producer_pc": finding.producer_pc,
        "producer_text": finding.producer_text,
    }
    return row if line is None else row | {"file": line[0], "line": line[1]}


def _add_result(
    report: Report, kernel: KernelInput, findings: Sequence[LintFinding], remarks: Sequence[LintFinding]
) -> None:
    from zinc_rt.cli.report import Result

    rows = [_make_row(kernel, finding) for finding in findings]
    report.results.append(
        Result(
            f"{kernel.file}:{kernel.name}",
            "isa-lint",
            "fail" if findings else "pass",
            reason=f"{len(findings)} findings" if findings else "",
            measure={"findings": rows, "remarks": [_make_row(kernel, finding) for finding in remarks]},
            limit={"findings": 0},
            first_bad=rows[0] if rows else {},
            repro=f"zinc-rt isa lint {'' if kernel.section.symbols else '--hex '}{kernel.file}"
            if findings
            else "",
        )
    )
