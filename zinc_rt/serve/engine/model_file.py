"""The file of a resident model: its identity, and whether the file on disk has changed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

HEAD_BYTES = 1 << 20  # where every tensor's type and place are
SAMPLES, SAMPLE_BYTES = 64, 1 << 16  # of what lies behind: two trainings of one model differ everywhere
LOOK_SECONDS = 60.0  # from one look at a file's size and times to the next


@dataclass(slots=True)
class ModelFile:
    """A model file. `digest`: of its size, its header and samples of its weights. `stamp`: size, modification
    time, inode."""

    path: Path
    digest: str
    stamp: tuple[int, int, int]

    @classmethod
    def of(cls, path: Path) -> ModelFile:
        """Return the identity of a file. Raises OSError if it cannot be read."""
        return cls(path, _compute_digest(path), _read_stamp(path))

    def changed(self) -> str:
        """Return why the resident model differs from the file on disk, or "" if it matches or if the file was
        deleted, because mapped data remains valid."""
        try:
            stamp = _read_stamp(self.path)
            if stamp == self.stamp:
                return ""
            if _compute_digest(self.path) == self.digest:  # touched, or copied onto itself
                self.stamp = stamp
                return ""
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"{self.path}: can no longer be read: {error.strerror}"
        return f"{self.path}: changed on disk while the model was served"


def _read_stamp(path: Path) -> tuple[int, int, int]:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


def _compute_digest(path: Path) -> str:
    size_bytes = path.stat().st_size
    hashed = hashlib.sha256(f"{size_bytes} ".encode())
    with path.open("rb") as file:
        hashed.update(file.read(HEAD_BYTES))
        for sample in range(SAMPLES):
            file.seek(max(0, (size_bytes - SAMPLE_BYTES) * (sample + 1) // SAMPLES))
            hashed.update(file.read(SAMPLE_BYTES))
    return hashed.hexdigest()
