"""Record each probe on disk before it runs, so that after a machine reset the next run can identify the
cause.

One JSON line each: a `begin`, synced before a hazardous probe, and an `end` after it. A `begin` without an
`end` means that the harness did not survive the probe; if it is from another boot, that the machine did
not either.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zinc_rt.host.errors import OutputError
from zinc_rt.host.files import state_folder

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_KEPT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Suspect:
    """A probe that started and never ended. `reset`: the machine has been booted since."""

    probe: str
    device: str
    when: str
    reset: bool


def default_path() -> Path:
    return state_folder() / "pm4-test.journal"


def boot_id() -> str:
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


class Journal:
    """The journal. `path` None disables it, for a device that cannot take down the machine."""

    def __init__(self, path: Path | None, device: str, *, boot: str | None = None) -> None:
        self.path = path
        self.device = device
        self.boot = boot_id() if boot is None else boot

    def suspects(self) -> dict[str, Suspect]:
        """Return the suspects by probe. A truncated last line is ignored: it contains no probe name."""
        open_: dict[str, Suspect] = {}
        for row in self.rows():
            if row.get("device") != self.device:
                continue
            name = str(row.get("probe", ""))
            if row.get("what") == "begin":
                open_[name] = Suspect(name, self.device, str(row.get("when", "")), row.get("boot") != self.boot)
            else:
                open_.pop(name, None)
        return open_

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
        """Return every complete line, oldest first. Raises OutputError."""
        if self.path is None or not self.path.exists():
            return []
        try:
            text = self.path.read_bytes()[-_KEPT_BYTES:].decode(errors="replace")
        except OSError as error:
            raise OutputError(f"{self.path}: the journal cannot be read: {error.strerror}") from error
        rows = []
        for line in text.splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict):
                rows.append(row)
        return rows
