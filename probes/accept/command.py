"""Check a board against its specification and under load for an hour."""

from __future__ import annotations

import argparse
import re
import secrets
from dataclasses import replace
from functools import partial
from pathlib import Path

from zinc_rt.cli.command import Command
from zinc_rt.cli.output import add_json, choose_output_stream, finish_report, format_simulated_note, start_report
from zinc_rt.cli.progress import show_stages
from zinc_rt.host import terminal
from zinc_rt.host.arguments import Parser
from zinc_rt.host.errors import UsageError
from zinc_rt.probes.device_options import add_device_options

EPILOG = """\
It compares memory, compute units, clocks, power limit, link and firmware of the board with its row in
zinc_rt/host/devices.yaml. Then, until the budget is spent, it fills 90 % of the free VRAM and checks it, runs all
vector registers and arithmetic of every lane, and reads temperature, clock, link, ECC, PCIe and reset counters. A
small model is compared with T-CPU before and after. Close other programs: the GPU is under full load. More:
docs/accept.md

examples:
  zinc-rt accept --page accept.html                one hour on the machine's GPU
  zinc-rt accept --budget 10m --tier t2            ten minutes through user queues
  zinc-rt accept --page accept.html --key ~/.ssh/id_ed25519    sign the page with an OpenSSH key
  zinc-rt accept --device sim --budget 5s --no-model
  zinc-rt accept --device sim --budget 5s --no-model --inject vram-stuck-bit@2     a planted defect

Exit code: 0 accepted, 1 a check failed, 2 wrong usage, 77 no AMD GPU or nothing ran.
"""
_BUDGET = re.compile(r"(\d+(?:\.\d+)?)(s|m|h)")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600}


def parser() -> argparse.ArgumentParser:
    command = Parser(description=__doc__, epilog=EPILOG)
    add_device_options(command, inject="give the simulated board a defect: NAME[@SEED]")
    command.add_argument("--tier", choices=("t1", "t2"), default="t1", help="how work is submitted (default t1)")
    command.add_argument(
        "--budget", default="1h", metavar="TIME", help="total time of the checks: 60s, 10m, 1h (default 1h)"
    )
    command.add_argument("--no-model", action="store_true", help="skip the comparison of a model with T-CPU")
    command.add_argument("--page", type=Path, metavar="FILE", help="write the result as one HTML page")
    command.add_argument("--key", type=Path, metavar="FILE", help="sign the page with this OpenSSH private key")
    add_json(command)
    return command


def parse_budget(text: str) -> float:
    """Return the seconds of 60s, 10m or 1h. Raises UsageError."""
    match = _BUDGET.fullmatch(text)
    seconds = float(match[1]) * _UNIT_SECONDS[match[2]] if match else 0.0
    if seconds <= 0:
        raise UsageError(f"--budget {text}: expected a time such as 60s, 10m or 1h")
    return seconds


def _run_command(arguments: argparse.Namespace) -> int:
    from zinc_rt.cli.report import Report
    from zinc_rt.host.files import check_writable
    from zinc_rt.probes.accept import page
    from zinc_rt.probes.accept.run import list_shortcuts, run_acceptance
    from zinc_rt.probes.device import parse_device, require_amd_gpu
    from zinc_rt.probes.device_description import describe_device
    from zinc_rt.probes.output.table import format_header

    seconds = parse_budget(arguments.budget)
    if arguments.key is not None:
        if arguments.page is None:
            raise UsageError("--key requires --page", next="--page FILE --key FILE")
        page.check_key(arguments.key)
    spec = parse_device(arguments.device, arguments.inject)
    check_writable(str(arguments.page) if arguments.page else None, report=arguments.json)
    require_amd_gpu(spec, "zinc-rt accept")
    model = not arguments.no_model
    device = describe_device(spec)
    if spec.simulated:
        spec = replace(spec, shared=f"accept-{secrets.token_hex(4)}")
    report = start_report(Report("accept", device=device), arguments)
    report.shortcuts += [*spec.shortcuts, *list_shortcuts(spec, seconds, model=model)]
    show = partial(terminal.show, out=choose_output_stream(arguments))
    show(format_header(device))
    for text in report.shortcuts:
        show(f"shortcut  {text}")
    show("")
    lock = str(device.get("render_path") or spec.option)
    with show_stages(plain=True) as stage:
        stage.line.expected_seconds = seconds
        for result in run_acceptance(spec, arguments.tier, seconds, device, model=model, say=stage.say, lock=lock):
            stage.clear()
            report.results.append(result)
    rows = [(result.status, result.id, result.reason) for result in report.results]
    columns = [terminal.Column("", key=key) for key in ("status", "check", "reason")]
    show(terminal.Table(columns, rows, headings=False), "")
    for result in report.results:
        for name, text in (("cause", result.cause), ("next", result.advice), ("repro", result.repro)):
            if text and result.status == "fail":
                show(f"{name:<6} {result.id}: {text}")
    if arguments.page is not None:
        page.write_page(arguments.page, report, arguments.key)
        show(f"page   {arguments.page}")
    verdict = report.verdict()["status"]
    counts = ", ".join(f"{count} {status}" for status, count in report.counts().items())
    show(f"{verdict:<6} {counts}{format_simulated_note(report)}")
    return finish_report(report, arguments)


main = Command("accept", parser, _run_command)
