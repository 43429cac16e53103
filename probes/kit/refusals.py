"""Calls that must be refused: a table of them, what the kernel said, and where it said something else."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from zinc_rt.kmd.errors import DriverError, errno_name
from zinc_rt.probes.outcome import Failed, Outcome, passed


@dataclass(frozen=True, slots=True)
class Refusal:
    """`wanted`: the errnos that kernels are known to give; 0 among them: some accept it."""

    what: str
    do: Callable[[], object]
    wanted: tuple[int, ...]


def errno_of(do: Callable[[], object]) -> int:
    """The errno of a call, 0 for success."""
    try:
        do()
    except DriverError as error:
        return error.errno
    except OSError as error:
        return error.errno or 0
    return 0


def check_refusals(rows: Iterable[Refusal]) -> Outcome:
    """A deviation is a kernel's variant: named, and no failure. A device that is gone is one."""
    checked, deviations = 0, []
    for row in rows:
        got = errno_of(row.do)
        if got in (errno.ENODEV, errno.EIO) and got not in row.wanted:
            raise Failed("errno", f"{row.what}: {errno_name(got)}", errno=got)
        checked += 1
        if got not in row.wanted:
            wanted = " or ".join(errno_name(each) if each else "success" for each in row.wanted)
            deviations.append(f"{row.what}: {errno_name(got) if got else 'success'}, not {wanted}")
    return passed(*deviations, checked=checked, deviations=len(deviations))
