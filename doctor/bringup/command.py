"""Bring up a card in stages: doctor, probes, kernel, model, gates."""

from __future__ import annotations

import argparse
import fcntl
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zinc_rt.cli.command import INTERRUPTED, READER_GONE, Command
from zinc_rt.cli.output import add_json, choose_output_stream, finish_report, format_simulated_note, start_report
from zinc_rt.cli.progress import ProgressLine, print_plain_lines
from zinc_rt.host import terminal
from zinc_rt.host.arguments import Parser
from zinc_rt.host.errors import OutputError, UsageError, ZincError
from zinc_rt.probes.device_options import add_device_options

if TYPE_CHECKING:
    from zinc_rt.doctor.bringup.stages import BringupStage
    from zinc_rt.probes.device_spec import DeviceSpec

EPILOG = """\
Before each stage the command prints its risks and asks for consent. It stops at the first failure, with the cause
and the next command. A journal survives a reset: --resume continues from it. The stage that reset the machine is
named and runs again only with --again. docs/first-hour.md describes the preparation.

examples:
  zinc-rt bring-up --device sim --yes all                all stages on a simulated card
  zinc-rt bring-up                                       the machine's GPU
  zinc-rt bring-up --up-to hazard-0                      only stages that cannot hang
  zinc-rt bring-up --resume                              continue after a reboot
  zinc-rt bring-up --yes hazard-0,hazard-1 --up-to hazard-1 < /dev/null
  zinc-rt bring-up --status                              show the progress so far

stages: doctor, hazard-0, hazard-1, hazard-2, first-kernel, first-model, gates
exit codes: 0 all stages that ran passed, 1 a stage failed, 2 wrong usage, 77 no AMD GPU or nothing ran.
"""


def parser() -> argparse.ArgumentParser:
    parser = Parser(description=__doc__, epilog=EPILOG)
    add_device_options(parser, inject="inject a fault into the simulated device, for doctor and probes")
    parser.add_argument("--up-to", metavar="STAGE", help="stop after this stage (default gates)")
    parser.add_argument(
        "--yes",
        action="append",
        default=[],
        metavar="STAGE",
        help="consent to this stage; separate several with commas; all: on a simulated card",
    )
    parser.add_argument("--skip", action="append", default=[], metavar="STAGE", help="skip this stage")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="skip stages that passed on this setup (card, kernel, driver, firmware)",
    )
    parser.add_argument(
        "--again", action="store_true", help="rerun the stage that was running when the machine reset"
    )
    parser.add_argument("--status", action="store_true", help="show the progress of earlier runs and exit")
    parser.add_argument(
        "--folder",
        type=Path,
        metavar="DIR",
        help="folder of the journal and reports (default: in the state folder)",
    )
    add_json(parser)
    return parser


def _run_command(arguments: argparse.Namespace) -> int:
    from zinc_rt.doctor.bringup.stages import NAMES
    from zinc_rt.doctor.bundle.gather import device_label
    from zinc_rt.host.files import check_writable, state_directory
    from zinc_rt.probes.device import parse_device, require_amd_gpu

    spec = parse_device(arguments.device, arguments.inject)
    consents = [",".join(NAMES) if name == "all" and spec.simulated else name for name in arguments.yes]
    yes, skip = _parse_stages("--yes", consents), _parse_stages("--skip", arguments.skip)
    _parse_stages("--up-to", [arguments.up_to or NAMES[-1]])
    check_writable(report=arguments.json)
    folder = arguments.folder or state_directory() / "bring-up" / device_label(spec)
    if arguments.status:
        return _show_status(arguments, spec, folder)
    require_amd_gpu(spec, "zinc-rt bring-up")
    with _lock_folder(folder):
        return _walk_stages(arguments, spec, folder, yes, skip)


def _walk_stages(
    arguments: argparse.Namespace, spec: DeviceSpec, folder: Path, yes: Collection[str], skip: Collection[str]
) -> int:
    from zinc_rt.cli.report import Report
    from zinc_rt.doctor.bringup.earlier_walks import describe_suspects
    from zinc_rt.doctor.bringup.stages import NAMES, BringupTarget
    from zinc_rt.doctor.bringup.walk import Walk
    from zinc_rt.doctor.bundle.gather import inspect_machine
    from zinc_rt.doctor.diagnose import diagnose
    from zinc_rt.probes.device_description import describe_device
    from zinc_rt.probes.journal import Journal, default_path
    from zinc_rt.probes.output.table import format_header

    out = choose_output_stream(arguments)
    say = partial(print, file=out, flush=True)
    device = describe_device(spec)
    report = start_report(Report("bring-up", device=device), arguments)
    say(format_header(device))
    probes = Journal(None if spec.simulated else default_path(), str(device.get("render_path") or ""))
    walks = Journal(folder / "stages.journal", spec.option)
    suspects = probes.find_suspects()
    for line in filter(None, (probes.describe_damage(), walks.describe_damage(), *describe_suspects(suspects))):
        say(f"journal   {line}")

    def diagnose_capture() -> list[Any]:
        capture = inspect_machine(spec)
        return [] if capture is None else list(diagnose(capture).findings)

    walk = Walk(
        BringupTarget(spec, lit=tuple(device.get("displays", ()))),
        folder,
        walks,
        _describe_setup(spec, device),
        partial(_run, quiet=arguments.json == "-"),
        partial(_ask_consent, yes),
        diagnose_capture,
        suspects,
        resume=arguments.resume,
        again=arguments.again,
        skip=skip,
        up_to=arguments.up_to or NAMES[-1],
        say=say,
    )
    for result in walk.results():
        report.results.append(result)
    last = report.results[-1]
    say("")
    if last.status == "fail":
        say(f"first cause  {last.reason}")
    for name, text in (("cause", last.cause), ("repro", last.repro), ("next", last.advice)):
        if text:
            say(f"{name:<12} {text}")
    say(f"{'send on':<12} zinc-rt bundle --device {spec.option} -o bundle.tar.gz")
    done = sum(result.status in ("pass", "blocked") for result in report.results)
    say(
        f"{report.verdict()['status']:<12} {done} of {len(NAMES)} stages, up to "
        f"{last.id}{format_simulated_note(report)}"
    )
    return finish_report(report, arguments)


