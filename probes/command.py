"""Bring a GPU up from nothing: one probe a step, and for each failure its cause and what to do."""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zinc_rt import terminal
from zinc_rt.arguments import Parser
from zinc_rt.cli import Command
from zinc_rt.commands.output import begin
from zinc_rt.commands.progress import stages
from zinc_rt.errors import NothingRan, UsageError
from zinc_rt.terminal import Part

if TYPE_CHECKING:
    from zinc_rt.probes.device_spec import DeviceSpec
    from zinc_rt.probes.expectations import Expectations
    from zinc_rt.probes.probe import Probe
    from zinc_rt.probes.runner import ProbeRunner, RunPlan
    from zinc_rt.report import Report

EPILOG = """\
examples:
  zinc-rt pm4-test                                   the machine's GPU, nothing that hangs on purpose
  zinc-rt pm4-test --hazard 1                        also where that GPU lights your display: save your work first
  zinc-rt pm4-test --device sim                      a simulated R9700: says nothing about hardware
  zinc-rt pm4-test -k P20 --tiers t1                 one probe; -k P18-P24 a range, -k fence a word
  zinc-rt pm4-test --device sim --inject no-eop      what a missing EOP buffer looks like
  zinc-rt pm4-test --learn facts.json                what no manual says, asked of the card
  zinc-rt pm4-test --device sim --facts facts.json   a simulated device that behaves as that card does
  zinc-rt pm4-test --hazard 2 --bundle out/          faults and hangs too, with everything worth sending on

Exit code: 0 everything that ran passed, 1 a probe failed, 2 wrong usage, 77 no AMD GPU or nothing ran.
"""


def parser() -> argparse.ArgumentParser:
    made = Parser(description=__doc__, epilog=EPILOG)
    add_choice(made)
    add_hazard(made)
    made.add_argument("--again", action="store_true", help="also what was running when the machine was reset")
    made.add_argument(
        "--learn", metavar="FACTS.json", help="ask the device what the references leave open, and write it down"
    )
    made.add_argument("--soak", type=_positive, default=0.0, metavar="MINUTES", help="mixed packets in P56")
    made.add_argument("--manual", action="store_true", help="P56 asks you to suspend the machine")
    made.add_argument("--journal", type=Path, metavar="FILE", help="where begun probes are noted, synced to disk")
    add_results(made)
    return made


def add_choice(made: argparse.ArgumentParser) -> None:
    """Which device, which probes."""
    made.add_argument(
        "--device",
        default="auto",
        metavar="WHICH",
        help="auto or hw (never simulated), sim, sim:CHIP[@LINUX] or /dev/dri/renderDN (default auto)",
    )
    made.add_argument("--tiers", metavar="t1,t2", help="t1 (KFD), t2 (user queues); named ones must exist")
    made.add_argument("-k", default="", metavar="WHAT", dest="select", help="ids, ranges or words of a title")
    made.add_argument("--list", action="store_true", help="all probes, and what each proves")
    made.add_argument(
        "--inject", action="append", default=[], metavar="NAME", help="a fault of the simulated device"
    )
    made.add_argument(
        "--reorder",
        type=int,
        metavar="SEED",
        help="a simulated device finishes concurrent work in any order, seeded",
    )
    made.add_argument(
        "--facts", default="", metavar="F", help="a simulated device behaves as --learn F found a card to"
    )
    made.add_argument("--force-facts", action="store_true", help="facts of another chip, or of a simulated device")
    made.add_argument(
        "--flip",
        action="append",
        default=[],
        metavar="ID",
        help="a simulated device takes an assumption at its other value (zinc-rt assumptions names them)",
    )
    made.add_argument(
        "--expect", type=Path, metavar="FILE", help="known failures of this chip, with their reasons"
    )
    made.add_argument(
        "--timeout", type=_positive, default=0.0, metavar="S", help="for each probe (default its own)"
    )


def add_hazard(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--hazard",
        type=int,
        choices=(0, 1, 2),
        help="0 cannot hang, 1 may, 2 hangs on purpose (default 1; 0 on a GPU that lights a display, 2 on a "
        "simulated device)",
    )
    made.add_argument("--force", action="store_true", help="hazard 2 even on a GPU that drives a display")


def add_results(made: argparse.ArgumentParser) -> None:
    out = made.add_argument_group("results")
    out.add_argument("--json", metavar="F", help="the whole report (- for standard output)")
    out.add_argument("--junit", metavar="F", help="JUnit XML for CI")
    out.add_argument("--tap", metavar="F", help="TAP 14 (- for standard output)")
    out.add_argument(
        "--bundle",
        type=Path,
        metavar="OUT",
        help="report, hangs, kernel log and what the machine is, without private things, to send on: a folder, or "
        "a file that ends in .tar.gz or .tar.zst (zinc-rt bundle)",
    )
    out.add_argument("--strict", action="store_true", help="a skipped probe fails")


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError
    return value


