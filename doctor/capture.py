"""What a machine says of itself, as files under their own paths (schema zinc-rt-capture/1)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

SCHEMA = "zinc-rt-capture/1"
_READ = (
    "proc/version",
    "proc/cmdline",
    "proc/meminfo",
    "proc/sys/kernel/osrelease",
    "etc/os-release",
    "sys/module/amdgpu/version",
    "sys/module/amdgpu/srcversion",
)


@dataclass(frozen=True, slots=True)
class Capture:
    """`files`: POSIX relative path → content. `unreadable`: path → why. What is in neither is unknown."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    @staticmethod
    def read(folder: Path) -> Capture:
        files = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file() and not path.is_symlink()
        }
        told = json.loads(files.get("capture.json", b"{}"))
        return Capture(files, told.get("unreadable", {}))


def capture(root: Path = Path("/"), *, ioctls: bool = False) -> Capture:
    files: dict[str, bytes] = {}
    unreadable: dict[str, str] = {}
    for name in _READ:
        try:
            files[name] = (root / name).read_bytes()
        except OSError as error:
            unreadable[name] = error.strerror or str(error)
    return Capture(files, unreadable)
