"""File locks: `hold_lock` and `read_holder` for any file, `take_lock`, `give_back` and `hold_gpu` for a GPU.

Two programs that probe or compute on one card affect each other's results, and a hang stops both. The lock of a
GPU is named after its render node and contains its owner's pid. Simulated devices need no lock.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from zinc_rt.host import files
from zinc_rt.host.errors import OutputError, ZincError


def hold_lock(path: Path) -> int:
    """Lock the file, creating it if necessary, until the returned descriptor is closed here and in every child
    that inherited it.

    Raise BlockingIOError if it is locked, even by this process, and another OSError if it cannot be created.
    """
    import fcntl  # locks need Linux; this room is read elsewhere too

    fd = _open(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _write_owner(fd)
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_holder(path: Path) -> str:
    """Return the lock owner recorded in the file: its pid, and its command line if visible to this process."""
    try:
        signed = json.loads(path.read_text(encoding="utf-8"))
        pid, command = int(signed["pid"]), str(signed["command"])
    except (OSError, ValueError, KeyError, TypeError):
        return "another process, which has not said who it is"
    if not Path(f"/proc/{pid}").exists():
        return f"a process that pid {pid} left behind, or one of another container ({command})"
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        command = " ".join(word.decode(errors="replace") for word in words if word) or command
    return f"pid {pid} ({command})"


def _open(path: Path) -> int:
    """Open the file, regardless of its owner. Another user's file in a shared folder can be locked too."""
    flags = os.O_CLOEXEC | os.O_NOFOLLOW
    for _ in range(2):
        with suppress(FileNotFoundError):
            try:
                return os.open(path, os.O_RDWR | flags)
            except PermissionError:
                return os.open(path, os.O_RDONLY | flags)
        with suppress(FileExistsError):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | flags, 0o666)
            os.fchmod(fd, 0o666)  # whatever the umask: the next user signs it too
            return fd
    raise OSError(0, "it comes and goes", str(path))


def _write_owner(fd: int) -> None:
    text = json.dumps({"pid": os.getpid(), "command": " ".join(sys.argv)})
    with suppress(OSError):  # opened for reading only: /proc/locks still knows the holder
        os.ftruncate(fd, 0)
        os.pwrite(fd, text.encode(), 0)


class GpuBusy(ZincError):
    """Another process is using the GPU."""


@dataclass(slots=True)
class _HeldLock:
    fd: int
    users: int


_held_locks: dict[Path, _HeldLock] = {}
"""Locks by file. They are shared within the process, because flock would reject a second backend in it."""


def take_lock(gpu: str, *, folder: Path | None = None) -> Path:
    """Lock the GPU called `gpu` (renderD128) for this process. Call give_back with the result once per call.

    Raise GpuBusy naming the owner, and OutputError if no lock can be created.
    """
    path = (folder or files.open_lock_directory()) / f"zinc-rt-{gpu.rpartition('/')[2]}.lock"
    if path in _held_locks:
        _held_locks[path].users += 1
        return path
    try:
        fd = hold_lock(path)
    except BlockingIOError:
        raise GpuBusy(
            f"{gpu} is in use by {read_holder(path)}", next=f"wait for it, or end it; the lock is {path}"
        ) from None
    except OSError as error:
        raise OutputError(f"{path}: cannot create the lock file of the GPU: {error.strerror}") from error
    _held_locks[path] = _HeldLock(fd, 1)
    return path


def give_back(path: Path) -> None:
    """Release a lock, once for each take. The last call unlocks it."""
    held = _held_locks[path]
    held.users -= 1
    if not held.users:
        del _held_locks[path]
        os.close(held.fd)  # not LOCK_UN: a child that was forked meanwhile still uses the GPU


@contextmanager
def hold_gpu(gpu: str) -> Iterator[None]:
    path = take_lock(gpu)
    try:
        yield
    finally:
        give_back(path)