def _body(arguments: argparse.Namespace) -> int:
    from zinc_rt.probes.learning.learn import PROBES as FACTS
    from zinc_rt.probes.registry import PROBES

    return execute(arguments, "pm4-test", FACTS if arguments.learn else PROBES)


def execute(arguments: argparse.Namespace, name: str, probes: Sequence[Probe]) -> int:
    """What both commands over probes do."""
    from zinc_rt import gpu_lock
    from zinc_rt.facts import leaned_on, told
    from zinc_rt.probes import registry
    from zinc_rt.probes.device import parse, require_amd_gpu
    from zinc_rt.probes.gpu_messages import GpuMessages
    from zinc_rt.probes.learning import facts_file
    from zinc_rt.probes.output import passed, table
    from zinc_rt.probes.runner import ProbeRunner
    from zinc_rt.report import Report

    for flag in ("json", "tap", "junit", "bundle"):
        if arguments.list and getattr(arguments, flag) is not None:
            raise UsageError(f"--{flag} goes with a run", next="leave out --list")
    tiers = _tiers(arguments.tiers)
    chosen = registry.select(probes, arguments.select, f"zinc-rt-{name}")
    if arguments.list:
        terminal.show(table.listing(chosen))
        return 0
    spec = parse(
        arguments.device,
        arguments.inject,
        arguments.reorder,
        arguments.facts,
        arguments.force_facts,
        arguments.flip,
    )
    if spec.simulated:
        spec = replace(spec, shared=f"{name}-{secrets.token_hex(4)}")
    expectations = _expectations(arguments.expect, probes)
    try:
        require_amd_gpu(spec, f"zinc-rt-{name}")
    except NothingRan as nothing:
        _check_outputs(arguments)
        _write(arguments, begin(_report_of(nothing, name), arguments))
        raise
    _check_outputs(arguments)
    show = _to_stderr if "-" in (arguments.json, arguments.tap) else _print
    device = describe_device(spec)
    _same_chip(expectations, device)
    report = begin(Report(name, device=device), arguments)
    if spec.simulated:
        report.shortcuts.append(f"the simulated driver's time-outs are {spec.time_scale:g} of the real ones")
        if spec.facts:
            report.shortcuts.append(f"the simulated device behaves by {spec.facts}")
        for name in spec.flip:
            report.shortcuts.append(f"the simulated device takes {name} at its other value")
        if spec.reorder is not None:
            report.shortcuts.append(f"concurrent work finishes in an order of its own, seed {spec.reorder}")
    messages = GpuMessages(simulated=spec.simulated)
    show(table.header(device))
    if messages.missing and not spec.simulated:
        show(f"log       {messages.missing}")
    plan = _plan(arguments, spec, tiers, device, expectations)
    if plan.why_hazard:
        show(f"hazard    0 by default: {plan.why_hazard}; --hazard 1 runs more")
    journal = _journal(arguments, spec, device)
    runner = ProbeRunner(plan, chosen, journal, command=f"zinc-rt-{name}", kernel_log=messages.lines)
    for suspected, suspect in runner.suspects.items():
        what = "the machine was reset" if suspect.reset else "the harness ended"
        show(f"journal   {what} while {suspected} ran ({suspect.when})")
    show("")
    with ExitStack() as alone:
        stage = alone.enter_context(stages())
        if not spec.simulated:
            alone.enter_context(gpu_lock.held(str(device.get("render_path") or spec.option)))
        for result in runner.run(stage.say):
            stage.clear()
            report.results.append(result)
            show(table.line(result))
    if name == "pm4-test" and not plan.learn and not spec.simulated:
        for line in passed.note(report, device, runner.suspects, hazard=plan.hazard):
            show(line)
    if plan.learn:
        show("")
        show(facts_file.write(Path(plan.learn), report, firmware=device.get("firmware") or {}))
    if spec.simulated:
        report.details["assumptions"] = told(leaned_on(runner.marks))
    report.details["kernel_log"] = [*messages.lines(), *runner.log]
    report.details["kernel_log_missing"] = messages.missing
    _finish(arguments, report, spec, runner, show)
    return report.exit_code(strict=arguments.strict)


def _finish(
    arguments: argparse.Namespace, report: Report, spec: DeviceSpec, runner: ProbeRunner, show: Any
) -> None:
    from zinc_rt.probes.output import bundle, table

    size_bytes = bundle.save(arguments.bundle, report, spec, runner.hangs) if arguments.bundle else 0
    for result in report.results:
        if result.status == "fail" or (result.cause and result.status == "skip"):
            show("")
            show(table.story(result))
    show("")
    if arguments.bundle:
        show(
            f"bundle    {arguments.bundle}, {size_bytes / 1000:.0f} kB: read its README.txt before you send it on"
        )
    show(table.verdict(report, strict=arguments.strict))
    _write(arguments, report)


def _write(arguments: argparse.Namespace, report: Report) -> None:
    from zinc_rt.junit import to_junit
    from zinc_rt.probes.output.tap import to_tap
    from zinc_rt.report import to_json, write_text

    for path, content in (
        (arguments.json, to_json(report, strict=arguments.strict)),
        (arguments.tap, to_tap(report)),
        (arguments.junit, to_junit(report)),
    ):
        if path == "-":
            print(content)
        elif path:
            write_text(path, content)


