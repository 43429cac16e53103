"""A disk cache of data that can be recomputed: safe against concurrent writers and torn files, bounded in size.

A file consists of MAGIC, the SHA-256 of the rest, and the content. An incomplete file is a miss, and the next
store replaces it. `os.replace` makes a new file visible atomically, so readers never see a partial file.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from zinc_rt.host.errors import InputError, error_first_line
from zinc_rt.host.files import cache_folder

MAGIC = b"ZRTOBJ1\0"
KEEP_BYTES = 512 << 20  # the least recently used go beyond this
TOUCH_SECONDS = 3600.0  # a hit makes a file young again, at most this often
STORES_BETWEEN_TRIMS = 32
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class ObjectCache:
    """Compiled kernels by key, in `folder`; None: in the user's cache folder.

    Every operation is best effort: a cache that cannot be read or written is not an error.
    """

    def __init__(self, folder: Path | None = None, keep_bytes: int = KEEP_BYTES) -> None:
        self.folder = cache_folder() / "shaders" if folder is None else folder
        self.keep_bytes = keep_bytes
        self._stores = 0

    def path(self, key: str) -> Path:
        return self.folder / f"{key}.zro"

    def load(self, key: str) -> bytes | None:
        """Return the data stored under the key, or None if it is missing or incomplete."""
        path = self.path(key)
        try:
            content = path.read_bytes()
            if time.time() - path.stat().st_mtime > TOUCH_SECONDS:
                os.utime(path)
        except OSError:
            return None
        payload = content[len(MAGIC) + 32 :]
        return payload if _is_complete(content, payload) else None

    def map_entry(self, key: str) -> memoryview | None:
        """Map the data instead of reading it; None if there is no file. Raise InputError with the reason if its
        content must not be used: another user owns it or could change it, or it is incomplete or damaged.
        """
        path = self.path(key)
        try:
            with path.open("rb") as file:
                about = os.fstat(file.fileno())
                if about.st_uid != os.geteuid():
                    raise InputError(f"it belongs to user {about.st_uid}")
                if about.st_mode & OTHERS_WRITE:
                    raise InputError("other users can write to it")
                if about.st_size < len(MAGIC) + 32:
                    raise InputError(f"it has {about.st_size} bytes, less than the {len(MAGIC) + 32} of a header")
                content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            if time.time() - about.st_mtime > TOUCH_SECONDS:
                with suppress(OSError):
                    os.utime(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:  # ValueError: the file became empty meanwhile
            raise InputError(f"it cannot be read: {error_first_line(error)}") from error
        payload = content[len(MAGIC) + 32 :]
        if content[: len(MAGIC)] != MAGIC:
            raise InputError(f"it does not begin with {MAGIC!r}")
        if not _is_complete(content, payload):
            raise InputError("the checksum does not match: it is damaged or incomplete")
        return payload

    def store(self, key: str, payload: bytes | memoryview) -> None:
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=self.folder, suffix=".part")
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(MAGIC + hashlib.sha256(payload).digest())
                    file.write(payload)
                Path(name).replace(self.path(key))
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
            self._stores += 1
            if self._stores % STORES_BETWEEN_TRIMS == 1:
                self.trim()

    def trim(self) -> None:
        """Delete the least recently used files beyond the limit, and temporary files of terminated writers."""
        entries = []
        for file in [*self.folder.glob("*.zro"), *self.folder.glob("*.part")]:
            with suppress(OSError):  # another process trims too
                about = file.stat()
                entries.append((about.st_mtime, about.st_size, file))
        total = 0
        for modified, size, file in sorted(entries, reverse=True):
            abandoned = file.suffix == ".part" and time.time() - modified > TOUCH_SECONDS
            total += size
            if total > self.keep_bytes or abandoned:
                with suppress(OSError):
                    file.unlink(missing_ok=True)


def _is_complete(content: bytes | memoryview, payload: bytes | memoryview) -> bool:
    return (
        content[: len(MAGIC)] == MAGIC
        and hashlib.sha256(payload).digest() == content[len(MAGIC) : len(MAGIC) + 32]
    )
