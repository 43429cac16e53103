"""Write a log incrementally. Each record is one write, so a killed process loses at most one record."""

from __future__ import annotations

import errno
import hashlib
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import zstandard

from zinc_rt.host.errors import OutputError
from zinc_rt.trace import frame, records
from zinc_rt.trace.records import LogRecord

COMPRESS_FROM_BYTES = 512  # below this a blob's own header is most of it
RAW, ZSTD = 0, 1
LEVEL = 3


def print_warning(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class LogWriter:
    """A log being written. It owns the file. A full disk or any other write error ends the recording with
    one warning; the recorded run continues, and `failed` contains the reason."""

    def __init__(
        self, path: str | os.PathLike[str], meta: dict[str, Any], *, warn: Callable[[str], None] = print_warning
    ) -> None:
        """Open the file. Raises OutputError if it cannot be created."""
        self.path = Path(path)
        self.failed = ""
        self._warn = warn
        self._offsets: list[tuple[int, int]] = []  # kind, offset
        self._blobs: dict[str, int] = {}
        self._compressor = zstandard.ZstdCompressor(level=LEVEL)
        try:
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise OutputError(f"{path}: cannot write: {error.strerror}", next="choose another path") from error
        self._end = 0
        self._held: list[bytes] = []
        self._append(frame.encode_file_header(meta))

    @property
    def size_bytes(self) -> int:
        return self._end

    def write(self, record: LogRecord, *, hold: bool = False) -> None:
        """Write a record. `hold`: it is written together with the next record without `hold`."""
        fields, data = records.to_fields(record)
        self._record(record.KIND, frame.encode_body(fields, data), hold=hold)

    def write_blob(self, content: bytes | memoryview) -> str:
        """Store bytes under their sha256 (hex), which is returned. Storing the same bytes again has no
        cost."""
        digest = hashlib.sha256(content).hexdigest()
        if digest not in self._blobs:
            raw = bytes(content)
            packed = self._compressor.compress(raw) if len(raw) >= COMPRESS_FROM_BYTES else raw
            codec, stored = (ZSTD, packed) if len(packed) < len(raw) else (RAW, raw)
            self._blobs[digest] = self._end + sum(map(len, self._held))
            self._record(
                records.BLOB, frame.encode_body({"sha256": digest, "codec": codec, "size": len(raw)}, stored)
            )
        return digest

    def close(self) -> None:
        """Write the index. May be called twice."""
        if self._fd < 0:
            return
        self._flush()
        if not self.failed:
            offset = self._end
            count = len(self._offsets)
            kinds = [kind for kind, _ in self._offsets]
            offsets = [offset for _, offset in self._offsets]
            index = frame.encode_frame(
                records.INDEX, frame.encode_body({"kinds": kinds, "offsets": offsets, "blobs": self._blobs})
            )
            self._append(index + frame.encode_trailer(offset, count))
        if not self.failed and not os.fstat(self._fd).st_nlink:
            self._give_up(OSError(errno.ENOENT, "its file was removed during recording"))
            self._end = 0
        fd, self._fd = self._fd, -1
        os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _record(self, kind: int, payload: bytes, *, hold: bool = False) -> None:
        if self.failed or self._fd < 0:
            return
        offset = self._end + sum(map(len, self._held))
        self._offsets.append((kind, offset))
        self._held.append(frame.encode_frame(kind, payload))
        if not hold:
            self._flush()

    def _flush(self) -> None:
        held = b"".join(self._held)
        self._held.clear()
        self._append(held)

    def _append(self, data: bytes) -> bool:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            self._give_up(error)
            return False
        self._end += len(data)
        return True

    def _give_up(self, error: OSError) -> None:
        self.failed = error.strerror or str(error)
        with suppress(OSError):
            os.ftruncate(self._fd, self._end)  # half a record
        self._warn(f"warning: {self.path}: recording ends here: {self.failed}; the recorded run continues")
