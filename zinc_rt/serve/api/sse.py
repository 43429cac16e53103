"""Server-sent events: chunks as they arrive, comments in silence, and a final event for every outcome."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import aclosing, suppress
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from zinc_rt.serve.errors import ServeError

PING_SECONDS = 15.0  # of silence
PING = b": ping\n\n"
ANTHROPIC_PATH = "/v1/messages"
DONE = b"data: [DONE]\n\n"
HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",
}
_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
T = TypeVar("T")


class ClientDisconnected(Exception):
    """The client disconnected before it received the answer."""


def format_event(data: Mapping[str, Any], name: str = "") -> bytes:
    """Return the data as a server-sent event. OpenAI's completions have no event names."""
    line = f"event: {name}\n".encode() if name else b""
    return line + b"data: " + _ENCODE(data).encode(errors="replace") + b"\n\n"


class EventStream(Response):
    """A response that sends the events of an iterator.

    The status is sent with the first event: a request that fails before it gets an error status and body; a
    request that fails later ends with an error event and without [DONE]. If the client disconnects, the
    iterator is cancelled at once.
    """

    def __init__(
        self, chunks: AsyncGenerator[bytes, None], headers: Mapping[str, str], *, anthropic: bool = False
    ) -> None:
        """Create a response with these headers in addition. `anthropic`: the format of errors."""
        super().__init__()
        self.chunks, self.more_headers, self.anthropic = chunks, headers, anthropic
        self.begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(ClientDisconnected):
            await cancel_on_disconnect(receive, self._send(scope, receive, send))

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with aclosing(self.chunks) as chunks:
                async for chunk in chunks:
                    await self._begin(send)
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except ServeError as error:
            if not self.begun:
                await make_error_response(error, scope)(scope, receive, send)
                return
            event = format_event(error.body(anthropic=self.anthropic), "error" if self.anthropic else "")
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await self._begin(send)
        await send({"type": "http.response.body", "body": b""})

    async def _begin(self, send: Send) -> None:
        if not self.begun:
            self.begun = True
            all_headers = {**HEADERS, **self.more_headers}
            headers = [(name.encode(), value.encode()) for name, value in all_headers.items()]
            await send({"type": "http.response.start", "status": 200, "headers": headers})


def make_error_response(error: ServeError, scope: Scope) -> Response:
    """Return the error as a response with body, status and headers, in the format of the path's API."""
    anthropic = scope["path"].startswith(ANTHROPIC_PATH)
    return Response(error.json(anthropic=anthropic), error.status, error.headers(), "application/json")


async def cancel_on_disconnect(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine. Cancel it and raise ClientGone if the client disconnects."""
    task = asyncio.ensure_future(work)
    disconnect_task = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait({task, disconnect_task}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientDisconnected
    finally:
        disconnect_task.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait({task})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def make_receiver(request: Request) -> Receive:
    """Return a receive function for a request whose body was read, so its next message is the disconnect."""
    return request._receive
