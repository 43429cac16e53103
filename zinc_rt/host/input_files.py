"""Files that the user specifies: a common error for unreadable files, and a fast check of model files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from zinc_rt.host.errors import InputError

GGUF_MAGIC = b"GGUF"  # GGUF_MAGIC in ggml's gguf.h
CHECK_PATH = "check the path"


def make_read_error(
    path: str | os.PathLike[str], error: OSError | ValueError, *, next: str | None = CHECK_PATH
) -> InputError:
    """Return the error for a file that cannot be opened or read. ValueError: a NUL byte in the path."""
    name = os.fspath(path)
    if isinstance(error, FileNotFoundError):
        return InputError(f"{name}: no such file", next=next)
    if isinstance(error, IsADirectoryError):
        return InputError(f"{name or repr(name)}: is a folder, not a file", next=next)
    reason = getattr(error, "strerror", None) or error
    return InputError(f"{name}: cannot read: {reason}", next=next)


def check_model_file(name: str) -> None:
    """Check that a file exists and starts as a GGUF file, before anything heavy is imported. Raises InputError.

    `zinc_rt.model.gguf` checks the content.
    """
    if not name:
        raise InputError("'' is not a model", next="pass a .gguf file")
    path = Path(name)
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a FIFO would wait for its writer
            raise InputError(f"{path}: not a regular file", next="pass a .gguf file")
        with path.open("rb") as file:
            begin = file.read(len(GGUF_MAGIC))
    except (OSError, ValueError) as error:
        raise make_read_error(path, error) from error
    if not begin:
        raise InputError(f"{path}: the file is empty", next="download it again")
    if len(begin) < len(GGUF_MAGIC):
        raise InputError(
            f"{path}: truncated: the magic number needs {len(GGUF_MAGIC)} bytes, but the file has {len(begin)}",
            next="the file is damaged or not a GGUF file; download it again",
        )
    if begin != GGUF_MAGIC:
        raise InputError(
            f"{path}: at byte 0: starts with {begin!r}, but a GGUF file starts with {GGUF_MAGIC!r}",
            next="the file is damaged or not a GGUF file; download it again",
        )
