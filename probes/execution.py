"""Implement the commands that run probes: device and probe selection, the run, and its messages."""

from __future__ import annotations

import argparse
import re
import secrets
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from zinc_rt.backends.amd.kmd_log import KmsgLog
from zinc_rt.cli.output import choose_output_stream, start_report
from zinc_rt.cli.progress import show_stages
from zinc_rt.host import locks, terminal
from zinc_rt.host.errors import NothingRan, UsageError
from zinc_rt.host.facts import find_assumed_facts, report_rows
from zinc_rt.probes import combinations, registry
from zinc_rt.probes.device import parse_device, require_amd_gpu
from zinc_rt.probes.device_description import describe_device
from zinc_rt.probes.device_spec import DeviceSpec
from zinc_rt.probes.expectations import Expectations, load_expectations
from zinc_rt.probes.journal import Journal, default_path
from zinc_rt.probes.kit.context import ProbeOptions
from zinc_rt.probes.learning import facts_file
from zinc_rt.probes.outcome import T1, T2
from zinc_rt.probes.output import passed, table
from zinc_rt.probes.output.results import check_outputs, find_bundle_writer, report_of, write_results
from zinc_rt.probes.probe import Probe
from zinc_rt.probes.report import ProbeReport
from zinc_rt.probes.runner import ProbeRunner, RunPlan

OURS = re.compile(r"amdgpu|kfd|\bMES\b|page fault|\bring\b|\bdrm\b", re.IGNORECASE)
FIX = "sudo sysctl kernel.dmesg_restrict=0 (until the next boot), or run `sudo dmesg` beside it"


class GpuMessages:
    """GPU messages of the kernel from now on. A simulated device has its own log, and each probe returns
    what it observed."""

    def __init__(self, *, simulated: bool, log: KmsgLog | None = None) -> None:
        self._log = None if simulated else (log or KmsgLog())
        self.missing = ""
        if self._log is not None and self._log.missing:
            self.missing = f"{self._log.missing.split(';')[0]}; fix: {FIX}"

    def lines(self) -> tuple[str, ...]:
        """Return the lines about the GPU."""
        if self._log is None:
            return ()
        return tuple(line for line in self._log.lines() if OURS.search(line))


def run_command(arguments: argparse.Namespace, name: str, probes: Sequence[Probe]) -> int:
    """List the probes or run them, and write the results. Return the exit code."""
    for flag in ("json", "tap", "junit", "bundle"):
        if arguments.list and getattr(arguments, flag) is not None:
            raise UsageError(f"--{flag} requires a run", next="leave out --list")
    _parse_tiers(arguments.tiers)
    chosen = registry.select_probes(probes, arguments.select, f"zinc-rt-{name}")
    if arguments.list:
        terminal.show(table.list_probes(chosen))
        return 0
    report = run_probes(arguments, name, probes)
    write_results(arguments, report)
    return report.exit_code()


