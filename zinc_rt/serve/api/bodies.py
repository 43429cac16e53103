"""Limit the size and the transfer time of request bodies, check the API key before reading them, and parse large
ones outside the event loop."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from zinc_rt.sched.bucket import Bucket
from zinc_rt.serve.api.parsing import MIN_ID_LIMIT, PARSE_SECONDS, is_quickly_parsed, parse_body
from zinc_rt.serve.api.sse import make_error_response
from zinc_rt.serve.config.settings import ServerSettings
from zinc_rt.serve.engine.server import InferenceServer
from zinc_rt.serve.errors import ServeError
from zinc_rt.serve.sandbox import CallKilled
from zinc_rt.serve.tenants.auth import authenticate

BYTES_A_SECOND = 4 << 20  # of one key's bodies: the largest then stops a step in some hundreds, and no percentile
DISCARD_SECONDS = 1.0
WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})  # one that comes all the same is not read


class BoundedBodies:
    """Middleware that reads the whole body before it calls the application. The API key is checked first, so
    that an unauthorized client cannot send a body."""

    def __init__(self, app: ASGIApp, server: InferenceServer) -> None:
        self.app, self.server = app, server
        self._running = Counter[str]()  # requests by key
        self._bytes: dict[str, Bucket] = {}  # of bodies, by key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in WITHOUT_BODY:
            await self.app(scope, receive, send)
            return
        headers, settings = dict(scope["headers"]), self.server.tenancy.config.server
        try:
            caller = await authenticate(HTTPConnection(scope), self.server.tenancy)
            scope.setdefault("state", {})["caller"] = caller
            if self._running[caller.key] >= settings.requests_per_key:
                message = f"this key already has {settings.requests_per_key} running requests"
                raise ServeError(429, message, "rate_limit_error", code="quota_exceeded", retry_after_seconds=1)
            await self._take_turn(caller.key)
            body = await _read(receive, headers.get(b"content-length"), settings)
            self._bytes[caller.key].charge(len(body or b""), time.monotonic_ns())
        except ServeError as error:
            await _discard(receive)
            refusal = make_error_response(error, scope)
            refusal.headers["connection"] = "close"  # what is still to come of the body is not read
            await refusal(scope, receive, send)
            return
        if body is None:
            return
        argument = False

        async def replayed() -> Message:
            nonlocal argument
            if argument:
                return await receive()
            argument = True
            return {"type": "http.request", "body": body, "more_body": False}

        self._running[caller.key] += 1
        try:
            await self.app(scope, replayed, send)
        finally:
            self._running -= Counter((caller.key,))  # who has none is not remembered

    async def _take_turn(self, key: str) -> None:
        """Wait until the key's byte rate allows this body.

        Parsing a large body blocks the event loop, so each key has a limit in bytes per second.
        """
        bucket = self._bytes.get(key)
        if bucket is None:
            bucket = self._bytes[key] = Bucket(BYTES_A_SECOND, BYTES_A_SECOND, time.monotonic_ns())
        while not bucket.is_allowed(now_ns := time.monotonic_ns()):
            await asyncio.sleep((bucket.allows_from_ns(now_ns) - now_ns) / 1e9)


async def _read(receive: Receive, declared: bytes | None, settings: ServerSettings) -> bytes | None:
    """Return the body, or None if the client disconnected. Raises ServeError 413 and 408."""
    max_body_bytes = settings.max_body_bytes
    if declared is not None and int(declared) > max_body_bytes:
        raise _make_size_error(max_body_bytes)
    body = bytearray()
    try:
        async with asyncio.timeout(settings.body_s):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    return None
                body += message.get("body", b"")
                if len(body) > max_body_bytes:
                    raise _make_size_error(max_body_bytes)
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        reason = f"the body was not received within {settings.body_s:g} s"
        raise ServeError(408, reason, code="request_timeout") from None


async def _discard(receive: Receive) -> None:
    """Discard the rest of the body for a short time. A client whose connection is closed while it sends never
    reads the error response.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(DISCARD_SECONDS):
            while (message := await receive())["type"] == "http.request" and message.get("more_body", False):
                pass


def _make_size_error(maximum: int) -> ServeError:
    return ServeError(413, f"the body is larger than the limit of {maximum} bytes", code="body_too_large")


class BodyRoute(APIRoute):
    """A route whose large bodies are parsed and checked in a process of their own. See parsing.py."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle
        kind = self.body_field.field_info.annotation

        async def handle_parsed(request: Request) -> Response:
            data = await request.body()
            if not is_quickly_parsed(data) and is_json(request):
                request._json = await _parse_elsewhere(request, data, kind)  # what FastAPI takes for the body
            return await handle(request)

        return handle_parsed


def is_json(request: Request) -> bool:
    """Return whether the request declares a JSON body."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


async def _parse_elsewhere(request: Request, data: bytes, kind: Any) -> Any:
    server: InferenceServer = request.app.state.server
    try:
        return await server.sandbox.call(
            request.state.caller.tenant,
            PARSE_SECONDS,
            parse_body,
            data,
            kind,
            max_ids=max([MIN_ID_LIMIT, *(model.ctx for model in server.models.values())]),
            strict=server.config.server.strict_parameters,
        )
    except CallKilled as error:
        raise ServeError(400, f"reading the body {error}", code="too_many_values") from None
