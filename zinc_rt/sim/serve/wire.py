"""Messages between a client and the device process: a header of JSON, then raw bytes, then file descriptors.

    4 bytes header length, 8 bytes body length, 1 byte number of fds, header, body

Integers are little-endian; fds are sent with the first byte. Every request gets one answer, in order.
"""

from __future__ import annotations

import array
import json
import socket
import struct
from dataclasses import dataclass, field
from typing import Any

_HEAD = struct.Struct("<IQB")
MAX_HEADER_BYTES = 1 << 24
MAX_BODY_BYTES = 1 << 30
MAX_FDS = 8
MAX_ARRAY_BYTES = 1 << 26  # of one array that an ioctl points to
VERSION = 1


class ConnectionClosed(Exception):
    """The peer disconnected or sent an invalid message."""


@dataclass(slots=True)
class WireMessage:
    """A request or its answer."""

    header: dict[str, Any]
    body: bytes = b""
    fds: list[int] = field(default_factory=list)


def send(connection: socket.socket, message: WireMessage) -> None:
    header = json.dumps(message.header).encode()
    data = _HEAD.pack(len(header), len(message.body), len(message.fds)) + header + message.body
    sent = 0
    if message.fds:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", message.fds))]
        sent = connection.sendmsg([data], rights)
    connection.sendall(memoryview(data)[sent:])


def receive(connection: socket.socket) -> WireMessage:
    """Receive a message. Raises Closed."""
    fds: list[int] = []
    head = _receive_exactly(connection, _HEAD.size, fds)
    header_bytes, body_bytes, fd_count = _HEAD.unpack(head)
    if header_bytes > MAX_HEADER_BYTES or body_bytes > MAX_BODY_BYTES or fd_count > MAX_FDS:
        raise ConnectionClosed("received a message that exceeds the size limits")
    header = _receive_exactly(connection, header_bytes, fds)
    body = _receive_exactly(connection, body_bytes, fds)
    try:
        fields = json.loads(header)
    except ValueError as error:
        raise ConnectionClosed("received a header that is not JSON") from error
    if not isinstance(fields, dict) or len(fds) != fd_count:
        raise ConnectionClosed("received a header that is not a JSON object, or too few file descriptors")
    return WireMessage(fields, body, fds)


def _receive_exactly(connection: socket.socket, size_bytes: int, fds: list[int]) -> bytes:
    parts, missing = [], size_bytes
    while missing:
        try:
            part, rights, _, _ = connection.recvmsg(min(missing, 1 << 20), socket.CMSG_SPACE(MAX_FDS * 4))
        except OSError as error:
            raise ConnectionClosed(str(error)) from error
        for level, kind, data in rights:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                received = array.array("i")
                received.frombytes(data[: len(data) // 4 * 4])
                fds.extend(received)
        if not part:
            raise ConnectionClosed("the connection ended")
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)
