"""The errors a user sees: one clear sentence, what was wanted, what was seen, what to do next.

Commands turn a ZincError into that sentence on stderr and its exit code (design §4.12); anything else is a bug
and keeps its traceback.
"""

from __future__ import annotations


class ZincError(Exception):
    """Something the user can act on. `exit_code` is what a command returns for it; `message` says what is wrong,
    `next` what to do about it ("" where nobody knows), and the error's text is both."""

    exit_code = 2

    def __init__(self, message: str, *, next: str | None = None) -> None:
        super().__init__(message if next is None else f"{message}\n  next: {next}")
        self.message, self.next = message, next or ""


def first_line(error: BaseException) -> str:
    """What the error says, as far as it fits a line; its type's name where it says nothing."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


class UsageError(ZincError):
    """Wrong flags or flag values."""


class InputError(ZincError):
    """A file or its content cannot be used: truncated, malformed, unknown version, wrong shape."""


class UnsupportedError(ZincError):
    """Well-formed, but not built in this version: an architecture, quantisation, opcode or tier."""


class OutputError(ZincError):
    """A result could not be written: missing folder, no permission, full disk."""


class CheckFailed(ZincError):
    """A comparison ran and failed."""

    exit_code = 1


class NothingRan(ZincError):
    """Nothing could run, so nothing was shown: never a pass."""

    exit_code = 77
