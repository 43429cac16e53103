"""Simulate traffic on the scheduler and assert its guarantees."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TextIO

from zinc_rt.cli.command import Command
from zinc_rt.cli.options import add_budgets, add_prefill_ordering, make_classes
from zinc_rt.cli.output import add_json, choose_output_stream, finish_report, printable, start_report
from zinc_rt.cli.progress import show_progress
from zinc_rt.host import terminal
from zinc_rt.host.arguments import Parser, suggest_word
from zinc_rt.host.errors import UsageError

if TYPE_CHECKING:
    from zinc_rt.cli.report import Report, Result
    from zinc_rt.sched.simulation.schedule_checks import CheckOutcome
    from zinc_rt.sched.simulation.simulate import SimulatedRun, SimulationSettings
    from zinc_rt.sched.simulation.workloads import Workload
    from zinc_rt.sched.step_cost import StepCost

POLICIES = ("fair", "fcfs")
MIXES = 40
FEW = 4
EXAMPLES = """\
Runs the real scheduler with its pages, prefix cache and quotas in virtual time. No model is computed: each step
takes the time that `zinc-rt perf predict` gives for a card. Times are predicted, not measured; the scheduling
decisions are real. docs/sched-test.md describes the checks.

A workload file has one request per line, in seconds and tokens:
  {"arrival": 0.5, "tenant": "desk", "class": "interactive", "prompt": 100, "output": 20, "prefix": "chat-7"}

examples:
  zinc-rt sched-test --list
  zinc-rt sched-test --workload chat
  zinc-rt sched-test --workload flood --seed 7 --trace flood.json
  zinc-rt sched-test --mixes 1000
  zinc-rt sched-test --export chat > mine.jsonl
  zinc-rt sched-test --workload mine.jsonl --slots 8 --pages 500 --tenants tenants.yaml

