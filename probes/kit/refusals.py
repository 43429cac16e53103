"""Calls that must be rejected: a table of them, the kernel's replies, and deviations."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from zinc_rt.kmd.errors import DriverError, format_errno
from zinc_rt.probes.outcome import Outcome, ProbeFailed, passed


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call that must fail. `wanted`: the errnos that kernels are known to return, including 0 if some accept the
    call.
    """

    what: str
    do: Callable[[], object]
    wanted: tuple[int, ...]


def catch_errno(call: Callable[[], object]) -> int:
    """Return the errno of a call, 0 for success."""
    try:
        call()
    except DriverError as error:
        return error.errno
    except OSError as error:
        return error.errno or 0
    return 0


def check_refusals(rows: Iterable[Refusal]) -> Outcome:
    """Check the rows. A deviation is a variant of the kernel: it is reported, but not a failure. A missing
    device is a failure."""
    checked, deviations = 0, []
    for row in rows:
        got = catch_errno(row.do)
        if got in (errno.ENODEV, errno.EIO) and got not in row.wanted:
            raise ProbeFailed("errno", f"{row.what}: {format_errno(got)}", errno=got)
        checked += 1
        if got not in row.wanted:
            expected = " or ".join(format_errno(item) if item else "success" for item in row.wanted)
            deviations.append(f"{row.what}: {format_errno(got) if got else 'success'}, expected {expected}")
    return passed(*deviations, checked=checked, deviations=len(deviations))
