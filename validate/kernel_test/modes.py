"""The modes of the command: select sides and cases, run them, print and report."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TextIO

from zinc_rt.backends import registry
from zinc_rt.cli.options import ORDER
from zinc_rt.cli.progress import show_progress
from zinc_rt.cli.report import Report, Result
from zinc_rt.engine.devices import SIMULATED
from zinc_rt.host import terminal
from zinc_rt.host.errors import NothingRan, UsageError
from zinc_rt.host.machine import count_available_cores
from zinc_rt.kernels.cases import Case, parse
from zinc_rt.kernels.sets import SETS, find_kernel_set
from zinc_rt.validate.cases.speed import CASES as SPEED
from zinc_rt.validate.kernel_test import counters, speed_text, text
from zinc_rt.validate.kernel_test.changed import list_changed, record_passed
from zinc_rt.validate.kernel_test.pool import CaseRun, Worker, run_all
from zinc_rt.validate.kernel_test.select import (
    PlannedCase,
    check_globs,
    count_elements,
    find_new_cases,
    list_cases,
    matches_globs,
    pick_one_plan_per_kernel,
    plan_case,
    plan_cases,
    select_plans,
    thin_plans,
)
from zinc_rt.validate.kernel_test.shrink import shrink_case
from zinc_rt.validate.kernel_test.side import Side, make_sides
from zinc_rt.validate.kernel_test.speed import measure_timings
from zinc_rt.validate.kernel_test.support import format_matrix, list_support
from zinc_rt.validate.kernel_test.text import SmallestCase
from zinc_rt.validate.kernel_test.verdicts import KernelVerdict, judge_kernels

SHRINK_SECONDS = 20.0  # of one case: its kernels are compiled by now
UNCHANGED = "nothing has changed since it passed"
Met = dict[str, list[PlannedCase]]
"""The dispatches so far by tier and kernel set: an ordering is tested only if it dispatches other kernels."""


def run_test(arguments: argparse.Namespace, report: Report, out: TextIO) -> None:
    sides_compared = _make_sides(arguments, report, out)
    cases = kernels = failed = 0
    met: Met = {}
    for side in sides_compared:
        ran, tested, bad = _test_side(arguments, side, met, report, out)
        cases, kernels, failed = cases + ran, kernels + tested, failed + bad
    if not cases and any(result.reason == UNCHANGED for result in report.results):
        terminal.show(f"PASS      {UNCHANGED}", out=out)
    else:
        terminal.show(text.format_verdict(sides_compared, kernels, cases, failed), out=out)


def _test_side(
    arguments: argparse.Namespace, side: Side, seen_cases: Met, report: Report, out: TextIO
) -> tuple[int, int, int]:
    """Run the cases of one side. Return the number of cases, of kernels, and of failed kernels. `seen_cases`
    collects the kernels that ran.
    """
    first = side.name not in seen_cases
    globs = list_changed(side, arguments.kernel) if arguments.changed else arguments.kernel
    if arguments.changed and not globs:
        terminal.show(f"{side.label}  {side.kernels}  {side.ordering}: {UNCHANGED}\n", out=out)
        name = f"{side.label} {side.kernels} {side.ordering}"
        report.results.append(Result(name, "kernel", "pass", tier=side.tier, reason=UNCHANGED))
        return 0, 0, 0
    chosen = _make_plans(arguments, side, seen_cases, globs)
    runnable = sum(1 for item in chosen if item.kernels)
    names = _select_names(arguments, side, chosen, globs, every=first)
    terminal.show(text.format_heading(side, runnable, len(chosen) - runnable, len(names)), out=out)
    with show_progress(runnable, f"kernels of {side.label}", "case", plain=True) as advance:
        ran = run_all(side, chosen, _count_jobs(arguments, side), ran=lambda: advance(1))
    by_kernel = judge_kernels(ran, names)
    bad = [item for item in by_kernel.values() if item.failed]
    shown = _shrink_failures(arguments, side, bad)
    if arguments.case:
        for item in ran:
            terminal.show(text.format_case(side, item), out=out)
    else:
        terminal.show(text.format_table(by_kernel), out=out)
        for verdict in bad:
            terminal.show("\n".join(text.format_failure(side, verdict, shown[verdict.kernel])), out=out)
    if not any(getattr(arguments, name) for name in ("case", "family", "most", "quick", "replace")):
        try:
            record_passed(side, [name for name, item in by_kernel.items() if item.passed and item.cases])
        except OSError as error:
            terminal.show(f"--changed will run these again: {error.filename}: {error.strerror}", out=out)
    if missing := [name for name, item in by_kernel.items() if not item.cases and not item.left_out]:
        terminal.show(text.format_uncovered(missing), out=out)
    terminal.show("", out=out)
    report.results += [_make_result(side, verdict, shown.get(name)) for name, verdict in by_kernel.items()]
    run = sum(1 for item in ran if item.outcome.status not in ("refused", "left out"))
    return run, sum(1 for item in by_kernel.values() if item.cases), len(bad)


def _select_names(
    arguments: argparse.Namespace, side: Side, chosen: Sequence[PlannedCase], globs: Sequence[str], *, every: bool
) -> list[str]:
    """Return the kernels to report: the whole set if `every` is set, else the kernels that the selected cases
    dispatch.
    """
    names = [name for name in side.set().names() if matches_globs(name, globs)]
    if every and not (arguments.case or arguments.family or globs):
        return names
    dispatched = {name for case in chosen for name in case.kernels}
    return [name for name in names if name in dispatched]


def _make_plans(
    arguments: argparse.Namespace, side: Side, seen_cases: Met, globs: Sequence[str]
) -> list[PlannedCase]:
    argument = [parse(line) for line in arguments.case] or list_cases(arguments.family)
    chosen = select_plans(_select_new_plans(side, argument, seen_cases), globs)
    if arguments.quick:
        return pick_one_plan_per_kernel(chosen)
    return thin_plans(chosen, arguments.most) if arguments.most else chosen


def _select_new_plans(side: Side, cases: Sequence[Case], seen_cases: Met) -> list[PlannedCase]:
    every, known = plan_cases(cases, side.set(), side.ordering), seen_cases.setdefault(side.name, [])
    chosen = find_new_cases(every, known)
    known += every
    return chosen


def _shrink_failures(
    arguments: argparse.Namespace, side: Side, bad: Sequence[KernelVerdict]
) -> dict[str, SmallestCase]:
    """Return each failing kernel's smallest case, reduced unless this is disabled."""
    by_kernel = {}
    worker = Worker(side)
    try:
        for verdict in bad:
            first = min(verdict.failed, key=lambda item: count_elements(item.case))
            if arguments.no_shrink or arguments.case:
                by_kernel[verdict.kernel] = SmallestCase(first, 0)
            else:
                by_kernel[verdict.kernel] = SmallestCase(*shrink_case(first, _rerun(side, worker, verdict.kernel)))
    finally:
        worker.close()
    return by_kernel


