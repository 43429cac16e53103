"""Where this program keeps files of its own on a user's machine."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

_SHARED = stat.S_ISVTX | stat.S_IWOTH  # every user may make files there, and none may take away another's


def cache_folder() -> Path:
    """Where what can be computed again is kept, for the user who runs this; it need not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~").expanduser() / ".cache") / "zinc-rt"


def state_folder() -> Path:
    """Where what was found out on this machine is kept: journals, what passed, the store. It need not exist."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path("~").expanduser() / ".local" / "state") / "zinc-rt"


def lock_folder() -> Path:
    """Where locks lie that every user of the machine must meet. It exists."""
    run = Path("/run/lock")
    try:
        if run.stat().st_mode & _SHARED == _SHARED:
            return run
    except OSError:  # not every system has it
        pass
    return Path(tempfile.gettempdir())
