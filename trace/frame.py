"""The frames of a .zlog: a file header, then records with individual checksums. See docs/zlog.md.

This module does not interpret records. After damage, a frame is located by its mark, and is accepted only
if both of its checksums match.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from zinc_rt.host.errors import InputError

MAGIC = b"ZLOG"
VERSION = 2  # of what is written: a Wrote may cover several buffers
TIMES_VERSION = 3  # where times are recorded, which older readers do not know; else 2, which they read
READ = (1, 2, 3)
MARK = b"ZREC"
END_MARK = b"ZEND"
_FILE = struct.Struct("<4sIII")  # magic, version, bytes of the JSON that follows, CRC-32 of that JSON
_FRAME = struct.Struct(
    "<4sIQII"
)  # mark, kind, payload bytes, CRC-32 of the payload, CRC-32 of the 20 bytes before
_BODY = struct.Struct("<I")  # bytes of a payload's JSON; the rest is its binary part
_TRAILER = struct.Struct("<4sIQQ")  # end mark, CRC-32 of the rest, offset of the index frame, records before it
_JSON = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False)
FILE_BYTES, FRAME_BYTES, TRAILER_BYTES = _FILE.size, _FRAME.size, _TRAILER.size
PAYLOAD_MAXIMUM = 1 << 40


@dataclass(frozen=True, slots=True)
class LogFrame:
    """A record and its position in the file."""

    kind: int
    offset: int  # of the frame in the file
    size_bytes: int  # of the payload

    @property
    def end(self) -> int:
        return self.offset + FRAME_BYTES + self.size_bytes


def encode_file_header(meta: dict[str, Any]) -> bytes:
    version = TIMES_VERSION if meta.get("times") else VERSION
    text = json.dumps(meta, separators=(",", ":"), sort_keys=True).encode()
    return _FILE.pack(MAGIC, version, len(text), zlib.crc32(text)) + text


def read_file_header(file: BinaryIO, name: str) -> tuple[dict[str, Any], int]:
    """Return the header's JSON and the offset of the first frame. Raises InputError for an incomplete or
    invalid header."""
    head = file.read(FILE_BYTES)
    if len(head) < FILE_BYTES:
        raise InputError(
            f"{name}: {len(head)} bytes are not a log: truncated inside the header", next="nothing was lost"
        )
    magic, version, size, crc = _FILE.unpack(head)
    if magic != MAGIC:
        raise InputError(f"{name}: not a log: begins with {head[:4]!r}, expected {MAGIC!r}")
    if version not in READ:
        known = f"{', '.join(map(str, READ[:-1]))} and {READ[-1]}"
        raise InputError(
            f"{name}: log format {version}; this build reads {known}", next="use the version that wrote it"
        )
    text = file.read(size)
    if len(text) < size:
        raise InputError(f"{name}: truncated inside the header, before the first record")
    if zlib.crc32(text) != crc:
        raise InputError(f"{name}: the header is damaged: checksum mismatch")
    return json.loads(text), FILE_BYTES + size


def encode_frame(kind: int, payload: bytes) -> bytes:
    head = struct.pack("<4sIQI", MARK, kind, len(payload), zlib.crc32(payload))
    return head + struct.pack("<I", zlib.crc32(head)) + payload


def encode_body(fields: dict[str, Any], data: bytes | memoryview = b"") -> bytes:
    """Encode a payload: fields as JSON, then raw bytes."""
    text = _JSON.encode(fields).encode()
    return b"".join((_BODY.pack(len(text)), text, data))


def parse_body(payload: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the JSON and the binary part of a payload. Raises ValueError for a payload that `encode_body` did
    not encode."""
    if len(payload) < _BODY.size:
        raise ValueError("payload without fields")
    (size,) = _BODY.unpack_from(payload)
    text = payload[_BODY.size : _BODY.size + size]
    if len(text) < size:
        raise ValueError("fields extend beyond the end of the payload")
    fields = json.loads(text)
    if not isinstance(fields, dict):
        raise ValueError("the fields are not an object")
    return fields, payload[_BODY.size + size :]


def read_head(file: BinaryIO, offset: int) -> LogFrame | None:
    """Return the frame whose head is at `offset`, or None if there is none or its checksum fails. No
    payload is read."""
    file.seek(offset)
    head = file.read(FRAME_BYTES)
    if len(head) < FRAME_BYTES:
        return None
    mark, kind, size, _, crc = _FRAME.unpack(head)
    if mark != MARK or zlib.crc32(head[:-4]) != crc or size > PAYLOAD_MAXIMUM:
        return None
    return LogFrame(kind, offset, size)


def read_payload(file: BinaryIO, frame: LogFrame) -> bytes | None:
    """Return the payload of a frame, or None if it is truncated or its checksum fails."""
    file.seek(frame.offset)
    head = file.read(FRAME_BYTES)
    payload = file.read(frame.size_bytes)
    if len(payload) < frame.size_bytes or zlib.crc32(payload) != _FRAME.unpack(head)[3]:
        return None
    return payload


def scan_frames(file: BinaryIO, start: int, size_bytes: int) -> Iterator[LogFrame | tuple[int, int]]:
    """Return every frame from `start` on, and (offset, bytes) of each range that is not a frame."""
    offset = start
    while offset < size_bytes:
        head = read_head(file, offset)
        if head is not None and head.end <= size_bytes:
            yield head
            offset = head.end
            continue
        following = _find_next_mark(file, offset + 1, size_bytes)
        yield offset, following - offset
        offset = following


def _find_next_mark(file: BinaryIO, start: int, size_bytes: int) -> int:
    """Return the offset of the next valid head, else the end."""
    step = 1 << 20
    for base in range(start, size_bytes, step):
        file.seek(base)
        window = file.read(step + len(MARK) - 1)
        offset = window.find(MARK)
        while offset >= 0:
            if read_head(file, base + offset) is not None:
                return base + offset
            offset = window.find(MARK, offset + 1)
    return size_bytes


def encode_trailer(index_offset: int, records: int) -> bytes:
    rest = struct.pack("<QQ", index_offset, records)
    return struct.pack("<4sI", END_MARK, zlib.crc32(rest)) + rest


def read_trailer(file: BinaryIO, size_bytes: int) -> tuple[int, int] | None:
    """Return (offset of the index frame, number of preceding records), or None if the log was not closed
    or its end is damaged."""
    if size_bytes < TRAILER_BYTES:
        return None
    file.seek(size_bytes - TRAILER_BYTES)
    data = file.read(TRAILER_BYTES)
    mark, crc, offset, records = _TRAILER.unpack(data)
    if mark != END_MARK or zlib.crc32(data[8:]) != crc:
        return None
    return offset, records
