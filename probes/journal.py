"""Record each probe on disk before it runs, so that after a machine reset the next run can identify the
cause.

One JSON line each: a `begin`, synced before a hazardous probe, and an `end` after it. A `begin` without an
`end` means that the harness did not survive the probe; if it is from another boot, that the machine did
not either.
"""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zinc_rt.host.errors import OutputError
from zinc_rt.host.files import state_directory

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_KEPT_BYTES = 1 << 20
_PROBE = re.compile(r'"probe": ?"([^"\\]+)"')
_HEADS = tuple(f'{{"what": "{what}", "probe": "' for what in ("begin", "end"))


@dataclass(frozen=True, slots=True)
class Suspect:
    """A probe that started but never ended. `reset`: the machine has been rebooted since."""

    probe: str
    device: str
    when: str
    reset: bool


def default_path() -> Path:
    return state_directory() / "pm4-test.journal"


def read_boot_id() -> str:
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


class Journal:
    """The journal. `path` None disables it, for a device that cannot crash the machine."""

    def __init__(self, path: Path | None, device: str, *, boot: str | None = None) -> None:
        self.path = path
        self.device = device
        self.boot = read_boot_id() if boot is None else boot

    def find_suspects(self) -> dict[str, Suspect]:
        """Return the suspects by probe.

        A damaged line may be the start record of a probe that crashed the machine. The probe named in it is a
        suspect until it ends again; if it names none, the last probe before it is.
        """
        open_: dict[str, Suspect] = {}
        last = ("", "")  # the last probe, and when
        for row in self._read_lines():
            if isinstance(row, str):
                for name in filter(None, _PROBE.findall(row) or [last[0]]):
                    open_[name] = Suspect(name, self.device, last[1] or "unknown time", reset=True)
            elif row.get("device") == self.device:
                name, when = str(row.get("probe", "")), str(row.get("when", ""))
                last = (name, when)
                if row.get("what") == "begin":
                    open_[name] = Suspect(name, self.device, when, row.get("boot") != self.boot)
                else:
                    open_.pop(name, None)
        return open_

    def describe_damage(self) -> str:
        """Return a sentence about lines that cannot be read, or "". The file is kept as it is."""
        count = sum(isinstance(row, str) for row in self._read_lines())
        return (
            f"{self.path}: {count} damaged line{'s' * (count > 1)}; the last probe counts as unsafe"
            if count
            else ""
        )

    def begin(self, probe: str, **more: str) -> None:
        """Record the start of a probe; it is on disk when this returns. Raises OutputError."""
        self._append("begin", probe, **more)

    def end(self, probe: str, status: str, **more: str) -> None:
        self._append("end", probe, status=status, **more)

    def _append(self, what: str, probe: str, **more: str) -> None:
        if self.path is None:
            return
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
        row = {"what": what, "probe": probe, "device": self.device, "boot": self.boot, "when": when, **more}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            new = not self.path.exists()
            fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            try:
                os.write(fd, b"\n" + json.dumps(row).encode() + b"\n")
                os.fsync(fd)
            finally:
                os.close(fd)
            if new:
                folder = os.open(self.path.parent, os.O_RDONLY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
        except OSError as error:
            raise OutputError(
                f"{self.path}: the journal cannot be written: {error.strerror}",
                next="--journal FILE on a disk that survives a reset",
            ) from error

    def rows(self) -> list[dict[str, Any]]:
        """Return every line that can be read, oldest first. Raises OutputError."""
        return [row for row in self._read_lines() if isinstance(row, dict)]

    def _read_lines(self) -> list[dict[str, Any] | str]:
        """Return the lines, oldest first: the text of a line that cannot be read. A line that ends before the name
        of its probe is complete is omitted, because a probe starts only after its line is written.
        """
        if self.path is None or not self.path.exists():
            return []
        try:
            content = self.path.read_bytes()
        except OSError as error:
            raise OutputError(
                f"{self.path}: the journal cannot be read: {error.strerror}",
                next=f"it names the probe that ran when the machine was reset: make it readable, or keep it and "
                f"start a new one: mv {self.path} {self.path}.old",
            ) from error
        lines = content[-_KEPT_BYTES:].decode(errors="replace").split("\n")
        if len(content) > _KEPT_BYTES:
            del lines[0]  # its beginning is missing
        rows: list[dict[str, Any] | str] = []
        for line in lines:
            if not line.strip() or any(_cut_before_name(line, head) for head in _HEADS):
                continue
            try:
                row = json.loads(line)
            except ValueError:
                row = line
            rows.append(row if isinstance(row, dict) else line)
        return rows


def _cut_before_name(line: str, head: str) -> bool:
    return head.startswith(line) or (line.startswith(head) and '"' not in line[len(head) :] and line.isprintable())
