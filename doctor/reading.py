"""Read files and run programs; return the output, or the reason why there is none."""

from __future__ import annotations

import os
import subprocess
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from io import RawIOBase
from pathlib import Path
from typing import IO

FILE_BYTES = 4 << 20  # of a file, the most that is kept: a log that is longer keeps its beginning and its end
CUT = b"\n(cut: the middle of this file was left out)\n"
PIECE_BYTES = 64 << 10
PROGRAM_SECONDS = 5.0
ZSTANDARD = b"\x28\xb5\x2f\xfd"  # a frame's magic number, RFC 8878

Files = dict[str, bytes]
Reasons = dict[str, str]


def read_members(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Return regular files of a tar or zip file, with their names; nothing is written, links are skipped."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            for info in zipped.infolist():
                if not info.is_dir():
                    with zipped.open(info) as file:
                        yield _relative_name(info.filename), file.read(FILE_BYTES)
        return
    with ExitStack() as opened:
        for member, file in _read_tar_members(archive, opened):
            yield _relative_name(member.name), file.read(FILE_BYTES)


def _read_tar_members(archive: Path, opened: ExitStack) -> Iterator[tuple[tarfile.TarInfo, IO[bytes]]]:
    """Python reads .zst itself from 3.14 on."""
    tar = opened.enter_context(_open_tar(archive, opened))
    for member in tar:
        file = tar.extractfile(member) if member.isfile() else None
        if file is not None:
            with file:
                yield member, file


def _open_tar(archive: Path, opened: ExitStack) -> tarfile.TarFile:
    packed = opened.enter_context(archive.open("rb"))
    if packed.peek(4)[:4] != ZSTANDARD:
        return tarfile.open(archive)
    import zstandard

    stream = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(packed)
    try:
        return tarfile.open(fileobj=opened.enter_context(stream), mode="r|")
    except zstandard.ZstdError as error:
        raise tarfile.TarError(str(error)) from error


def _relative_name(name: str) -> str:
    return "/".join(part for part in name.split("/") if part not in ("", ".", ".."))


def read_bounded(path: Path, most_bytes: int = FILE_BYTES) -> bytes:
    """Read the file; if it is too long, return its two ends with CUT between them. sysfs files report wrong
    sizes.

    Reads are split, because the kernel allocates a buffer for each read of /proc/sys and rejects megabytes.
    """
    with path.open("rb", buffering=0) as file:
        data = _read_limited(file, most_bytes + 1)
        if len(data) <= most_bytes:
            return data
        half = most_bytes // 2
        if not file.seekable():
            return data[:most_bytes] + CUT
        size = file.seek(0, 2)
        file.seek(max(half, size - half))
        return data[:half] + CUT + _read_limited(file, half)


def _read_limited(file: RawIOBase, most_bytes: int) -> bytes:
    data = bytearray()
    while len(data) < most_bytes:
        piece = file.read(min(PIECE_BYTES, most_bytes - len(data)))
        if not piece:
            break
        data += piece
    return bytes(data)


def read_all(root: Path, pattern: str, files: Files, unreadable: Reasons) -> None:
    """Read every file that matches. Missing files are ignored; read errors are recorded."""
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


def run_command(command: Iterable[str]) -> bytes | str:
    """Return the output of a program, or the reason why there is none. The program runs in the C locale, because
    its output is parsed.
    """
    try:
        result = subprocess.run(
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
    if not result.stdout:
        lines = result.stderr.decode(errors="replace").strip().splitlines()
        return lines[0] if lines else f"printed nothing (exit {result.returncode})"
    half = FILE_BYTES // 2
    return (
        result.stdout if len(result.stdout) <= FILE_BYTES else result.stdout[:half] + CUT + result.stdout[-half:]
    )


def parse_integer(text: str | None) -> int | None:
    """Parse a number as sysfs writes it: decimal, or with 0x."""
    word = (text or "").strip().partition(" ")[0].strip()
    try:
        return int(word, 16 if word.lower().startswith("0x") else 10)
    except ValueError:
        return None