exit codes: 0 all checks passed, 1 a check failed, 2 an unusable file or option.
"""


def parser() -> argparse.ArgumentParser:
    parser = Parser(description="Simulate traffic on the scheduler and assert its guarantees.", epilog=EXAMPLES)
    what = parser.add_argument_group("workload")
    what.add_argument(
        "--workload",
        metavar="NAME",
        action="append",
        help="a workload from --list or a .jsonl file (default: all from --list)",
    )
    what.add_argument(
        "--mixes",
        type=int,
        metavar="N",
        help=f"random mixes with drafts on a shadow device (default {MIXES} without --workload)",
    )
    what.add_argument(
        "--tenants", metavar="FILE", help="tenant configuration in YAML or JSON (default: as in the workload)"
    )
    what.add_argument("--seed", type=int, default=1, metavar="N", help="random seed of the workload (default 1)")
    where = parser.add_argument_group("scheduler")
    where.add_argument(
        "--slots", type=int, metavar="N", help="concurrent requests (default: as in the workload, else 16)"
    )
    where.add_argument(
        "--pages", type=int, metavar="N", help="number of KV pages of 16 tokens (default: as in the workload)"
    )
    where.add_argument("-c", "--ctx", type=int, default=32_768, metavar="N", help="context length (default 32768)")
    where.add_argument(
        "--policy",
        choices=POLICIES,
        default="fair",
        help="fair (default) or fcfs, which puts all requests into one tenant and class",
    )
    where.add_argument(
        "--step-tokens", type=int, default=512, metavar="N", help="maximum tokens in a step (default 512)"
    )
    add_budgets(where)
    add_prefill_ordering(where, "a step with decodes is two launches, and mixes all have it")
    how = parser.add_argument_group("limits and output")
    how.add_argument("--steps", type=int, metavar="N", help="stop after N steps and cancel the remaining requests")
    how.add_argument("--seconds", type=float, metavar="S", help="stop after S seconds of virtual time")
    how.add_argument(
        "--check", type=int, default=32, metavar="N", help="check the invariants every N steps (default 32)"
    )
    how.add_argument(
        "--trace",
        metavar="FILE",
        help="write the last 4096 steps of one workload as a timeline for Chrome or Perfetto",
    )
    how.add_argument("--list", action="store_true", help="list the workloads")
    how.add_argument("--export", metavar="NAME", help="write a workload to stdout as a .jsonl file")
    add_json(parser)
    return parser


def _run_command(arguments: argparse.Namespace) -> int:
    from zinc_rt.cli.report import Report
    from zinc_rt.host.files import check_writable
    from zinc_rt.sched.simulation.workloads import WORKLOADS

    out = choose_output_stream(arguments)
    if arguments.export:
        return _export(arguments)
    check_writable(arguments.trace, report=arguments.json)
    _check_numbers(arguments)
    report = start_report(Report("sched-test"), arguments)
    if arguments.list:
        return _list(report, arguments, out)
    names = arguments.workload or ([] if arguments.mixes else list(WORKLOADS))
    mixes = arguments.mixes or (0 if arguments.workload else MIXES)
    if arguments.trace and len(names) > 1:
        raise UsageError(f"--trace accepts one workload, not {len(names)}", next="name it: --workload NAME")
    workloads = [_find_workload(name) for name in names]
    report.shortcuts = ["predicted, not measured: no card, no model"]
    cost = _choose_cost(arguments)
    report.details["cost"] = asdict(cost)
    if workloads:
        prefill = f", prompts in {arguments.prefill_ordering}" if arguments.prefill_ordering else ""
        terminal.show(f"steps as predicted for a {cost.card} and {cost.model}{prefill}: not measured", out=out)
    for name, workload in zip(names, workloads, strict=True):
        _run(name, workload, arguments, report, out)
    if mixes:
        _run_mixes(arguments, mixes, report, out)
    _show_verdict(report, out)
    return finish_report(report, arguments)


def _show_verdict(report: Report, out: TextIO) -> None:
    counts = report.counts()
    skipped = f", {counts['skip']} skipped" if counts.get("skip") else ""
    failed = [result for result in report.results if result.status == "fail"]
    if failed:
        terminal.show(f"repro {failed[0].repro}", out=out)
        terminal.show(f"FAIL  {len(failed)} of {len(report.results)} checks{skipped}", out=out)
    else:
        terminal.show(f"PASS  {counts.get('pass', 0)} checks{skipped}; times are predicted", out=out)


def _check_numbers(arguments: argparse.Namespace) -> None:
    for name in ("mixes", "slots", "pages", "ctx", "step_tokens", "steps", "seconds", "check"):
        value = getattr(arguments, name)
        if value is not None and not 0 < value < float("inf"):
            raise UsageError(f"--{name.replace('_', '-')} {value:g}: expected more than 0")
    if arguments.seed < 0:
        raise UsageError(f"--seed {arguments.seed}: expected 0 or more")


def _list(report: Report, arguments: argparse.Namespace, out: TextIO) -> int:
    from zinc_rt.cli.report import Result
    from zinc_rt.sched.simulation.workloads import WORKLOADS

    terminal.show(
        terminal.Table(
            ("workload", "tenants", "what it is"),
            [(w.name, len(w.tenants), w.description) for w in WORKLOADS.values()],
        ),
        out=out,
    )
    report.results = [
        Result(
            f"workload/{w.name}",
            "workload",
            "pass",
            reason=w.description,
            measure={"tenants": len(w.tenants), "slots": w.slots},
        )
        for w in WORKLOADS.values()
    ]
    return finish_report(report, arguments)


def _export(arguments: argparse.Namespace) -> int:
    import numpy as np

    from zinc_rt.sched.simulation.workload_file import write_workload

    if arguments.json == "-":
        raise UsageError("--export and --json - cannot both write to stdout", next="name a file: --json FILE")
    workload = _find_workload(arguments.export)
    arrivals = workload.arrivals(np.random.default_rng(arguments.seed))
    print(write_workload(arrivals, workload.tenants), end="")
    return 0


def _find_workload(name: str) -> Workload:
    """Return a built-in workload by name, or the one in a file."""
    from zinc_rt.sched.simulation.workload_file import list_tenants, read_workload
    from zinc_rt.sched.simulation.workloads import WORKLOADS, Workload

    if name in WORKLOADS:
        return WORKLOADS[name]
    if "/" not in name and "." not in name:
        near = suggest_word(name, WORKLOADS)
        raise UsageError(f"no workload {name!r}{near}", next="zinc-rt sched-test --list, or a .jsonl file")
    arrivals = read_workload(name)
    return Workload(name, f"{len(arrivals)} requests", list_tenants(arrivals), lambda random: arrivals)


def _run(name: str, workload: Workload, arguments: argparse.Namespace, report: Report, out: TextIO) -> None:
    import numpy as np

    from zinc_rt.host.chrome_trace import write_chrome
    from zinc_rt.sched.simulation.schedule_checks import run_checks, run_common_checks
    from zinc_rt.sched.simulation.simulate import SimulationSettings, simulate
    from zinc_rt.sched.step_timeline import build_timeline

    arrivals = workload.arrivals(np.random.default_rng(arguments.seed))
    settings = SimulationSettings(
        slots=arguments.slots or workload.slots,
        ctx=arguments.ctx,
        pages=arguments.pages or workload.pages,
        step_tokens=arguments.step_tokens,
        classes=make_classes(arguments),
        policy=arguments.policy,
        seed=arguments.seed,
        check_every=arguments.check,
        most_steps=arguments.steps,
        most_seconds=arguments.seconds,
        prefill_ordering=arguments.prefill_ordering or "",
    )
    cost = _choose_cost(arguments)
    tenants = _choose_tenants(workload, arguments, settings)
    fair = arguments.policy == "fair"
    compared = fair and not arguments.tenants and any(check.needs_baseline for check in workload.checks)
    with show_progress(len(arrivals) * (1 + compared), printable(name), "request") as advance:
        traced = bool(arguments.trace)
        seen = simulate(arrivals, tenants, settings, cost, advance=advance, traced=traced)
        plain = replace(settings, policy="fcfs", check_every=1 << 30)
        compared = compared and seen.broken is None
        baseline = simulate(arrivals, tenants, plain, cost, advance=advance) if compared else None
    report.shortcuts = list(dict.fromkeys([*report.shortcuts, *seen.shortcuts]))
    result = run_common_checks(seen)
    if fair and not arguments.tenants:
        result += run_checks(workload.checks, seen, baseline)
    second = _make_repeat_command(name, arguments, seen)
    results = [_make_result(name, finding, second) for finding in result]
    report.results += results
    report.details.setdefault("workloads", {})[name] = _collect_figures(workload, seen)
    _show(name, workload, seen, results, out)
    if seen.trace is not None:
        write_chrome(build_timeline(seen.trace), arguments.trace)
        terminal.show(
            f"  wrote {arguments.trace}; open it in https://ui.perfetto.dev or chrome://tracing", out=out
        )


def _run_mixes(arguments: argparse.Namespace, count: int, report: Report, out: TextIO) -> None:
    """Run the mixes of consecutive seeds on a shadow device, up to the first FEW with problems."""
    from zinc_rt.cli.report import Result
    from zinc_rt.sched.mixes.shadow_mix import CHECKS, run_shadow_mix

    runs, seed = [], arguments.seed
    again = f" --prefill-ordering {arguments.prefill_ordering}" if arguments.prefill_ordering else ""
    with show_progress(count, "mixes", "mix") as advance:
        for number in range(seed, seed + count):
            runs.append(run_shadow_mix(number, roles=bool(again) or number % 2 == 1))
            advance(1)
            if sum(bool(run.problems) for run in runs) == FEW:
                break
    totals = {
        name: sum(getattr(run, name) for run in runs)
        for name in ("steps", "tokens", "recomputed", "drafted", "accepted")
    }
    report.details["mixes"] = {"seed": seed, "mixes": len(runs), **totals}
    terminal.show(
        f"\nmixes: requests and events at random, with drafts, on a shadow device that tracks all contents\n"
        f"  {len(runs)} mixes, {totals['steps']} steps, {totals['tokens']} tokens, {totals['drafted']} drafted, "
        f"{totals['accepted']} accepted, {totals['recomputed']} recomputed after rejected drafts",
        out=out,
    )
    for check in CHECKS:
        bad = [(run, text) for run in runs for name, text in run.problems if name == check]
        result = Result(
            f"mixes/{check}", "schedule", "fail" if bad else "pass",
            measure={"mixes": len(runs), "problems": len(bad)}, limit={"problems": 0},
        )  # fmt: skip
        if bad:
            run, text = bad[0]
            result.first_bad = {"seed": run.seed, "problem": text, "scheduler": asdict(run.settings)}
            result.repro = f"zinc-rt sched-test --mixes 1 --seed {run.seed}{again}"
        report.results.append(result)
        measure = ", ".join(_format_measure(result.measure, result.limit))
        terminal.show(f"  {result.status}  {check:<30}{measure}", out=out)
        for run, text in bad[:FEW]:
            terminal.show(f"        seed {run.seed}, {run.settings.kind} drafts: {printable(text)}", out=out)


def _choose_tenants(
    workload: Workload, arguments: argparse.Namespace, settings: SimulationSettings
) -> Sequence[Any]:
    from zinc_rt.cli.tenant_file import read_tenants
    from zinc_rt.sched.simulation.simulate import count_pages

    if not arguments.tenants:
        return workload.tenants
    return read_tenants(arguments.tenants, pages=count_pages(settings))


def _make_repeat_command(name: str, arguments: argparse.Namespace, outcome: SimulatedRun) -> str:
    """Return the command that reproduces a failure: up to the failed step, with checks after each step."""
    words = ["zinc-rt", "sched-test", "--workload", name, "--seed", str(arguments.seed)]
    for option in ("slots", "pages", "tenants", "gap_budget", "first_token_budget", "seconds", "prefill_ordering"):
        value = getattr(arguments, option)
        if value is not None:
            words += [f"--{option.replace('_', '-')}", f"{value}"]
    for option, default in (("ctx", 32_768), ("policy", "fair"), ("step_tokens", 512)):
        if (value := getattr(arguments, option)) != default:
            words += [f"--{option.replace('_', '-')}", f"{value}"]
    if outcome.broken is not None:
        words += ["--check", "1"]
    elif arguments.steps is not None:
        words += ["--steps", str(arguments.steps)]
    return shlex.join(words)


def _make_result(name: str, finding: CheckOutcome, again: str) -> Result:
    from zinc_rt.cli.report import Result

    return Result(
        f"{name}/{finding.id}",
        "schedule",
        finding.status,
        reason=finding.reason,
        measure=finding.measure,
        limit=finding.limit,
        first_bad=finding.first_bad,
        repro=again if finding.status == "fail" else "",
    )


def _collect_figures(workload: Workload, outcome: SimulatedRun) -> dict[str, Any]:
    """Return the figures that are reported without a limit."""
    from zinc_rt.sched.simulation.simulation_log import compute_percentiles
    from zinc_rt.sched.tenant import Priority

    log = outcome.log
    classes = {}
    for priority in Priority:
        requests = log.requests_of_class(priority)
        if len(requests):
            first, gaps = (
                compute_percentiles(log.list_first_token_seconds(requests)),
                compute_percentiles(log.list_gap_seconds(priority)),
            )
            classes[priority.name.lower()] = {
                "requests": len(requests),
                "first_token_p50_seconds": first[0],
                "first_token_p99_seconds": first[1],
                "gap_p50_seconds": gaps[0],
                "gap_p99_seconds": gaps[1],
            }
    slots, tokens = log.list_jain_indices()
    return {
        "says": workload.description,
        "settings": {
            name: getattr(outcome.settings, name) for name in outcome.settings.__slots__ if name != "classes"
        },
        "budgets": {
            priority.name.lower(): {"gap_ns": row.gap_ns, "first_token_ns": row.first_token_ns}
            for priority, row in outcome.settings.classes.items()
        },
        "limited_steps": outcome.counts.limited_steps,
        "infeasible_steps": outcome.counts.infeasible_steps,
        "infeasible_ns": outcome.counts.infeasible_ns,
        "virtual_seconds": outcome.seconds,
        "steps": outcome.steps,
        "tokens_per_second": log.count_delivered_tokens() / outcome.seconds if outcome.seconds else 0.0,
        "prefix_hit_share": log.compute_hit_share(),
        "parked": outcome.counts.parked,
        "evicted": outcome.counts.evicted,
        "jain": {"slots": _compute_mean(slots), "tokens": _compute_mean(tokens), "windows": len(slots)},
        "classes": classes,
    }


def _compute_mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _show(name: str, workload: Workload, outcome: SimulatedRun, results: Sequence[Result], out: TextIO) -> None:
    figures = _collect_figures(workload, outcome)
    terminal.show(
        f"\n{printable(name)}: {printable(workload.description)}",
        f"  {len(outcome.log.prompt)} requests, {outcome.steps} steps, {outcome.seconds:.0f} s of virtual time, "
        f"{figures['tokens_per_second']:.0f} tok/s, "
        f"{100 * figures['prefix_hit_share']:.0f} % of prompt tokens cached, "
        f"{outcome.counts.parked} parked, {outcome.counts.evicted} evicted",
        out=out,
    )
    for item, row in figures["classes"].items():
        terminal.show(
            f"  {item:<12}first token p50 {1e3 * row['first_token_p50_seconds']:.0f} ms, "
            f"p99 {1e3 * row['first_token_p99_seconds']:.0f} ms; "
            f"gap p50 {1e3 * row['gap_p50_seconds']:.1f} ms, p99 {1e3 * row['gap_p99_seconds']:.1f} ms",
            out=out,
        )
    if outcome.counts.limited_steps or outcome.counts.infeasible_steps:
        terminal.show(f"  {_describe_budget(outcome)}", out=out)
    for result in results:
        what = result.reason or ", ".join(_format_measure(result.measure, result.limit))
        terminal.show(f"  {result.status}  {result.id.rpartition(name + '/')[2]:<30}{printable(what)}", out=out)
        if result.status == "fail" and result.first_bad:
            bad = ", ".join(f"{key} {value}" for key, value in result.first_bad.items() if key != "traceback")
            terminal.show(f"        first bad: {printable(bad)}", out=out)


def _describe_budget(outcome: SimulatedRun) -> str:
    """Return the effect of the latency budgets, and the steps in which they cannot be kept."""
    counts = outcome.counts
    text = f"latency budget limited the prompts of {counts.limited_steps} steps"
    if not counts.infeasible_steps:
        return text
    longest_ms = counts.infeasible_ns / 1e6
    return f"{text}; infeasible in {counts.infeasible_steps}: decodes alone would take up to {longest_ms:.1f} ms"


def _format_measure(measure: dict[str, Any], limit: dict[str, Any]) -> list[str]:
    """Format a figure with its limit: `steps_most 2 (limit 4)`."""
    return [
        f"{key} {value:.3g}{f' (limit {limit[key]:.3g})' if key in limit else ''}"
        if isinstance(value, float)
        else f"{key} {value}{f' (limit {limit[key]})' if key in limit else ''}"
        for key, value in measure.items()
    ]


def _choose_cost(arguments: argparse.Namespace) -> StepCost:
    from zinc_rt.sched.step_cost import PREDICTED_BY_PREFILL

    return PREDICTED_BY_PREFILL[arguments.prefill_ordering or ""]


main = Command("sched-test", parser, _run_command)