def _run(words: list[str], path: Path, text: str, seconds: float, *, quiet: bool) -> int:
    """Run a stage's command in a separate process, so that its crash does not end the walk.

    `text`, `seconds`: the stage and its expected duration, for progress without a terminal; pm4-test prints its
    own. Raises KeyboardInterrupt after Ctrl-C, and BrokenPipeError if the reader of the output has exited: neither
    is a failure of the card.
    """
    command = [sys.executable, "-m", "zinc_rt.cli", *words, "--json", str(path)]
    line = ProgressLine(text, expected_seconds=seconds)
    reports_itself = words[0] == "pm4-test" or terminal.is_terminal(sys.stderr)
    with nullcontext() if reports_itself else print_plain_lines(line):
        ended = subprocess.run(
            command, check=False, stdin=subprocess.DEVNULL, stdout=sys.stderr if quiet else None
        )
    if ended.returncode == INTERRUPTED:
        raise KeyboardInterrupt
    if ended.returncode == READER_GONE:
        raise BrokenPipeError
    return ended.returncode


def _ask_consent(yes: Collection[str], stage: BringupStage) -> bool | None:
    if stage.name in yes:
        return True
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    print(f"{'':<13} run {stage.name}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _describe_setup(spec: DeviceSpec, device: dict[str, Any]) -> str:
    """Return the configuration for which a pass is valid; with another kernel, the stages start again."""
    from zinc_rt.engine import checked
    from zinc_rt.probes.child import run_in_child
    from zinc_rt.probes.output.passed import identify_card

    if spec.simulated:
        return f"{spec.option} {' '.join(spec.inject)}".strip()
    ended = run_in_child(partial(identify_card, str(device.get("render_path", ""))), 20.0)
    return ended.value.key if isinstance(ended.value, checked.TestedSetup) else ""


def _show_status(arguments: argparse.Namespace, spec: DeviceSpec, folder: Path) -> int:
    """Return one result per stage: its last entry in the journal."""
    from zinc_rt.cli.report import Report, Result
    from zinc_rt.doctor.bringup.earlier_walks import read_earlier_walks
    from zinc_rt.doctor.bringup.stages import STAGES
    from zinc_rt.probes.journal import Journal

    report = start_report(Report("bring-up", device={"simulated": spec.simulated}), arguments)
    rows = []
    earlier = read_earlier_walks(Journal(folder / "stages.journal", spec.option))
    for stage in STAGES:
        result = earlier.get(stage.name)
        status, reason = "skip", "not run yet"
        if result is not None and result.status in ("pass", "fail", "skip", "blocked"):
            status, reason = result.status, f"{result.when}{': ' + result.reason if result.reason else ''}"
        elif result is not None:
            word = "the machine was reset" if result.reset else "it was interrupted"
            status, reason = "fail", f"{word} while it ran ({result.when})"
        report.results.append(Result(stage.name, "stage", status, reason=reason))  # type: ignore[arg-type]
        rows.append((stage.name, status, reason))
    columns = [terminal.Column("", key=key) for key in ("stage", "status", "reason")]
    terminal.show(terminal.Table(columns, rows, headings=False), out=choose_output_stream(arguments))
    if not earlier:
        terminal.show(f"nothing ran yet on {spec.option}", out=choose_output_stream(arguments))
    return finish_report(report, arguments)


def _parse_stages(flag: str, given: list[str]) -> set[str]:
    from zinc_rt.doctor.bringup.stages import NAMES

    names = {part.strip() for text in given for part in text.split(",") if part.strip()}
    for name in sorted(names - set(NAMES)):
        raise UsageError(f"{flag} {name}: no such stage", next=f"stages: {', '.join(NAMES)}")
    return names


class Busy(ZincError):
    """Another bring-up is in progress."""


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "lock").open("w")
    except OSError as error:
        raise OutputError(
            f"{folder}: cannot be written: {error.strerror}", next="--folder DIR elsewhere"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"another bring-up is using {folder}", next="wait for it, or end it") from None
        yield


main = Command("bring-up", parser, _run_command)
