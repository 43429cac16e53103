"""Limits on connections: their number, the time for headers, and the time that a client may read nothing.

uvicorn has none of these limits: a connection that sends one byte per minute would stay open indefinitely.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from zinc_rt.serve.config.checks import is_loopback
from zinc_rt.serve.config.settings import ServerSettings
from zinc_rt.serve.errors import ServeError, make_unavailable_error

HEADER_BYTES = 32 << 10  # of a request, all together
REASONS = {400: "Bad Request", 408: "Request Timeout", 503: "Service Unavailable"}


@dataclass(slots=True)
class OpenConnections:
    """The number of open connections, total and per address. The per-address limit does not apply to this
    machine, which may be a proxy."""

    settings: ServerSettings
    count: int = 0
    by_address: Counter[str] = field(default_factory=Counter)

    def enter(self, address: str) -> str:
        """Count a new connection. Return why it is refused, or ""."""
        if self.count >= self.settings.max_connections:
            return f"{self.count} connections are open, which is the limit"
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


class BoundedConnection(H11Protocol):
    """A uvicorn connection with a timeout for each request's headers, and one for clients that stop reading."""

    def __init__(self, *given: Any, limits: OpenConnections, **named: Any) -> None:
        super().__init__(*given, **named)
        self._limits, self._address, self._counted = limits, "", False
        self._headers_due: asyncio.TimerHandle | None = None
        self._taken_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        if reason := self._limits.enter(self._address):
            self._refuse(make_unavailable_error(reason, "overloaded"))
            return
        self._counted = True
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._counted:
            self._limits.leave(self._address)
            self._counted = False
        self._cancel_header_timer()
        self._cancel_read_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._cancel_header_timer()
        elif self._headers_due is None:
            self._expect_headers()

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
            self._refuse(ServeError(400, f"not an HTTP request, or its headers exceed {HEADER_BYTES} bytes"))

    def _expect_headers(self) -> None:
        self._headers_due = self.loop.call_later(self._limits.settings.header_s, self._on_headers_timeout)

    def _on_headers_timeout(self) -> None:
        self._headers_due = None
        if self.conn.trailing_data[0] and self.conn.our_state is h11.IDLE:
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

    def _refuse(self, error: ServeError) -> None:
        self.transport.write(_answer(error))
        self.transport.close()


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
