"""Requests over a WebSocket: each message of the client is a request body, each event of the answer a message.

A WebSocket at the path of a POST endpoint runs that endpoint for each message, with everything that applies to it:
keys, limits, logs. With `stream` the client receives the data of each server-sent event, up to `[DONE]` where the
endpoint has one; otherwise one message with the whole answer. An error is one message, `{"error": ...}`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from zinc_rt.serve.api.sse import make_error_response
from zinc_rt.serve.engine.server import InferenceServer
from zinc_rt.serve.errors import ServeError
from zinc_rt.serve.tenants.auth import authenticate

NORMAL, POLICY = 1000, 1008  # close codes, RFC 6455 section 7.4.1
HANDSHAKE = (b"connection", b"upgrade", b"content-type", b"content-length", b"sec-websocket-")


class WebSocketRequests:
    """Middleware, outside of all others, that runs the application for each message of a WebSocket."""

    def __init__(self, app: ASGIApp, server: InferenceServer) -> None:
        self.app, self.server = app, server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "websocket":
            await self.app(scope, receive, send)
            return
        await receive()  # websocket.connect
        try:
            await authenticate(HTTPConnection(scope), self.server.tenancy)
        except ServeError as error:
            await make_error_response(error, scope)(scope, receive, send)
            return
        await send({"type": "websocket.accept"})
        with suppress(OSError):  # the client disconnected while a message was sent
            await self._answer_messages(scope, receive, send)

    async def _answer_messages(self, scope: Scope, receive: Receive, send: Send) -> None:
        while True:
            try:
                async with asyncio.timeout(self.server.config.server.idle_s):
                    message = await receive()
            except TimeoutError:
                await send({"type": "websocket.close", "code": NORMAL, "reason": "no request for a long time"})
                return
            if message["type"] != "websocket.receive":
                return
            text = message.get("text")
            body: bytes = message["bytes"] if text is None else text.encode()
            answer = _Answer(receive, send, body)
            await self.app(_make_request(scope, body), answer.receive, answer.send)
            if answer.disconnected:
                return
            if answer.second:
                reason = "a second request before the end of the answer"
                await send({"type": "websocket.close", "code": POLICY, "reason": reason})
                return


def _make_request(scope: Scope, body: bytes) -> Scope:
    """Return the scope of a POST request with a body, by the headers of the handshake."""
    headers = [(name, value) for name, value in scope["headers"] if not name.lower().startswith(HANDSHAKE)]
    headers += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    kept = {name: value for name, value in scope.items() if name not in ("subprotocols", "extensions")}
    scheme = "https" if scope.get("scheme") == "wss" else "http"
    return {**kept, "type": "http", "method": "POST", "scheme": scheme, "headers": headers, "state": {}}


class _Answer:
    """The answer to one message: what the application receives as a request and sends as a response. `second`: the
    client sent another message before its end, which cancels it."""

    def __init__(self, receive: Receive, send: Send, body: bytes) -> None:
        self._receive, self._send, self._body = receive, send, body
        self._given = self._streams = False
        self._unsent = bytearray()
        self.disconnected = self.second = False

    async def receive(self) -> Message:
        if not self._given:
            self._given = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        if not self.disconnected and not self.second:
            message = await self._receive()
            self.second = message["type"] == "websocket.receive"
            self.disconnected = not self.second
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self.disconnected or self.second:
            return
        if message["type"] == "http.response.start":
            headers = dict(message["headers"])
            self._streams = headers.get(b"content-type", b"").startswith(b"text/event-stream")
            return
        self._unsent += message.get("body", b"")
        if self._streams:
            for data in self._take_events():
                await self._send({"type": "websocket.send", "text": data})
        elif not message.get("more_body", False):
            await self._send({"type": "websocket.send", "text": self._unsent.decode(errors="replace")})

    def _take_events(self) -> Iterator[str]:
        """Yield the data of each complete event, without names and comments."""
        *events, rest = bytes(self._unsent).split(b"\n\n")
        self._unsent[:] = rest
        for event in events:
            lines = [line[6:] for line in event.split(b"\n") if line.startswith(b"data: ")]
            if lines:
                yield b"\n".join(lines).decode(errors="replace")
