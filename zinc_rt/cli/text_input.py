"""Read text from the command line or stdin without changing it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from zinc_rt.host.errors import InputError
from zinc_rt.host.input_files import make_read_error


def read_text(argument: str) -> str:
    """Return the text, or that of stdin for "-", unstripped. Raise InputError if it is not UTF-8."""
    if argument == "-":
        return _decode(read_stdin(), "stdin")
    return _decode(os.fsencode(argument), "the text")


def read_file(path: str) -> str:
    """Return a file's text unchanged. Raise InputError if it cannot be read or is not UTF-8."""
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise make_read_error(path, error) from error
    return _decode(raw, path)


def read_stdin() -> bytes:
    """Return all of stdin. Raise InputError if it is closed."""
    if sys.stdin is None:
        raise InputError("stdin is closed", next="redirect it: < FILE")
    return sys.stdin.buffer.read()


def _decode(raw: bytes, source: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{source} is not valid UTF-8: byte {raw[error.start]:#04x} at {error.start}",
            next="convert it first, for instance with iconv -t utf-8",
        ) from None
