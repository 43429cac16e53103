"""The file of a resident model: which it is, and whether it is still the one on disk."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

HEAD_BYTES = 1 << 20  # where every tensor's type and place are
SAMPLES, SAMPLE_BYTES = 64, 1 << 16  # of what lies behind: two trainings of one model differ everywhere
LOOK_SECONDS = 60.0  # from one look at a file's size and times to the next


@dataclass(slots=True)
class ModelFile:
    """`digest`: of its size, head and samples of its weights. `stamp`: size, time of the last change, inode."""

    path: Path
    digest: str
    stamp: tuple[int, int, int]

    @classmethod
    def of(cls, path: Path) -> ModelFile:
        """Raises OSError where it cannot be read."""
        return cls(path, _digest(path), _stamp(path))

    def changed(self) -> str:
        """Why what is resident is not what the file says now; "" where it is, and where the file is gone: what is
        mapped stays."""
        try:
            stamp = _stamp(self.path)
            if stamp == self.stamp:
                return ""
            if _digest(self.path) == self.digest:  # touched, or copied onto itself
                self.stamp = stamp
                return ""
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"{self.path}: cannot be read any more: {error.strerror}"
        return f"{self.path}: changed on disk while it was served"


def _stamp(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ino


def _digest(path: Path) -> str:
    size_bytes = path.stat().st_size
    hashed = hashlib.sha256(f"{size_bytes} ".encode())
    with path.open("rb") as file:
        hashed.update(file.read(HEAD_BYTES))
        for sample in range(SAMPLES):
            file.seek(max(0, (size_bytes - SAMPLE_BYTES) * (sample + 1) // SAMPLES))
            hashed.update(file.read(SAMPLE_BYTES))
    return hashed.hexdigest()
