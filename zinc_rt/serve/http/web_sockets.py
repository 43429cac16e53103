"""Connections that became WebSockets: uvicorn's protocol with the limits of this server's connections."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from zinc_rt.serve.http.connections import OpenConnections


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """It is counted as the connection that it was before the handshake, and closed if the client does not read."""

    def __init__(self, *given: Any, limits: OpenConnections, **named: Any) -> None:
        super().__init__(*given, **named)
        self._limits = limits
        self._read_due: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._limits.leave(self.client[0] if self.client else "")
        self.resume_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._read_due is None:
            self._read_due = self.loop.call_later(self._limits.settings.client_timeout_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._read_due is not None:
            self._read_due.cancel()
            self._read_due = None