def _rerun(side: Side, worker: Worker, kernel: str) -> Callable[[Case], CaseRun | None]:
    """Return a function that runs a case and returns None if it passes or does not reach the kernel."""

    def run_case(case: Case) -> CaseRun | None:
        plan = plan_case(case, side.set(), side.ordering)
        if kernel not in plan.kernels:
            return None
        ran = worker.run(case, plan.kernels, SHRINK_SECONDS)
        return ran if ran.outcome.failed else None

    return run_case


def _make_result(side: Side, verdict: KernelVerdict, shown: SmallestCase | None) -> Result:
    result = Result(
        f"{side.label} {side.kernels} {side.ordering} {verdict.kernel}",
        "kernel",
        "fail" if verdict.failed else "pass" if verdict.cases else "skip",
        tier=side.tier,
        reference=registry.ORACLE,
        reason=text.format_skipped(verdict) or ("" if verdict.cases else "no case dispatches it"),
        measure={
            "kernel": verdict.kernel,
            "cases": verdict.cases,
            "failed": len(verdict.failed),
            "failed_by_others": verdict.others,
            "left_out": verdict.left_out.total(),
            "types": sorted(verdict.types),
            "simulated": side.simulated,
        },
    )
    if shown is not None:
        outcome = shown.ran.outcome
        result.reason = outcome.said
        result.repro = text.format_repro(side, shown.ran, verdict.kernel)
        result.first_bad = {
            "case": shown.ran.case.text(),
            "seed": shown.ran.case.seed,
            "how": outcome.status,
            "difference": asdict(outcome.difference) if outcome.difference else None,
            "tries": shown.tried,
        }
    return result


def _make_sides(arguments: argparse.Namespace, report: Report, out: TextIO, *, oracle: bool = False) -> list[Side]:
    """Return the tiers to test. Raise NothingRan if no tier can run its kernels, UsageError for options that no
    tier accepts.
    """

    def report_unusable(tier: str, reason: str) -> None:
        terminal.show(f"{tier} cannot run here: {reason}", out=out)
        report.results.append(Result(tier, "kernel", "skip", tier=tier, reason=reason))

    sides_compared = make_sides(
        arguments.tier,
        arguments.device,
        ordering=arguments.ordering or "",
        sanitizer=arguments.sanitizer or "full",
        replaced=tuple(arguments.replace),
        unchecked=arguments.unchecked,
        coherence=arguments.coherence,
        reorder=arguments.reorder,
        chip=getattr(arguments, "chip", None),
        unusable=report_unusable,
        oracle=oracle,
    )
    if not sides_compared:
        raise NothingRan("no tier can run its kernels here", next="add --device sim, or see zinc-rt devices")
    for name in ("sanitizer", *ORDER):
        if getattr(arguments, name) is not None and not any(side.simulated for side in sides_compared):
            raise UsageError(
                f"--{name} needs a simulated device, but no tier here uses one", next="add --device sim"
            )
    check_globs(arguments.kernel, [side.set() for side in sides_compared])
    for tier in dict.fromkeys(side.tier for side in sides_compared if side.simulated):
        report.shortcuts.append(f"{tier}: {SIMULATED}")
    return sides_compared


