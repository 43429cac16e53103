"""Show each GPU and tier of this machine: usable or not, and why."""

from __future__ import annotations

import argparse
import platform
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from zinc_rt.cli.command import Command
from zinc_rt.cli.output import add_json, choose_output_stream, finish_report, start_report
from zinc_rt.host import terminal
from zinc_rt.host.arguments import Parser
from zinc_rt.host.terminal import Table

if TYPE_CHECKING:
    from zinc_rt.backends.spec import OnDevice
    from zinc_rt.kmd.discover import GpuInventory
    from zinc_rt.kmd.driver import Driver

EXAMPLES = """\
t1 uses /dev/kfd, t2 amdgpu user queues, vulkan any Vulkan driver. t_cpu needs no driver. The command queries
drivers and allocates nothing on a GPU. --device vulkan:N takes the N of the table. On a new card, run this command
first, then zinc-rt bring-up.

examples:
  zinc-rt devices
  zinc-rt devices --json -
"""


SIMULATED = "zinc-rt pm4-test --device sim runs the probes on a simulated GPU, which says nothing about hardware"


@dataclass(frozen=True, slots=True)
class TierRow:
    device: str
    tier: str
    usable: bool
    why: str
    next: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


def parser() -> argparse.ArgumentParser:
    parser = Parser(
        description="Show each GPU and tier of this machine: usable or not, why, and what to do.",
        epilog=EXAMPLES,
    )
    add_json(parser)
    return parser


def show_devices(arguments: argparse.Namespace, driver: Driver | None) -> int:
    """Print the table and write the report. `driver` None: not Linux, so there is no GPU tier."""
    from zinc_rt.cli.report import Report, Result
    from zinc_rt.host.files import check_writable
    from zinc_rt.kmd.discover import GpuInventory, find_gpus

    check_writable(report=arguments.json)
    machine = find_gpus(driver) if driver else GpuInventory((), (f"GPU tiers need Linux, this is {sys.platform}",))
    rows = list_tiers(machine, driver)
    out = choose_output_stream(arguments)
    terminal.show(_make_table(rows), out=out)
    for note in machine.notes:
        terminal.show(f"note      {note}", out=out)
    beside = [row for row in rows if row.usable and row.facts.get("software") is False]
    if beside:
        terminal.show(f"note      Vulkan runs on {beside[0].device}: --tier vulkan", out=out)
    if not machine.gpus:
        terminal.show("note      no AMD GPU found: commands without --device use the CPU", out=out)
        terminal.show(f"next      {SIMULATED}", out=out)
    for row in rows:
        if row.next:
            terminal.show(f"next      {row.device} {row.tier}: {row.next}", out=out)
    usable = [f"{row.tier} on {row.device}" for row in rows if row.usable]
    terminal.show(f"usable    {', '.join(usable) or 'nothing'}", out=out)

    report = start_report(Report("devices"), arguments)
    for row in rows:
        report.results.append(
            Result(
                f"{row.device}/{row.tier}",
                "tier",
                "pass" if row.usable else "skip",
                tier=row.tier,
                reason=row.why,
                advice=row.next,
                measure=row.facts,
            )
        )
    report.device = {"kernel": platform.release(), "simulated": bool(driver and driver.simulated)}
    report.details = {
        "gpus": [
            {
                "render_node": gpu.render_path,
                "arch": gpu.arch,
                "pci": gpu.pci_address,
                "device_id": gpu.device_id,
                "driver": gpu.kmd_name,
                "properties": dict(gpu.node.properties) if gpu.node else {},
            }
            for gpu in machine.gpus
        ],
        "notes": list(machine.notes),
        "simulated_device": SIMULATED,
    }
    return finish_report(report, arguments)


def list_tiers(machine: GpuInventory, driver: Driver | None) -> list[TierRow]:
    """Return a row for each GPU and tier, then those for tiers without a GPU."""
    from zinc_rt.backends import registry
    from zinc_rt.backends.spec import Host, OnDevice
    from zinc_rt.host.machine import count_available_cores

    host = Host(count_available_cores(), driver, machine.gpus)
    rows: list[TierRow] = []
    for spec in registry.built():
        availability = spec.probe(host)
        if driver is not None and spec.simulable:
            availability = replace(
                availability,
                devices=tuple(_read_bring_up_status(driver, spec.tier, device) for device in availability.devices),
            )
        is_shown = availability.usable or spec.lists_devices  # that none has a driver is worth a row
        alone = [OnDevice("host", availability.usable, availability.why, availability.next)] if is_shown else []
        rows += [
            TierRow(device.device, spec.tier, device.usable, device.why, device.next, device.facts)
            for device in availability.devices or alone
        ]
    order = list(dict.fromkeys(f"{gpu.name} {gpu.arch}".strip() for gpu in machine.gpus))
    return sorted(rows, key=lambda row: order.index(row.device) if row.device in order else len(order))


def _read_bring_up_status(driver: Driver, tier: str, device: OnDevice) -> OnDevice:
    """Return a row with the result of pm4-test: a ready driver does not mean that the card works."""
    from zinc_rt.engine import checked

    if driver.simulated or not device.usable or device.gpu is None:
        return device
    verdict = checked.check_verdict(checked.identify_setup(driver, device.gpu), tier)
    if verdict.passed:
        return replace(device, why=f"{device.why}; {verdict.why}")
    next_ = (
        f"zinc-rt bring-up --device {device.gpu.render_path}: until then models start on it with --unchecked only"
    )
    return replace(device, why=f"{device.why}; {verdict.why}", next=next_)


def _make_table(rows: list[TierRow]) -> Table:
    body = [(row.device, row.tier, "yes" if row.usable else "no", row.why) for row in rows]
    return Table(("device", "tier", "usable", "why"), body)


def _run_command(arguments: argparse.Namespace) -> int:
    from zinc_rt.engine.devices import find_linux_driver

    return show_devices(arguments, find_linux_driver())


main = Command("devices", parser, _run_command)
