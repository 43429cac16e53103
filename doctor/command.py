"""Diagnose why a GPU does not work, here or from a capture."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from zinc_rt.cli.command import Command
from zinc_rt.cli.output import add_json, choose_output_stream, finish_report, start_report
from zinc_rt.host import terminal
from zinc_rt.host.arguments import Parser
from zinc_rt.host.errors import OutputError, UsageError

if TYPE_CHECKING:
    from zinc_rt.doctor.capture import MachineCapture
    from zinc_rt.doctor.diagnose import Diagnosis
    from zinc_rt.doctor.machine import InspectedGpu
    from zinc_rt.doctor.report import DoctorReport

EPILOG = """\
The command only reads: it runs nothing on the GPU, opens no queue, does not wake a suspended GPU and needs no
root. Information that needs root (kernel log, firmware versions, lspci) is listed as unknown.

examples:
  zinc-rt doctor                          this machine
  zinc-rt doctor -v                       with all notes and evidence
  zinc-rt doctor --capture here/          also save the files that were read, to send or compare
  zinc-rt doctor --from here/             another machine, from its capture or from a bundle
  zinc-rt doctor --device 0000:03:00.0    one GPU of several
  sudo zinc-rt doctor --hung              while it hangs and the log is silent; with --capture DIR to keep it
  zinc-rt doctor --json report.json       a report for programs