def run_probes(arguments: argparse.Namespace, name: str, probes: Sequence[Probe]) -> ProbeReport:
    """Run the probes that the options select and show each result.

    Raises NothingRan, after the report is written, if the device does not exist; UsageError and InputError for
    wrong options and files.
    """
    tiers = _parse_tiers(arguments.tiers)
    chosen = registry.select_probes(probes, arguments.select, f"zinc-rt-{name}")
    spec = parse_device(
        arguments.device,
        arguments.inject,
        arguments.reorder,
        arguments.facts,
        arguments.force_facts,
        arguments.flip,
    )
    if arguments.coherence and not spec.simulated:
        raise UsageError("--coherence: supported only by a simulated device", next="add --device sim")
    if spec.simulated:
        spec = replace(spec, coherence=arguments.coherence, shared=f"{name}-{secrets.token_hex(4)}")
    expectations = _load_expectations(arguments.expect, probes)
    try:
        require_amd_gpu(spec, f"zinc-rt-{name}")
    except NothingRan as nothing:
        check_outputs(arguments)
        write_results(arguments, start_report(report_of(nothing, name), arguments))
        raise
    check_outputs(arguments)
    out = sys.stderr if arguments.tap == "-" else choose_output_stream(arguments)
    show = partial(terminal.show, out=out)
    device = describe_device(spec)
    _check_chip(expectations, device)
    report = ProbeReport(name, device=device, strict=arguments.strict)
    start_report(report, arguments)
    report.shortcuts += spec.shortcuts
    messages = GpuMessages(simulated=spec.simulated)
    show(table.format_header(device))
    if messages.missing and not spec.simulated:
        show(f"log       {messages.missing}")
    plan = _plan_run(arguments, spec, tiers, device, expectations)
    if plan.why_hazard:
        show(f"hazard    0 by default: {plan.why_hazard}; --hazard 1 runs more")
    journal = _open_journal(arguments, spec, device)
    runner = ProbeRunner(plan, chosen, journal, command=f"zinc-rt-{name}", kernel_log=messages.lines)
    if damage := journal.describe_damage():
        show(f"journal   {damage}")
    for suspected, suspect in runner.suspects.items():
        what = "the machine was reset" if suspect.reset else "the harness ended"
        show(f"journal   {what} while {suspected} ran ({suspect.when})")
    show("")
    with ExitStack() as stack:
        stage = stack.enter_context(show_stages(len(runner.list_jobs()), "probe", plain=True))
        if not spec.simulated:
            stack.enter_context(locks.hold_gpu(str(device.get("render_path") or spec.option)))
        for result in runner.run(stage.say):
            stage.clear()
            report.results.append(result)
            show(table.make_result_row(result))
    if name == "pm4-test" and not plan.learn and not spec.simulated:
        for line in passed.write_note(report, device, runner.suspects, hazard=plan.hazard):
            show(line)
    if plan.learn:
        show("")
        show(facts_file.write_facts(Path(plan.learn), report, firmware=device.get("firmware") or {}))
    if spec.simulated:
        report.details["assumptions"] = report_rows(find_assumed_facts(runner.marks))
    report.details["kernel_log"] = [*messages.lines(), *runner.log]
    report.details["kernel_log_missing"] = messages.missing
    size_bytes = find_bundle_writer().save(arguments.bundle, report, spec, runner.hangs) if arguments.bundle else 0
    for result in report.results:
        if result.status == "fail" or (result.cause and result.status == "skip"):
            show("")
            show(table.format_evidence(result))
    show("")
    if arguments.bundle:
        show(f"bundle    {arguments.bundle}, {size_bytes / 1000:.0f} kB: read its README.txt before you share it")
    show(table.format_verdict(report, strict=arguments.strict))
    report.hangs = dict(runner.hangs)
    return report


def _parse_tiers(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    named = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    wrong = [name for name in named if name not in (T1, T2)]
    if wrong:
        raise UsageError(f"--tiers {wrong[0]!r}: expected t1, t2 or t1,t2")
    return named


def _load_expectations(path: Path | None, probes: Sequence[Probe]) -> Expectations:
    if path is None:
        return Expectations()
    known = {probe.id for probe in probes} | {f"{probe.id}/{tier}" for probe in probes for tier in probe.tiers}
    return load_expectations(path, known)


def _check_chip(expectations: Expectations, device: dict[str, Any]) -> None:
    if expectations.chip and device["arch"] and expectations.chip != device["arch"]:
        raise UsageError(f"--expect is for {expectations.chip}, this device is {device['arch']}")


def _plan_run(
    arguments: argparse.Namespace,
    spec: DeviceSpec,
    tiers: tuple[str, ...],
    device: dict[str, Any],
    expectations: Expectations,
) -> RunPlan:

    hazard, why_hazard = arguments.hazard, ""
    if hazard is None:
        hazard, why_hazard = _choose_hazard(spec, device)
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
        learn=arguments.learn or "",
        known=combinations.find_statements(device),
        expectations=expectations,
    )


def _choose_hazard(spec: DeviceSpec, device: dict[str, Any]) -> tuple[int, str]:
    """Return the highest hazard that runs by default, and the reason if it is reduced."""
    if spec.simulated:
        return 2, ""
    if device.get("displays"):
        return 0, f"this GPU drives {', '.join(device['displays'])}, and a hang would freeze the screen"
    if not device.get("displays_known"):
        return 0, "cannot determine whether this GPU drives a display"
    return 1, ""


def _open_journal(arguments: argparse.Namespace, spec: DeviceSpec, device: dict[str, Any]) -> Journal:
    """Return the journal's path. A simulated device cannot crash the machine, so it needs a journal only if one is
    named.
    """

    path = arguments.journal or (None if spec.simulated else default_path())
    return Journal(path, spec.option if spec.simulated else str(device.get("render_path") or spec.option))
