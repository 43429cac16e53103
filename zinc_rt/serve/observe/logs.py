"""The server log: a JSON line for each request and each answer, joined by the request id.

Prompts, answers, headers and bodies are never logged; only lengths, times, names and reasons.

A separate thread writes the lines, so that a blocked terminal or pipe stalls neither the event loop nor the
engine. When the queue is full, lines are dropped and counted.
"""

from __future__ import annotations

import contextlib
import json
import logging
import logging.handlers
import queue
import re
import secrets
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from datetime import UTC, datetime
from typing import Any, TextIO

LOGGER = logging.getLogger("zinc_rt.serve")
KEPT_LINES = 10_000  # that wait to be written
CLOSE_SECONDS = 2.0
GONE = 499  # nginx's: the client went before there was a response; it is only ever logged
PATH_CHARACTERS = 200
POLLED = frozenset(
    {"/health", "/metrics", "/ready", "/slots", "/v1/admin/routing"}
)  # a line of these is for debug
_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_OWN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Message, Receive, Send], Awaitable[None]]


class JsonLines(logging.Formatter):
    """Format a record as one line of JSON: time, level, message as `event`, then the `extra` fields."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"time": at, "level": record.levelname.lower(), "event": record.getMessage()}
        line.update((name, value) for name, value in record.__dict__.items() if name not in _OWN)
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class DroppingQueue(logging.handlers.QueueHandler):
    """A queue handler that never blocks. `dropped`: lines lost because the queue was full."""

    def __init__(self, lines: queue.Queue[logging.LogRecord | None]) -> None:
        super().__init__(lines)
        self.dropped = 0

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        return record  # it is formatted in the writer's thread

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            self.queue.put_nowait(record)
        except queue.Full:
            self.dropped += 1


class ServerLog:
    """The log of a running server, which includes uvicorn's messages."""

    def __init__(self, level: str = "info", out: TextIO | None = None) -> None:
        self._writer = logging.StreamHandler(out or sys.stderr)
        self._writer.setFormatter(JsonLines())
        self._lines: queue.Queue[logging.LogRecord | None] = queue.Queue(KEPT_LINES)
        self._handler = DroppingQueue(self._lines)
        self._loggers = [LOGGER, logging.getLogger("uvicorn.error")]
        for logger in self._loggers:
            logger.addHandler(self._handler)
            logger.setLevel(level.upper())
            logger.propagate = False
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Return the number of lines lost because the queue was full."""
        return self._handler.dropped

    def close(self) -> None:
        """Write the remaining lines, for at most CLOSE_SECONDS if the output is blocked."""
        for logger in self._loggers:
            logger.removeHandler(self._handler)
        with contextlib.suppress(queue.Full):
            self._lines.put(None, timeout=CLOSE_SECONDS)
            self._thread.join(CLOSE_SECONDS)

    def _write(self) -> None:
        while (record := self._lines.get()) is not None:
            self._writer.handle(record)


class RequestLog:
    """ASGI middleware, outside of all that answer requests: assign each request an id, return it in
    `x-request-id`, count responses by status, and log each finished request.

    A client's x-request-id is kept if it is a plain word. Handlers read the id from
    `request.state.request_id` and can add fields to the line through `request.state.log`, a dict.
    """

    def __init__(self, app: AsgiApp, responses: Counter[int] | None = None) -> None:
        self.app, self.responses = app, Counter[int]() if responses is None else responses

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        value = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        id = value.decode() if _ID.fullmatch(value) else f"req-{secrets.token_hex(12)}"
        state = scope.setdefault("state", {})
        about: dict[str, Any] = {}
        state["request_id"], state["log"] = id, about
        start, status, gone, whole = time.monotonic(), 0, False, False

        async def receive_watched() -> Message:
            nonlocal gone
            message = await receive()
            gone = gone or (message["type"] == "http.disconnect" and not whole)
            return message

        async def send_with_id(message: Message) -> None:
            nonlocal status, whole
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", id.encode())]
            elif message["type"] == "http.response.body":
                whole = not message.get("more_body", False)
            await send(message)

        try:
            await self.app(scope, receive_watched, send_with_id)
        finally:
            logged = status or (GONE if gone else 500)
            self.responses[logged] += 1
            took_ms = round(1000 * (time.monotonic() - start), 3)
            client = scope.get("client") or ("", 0)
            self._log_request(
                scope, logged, {"request_id": id, "ms": took_ms, "client": client[0], **about}, gone=gone
            )

    def _log_request(self, scope: Message, status: int, about: dict[str, Any], *, gone: bool) -> None:
        level = logging.ERROR if status == 500 else logging.DEBUG if scope["path"] in POLLED else logging.INFO
        if LOGGER.isEnabledFor(level):
            line = {"method": scope["method"], "path": scope["path"][:PATH_CHARACTERS], "status": status, **about}
            if gone:
                line["client_gone"] = True
            LOGGER.log(level, "request", extra=line)
