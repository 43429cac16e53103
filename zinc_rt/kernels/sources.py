"""Read a kernel's source and its includes, from its own folder or from one include folder."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from zinc_rt.host.errors import InputError
from zinc_rt.host.input_files import make_read_error


def with_includes(path: Path, include: re.Pattern[str], folders: Sequence[Path]) -> list[Path]:
    """Return the source, then every file that it includes directly or indirectly, in order of first mention.
    `include` matches the names in a text; `folders` have those that are not next to the source, the first that has
    one. Raise InputError for a missing file."""
    paths = [path]
    for file in paths:
        for name in include.findall(read_source(file).decode("utf-8", "replace")):
            if Path(name).name != name:
                raise InputError(f"{file}: cannot include {name}: expected a file name without folders")
            where = [location / name for location in (path.parent, *folders) if (location / name).is_file()]
            if not where:
                raise InputError(f"{file}: includes {name}, which is in neither its folder nor {folders[-1]}")
            if where[0] not in paths:
                paths.append(where[0])
    return paths


def hash_sources(files: list[Path], options: str) -> bytes:
    """Return the SHA-256 over the files' names and bytes, and then over `options`."""
    digest = hashlib.sha256()
    for file in files:
        data = read_source(file)
        digest.update(f"{file.name} {len(data)}\n".encode() + data)
    digest.update(options.encode())
    return digest.digest()


def read_source(path: Path) -> bytes:
    """Read a source. Raise InputError if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise make_read_error(path, error) from None