def _count_jobs(arguments: argparse.Namespace, side: Side) -> int:
    """Return the number of processes. A card is used by one process only."""
    if registry.spec(side.tier).simulable and not side.simulated:
        return 1
    return arguments.jobs or count_available_cores()


def run_support(arguments: argparse.Namespace, report: Report, out: TextIO) -> None:
    by_side = {}
    for name in _parse_requested_sets(arguments) or tuple(SETS):
        kernels = find_kernel_set(name)
        assert kernels is not None, name
        by_side[name] = list_support(kernels, arguments.ordering or "canonical-1")
        report.results += [
            Result(
                f"{name} {item.op.name} {item.dtype}",
                "support",
                "skip" if item.refused else "pass",
                reason=item.refused,
                measure={"kernels": list(item.kernels), "cases": item.cases, "taken": item.taken},
            )
            for item in by_side[name]
        ]
    terminal.show(format_matrix(by_side), out=out)
    terminal.show(
        "\nyes: every case; part: some sizes or attributes; a number: refused, with the reason below", out=out
    )


def _parse_requested_sets(arguments: argparse.Namespace) -> tuple[str, ...]:
    names: list[str] = []
    for tier in arguments.tier.split(",") if arguments.tier else ():
        row, named = registry.parse(tier.strip())
        names += [named] if named else row.kernel_sets
    return tuple(dict.fromkeys(names))


def run_perf(arguments: argparse.Namespace, report: Report, out: TextIO) -> None:
    sides_compared = _make_sides(arguments, report, out, oracle=True)
    timed = 0
    software: set[str] = set()
    met: Met = {}
    for side in sides_compared:
        argument = [parse(item) for item in arguments.case] or SPEED
        chosen = select_plans(_select_new_plans(side, argument, met), arguments.kernel)
        if not chosen:
            continue
        terminal.show(speed_text.format_title(side), out=out)
        for item in measure_timings(side, [plan for plan in chosen if plan.kernels]):
            terminal.show(speed_text.format_line(item), out=out)
            timed += 1
            software |= {side.tier} if item.software else set()
            report.results.append(
                Result(
                    f"{side.label} {side.ordering} {item.case.text()}",
                    "speed",
                    "pass",
                    tier=side.tier,
                    measure=item.as_dict(),
                )
            )
        terminal.show("", out=out)
    terminal.show(speed_text.format_verdict(sides_compared, timed, software), out=out)


def run_counters(arguments: argparse.Namespace, report: Report, out: TextIO) -> None:
    arguments.tier = arguments.tier or counters.TIERS
    arguments.ordering = arguments.ordering or "canonical-1"
    arguments.sanitizer = arguments.sanitizer or "off"  # whose code is compiled fastest; the counts are the same
    sides = _make_sides(arguments, report, out)
    counters.check_two_sets(sides)
    cases = [parse(line) for line in arguments.case] or list_cases(arguments.family)
    common = counters.select_common_cases(cases, sides, arguments.kernel)
    if not common:
        raise NothingRan("both kernel sets support none of these cases", next="see --mode support")
    names = [side.kernels for side in sides]
    compared = []
    with show_progress(len(common), f"counting {' and '.join(names)}", "case", plain=True) as advance:
        for item in counters.compare_sets(sides, common):
            compared.append(item)
            problems = [
                f"{name}: {count.problem}" for name, count in zip(names, item.counts, strict=True) if count.problem
            ]
            report.results.append(
                Result(
                    item.case.text(),
                    "counters",
                    "fail" if problems else "pass",
                    tier=sides[0].name,
                    reference=sides[1].name,
                    reason="; ".join(problems),
                    measure=item.as_dict(names),
                )
            )
            advance(1)
    terminal.show(counters.format_comparisons(compared, names), out=out)
    terminal.show(
        "\nbytes: loaded and stored by waves, as if all their lanes were active, except in LDS; operands B: each "
        "operand once, with unused capacity",
        out=out,
    )
    terminal.show(counters.format_counted(compared, names), out=out)


MODES: Mapping[str, Callable[[argparse.Namespace, Report, TextIO], None]] = {
    "test": run_test,
    "perf": run_perf,
    "support": run_support,
    "counters": run_counters,
}