def _report_of(nothing: NothingRan, name: str) -> Report:
    """For who reads reports and not words: that nothing ran, and why."""
    from zinc_rt.report import Report, Result

    device = {"name": "", "arch": "", "simulated": False}
    return Report(
        name,
        device=device,
        results=[Result("device", "probe", "skip", reason=nothing.message, advice=nothing.next)],
    )


def _check_outputs(arguments: argparse.Namespace) -> None:
    """Before hours of probes. Raises OutputError or UsageError for what could not be written at their end."""
    from zinc_rt.files import check_writable

    if arguments.json == arguments.tap == "-":
        raise UsageError("--json - and --tap -: stdout holds one of them", next="name a file for the other")
    tap, bundle = arguments.tap, arguments.bundle
    check_writable(
        arguments.junit, None if tap == "-" else tap, getattr(arguments, "learn", None), report=arguments.json
    )
    if bundle is not None:
        from zinc_rt.probes.output.bundle import check

        check(bundle)


def _tiers(text: str | None) -> tuple[str, ...]:
    from zinc_rt.probes.outcome import T1, T2

    if text is None:
        return ()
    named = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    wrong = [name for name in named if name not in (T1, T2)]
    if wrong:
        raise UsageError(f"--tiers {wrong[0]!r}: wanted t1, t2 or t1,t2")
    return named


def _expectations(path: Path | None, probes: Sequence[Probe]) -> Expectations:
    from zinc_rt.probes.expectations import Expectations, load

    if path is None:
        return Expectations()
    known = {probe.id for probe in probes} | {f"{probe.id}/{tier}" for probe in probes for tier in probe.tiers}
    return load(path, known)


def _same_chip(expectations: Expectations, device: dict[str, Any]) -> None:
    if expectations.chip and device["arch"] and expectations.chip != device["arch"]:
        raise UsageError(f"--expect is for {expectations.chip}, this device is {device['arch']}")


def describe_device(spec: DeviceSpec) -> dict[str, Any]:
    """Name, arch, kernel, firmware, displays: asked in a child, of the device as it is without ordered faults."""
    from zinc_rt.probes.child import run_apart
    from zinc_rt.probes.device_description import describe

    healthy = replace(
        spec, inject=(), shared=""
    )  # what the device is does not depend on the faults ordered from it
    ended = run_apart(partial(describe, healthy), 20.0)
    if ended.how == "returned" and isinstance(ended.value, dict):
        return ended.value
    problem = ended.text.strip().splitlines()[-1] if ended.text else ended.how
    return {"name": "", "arch": "", "simulated": spec.simulated, "profile": spec.profile, "problem": problem}


def _plan(
    arguments: argparse.Namespace,
    spec: DeviceSpec,
    tiers: tuple[str, ...],
    device: dict[str, Any],
    expectations: Expectations,
) -> RunPlan:
    from zinc_rt.probes import combinations, registry
    from zinc_rt.probes.context import ProbeOptions
    from zinc_rt.probes.outcome import T1, T2
    from zinc_rt.probes.runner import RunPlan

    hazard, why_hazard = arguments.hazard, ""
    if hazard is None:
        hazard, why_hazard = _default_hazard(spec, device)
    both = tiers or (T1, T2)
    return RunPlan(
        spec,
        both,
        hazard,
        ProbeOptions(both, forced=bool(tiers), soak_minutes=arguments.soak, manual=arguments.manual),
        next(probe for probe in registry.PROBES if probe.id == registry.ALIVE),
        timeout_seconds=arguments.timeout,
        displays=tuple(device.get("displays", ())),
        force=arguments.force,
        why_hazard=why_hazard,
        again=arguments.again,
        learn=getattr(arguments, "learn", None) or "",
        known=combinations.quotes(device),
        expectations=expectations,
    )


def _default_hazard(spec: DeviceSpec, device: dict[str, Any]) -> tuple[int, str]:
    """What runs unasked, and why no more does, where that surprises."""
    if spec.simulated:
        return 2, ""
    if device.get("displays"):
        return 0, f"this GPU lights {', '.join(device['displays'])}, and a hang would freeze the screen"
    if not device.get("displays_known"):
        return 0, "whether this GPU lights a display cannot be seen from here"
    return 1, ""


def _journal(arguments: argparse.Namespace, spec: DeviceSpec, device: dict[str, Any]) -> Any:
    """A simulated device takes no machine down: it keeps a journal only where one is named."""
    from zinc_rt.probes.journal import Journal, default_path

    path = arguments.journal or (None if spec.simulated else default_path())
    return Journal(path, spec.option if spec.simulated else str(device.get("render_path") or spec.option))


def _print(text: Part) -> None:
    terminal.show(text)


def _to_stderr(text: Part) -> None:
    terminal.show(text, out=sys.stderr)


main = Command("pm4-test", parser, _body)
