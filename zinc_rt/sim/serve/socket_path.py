"""Where the sockets of served devices lie; starting and ending at one path happen one after the other."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from zinc_rt.host.errors import ZincError


class DeviceLost(ZincError):
    """The device process could not be started."""


def runtime_dir() -> Path:
    """Private to this user: sockets lie here."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    if base and Path(base).is_dir() and os.access(base, os.W_OK):
        path = Path(base) / "zinc-rt"
    else:
        path = Path("/tmp") / f"zinc-rt-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    about = path.lstat()
    if about.st_uid != os.getuid() or about.st_mode & 0o077 or not path.is_dir() or path.is_symlink():
        raise DeviceLost(f"{path} is not this user's alone (mode 0700)", next=f"remove {path}")
    return path


@contextlib.contextmanager
def only_one(socket_path: Path) -> Iterator[None]:
    """Holds the lock file beside the sockets, which stays."""
    with socket_path.with_name("start.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
