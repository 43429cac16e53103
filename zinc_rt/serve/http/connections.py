"""Limits on connections: their number, the size and time of headers, and how long a client may read nothing.

uvicorn has none of these limits: a connection that sends one byte per minute would stay open indefinitely.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from zinc_rt.serve.config.checks import is_loopback
from zinc_rt.serve.config.settings import ServerSettings
from zinc_rt.serve.errors import ServeError, make_unavailable_error

HEADER_BYTES = 32 << 10  # of a request, all together
MAX_HEADERS = 128
URL_BYTES = 8 << 10
VERSIONS = ("1.0", "1.1")
REASONS = {
    400: "Bad Request",
    408: "Request Timeout",
    414: "URI Too Long",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


@dataclass(slots=True)
class OpenConnections:
    """The number of open connections, total and per address. The per-address limit does not apply to this
    machine, which may be a proxy. `idle`: those without a complete request, the longest idle first."""

    settings: ServerSettings
    count: int = 0
    by_address: Counter[str] = field(default_factory=Counter)
    idle: dict[BoundedConnection, None] = field(default_factory=dict)

    def enter(self, address: str) -> str:
        """Count a new connection. Return why it is refused, or "".

        If the limit is reached, the connection that is idle longest is closed instead: open connections cost a
        client nothing, so they must not keep others out.
        """
        if self.count >= self.settings.max_connections:
            if not self.idle:
                return f"{self.count} connections are open, which is the limit"
            next(iter(self.idle)).abort()
        if address and not is_loopback(address):
            if self.by_address[address] >= self.settings.connections_per_address:
                return f"{self.by_address[address]} connections of this address are open, which is the limit"
            self.by_address[address] += 1
        self.count += 1
        return ""

    def leave(self, address: str) -> None:
        self.count -= 1
        if address in self.by_address:
            self.by_address[address] -= 1
            self.by_address += Counter()  # who has none is not remembered


class BoundedConnection(HttpToolsProtocol):
    """A uvicorn connection with limits on each request's headers, on the time for them, and on the time that a
    client may stop reading."""

    def __init__(self, *given: Any, limits: OpenConnections, **named: Any) -> None:
        super().__init__(*given, **named)
        self._limits, self._address, self._counted = limits, "", False
        self._headers_due: asyncio.TimerHandle | None = None
        self._taken_due: asyncio.TimerHandle | None = None
        self._in_headers = False
        self._header_count = self._header_bytes = 0
        self._unparsed_bytes = 0  # received since the parser last reported anything: of an unfinished header
        self._error: ServeError | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        if reason := self._limits.enter(self._address):
            self._refuse(make_unavailable_error(reason, "overloaded"))
            return
        self._counted = True
        self._limits.idle[self] = None
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        super().connection_lost(exc)

    def abort(self) -> None:
        """Close the connection at once, without a response."""
        self._leave()
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._unparsed_bytes += len(data)
        super().data_received(data)
        if self._unparsed_bytes > HEADER_BYTES and not self.transport.is_closing():
            self._error = _make_header_error()
            self.send_400_response("")

    # --- the parser's reports

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_headers, self._header_count, self._header_bytes, self._unparsed_bytes = True, 0, 0, 0
        if self._headers_due is None:
            self._expect_headers()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._unparsed_bytes = 0
        if len(self.url) > URL_BYTES:
            self._error = ServeError(414, f"the URL is longer than {URL_BYTES} bytes", code="url_too_long")
            raise self._error

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._unparsed_bytes = 0
        self._header_count += 1
        self._header_bytes += len(name) + len(value)
        if self._header_count > MAX_HEADERS or self._header_bytes > HEADER_BYTES:
            self._error = _make_header_error()
            raise self._error

    def on_headers_complete(self) -> None:
        self._in_headers, self._unparsed_bytes = False, 0
        self._cancel_header_timer()
        self._limits.idle.pop(self, None)
        if self.parser.get_http_version() not in VERSIONS:
            raise ServeError(400, "not HTTP/1.1")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unparsed_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unparsed_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._counted and (self.cycle is None or self.cycle.response_complete):
            self._limits.idle[self] = None

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over to a WebSocket, which stays counted until it is lost."""
        self._limits.idle.pop(self, None)
        self._cancel_header_timer()
        self._counted = False
        super().handle_websocket_upgrade()

    # --- the client's pace

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._taken_due is None:  # past that its request is cancelled already
            self._taken_due = self.loop.call_later(self._limits.settings.client_timeout_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._cancel_read_timer()

    def send_400_response(self, msg: str) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()  # an answer is on its way: nothing can be put between its bytes
        else:
            self._refuse(self._error or ServeError(400, "not an HTTP request"))

    def _expect_headers(self) -> None:
        self._headers_due = self.loop.call_later(self._limits.settings.header_s, self._on_headers_timeout)

    def _on_headers_timeout(self) -> None:
        self._headers_due = None
        if self._in_headers:
            self._refuse(ServeError(408, "the headers were not received in time", code="request_timeout"))
        else:
            self.transport.close()

    def _cancel_header_timer(self) -> None:
        if self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None

    def _cancel_read_timer(self) -> None:
        if self._taken_due is not None:
            self._taken_due.cancel()
            self._taken_due = None

    def _leave(self) -> None:
        if self._counted:
            self._limits.leave(self._address)
            self._limits.idle.pop(self, None)
            self._counted = False
        self._cancel_header_timer()
        self._cancel_read_timer()

    def _refuse(self, error: ServeError) -> None:
        self.transport.write(_answer(error))
        self.transport.close()


def _make_header_error() -> ServeError:
    message = f"the request has more than {MAX_HEADERS} headers, or more than {HEADER_BYTES} bytes of them"
    return ServeError(431, message, code="headers_too_large")


def _answer(error: ServeError) -> bytes:
    """Return the response for a connection without a readable request."""
    body = error.json()
    lines = [
        f"HTTP/1.1 {error.status} {REASONS[error.status]}",
        "content-type: application/json",
        f"content-length: {len(body)}",
        "connection: close",
        *(f"{name}: {value}" for name, value in error.headers().items()),
    ]
    return "\r\n".join((*lines, "", "")).encode() + body
