"""One program at a time on a GPU: a lock named after its render node, with its holder's pid inside.

Two programs that probe or compute on one card disturb each other's answers, and a hang takes both down. Simulated
devices need none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from zinc_rt.errors import OutputError, ZincError
from zinc_rt.host import file_lock, files


class GpuBusy(ZincError):
    """Another process has the GPU."""


@dataclass(slots=True)
class _Held:
    fd: int
    users: int


_held: dict[Path, _Held] = {}
"""By file. A process holds a lock or does not: flock itself would refuse the second backend of one process."""


def take(gpu: str, *, folder: Path | None = None) -> Path:
    """Hold the GPU called `gpu` (renderD128) for this process; give_back what is returned, as often as taken.

    Raises GpuBusy naming the holder, OutputError where no lock can be made.
    """
    path = (folder or files.lock_folder()) / f"zinc-rt-{gpu.rpartition('/')[2]}.lock"
    if path in _held:
        _held[path].users += 1
        return path
    try:
        fd = file_lock.hold(path)
    except BlockingIOError:
        raise GpuBusy(
            f"{gpu} is in use by {file_lock.holder(path)}", next=f"wait for it, or end it; the lock is {path}"
        ) from None
    except OSError as error:
        raise OutputError(f"{path}: cannot make the GPU's lock: {error.strerror}") from error
    _held[path] = _Held(fd, 1)
    return path


def give_back(path: Path) -> None:
    """Give a lock back, once for each take. Only the last lets go."""
    held = _held[path]
    held.users -= 1
    if not held.users:
        del _held[path]
        os.close(held.fd)  # not LOCK_UN: a child that was forked meanwhile still uses the GPU


@contextmanager
def held(gpu: str) -> Iterator[None]:
    path = take(gpu)
    try:
        yield
    finally:
        give_back(path)
