"""Implement zinc-rt vulkan-test: device and probe selection, the run, and its messages."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import Any

from zinc_rt.backends.vulkan.choose import pick_device
from zinc_rt.backends.vulkan.physical_device import PhysicalDevice
from zinc_rt.backends.vulkan.tier import describe_device, require_devices
from zinc_rt.cli.output import start_report
from zinc_rt.cli.progress import show_stages
from zinc_rt.cli.report import Report
from zinc_rt.engine import devices
from zinc_rt.host import terminal
from zinc_rt.host.errors import NothingRan, UnsupportedError, UsageError, ZincError
from zinc_rt.host.files import state_directory
from zinc_rt.probes import registry
from zinc_rt.probes.child import run_in_child
from zinc_rt.probes.device_spec import DeviceSpec
from zinc_rt.probes.endings import run_in
from zinc_rt.probes.journal import Journal
from zinc_rt.probes.kit.context import ProbeOptions
from zinc_rt.probes.outcome import VULKAN, Outcome
from zinc_rt.probes.output import table
from zinc_rt.probes.output.results import check_outputs, report_of, write_results
from zinc_rt.probes.probe import Probe
from zinc_rt.probes.runner import ProbeRunner, RunPlan
from zinc_rt.probes.vulkan import groups
from zinc_rt.probes.vulkan.context import VulkanProbeContext

COMMAND = "zinc-rt-vulkan-test"
PROBES = registry.find_package_probes(groups)
ALIVE = "V05"
ASK_SECONDS = 30.0  # that drivers may take to say what devices there are


class VulkanProbeRunner(ProbeRunner):
    def make_body(self, probe: Probe, tier: str) -> Callable[[], Iterator[Outcome]]:
        return partial(run_in_context, probe, self.plan.spec, tier, self.plan.options)

    def hazard_option(self, hazard: int) -> str:
        return "--may-hang"

    def repro(self, probe: Probe, tier: str) -> str:
        words = [self.command, "--device", self.plan.spec.option, "-k", probe.id]
        words += ["--may-hang"] if probe.hazard >= 2 else []
        words += ["--timeout", f"{self.plan.timeout_seconds:g}"] if self.plan.timeout_seconds else []
        return shlex.join(words)


def run_in_context(probe: Probe, spec: DeviceSpec, tier: str, options: ProbeOptions) -> Iterator[Outcome]:
    """Run the probe in the child."""
    return run_in(VulkanProbeContext(spec, tier, options), probe.run)


def run_command(arguments: argparse.Namespace) -> int:
    """Run the probes. Raises NothingRan if Vulkan has no device, UsageError for an unknown one."""
    chosen = registry.select_probes(PROBES, arguments.select, COMMAND)
    if arguments.list:
        terminal.show(table.list_probes(chosen))
        return 0
    check_outputs(arguments)
    try:
        device = _choose_device(arguments.device)
    except NothingRan as nothing:
        write_results(arguments, start_report(report_of(nothing, "vulkan-test"), arguments))
        raise
    show = partial(terminal.show, out=sys.stderr) if "-" in (arguments.json, arguments.tap) else terminal.show
    about = {"tier": VULKAN, **asdict(describe_device(device))}
    report = start_report(Report("vulkan-test", device=about), arguments)
    show(format_header(device, about))
    plan = RunPlan(
        DeviceSpec(render_path=device.option),
        (VULKAN,),
        2 if arguments.may_hang else 1,
        ProbeOptions((VULKAN,)),
        next(probe for probe in PROBES if probe.id == ALIVE),
        timeout_seconds=arguments.timeout,
    )
    journal = Journal(state_directory() / "vulkan-test.journal" if arguments.may_hang else None, plan.spec.option)
    runner = VulkanProbeRunner(plan, chosen, journal, command=COMMAND)
    show("")
    with ExitStack() as stack:
        stage = stack.enter_context(show_stages())
        for result in runner.run(stage.say):
            stage.clear()
            report.results.append(result)
            show(table.make_result_row(result, id_width=10))
    for result in report.results:
        if result.status == "fail":
            show("")
            show(table.format_evidence(result))
    show("")
    software = "on a software driver: not the speed of a GPU" if device.is_cpu else ""
    show(table.format_verdict(report, strict=arguments.strict) + software)
    write_results(arguments, report)
    return report.exit_code(strict=arguments.strict)


def format_header(device: PhysicalDevice, about: dict[str, Any]) -> str:
    """Print the device, its driver and the layers."""
    words = [
        f"device    {device.option} {device.name} ({device.kind})",
        f"driver    {device.driver}, {about['firmware']}",
        f"kernel    {about['kernel']}",
    ]
    words += [f"named     {about['driver_files']}"] if about["driver_files"] else []
    words += [f"layers    {', '.join(about['layers'])}"] if about["layers"] else []
    return "\n".join(words)


def _choose_device(which: str) -> PhysicalDevice:
    """Return the named device, usable or not. Raises NothingRan if Vulkan has no device, UnsupportedError if one
    was requested by name, UsageError if the name or number matches none.
    """
    named, part = devices.parse_device(which)
    if which == "sim" or (named is not None and named.tier != VULKAN):
        raise UsageError(f"--device {which}: no such Vulkan device", next="zinc-rt devices lists them")
    device, reason, next_ = _query_requested_device()
    if not device:
        kind = UnsupportedError if named is not None else NothingRan
        raise kind(reason, next=next_)
    return pick_device(device, which if which in ("hw", "cpu") else part)


def _query_requested_device() -> tuple[tuple[PhysicalDevice, ...], str, str]:
    """List the devices in a separate process, because a driver does not survive the fork of a probe. If there are
    none, also return the reason and advice."""
    ended = run_in_child(_ask, ASK_SECONDS)
    if ended.how == "returned":
        answer: tuple[tuple[PhysicalDevice, ...], str, str] = ended.value
        return answer
    last = ended.text.strip().splitlines()[-1]
    return (
        (),
        f"a Vulkan driver or layer crashed its process: {last}",
        "VK_DRIVER_FILES=FILE selects a single driver",
    )


def _ask() -> tuple[tuple[PhysicalDevice, ...], str, str]:
    try:
        return require_devices(), "", ""
    except ZincError as error:
        return (), error.message, error.next
