"""Paths of the sockets of served devices; starts and ends at one path are serialised."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from zinc_rt.host.errors import ZincError


class DeviceLost(ZincError):
    """The device process could not be started."""


def find_runtime_dir() -> Path:
    """Return the directory of the sockets, private to this user."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    if base and Path(base).is_dir() and os.access(base, os.W_OK):
        path = Path(base) / "zinc-rt"
    else:
        path = Path("/tmp") / f"zinc-rt-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    about = path.lstat()
    if about.st_uid != os.getuid() or about.st_mode & 0o077 or not path.is_dir() or path.is_symlink():
        raise DeviceLost(f"{path} must belong to this user and have mode 0700", next=f"remove {path}")
    return path


def find_program_folder(socket_path: Path) -> Path:
    """Return the folder with the copies of device files for a program; the device removes it when it ends."""
    return socket_path.with_suffix(".files")


@contextlib.contextmanager
def lock_socket(socket_path: Path) -> Iterator[None]:
    """Hold the lock file next to the socket; the file remains."""
    with socket_path.with_name("start.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
