"""A record on disk for crashes of compiled code in the device process: the kernel and its registers.

The file is memory-mapped, so data stored before a crash are preserved. `read` returns them; the server removes the
file at a clean exit. `python -m zinc_rt.sim.shader.run.crash FILE` prints a record.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zinc_rt.sim.shader.layout import Checks
    from zinc_rt.sim.shader.run.kernels import CompiledKernel
    from zinc_rt.sim.shader_engine import ShaderDispatch

MAGIC = b"ZRTCRASH"
CODE_BYTES = 1 << 16  # of the kernel kept; the rest is cut
ABOUT_BYTES = 1 << 14
_HEAD = len(MAGIC) + 4 + 4 + 4  # running, bytes of `about`, bytes of code


class CrashRecord:
    """The crash record of one device process. `before` and `after` enclose every piece of a dispatch."""

    def __init__(self, path: Path) -> None:
        self.path = path
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.ftruncate(descriptor, _HEAD + ABOUT_BYTES + CODE_BYTES)
            self._map = mmap.mmap(descriptor, _HEAD + ABOUT_BYTES + CODE_BYTES)
        finally:
            os.close(descriptor)
        self._map[: len(MAGIC)] = MAGIC
        self._last: ShaderDispatch | None = None

    def before(self, dispatch: ShaderDispatch, kernel: CompiledKernel, checks: Checks) -> None:
        if dispatch is not self._last:
            self._write(dispatch, kernel, checks)
            self._last = dispatch
        self._map[len(MAGIC)] = 1

    def after(self) -> None:
        self._map[len(MAGIC)] = 0

    def _write(self, dispatch: ShaderDispatch, kernel: CompiledKernel, checks: Checks) -> None:
        about = {
            "label": dispatch.label,
            "program_va": dispatch.program_va,
            "entry": kernel.variant.entry,
            "name": dispatch.space.describe(dispatch.program_va),
            "arch": kernel.variant.target.name,
            "wave": kernel.variant.wave,
            "full": kernel.variant.full,
            "level": checks.level,
            "perturb": checks.perturb,
            "groups": dispatch.groups,
            "start": dispatch.start,
            "group_threads": dispatch.group_threads,
            "last_threads": dispatch.last_threads,
            "registers": dict(dispatch.registers),
        }
        text = json.dumps(about).encode()[:ABOUT_BYTES]
        code = kernel.variant.code[:CODE_BYTES]
        index = len(MAGIC) + 4
        self._map[index : index + 8] = len(text).to_bytes(4, "little") + len(code).to_bytes(4, "little")
        self._map[_HEAD : _HEAD + len(text)] = text
        self._map[_HEAD + ABOUT_BYTES : _HEAD + ABOUT_BYTES + len(code)] = code


def list_paths(socket: Path) -> list[Path]:
    """Return the paths of the crash records of the device at a socket, one per GPU."""
    return sorted(socket.parent.glob(f"{socket.name}.crash*"))


def make_path(socket: Path, index: int) -> Path:
    return socket.with_name(f"{socket.name}.crash{index}")


def keep_records(socket: Path, folder: Path) -> tuple[Path, str] | None:
    """Move the record of a device that crashed in a dispatch into `folder`. Return it and the dispatch's
    description.
    """
    for path in list_paths(socket):
        result = read(path)
        if result is None:
            continue
        about, _ = result
        bundle = folder / f"shader-{time.time_ns()}.crash"
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            shutil.move(path, bundle)
            return bundle, f"{about['label']}, {about['name']}"
        return path, f"{about['label']}, {about['name']}"
    return None


def read(path: Path) -> tuple[dict[str, Any], bytes] | None:
    """Return (description of the dispatch, code) if the process crashed in a dispatch, otherwise None."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    if content[: len(MAGIC)] != MAGIC or len(content) < _HEAD + ABOUT_BYTES or not content[len(MAGIC)]:
        return None
    about_bytes, code_bytes = struct.unpack_from("<2I", content, len(MAGIC) + 4)
    try:
        about = json.loads(content[_HEAD : _HEAD + about_bytes])
    except ValueError:
        return None
    return about, content[_HEAD + ABOUT_BYTES :][:code_bytes]


def format_text(about: dict[str, Any], code: bytes) -> str:
    """Format the launch, the registers and the disassembled kernel."""
    from zinc_rt.isa import target_of
    from zinc_rt.isa.disassemble import disassemble_lines

    shown = [f"{name}: {value}" for name, value in about.items() if name != "registers"]
    shown += [f"register {int(offset):#05x}: {value:#010x}" for offset, value in about["registers"].items()]
    target = target_of(about["arch"], about["wave"])
    return "\n".join(
        [
            *shown,
            *(line for _, line in disassemble_lines(code, target, address=about["program_va"] - about["entry"])),
        ]
    )


def main() -> None:
    result = read(Path(sys.argv[1]))
    print("not a crash record" if result is None else format_text(*result))


if __name__ == "__main__":
    main()
