"""The checks of a program under `zinc-rt sanitize`: options in the environment, findings in a folder.

Each process writes its findings to a file of JSON lines as they occur, so they survive a crash.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from zinc_rt.host.errors import ZincError
from zinc_rt.isa.target import DEFAULT_ARCH
from zinc_rt.launching.finding_groups import FindingGroup
from zinc_rt.launching.finding_places import join_places

SANITIZE = "ZINC_RT_SANITIZE"
_STARTUP = Path(__file__).parent / "startup"


@dataclass(frozen=True, slots=True)
class SanitizeOptions:
    """How a program is checked. `folder` receives the reports; `cuda`: torch's device cuda is an alias of the
    CPU.
    """

    folder: str
    chip: str = DEFAULT_ARCH
    sanitizer: str = "full"
    tools: tuple[str, ...] | None = None
    coherence: str | None = None
    reorder: int | None = None
    timeout_seconds: float | None = None
    cuda: bool = True

    def make_environment(self, inherited: dict[str, str]) -> dict[str, str]:
        """Return the environment of the program."""
        path = [str(_STARTUP), *filter(None, [inherited.get("PYTHONPATH", "")])]
        return {**inherited, SANITIZE: json.dumps(asdict(self)), "PYTHONPATH": os.pathsep.join(path)}


@dataclass(frozen=True, slots=True)
class SanitizeReport:
    """The reports from the processes of a program."""

    launches: int
    findings: tuple[FindingGroup, ...]
    remarks: tuple[FindingGroup, ...]


def begin() -> None:
    """Install the chip that the environment describes. Called after `import triton`."""
    from zinc_rt.launching.triton import install

    options = json.loads(os.environ[SANITIZE])
    folder, _ = Path(options.pop("folder")), options.pop("cuda")
    try:
        chip = install(**options)
    except ZincError as error:
        print(f"zinc-rt sanitize: {error}", file=sys.stderr)
        os._exit(error.exit_code)
    writer = _Writer(folder)
    chip.on_change = writer.write
    atexit.register(chip.close)


def begin_torch() -> None:
    """Make torch's device cuda an alias of the CPU if the options say so. Called after `import torch`."""
    options = json.loads(os.environ[SANITIZE])
    if options["cuda"]:
        from zinc_rt.launching.triton_torch import alias_cuda_to_cpu

        alias_cuda_to_cpu(options["chip"])


class _Writer:
    """Writes the state of a chip's checks: one line for each launch with something new."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._pid = folder, 0
        self._file: TextIO | None = None

    def write(self, launches: int, findings: Sequence[FindingGroup], remarks: Sequence[FindingGroup]) -> None:
        if self._file is None or self._pid != os.getpid():  # after fork: a file of its own
            self._pid = os.getpid()
            self._file = (self._folder / f"{self._pid}.jsonl").open("a", encoding="utf-8")
        rows = {
            "launches": launches,
            "findings": list(map(asdict, findings)),
            "remarks": list(map(asdict, remarks)),
        }
        self._file.write(json.dumps(rows) + "\n")
        self._file.flush()


def read_reports(folder: Path) -> SanitizeReport:
    """Read the reports of all processes. A line truncated by a crash is omitted."""
    launches, findings, remarks = 0, [], []
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            launches += row["launches"]
            findings += [_group(finding) for finding in row["findings"]]
            remarks += [_group(remark) for remark in row["remarks"]]
    return SanitizeReport(launches, join_places(findings), join_places(remarks))


def _group(row: dict[str, Any]) -> FindingGroup:
    group = row["workgroup"]
    return FindingGroup(**{**row, "workgroup": tuple(group) if group is not None else None})
