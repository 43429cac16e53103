"""Where this program keeps files of its own on a user's machine."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Where what can be computed again is kept, for the user who runs this; it need not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~").expanduser() / ".cache") / "zinc-rt"
