"""Output of kernel-test: one line per kernel, then each failing kernel with its smallest case."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from zinc_rt.host.terminal import Table, number_column
from zinc_rt.validate.kernel_test.pool import COSTLY_MOST, CaseRun
from zinc_rt.validate.kernel_test.select import count_elements
from zinc_rt.validate.kernel_test.side import Side
from zinc_rt.validate.kernel_test.verdicts import KernelVerdict

LINES_MOST = 6  # of what a device found


@dataclass(frozen=True, slots=True)
class SmallestCase:
    """A failing kernel's smallest case, and the number of other cases tried."""

    ran: CaseRun
    tried: int


def format_heading(side: Side, cases: int, refused: int, kernels: int) -> str:
    refusals = f", {refused} rejected (for the reasons use --mode support)" if refused else ""
    return f"{side.label}  {side.kernels}  {side.ordering}: {cases} cases of {kernels} kernels{refusals}"


def format_table(by_kernel: Mapping[str, KernelVerdict]) -> Table:
    rows = [(name, item.cases, len(item.types), _format_result(item)) for name, item in by_kernel.items()]
    return Table(("kernel", number_column("cases"), number_column("types"), ""), rows)


def _format_result(verdict: KernelVerdict) -> str:
    if not verdict.cases:
        return f"NOT RUN  ({format_skipped(verdict)})" if verdict.left_out else "NO CASE"
    parts = [f"{verdict.others} cases failed by another kernel"] if verdict.others else []
    parts += [format_skipped(verdict)] if verdict.left_out else []
    notes = f"  ({'; '.join(parts)})" if parts else ""
    return f"FAIL  {len(verdict.failed)} of {verdict.cases}{notes}" if verdict.failed else f"pass{notes}"


def format_skipped(verdict: KernelVerdict) -> str:
    """Describe the number of skipped cases and the reason; empty for none."""
    if not verdict.left_out:
        return ""
    return f"{verdict.left_out.total()} cases left out: {_format_ended(verdict.left_out)}"


def _format_ended(kernels: Iterable[str]) -> str:
    return f"{', '.join(kernels)} ended the device or its process {COSTLY_MOST} times"


def format_failure(side: Side, verdict: KernelVerdict, smallest: SmallestCase) -> list[str]:
    """Describe the smallest failing case of a kernel in full."""
    ran = smallest.ran
    steps = f", reduced in {smallest.tried} tries" if smallest.tried else ""
    first = f"FAIL      {verdict.kernel}: {len(verdict.failed)} of {verdict.cases} cases; the smallest"
    return [
        f"{first} ({count_elements(ran.case)} elements{steps}):",
        *format_case_result(side, ran, verdict.kernel),
    ]


def format_case_result(side: Side, ran: CaseRun, kernel: str = "") -> list[str]:
    """Describe a failed case: the case, the error, and the command that repeats it. `kernel` is the one at
    fault.
    """
    outcome = ran.outcome
    lines = outcome.said.splitlines() or [outcome.status]
    shown = [
        *lines[:LINES_MOST],
        *([f"and {len(lines) - LINES_MOST} more lines"] if len(lines) > LINES_MOST else []),
    ]
    kind = {"wrong": "bits", "finding": "device", "stopped": "stopped", "died": "died"}[outcome.status]
    return [
        f"  case      {ran.case.text()}",
        *(f"  {kind if number == 0 else '':<8}  {line}" for number, line in enumerate(shown)),
        f"  kernels   {', '.join(outcome.kernels)}",
        f"  seed      {ran.case.seed}",
        f"  repro     {format_repro(side, ran, kernel)}",
    ]


def format_repro(side: Side, ran: CaseRun, kernel: str = "") -> str:
    """Return the command that repeats a case. The kernel is named, because one case does not determine which of
    its kernels is at fault.
    """
    named = f" --kernel {kernel}" if kernel and len(ran.outcome.kernels) > 1 else ""
    return f"zinc-rt kernel-test {side.options}{named} --case {shlex.quote(ran.case.text())}"


def format_uncovered(names: Sequence[str]) -> str:
    return f"no case for {len(names)} kernels: {', '.join(names)}"


def format_case(side: Side, ran: CaseRun) -> str:
    """Describe a case that was requested explicitly, whatever its outcome."""
    outcome = ran.outcome
    if outcome.failed:
        return "\n".join(["FAIL", *format_case_result(side, ran)])
    if outcome.status == "refused":
        return f"refused   {ran.case.text()}\n  why       {outcome.said}"
    if outcome.status == "left out":
        return f"left out  {ran.case.text()}\n  why       {_format_ended((outcome.blamed,))}"
    return (
        f"pass      {ran.case.text()}\n  bits      {outcome.counts[0]} elements, by {', '.join(outcome.kernels)}"
    )


def format_verdict(sides: Sequence[Side], kernels: int, cases: int, failed: int) -> str:
    """Return the last line."""
    simulated = ", ".join(dict.fromkeys(side.tier for side in sides if side.simulated))
    where = f"; SIMULATED: {simulated}, no evidence about hardware" if simulated else ""
    if not cases:
        return f"NOTHING RAN: every case was rejected{where}"
    if failed:
        return f"FAIL      {failed} of {kernels} kernels, {cases} cases{where}"
    return f"PASS      {kernels} kernels, {cases} cases{where}"
