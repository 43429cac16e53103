"""Files of this program: its folders on a user's machine, results, which are written atomically, and YAML."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from zinc_rt.host.errors import OutputError

_NEXT = "choose another path, or free the disk"
_SHARED = stat.S_ISVTX | stat.S_IWOTH  # every user may create files there, but not remove those of others


def cache_folder() -> Path:
    """Return the user's folder for data that can be recomputed; it may not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~").expanduser() / ".cache") / "zinc-rt"


def state_directory() -> Path:
    """Return the folder for results from this machine: journals, passed checks, the store. It may not exist."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path("~").expanduser() / ".local" / "state") / "zinc-rt"


def models_folder() -> Path:
    """Return the folder for downloaded models, if no setting names another. It may not exist."""
    return (
        Path(os.environ.get("XDG_DATA_HOME") or Path("~").expanduser() / ".local" / "share") / "zinc-rt" / "models"
    )


def open_lock_directory() -> Path:
    """Return the folder for locks shared by all users of the machine. It exists."""
    run = Path("/run/lock")
    try:
        if run.stat().st_mode & _SHARED == _SHARED:
            return run
    except OSError:  # not every system has it
        pass
    return Path(tempfile.gettempdir())


def load_yaml(text: str) -> Any:
    """Parse YAML with the C loader, which is ten times as fast, if PyYAML was built with it. Raise yaml.YAMLError.

    Only for files of this package, because line numbers in errors are less exact than with yaml.safe_load.
    """
    import yaml  # imported here: most commands do not need it

    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def write_atomically(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> None:
    """Write a file atomically: `write` fills a temporary file, which then replaces `path`. Raise OutputError with
    the reason.

    A device or a pipe has no file to replace and is written directly.
    """
    path = Path(path)
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as file:
                write(file)
            return
        target = path.resolve() if path.is_symlink() else path
        unfinished = target.with_name(f"{target.name}.{os.getpid()}.part")
        try:
            with unfinished.open("wb") as file:
                write(file)
            unfinished.replace(target)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
    except (OSError, ValueError) as error:  # ValueError: no file name, or a NUL byte in it
        reason = getattr(error, "strerror", None) or error
        raise OutputError(f"{path}: cannot write: {reason}", next=_NEXT) from error


def check_writable(*paths: str | None, report: str | None = None) -> None:
    """Check output paths before a long run: raise OutputError for a path that cannot be written. None is accepted.

    Only `report` may be "-", for stdout: two outputs to stdout could not be separated.
    """
    for path in (*paths, None if report == "-" else report):
        if path is None:
            continue
        if path == "-":
            raise OutputError(
                "-: cannot write to stdout, which is reserved for the report", next="name a file, or --json -"
            )
        folder = Path(path).parent
        if not path or Path(path).is_dir():
            raise OutputError(f"{path or repr(path)}: cannot write: not a file name", next=_NEXT)
        if not folder.is_dir():
            raise OutputError(
                f"{path}: cannot write: the folder {folder} does not exist", next=f"mkdir -p {folder}"
            )
        if not os.access(Path(path) if Path(path).exists() else folder, os.W_OK):
            raise OutputError(f"{path}: cannot write: Permission denied", next=_NEXT)
