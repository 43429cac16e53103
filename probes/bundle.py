"""Everything a person far away needs: the report, each failure's own, what the machine says of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zinc_rt.backends.amd.hang import HangReport
from zinc_rt.errors import OutputError
from zinc_rt.kmd.topology import NODES
from zinc_rt.probes.device import DeviceSpec, names, read
from zinc_rt.report import Report, to_json

_FILES = (
    "/proc/version",
    "/proc/cmdline",
    "/sys/module/amdgpu/parameters/user_queue",
    "/sys/module/amdgpu/parameters/cwsr_enable",
    "/sys/module/amdgpu/parameters/gpu_recovery",
    "/sys/module/amdgpu/parameters/noretry",
    "/sys/module/amdgpu/parameters/sched_policy",
)


def facts(spec: DeviceSpec) -> dict[str, str]:
    """Texts of the machine, by file name. Run in a child."""
    driver = spec.open()
    found: dict[str, str] = {}
    for path in _FILES:
        found[path.strip("/").replace("/", "_") + ".txt"] = read(driver, path) or "(not readable)"
    for node in names(driver, NODES):
        text = read(driver, f"{NODES}/{node}/properties")
        found[f"topology_node_{node}.txt"] = text if text is not None else "(not readable)"
    return found


def save(folder: Path, report: Report, texts: dict[str, str], hangs: dict[str, HangReport]) -> list[Path]:
    """The folder's files, a folder for each hang. Raises OutputError."""
    log, missing = report.details["kernel_log"], report.details["kernel_log_missing"]
    made: list[Path] = []

    def put(name: str, text: str) -> None:
        path = folder / name
        path.write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")
        made.append(path)

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for result in report.results:
            told: Any = result.first_bad.get("report")
            if told:
                name = f"{result.id.replace('/', '-')}.txt"
                put(name, f"{result.id}: {result.reason}\ncause: {result.cause}\n\n{told}")
                result.artifacts.append(str(folder / name))
            if result.id in hangs:
                result.artifacts.append(str(hangs[result.id].save(folder)))
        for name, text in texts.items():
            put(name, text)
        put("kernel.log", "\n".join(log) or f"({missing or 'nothing new'})")
        put("report.json", to_json(report))
    except OSError as error:
        raise OutputError(f"{error.filename or folder}: cannot be written: {error.strerror}") from error
    return made
