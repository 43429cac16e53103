"""User-visible errors: one clear sentence with the expected and actual values, and advice.

Commands print a ZincError's message to stderr and exit with its exit code (design §4.12); any other exception is a
bug and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class ZincError(Exception):
    """An error that the user can resolve.

    `exit_code` is the exit code of the command; `message` describes the error, `next` gives advice ("" if there is
    none), and str() contains both.
    """

    exit_code = 2

    def __init__(self, message: str, *, next: str | None = None) -> None:
        super().__init__(message if next is None else f"{message}\n  next: {next}")
        self.message, self.next = message, next or ""


def error_first_line(error: BaseException) -> str:
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


class FindingError(CheckFailed):
    """A simulated device reported errors, so results computed on it may be wrong.

    `findings`: what it reported, each once, in order (zinc_rt.backends.base.Finding). `answers`: the complete
    result of the call that raised the error, empty if the answers were delivered before.
    """

    def __init__(self, findings: Sequence[Any], answers: Sequence[Any] = (), *, next: str | None = None) -> None:
        super().__init__(format_findings(findings), next=next)
        self.findings, self.answers = tuple(findings), tuple(answers)


def format_findings(findings: Sequence[Any]) -> str:
    """Return the number of a simulated device's findings and the first one as one line. It names the kernel, the
    instruction and the source line, if the device knows them.
    """
    count = f"{len(findings)} error{'s' * (len(findings) != 1)}"
    return f"the simulated device reported {count}, the first: {findings[0].text}"


class NothingRan(ZincError):
    """Nothing could run, so nothing was checked; never counted as a pass."""

    exit_code = 77
