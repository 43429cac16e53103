"""Read files and ask programs: what comes back, or why nothing does."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

FILE_BYTES = 4 << 20  # of a file, the most that is kept: a log that is longer keeps its beginning and its end
CUT = b"\n(cut: the middle of this file was left out)\n"
PROGRAM_SECONDS = 5.0

Files = dict[str, bytes]
Reasons = dict[str, str]


def read_bounded(path: Path, most_bytes: int = FILE_BYTES) -> bytes:
    """The file; of a longer one its two ends, with CUT between them. sysfs files claim sizes they do not have."""
    with path.open("rb") as file:
        data = file.read(most_bytes + 1)
        if len(data) <= most_bytes:
            return data
        half = most_bytes // 2
        if not file.seekable():
            return data[:most_bytes] + CUT
        size = file.seek(0, 2)
        file.seek(max(half, size - half))
        return data[:half] + CUT + file.read(half)


def read_all(root: Path, pattern: str, files: Files, unreadable: Reasons) -> None:
    """Every file that fits. What is missing is simply not there; what refuses is noted."""
    try:
        paths = sorted(root.glob(pattern)) if "*" in pattern else [root / pattern]
    except OSError as error:
        unreadable[pattern] = error.strerror or str(error)
        return
    for path in paths:
        read_one(path, path.relative_to(root).as_posix(), files, unreadable)


def read_one(path: Path, name: str, files: Files, unreadable: Reasons) -> None:
    try:
        files[name] = read_bounded(path)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return
    except OSError as error:
        unreadable[name] = error.strerror or str(error)


def run(command: Iterable[str]) -> bytes | str:
    """What a program prints, or why it prints nothing. In the C locale: its words are parsed."""
    try:
        done = subprocess.run(
            list(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROGRAM_SECONDS,
            env={**os.environ, "LC_ALL": "C", "LANGUAGE": "C"},
            check=False,
        )
    except FileNotFoundError:
        return "not installed"
    except subprocess.TimeoutExpired:
        return f"no answer within {PROGRAM_SECONDS:g} s"
    except OSError as error:
        return error.strerror or str(error)
    if not done.stdout:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        return said[0] if said else f"printed nothing (exit {done.returncode})"
    return done.stdout[-FILE_BYTES:]
