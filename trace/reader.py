"""Read a log that may be complete, truncated or damaged. Invalid parts are skipped and reported."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import zstandard

from zinc_rt.host.errors import InputError
from zinc_rt.host.input_files import make_read_error
from zinc_rt.trace import frame, records
from zinc_rt.trace.frame import LogFrame
from zinc_rt.trace.records import LogRecord
from zinc_rt.trace.writer import RAW, ZSTD


class LogReader:
    """A log open for reading. `header` describes the recording. `problems` lists missing parts as
    sentences; it is empty for a complete log.

    Raises InputError for a file that is not a log, has another format version, or is truncated inside its
    header.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            self._file = self.path.open("rb")
        except OSError as error:
            raise make_read_error(path, error) from error
        try:
            self.size_bytes = os.fstat(self._file.fileno()).st_size
            self.header, start = frame.read_file_header(self._file, str(path))
        except BaseException:
            self._file.close()
            raise
        self.problems: list[str] = []
        self.damage: list[str] = []  # problems before the end: what was left out is missing in between
        self._frames: list[LogFrame] = []
        self._blobs: dict[str, LogFrame] = {}
        self._find(start)

    @property
    def closed(self) -> bool:
        """Return whether the log was closed properly, with its index."""
        return self._closed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._frames)

    def __iter__(self) -> Iterator[LogRecord]:
        """Iterate over the records in order. A record whose checksum fails is skipped and added to
        `problems`."""
        for number, head in enumerate(self._frames):
            record = self._read(head)
            if record is None:
                self._add_note(f"record {number} at byte {head.offset} is damaged and was skipped")
            else:
                yield record

    def read_blob(self, digest: str) -> bytes:
        """Return the bytes with that sha256. Raises InputError if the log does not contain them completely."""
        head = self._blobs.get(digest)
        if head is None:
            raise InputError(
                f"{self.path}: the log does not contain the blob {digest[:12]}", next="record at level inputs"
            )
        content = self._unpack(head)
        if content is None or hashlib.sha256(content).hexdigest() != digest:
            raise InputError(f"{self.path}: the blob {digest[:12]} at byte {head.offset} is damaged")
        return content

    def has(self, digest: str) -> bool:
        return digest in self._blobs

    def list_sizes(self) -> Iterator[tuple[int, int]]:
        """Return (kind, bytes in the file) of every record, including blobs."""
        for head in (*self._frames, *self._blobs.values()):
            yield head.kind, head.size_bytes + frame.FRAME_BYTES

    def blob_size(self, digest: str) -> int:
        """Return the size of a blob in the file; 0 if the log does not contain it."""
        head = self._blobs.get(digest)
        return 0 if head is None else head.size_bytes + frame.FRAME_BYTES

    # --- inside ---

    def _find(self, start: int) -> None:
        """Yield the heads of all frames. The index is not needed; it is only compared."""
        end = frame.read_trailer(self._file, self.size_bytes)
        self._closed = end is not None
        stop = self.size_bytes if end is None else self.size_bytes - frame.TRAILER_BYTES
        counted = 0
        for head in frame.scan_frames(self._file, start, stop):
            if isinstance(head, tuple):
                offset, size = head
                torn = offset + size == stop and end is None
                what = "torn record" if torn else "damaged stretch"
                self._add_note(f"{what} of {size} bytes at byte {offset} was skipped", damage=not torn)
            elif head.kind == records.BLOB:
                self._keep_blob(head)
                counted += 1
            elif head.kind == records.INDEX:
                continue
            else:
                self._frames.append(head)
                counted += 1
        if end is None:
            message = "the log was not closed: recording ended unexpectedly, or the end of the file is missing"
            self._add_note(message, damage=False)
        elif counted != end[1]:
            self._add_note(f"{end[1]} records were written, {counted} are present")

    def _keep_blob(self, head: LogFrame) -> None:
        payload = frame.read_payload(self._file, head)
        try:
            fields, _ = frame.parse_body(payload if payload is not None else b"")
            self._blobs[str(fields["sha256"])] = head
        except (ValueError, KeyError):
            self._add_note(f"a blob at byte {head.offset} is damaged")

    def _unpack(self, head: LogFrame) -> bytes | None:
        payload = frame.read_payload(self._file, head)
        if payload is None:
            return None
        try:
            fields, stored = frame.parse_body(payload)
            if fields["codec"] == RAW:
                return stored
            if fields["codec"] == ZSTD:
                size = int(fields["size"])
                return zstandard.ZstdDecompressor().decompress(stored, max_output_size=size)
        except (ValueError, KeyError, TypeError, zstandard.ZstdError):
            return None
        return None

    def _read(self, head: LogFrame) -> LogRecord | None:
        payload = frame.read_payload(self._file, head)
        if payload is None:
            return None
        try:
            fields: dict[str, Any]
            fields, data = frame.parse_body(payload)
            return records.from_fields(head.kind, fields, data)
        except ValueError as error:
            raise InputError(
                f"{self.path}: record at byte {head.offset}: {error}", next="use the version that wrote it"
            ) from error

    def _add_note(self, sentence: str, *, damage: bool = True) -> None:
        if sentence not in self.problems:
            self.problems.append(sentence)
            if damage:
                self.damage.append(sentence)
