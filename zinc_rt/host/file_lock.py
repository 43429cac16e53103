"""A file that one program holds at a time, with its holder's pid inside.

The lock is the kernel's (flock): it is gone with the process that took it, however that one ended.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path


def hold(path: Path) -> int:
    """Hold the file, made where it is not there, until the descriptor that is returned is closed, here and in
    every child that has it.

    Raises BlockingIOError where somebody holds it, this process included, another OSError where it cannot be
    made.
    """
    import fcntl  # locks need Linux; this room is read elsewhere too

    fd = _open(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _sign(fd)
    except BaseException:
        os.close(fd)
        raise
    return fd


def holder(path: Path) -> str:
    """Who has signed the file: its pid and command line, as far as they can be seen from here."""
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
    """Open the file, whoever made it. A file of another user in a shared folder can be locked all the same."""
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


def _sign(fd: int) -> None:
    text = json.dumps({"pid": os.getpid(), "command": " ".join(sys.argv)})
    with suppress(OSError):  # opened for reading only: /proc/locks still knows the holder
        os.ftruncate(fd, 0)
        os.pwrite(fd, text.encode(), 0)
