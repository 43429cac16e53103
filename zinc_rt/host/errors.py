"""User-visible errors: one clear sentence with the expected and actual values, and advice.

Commands print a ZincError's message to stderr and exit with its exit code (design §4.12); any other exception is a
bug and keeps its traceback.
"""

from __future__ import annotations


class ZincError(Exception):
    """An error that the user can resolve.

    `exit_code` is the exit code of the command; `message` describes the error, `next` gives advice ("" if there is
    none), and str() contains both.
    """

    exit_code = 2

    def __init__(self, message: str, *, next: str | None = None) -> None:
        super().__init__(message if next is None else f"{message}\n  next: {next}")
        self.message, self.next = message, next or ""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or the name of its type if the text is empty."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


class UsageError(ZincError):
    """Wrong flags or flag values."""


class InputError(ZincError):
    """A file or its content cannot be used: truncated, malformed, unknown version, wrong shape."""


class UnsupportedError(ZincError):
    """Valid input that this version does not support: an architecture, quantisation, opcode or tier."""


class OutputError(ZincError):
    """A result could not be written: missing folder, no permission, full disk."""


class CheckFailed(ZincError):
    """A comparison ran and failed."""

    exit_code = 1


class NothingRan(ZincError):
    """Nothing could run, so nothing was checked; never counted as a pass."""

    exit_code = 77
