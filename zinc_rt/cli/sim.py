"""Run a program on a simulated AMD GPU, or serve one on a socket."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, TextIO

from zinc_rt.cli.command import Command
from zinc_rt.cli.output import add_json, choose_output_stream, finish_report, start_report
from zinc_rt.host import terminal
from zinc_rt.sim.serve import server

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from zinc_rt.launching.finding_groups import FindingGroup


def parser() -> argparse.ArgumentParser:
    parser = server.parser()
    add_json(parser, tables=False)
    return parser


def _run_command(arguments: argparse.Namespace) -> int:
    from zinc_rt.host.errors import UsageError

    wrapped: list[str] | None = arguments.wrapped
    if wrapped is not None:
        return _run_program(arguments, wrapped)
    if arguments.json:
        raise UsageError("--json needs a program after --", next="zinc-rt sim --json F -- PROGRAM")
    return server.run(arguments)


def _run_program(arguments: argparse.Namespace, words: list[str]) -> int:
    import os
    import sys
    from dataclasses import asdict, fields, replace

    from zinc_rt.cli.report import Report, Result
    from zinc_rt.host.errors import UsageError
    from zinc_rt.host.files import check_writable
    from zinc_rt.launching.finding_groups import count_rules, group_findings
    from zinc_rt.sim.machine_options import MachineOptions
    from zinc_rt.sim.serve.client import SimClient
    from zinc_rt.sim.serve.program import AddressNames, run_program

    if not words:
        raise UsageError("no program after --")
    check_writable(None, report=arguments.json)
    usual = {action.dest: action.default for action in server.parser()._actions}
    names = {field.name for field in fields(MachineOptions)}
    options = {name: value for name, value in vars(arguments).items() if name in names and value != usual[name]}
    report = start_report(Report("sim"), arguments)
    client = SimClient(name=f"program-{os.getpid()}-{os.urandom(4).hex()}", **options)
    try:
        code = run_program(words, client, stdout=choose_output_stream(arguments))
        lines = AddressNames(words)
        groups = tuple(
            replace(group, first=lines.add_to(group.first)) for group in group_findings(client.findings())
        )
        bounds = "allocations" if client.count_allocations() else "pages"
        report.device = {"simulated": True, **client.device}
        injected = client.injected()
        report.details = {
            "exit_code": code,
            "injected": injected,
            "bounds": bounds,
            "findings": [asdict(group) for group in groups],
            "dmesg": client.dmesg(),
        }
        reason = "; ".join(f"{count} x {rule}" for rule, count in count_rules(groups).items())
        report.results.append(Result(words[0], "program", "fail" if code else "pass", reason=reason))
        show(groups, sys.stderr)
        for line in describe_faults(injected, code):
            terminal.show(line, out=sys.stderr)
        if bounds == "pages" and has_dispatched(client.consulted()[1]):
            text = "zinc-rt sim: bounds by pages only: only allocations of HIP and HSA are known to the byte"
            terminal.show(text, out=sys.stderr)
        finish_report(report, arguments)
        return code
    finally:
        client.close_all()


def describe_faults(injected: dict[str, Any], code: int) -> list[str]:
    """Return a sentence for each injected fault, and one with the program's reaction. `code`: its exit code."""
    lines = []
    for fault in injected["faults"]:
        times = fault["occurred"]
        occurred = "did not occur" if not times else f"occurred {times} times" if times > 1 else "occurred once"
        lines.append(f"zinc-rt sim: injected {fault['name']} ({fault['does']}): {occurred}")
    if injected["seconds"] is None:
        return lines
    errors = [f"{row['count']} x {row['call']} {row['errno']}" for row in injected["errors"]]
    after = f"{injected['calls']} calls and {injected['doorbells']} doorbells in {injected['seconds']:.1f} s"
    ended = f"signal {code - 128} ended it" if 128 < code <= 128 + 64 else f"it ended with exit code {code}"
    failed = f"failed: {', '.join(errors)}" if errors else "none failed"
    return [*lines, f"zinc-rt sim: then the program made {after}, {failed}; {ended}"]


def has_dispatched(marks: Iterable[str]) -> bool:
    """Return whether a device ran kernels, by its marks."""
    return any(mark.startswith(("packet DISPATCH_", "aql KERNEL_DISPATCH")) for mark in marks)


SHOWN_OF_RULE = 8  # places


def show(findings: tuple[FindingGroup, ...], out: TextIO) -> None:
    """Return the first findings of each rule, in the order of detection, and the number of remaining ones."""
    from zinc_rt.launching.finding_groups import count_rules

    left: dict[str, list[FindingGroup]] = {}
    for group in findings:
        of_rule = left.setdefault(group.rule, [])
        of_rule.append(group)
        if len(of_rule) <= SHOWN_OF_RULE:
            terminal.show(f"zinc-rt sim: {group.count} x {group.rule}: {group.first}", out=out)
    for rule, groups in left.items():
        more = groups[SHOWN_OF_RULE:]
        if more:
            times = count_rules(more)[rule]
            terminal.show(
                f"zinc-rt sim: {times} x {rule} more, in {len(more)} other places; --json F has them all", out=out
            )


main = Command("sim", parser, _run_command, before_another=("--",))
