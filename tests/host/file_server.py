"""A local HTTP server of files in memory, as a hub: ranges, redirects to another port, cut connections."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Hub:
    """`files`: by path. `trees`: the API's answers, by path. `cuts`: how many bytes of the body the next answers
    send before the connection ends. `redirect`: the base URL that files are fetched from."""

    files: dict[str, bytes] = field(default_factory=dict)
    trees: dict[str, Any] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)
    ranges: bool = True
    token: str = ""
    redirect: str = ""
    url: str = ""
    requests: list[tuple[str, str, str]] = field(default_factory=list)  # method, path, Range
    tokens: list[str] = field(default_factory=list)


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, body: bool) -> None:
            path = self.path.partition("?")[0]
            hub.requests.append((self.command, path, self.headers.get("Range", "")))
            hub.tokens.append(self.headers.get("Authorization", ""))
            if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
                return self._send(401, b"")
            if path in hub.trees:
                return self._send(200, json.dumps(hub.trees[path]).encode())
            if path not in hub.files:
                return self._send(404, b"")
            if hub.redirect:
                return self._send(302, b"", {"Location": hub.redirect + path})
            content, tag = hub.files[path], f'"{hash(hub.files[path])}"'
            start = 0
            asked = self.headers.get("Range", "")
            if asked and hub.ranges and self.headers.get("If-Range", tag) == tag:
                start = int(asked.removeprefix("bytes=").rstrip("-"))
                if start >= len(content):
                    return self._send(416, b"")
                extra = {"ETag": tag, "Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
                return self._send(206, content[start:], extra, body=body)
            return self._send(200, content, {"ETag": tag}, body=body)

        def _send(
            self, status: int, content: bytes, extra: dict[str, str] | None = None, *, body: bool = True
        ) -> None:
            self.send_response(status)
            for name, value in {**(extra or {}), "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            if not body:
                return
            if "ETag" in (extra or {}) and hub.cuts:
                content, self.close_connection = content[: hub.cuts.pop(0)], True
            self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
