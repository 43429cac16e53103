"""Machines from public threads as captures: known and held-out ones, split by a hash of their link; blind rounds.

A row: `source` the thread, `truth` its cause in a sentence, `first` the findings that name it (none: nothing is
wrong), `also` what else may be blamed. `release`, `cmdline`, `log`, `cards`, `lspci`, `dev`, `id`, `packages` and
`files` are what the thread shows, in the form of a capture made by hand. `hung`: examined with `--hung`.
`anything`: any finding or none, but never OK. The truth was written before the rules; the held-out third was not
looked at while they were written.

blind.yaml holds rounds of new machines: doctor ran on the whole `round` before any rule was changed for it, and
`missed` marks the machines that it got wrong then. The rules were mended after that. A round takes every new
thread that its searches return and that shows a kernel log, lspci, device nodes, a command line, modules or
packages.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from zinc_rt.doctor.capture import MachineCapture, with_grep_output
from zinc_rt.doctor.diagnose import Diagnosis
from zinc_rt.host.files import load_yaml

FOLDER = Path(__file__).parent


def is_held_out(source: str) -> bool:
    return hashlib.sha256(source.encode()).digest()[0] % 3 == 0


def load_rows(name: str) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = load_yaml((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    return result


def make_capture(row: dict[str, Any]) -> MachineCapture:
    texts = {
        "kernel.log": row.get("log", "") * row.get("repeat", 1),
        "proc/version": f"Linux version {row['release']} (x@y)\n" if "release" in row else "",
        "proc/cmdline": row.get("cmdline", ""),
        "lspci.txt": row.get("lspci", "") + "".join(map(lspci_lines, row.get("cards", []))),
        "dev.txt": row.get("dev", ""),
        "id.txt": row.get("id", ""),
        "packages.txt": row.get("packages", ""),
    }
    files = {name: text for name, text in texts.items() if text} | row.get("files", {})
    return MachineCapture(with_grep_output({name: text.encode() for name, text in files.items()}))


def lspci_lines(text: str) -> str:
    slot, device, driver = text.split()
    lines = f"{slot} VGA compatible controller [0300]: Advanced Micro Devices, Inc. [AMD/ATI] [1002:{device}]\n"
    return lines + (f"\tKernel driver in use: {driver}\n" if driver != "none" else "\tKernel modules: amdgpu\n")


@dataclass(frozen=True, slots=True)
class DiagnosisScore:
    name: str
    first: str
    innocent: tuple[str, ...]
    exit_code: int
    named: bool
    """The first cause is that of the thread."""
    safe: bool
    """Sick and not 0, or healthy and not 1."""

    @property
    def is_right(self) -> bool:
        return self.named and not self.innocent and self.safe


def score_diagnosis(row: dict[str, Any], diagnosis: Diagnosis) -> DiagnosisScore:
    blamed = [finding.id for finding in diagnosis.findings if finding.severity != "note"]
    allowed = (*row["first"], *row["also"], "gpu.unsupported")  # true of every chip of another generation
    innocent = tuple(item for item in blamed if not any(fnmatchcase(item, pattern) for pattern in allowed))
    first = diagnosis.first.id if diagnosis.first else ""
    anything = row.get("anything", False)
    sick = bool(row["first"]) or anything
    code = diagnosis.exit_code()
    unsupported = set(blamed) == {"gpu.unsupported"}
    return DiagnosisScore(
        row["name"],
        first,
        () if anything else innocent,
        code,
        anything or (first in row["first"] if row["first"] else first in ("", "gpu.unsupported")),
        code != 0 if sick else code != 1 or unsupported,
    )