Exit code: 0 healthy, 1 a cause was found, 2 wrong usage, 77 no AMD GPU, or nothing was found while something
that matters is unknown: the last lines name it, and the one file to fetch. With --hung never 0.
docs/doctor.md lists the files that are read, and how to capture a machine by hand.
"""


def parser() -> argparse.ArgumentParser:
    parser = Parser(description=__doc__, epilog=EPILOG)
    parser.add_argument(
        "--device", default="auto", metavar="WHICH", help="one GPU: /dev/dri/renderDN, cardN or a PCI address"
    )
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="DIR",
        help="diagnose another machine from a capture or bundle: a folder, .tar.* or .zip",
    )
    parser.add_argument(
        "--hung",
        action="store_true",
        help="for a hang without log messages: sample fences, interrupts, queues and MES twice (as root)",
    )
    parser.add_argument("--capture", type=Path, metavar="DIR", help="save all files that are read to this folder")
    parser.add_argument("-v", "--verbose", action="store_true", help="show all notes and evidence")
    add_json(parser, tables=False)
    return parser


def _run_command(arguments: argparse.Namespace) -> int:
    from zinc_rt.host.files import check_writable

    check_writable(report=arguments.json)
    return finish_report(diagnose_machine(arguments), arguments)


def diagnose_machine(arguments: argparse.Namespace) -> DoctorReport:
    """Diagnose this machine or the capture that --from names, and show the findings.

    Raises UsageError for a device that does not exist, InputError for a folder or archive without a capture.
    """
    from zinc_rt.doctor.diagnose import diagnose
    from zinc_rt.doctor.show import format_diagnosis

    _check_arguments(arguments)
    capture = _write_capture(arguments)
    if arguments.capture is not None:
        capture.write(arguments.capture)
    requested = "" if arguments.device in ("auto", "hw") else arguments.device
    diagnosis = diagnose(capture, device=requested, hung=arguments.hung)
    if requested and not diagnosis.machine.gpus:
        addresses = [gpu.address or gpu.card for gpu in diagnose(capture).machine.gpus]
        raise UsageError(
            f"--device {requested}: no such GPU",
            next=f"one of {', '.join(addresses)}" if addresses else "there is none",
        )
    out = choose_output_stream(arguments)
    terminal.show(format_diagnosis(diagnosis, verbose=arguments.verbose), out=out)
    if arguments.capture is not None:
        terminal.show(f"capture   {arguments.capture} ({len(capture.files)} files)", out=out)
    return _show_report(diagnosis, arguments)


def _check_arguments(arguments: argparse.Namespace) -> None:
    """Before anything is read."""
    if arguments.device.startswith("sim"):
        raise UsageError(
            "--device sim: a simulated device has nothing to diagnose",
            next="zinc-rt pm4-test --device sim runs every probe on it",
        )
    target = arguments.capture
    if target is not None and target.exists() and (not target.is_dir() or any(target.iterdir())):
        what = "is not empty" if target.is_dir() else "is a file"
        raise OutputError(f"{target}: {what}", next="give a new or empty folder: --capture DIR")


def _write_capture(arguments: argparse.Namespace) -> MachineCapture:
    import sys

    from zinc_rt.doctor.capture import INDEX, MachineCapture, capture, unpack_capture

    if arguments.source is None:
        if sys.platform != "linux":
            raise UsageError(
                f"GPU tiers need Linux, but this is {sys.platform}", next="--from a capture of a Linux machine"
            )
        return capture(ioctls=True, hung=arguments.hung)
    source: Path = arguments.source
    if source.is_file():
        return unpack_capture(source)
    inside = source / "machine"
    of_bundle = inside.is_dir() and not (source / INDEX).exists() and not (source / "proc").exists()
    return MachineCapture.read(inside if of_bundle else source)


def _show_report(diagnosis: Diagnosis, arguments: argparse.Namespace) -> DoctorReport:
    """Return a result per finding: causes are failures, notes are reported, and a missing GPU and unknowns are
    skips.
    """
    from dataclasses import asdict

    from zinc_rt.cli.report import Result, Status
    from zinc_rt.doctor.diagnose import NOTHING
    from zinc_rt.doctor.report import DoctorReport

    machine = diagnosis.machine
    report = DoctorReport("doctor", diagnosis=diagnosis)
    start_report(report, arguments)
    gpu = machine.is_relevant[0] if machine.is_relevant else None
    report.device = {
        "name": gpu.name or (gpu.chip.name if gpu.chip else "") if gpu else "",
        "arch": gpu.arch if gpu else "",
        "simulated": False,
        "profile": "",
        "kernel": machine.linux.release or "",
        "firmware": gpu.firmware if gpu else {},
    }
    nothing_ran = diagnosis.exit_code() == 77 and any(finding.id == NOTHING for finding in diagnosis.findings)
    for finding in diagnosis.findings:
        status: Status = "skip" if nothing_ran else "pass" if finding.severity == "note" else "fail"
        name = f"{finding.id}@{finding.about}" if finding.about else finding.id
        result = Result(name, "finding", status, reason=finding.title, cause=finding.why, advice=finding.next)
        result.measure = {
            "severity": finding.severity,
            "tiers": list(finding.tiers),
            "evidence": list(finding.evidence),
            "cause_of": list(finding.cause_of),
            "rows": list(finding.rows),
            "hazard": finding.hazard,
        }
        report.results.append(result)
    for unknown in diagnosis.unknown:
        if unknown.matters and not nothing_ran:
            name = f"unknown.{unknown.waits[0] if unknown.waits else 'machine'}"
            report.results.append(Result(name, "unknown", "skip", reason=unknown.what, advice=unknown.next))
    if machine.gpus:
        seen = ", ".join(gpu.title for gpu in machine.gpus)
        ok = diagnosis.exit_code() == 0
        report.results.append(Result("machine", "machine", "pass" if ok else "skip", reason=f"read: {seen}"))
    report.details = {
        "first_cause": diagnosis.first.id if diagnosis.first else "",
        "hazard": diagnosis.hazard,
        "unknown": [asdict(unknown) for unknown in diagnosis.unknown],
        "gpus": [_gpu_fields(gpu) for gpu in machine.gpus],
        "rows": diagnosis.rows(),
        "source": str(arguments.source) if arguments.source else "this machine",
    }
    return report


def _gpu_fields(gpu: InspectedGpu) -> dict[str, object]:
    from dataclasses import asdict

    return {name: value for name, value in asdict(gpu).items() if name != "node"}


main = Command("doctor", parser, _run_command)
