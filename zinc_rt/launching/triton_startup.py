"""The checks of a program under `zinc-rt sanitize`: options in the environment, findings in a folder.

Each process writes its findings to a file of JSON lines as they occur, so they survive a crash.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from zinc_rt.host.errors import ZincError
from zinc_rt.isa.target import DEFAULT_ARCH
from zinc_rt.launching.finding_groups import FindingGroup, RacingPlace
from zinc_rt.launching.finding_places import join_places

if TYPE_CHECKING:
    from zinc_rt.launching.triton_device import TritonKernelCode

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


@dataclass(slots=True)
class LaunchedKernel:
    """The launches of a kernel, and the SHA-256 of its code objects: one for each specialization."""

    launches: int = 0
    code_objects: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class SanitizeReport:
    """The reports from the processes of a program. `kernels` by name."""

    kernels: dict[str, LaunchedKernel]
    findings: tuple[FindingGroup, ...]
    remarks: tuple[FindingGroup, ...]

    @property
    def launches(self) -> int:
        return sum(kernel.launches for kernel in self.kernels.values())


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
    """Writes what each launch reports: one line for each launch."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._pid = folder, 0
        self._file: TextIO | None = None

    def write(
        self, kernel: TritonKernelCode, findings: Sequence[FindingGroup], remarks: Sequence[FindingGroup]
    ) -> None:
        if self._file is None or self._pid != os.getpid():  # after fork: a file of its own
            self._pid = os.getpid()
            self._file = (self._folder / f"{self._pid}.jsonl").open("a", encoding="utf-8")
        rows = {
            "kernel": kernel.name,
            "code_object": kernel.digest,
            "findings": list(map(asdict, findings)),
            "remarks": list(map(asdict, remarks)),
        }
        self._file.write(json.dumps(rows) + "\n")
        self._file.flush()


def read_reports(folder: Path) -> SanitizeReport:
    """Read the reports of all processes. A line truncated by a crash is omitted."""
    kernels: dict[str, LaunchedKernel] = {}
    findings, remarks = [], []
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            kernel = kernels.setdefault(row["kernel"], LaunchedKernel())
            kernel.launches += 1
            kernel.code_objects.add(row["code_object"])
            findings += [_group(finding) for finding in row["findings"]]
            remarks += [_group(remark) for remark in row["remarks"]]
    return SanitizeReport(kernels, join_places(findings), join_places(remarks))


def _group(row: dict[str, Any]) -> FindingGroup:
    other = row["other"]
    place = None if other is None else RacingPlace(**{**other, "workgroup": _read_workgroup(other)})
    return FindingGroup(**{**row, "workgroup": _read_workgroup(row), "other": place})


def _read_workgroup(row: dict[str, Any]) -> tuple[int, int, int] | None:
    group = row["workgroup"]
    return None if group is None else (group[0], group[1], group[2])
