"""Starting and ending a device at one socket path happen one after the other."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def only_one(socket_path: Path) -> Iterator[None]:
    """Holds the lock file beside the sockets, which stays."""
    with socket_path.with_name("start.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
