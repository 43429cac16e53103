"""Write the results of a run to files: --json, --tap and --junit."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol

from zinc_rt.backends.amd.hang import HangReport
from zinc_rt.cli.junit import to_junit
from zinc_rt.cli.report import Report, Result, write_text
from zinc_rt.host.errors import NothingRan, UsageError
from zinc_rt.host.files import check_writable
from zinc_rt.probes.device_spec import DeviceSpec


def to_tap(report: Report) -> str:
    lines = ["TAP version 14", f"1..{len(report.results)}"]
    if report.device.get("simulated"):
        lines.append("# simulated device: says nothing about hardware")
    for number, result in enumerate(report.results, 1):
        good = result.status != "fail"
        text = f"{'ok' if good else 'not ok'} {number} - {result.id} {result.measure.get('title', '')}"
        if result.status in ("skip", "blocked"):
            text += f" # SKIP {_join_lines(result.reason)}"
        elif result.status == "flake":
            text += f" # TODO {_join_lines(result.reason)}"
        lines.append(text)
        if result.status == "fail":
            lines.append("  ---")
            for key in ("reason", "cause", "advice", "repro"):
                lines.append(f"  {key}: {json.dumps(getattr(result, key))}")
            lines.append("  ...")
    return "\n".join(lines) + "\n"


def _join_lines(text: str) -> str:
    return " ".join(text.split()).replace("#", "no. ")


class BundleWriter(Protocol):
    """Writes `--bundle`: the run's report, logs and hang reports in the format of docs/bundle.md."""

    def check(self, path: Path) -> None:
        """Raise OutputError if no bundle can be written to `path`."""

    def save(self, path: Path, report: Report, spec: DeviceSpec, hangs: Mapping[str, HangReport]) -> int:
        """Write the bundle; the paths of its files are added to the results. Return its size in bytes."""


def find_bundle_writer() -> BundleWriter:
    """Return the registered writer. It is in `doctor/bundle/`, which imports probes, so it is located by
    its entry point."""
    (point,) = entry_points(group="zinc_rt.bundle_writer")
    writer: BundleWriter = point.load()
    return writer


def write_results(arguments: argparse.Namespace, report: Report) -> None:
    for path, content in (
        (arguments.json, report.to_json(strict=arguments.strict)),
        (arguments.tap, to_tap(report)),
        (arguments.junit, to_junit(report)),
    ):
        if path == "-":
            print(content)
        elif path:
            write_text(path, content)


def check_outputs(arguments: argparse.Namespace) -> None:
    """Check before hours of probes that the outputs can be written. Raises OutputError or UsageError."""

    if arguments.json == arguments.tap == "-":
        raise UsageError("--json - and --tap - cannot both use stdout", next="give a file for one of them")
    tap = None if arguments.tap == "-" else arguments.tap
    check_writable(arguments.junit, tap, arguments.learn, report=arguments.json)
    if arguments.bundle is not None:
        find_bundle_writer().check(arguments.bundle)


def report_of(nothing: NothingRan, name: str) -> Report:
    """Return a report that states that nothing ran, and the reason."""

    device = {"name": "", "arch": "", "simulated": False}
    return Report(
        name,
        device=device,
        results=[Result("device", "probe", "skip", reason=nothing.message, advice=nothing.next)],
    )
