"""Write a probe run as a bundle (docs/bundle.md), for `--bundle`: reports, logs, hang reports, journals."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zinc_rt.backends.amd.hang import HangReport
from zinc_rt.cli.report import Report
from zinc_rt.doctor.bundle import archive, gather
from zinc_rt.doctor.bundle import format as bundles
from zinc_rt.probes.device_spec import DeviceSpec


def check(path: Path) -> None:
    """Check that a bundle can be written, before hours of probes. Raises OutputError."""
    from zinc_rt.host.files import check_writable

    if archive.is_archive(path):
        check_writable(str(path))
        return
    bundles.list_bundle_files(path)
    archive.write_folder(path, {}, [])
    check_writable(str(path / bundles.MANIFEST))


def save(path: Path, report: Report, spec: DeviceSpec, hangs: Mapping[str, HangReport]) -> int:
    """Write the bundle and return its size in bytes. Results get the paths of their files. Raises OutputError."""
    maker = gather.begin_bundle(spec)
    for result in report.results:
        name = result.id.replace("/", "-")
        report_path: Any = result.first_bad.get("report")
        if report_path:
            maker.add(
                f"logs/{name}.txt",
                f"{result.id}: {result.reason}\ncause: {result.cause}\n\n{report_path}\n",
                "hang",
            )
            result.artifacts.append(str(path / f"logs/{name}.txt"))
        if result.id in hangs:
            gather.add_hang(maker, hangs[result.id], name)
            result.artifacts.append(str(path / f"hangs/{name}"))
    log, missing = report.details["kernel_log"], report.details["kernel_log_missing"]
    maker.add("logs/kernel.log", "\n".join([*(log or [f"({missing or 'nothing new'})"]), ""]), "log")
    maker.add(f"reports/{report.command}.json", report.to_json(), "report")
    gather.add_journals(maker, spec)
    return bundles.write(maker.make_bundle(), path)
