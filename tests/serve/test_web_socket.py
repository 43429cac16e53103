"""A WebSocket carries the same answers as HTTP, under the same keys and limits."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from embedded_server import MODEL, RunningServer, make_config, run_server
from test_event_streams import ASK, LONG, data_lines, until_idle

from zinc_rt.serve.api.web_socket import WebSocketRequests
from zinc_rt.serve.app import make_app
from zinc_rt.serve.config.settings import ServerSettings
from zinc_rt.serve.http.connections import OpenConnections
from zinc_rt.serve.tenants.keys import new_key

client = pytest.importorskip("websockets.sync.client", reason="the package websockets is not installed")
exceptions = pytest.importorskip("websockets.exceptions")
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, "temperature": 0}


@contextmanager
def connect(serving: RunningServer, path: str = "/v1/completions", **options: Any) -> Iterator[Any]:
    url = serving.url.replace("http:", "ws:") + path
    with client.connect(url, proxy=None, open_timeout=30, close_timeout=5, **options) as socket:
        yield socket


def receive_stream(socket: Any) -> list[str]:
    messages: list[str] = []
    while not messages or messages[-1] != "[DONE]":
        messages.append(socket.recv(60))
    return messages


def texts(messages: list[str]) -> list[str]:
    return [
        json.loads(item)["choices"][0]["text"] for item in messages if item.startswith('{"') and "text" in item
    ]


def test_messages_are_those_of_the_event_stream(serving: RunningServer) -> None:
    over_http = data_lines(httpx.post(f"{serving.url}/v1/completions", json=ASK, timeout=60).text)
    with connect(serving) as socket:
        for sent in (json.dumps(ASK), json.dumps(ASK).encode()):  # text and binary, one after the other
            socket.send(sent)
            streamed = receive_stream(socket)
            assert texts(streamed) == texts(over_http) and "".join(texts(streamed))
        socket.send(json.dumps({**ASK, "stream": False}))
        assert json.loads(socket.recv(60))["choices"][0]["text"] == "".join(texts(over_http))
        socket.send("{")
        assert "error" in json.loads(socket.recv(60))
        socket.send(json.dumps({**ASK, "temperature": -1}))
        assert json.loads(socket.recv(60))["error"]["param"] == "temperature"
    with connect(serving, "/v1/chat/completions") as socket:
        socket.send(json.dumps({**CHAT, "stream": True}))
        assert json.loads(receive_stream(socket)[0])["object"] == "chat.completion.chunk"
    with connect(serving, "/v1/messages") as socket:
        socket.send(json.dumps({**CHAT, "stream": True}))
        assert json.loads(socket.recv(60))["type"] == "message_start"
    with connect(serving, "/v1/admin/trace?steps=4") as socket:
        for _ in range(2):
            socket.send("")
            assert json.loads(socket.recv(60))["traceEvents"]
    with connect(serving, "/nowhere") as socket:
        socket.send("{}")
        assert json.loads(socket.recv(60))["error"]["code"] == "not_found"
    until_idle(serving)


def test_disconnect_or_second_message_cancels_the_request(serving: RunningServer) -> None:
    with connect(serving) as socket:
        socket.send(json.dumps(LONG))
        socket.recv(60)
        assert serving.server.requests == 1
    until_idle(serving)
    with connect(serving) as socket:
        socket.send(json.dumps(LONG))
        socket.recv(60)
        socket.send(json.dumps(ASK))
        with pytest.raises(exceptions.ConnectionClosed) as closed:
            while True:
                socket.recv(60)
        assert closed.value.rcvd.code == 1008 and "second request" in closed.value.rcvd.reason
    until_idle(serving)


def test_pages_of_other_sites_are_refused(serving: RunningServer) -> None:
    with pytest.raises(exceptions.InvalidStatus) as refused, connect(serving, origin="http://evil.example"):
        pass
    assert refused.value.response.status_code == 403 and b"foreign_origin" in refused.value.response.body
    with connect(serving, origin=serving.url) as socket:
        socket.send(json.dumps(ASK))
        receive_stream(socket)


def test_an_idle_socket_is_closed(serving: RunningServer) -> None:
    sent: list[Any] = []
    connected = [{"type": "websocket.connect"}]

    async def receive() -> Any:
        return connected.pop() if connected else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    settings = SimpleNamespace(server=SimpleNamespace(idle_s=0.01))
    server: Any = SimpleNamespace(tenancy=serving.server.tenancy, config=settings)
    scope = {"type": "websocket", "path": "/v1/completions", "headers": [(b"host", b"localhost")], "client": None}
    asyncio.run(WebSocketRequests(make_app(serving.server), server)(scope, receive, send))
    assert [message["type"] for message in sent] == ["websocket.accept", "websocket.close"]
    assert sent[1]["code"] == 1000


@pytest.mark.rest
def test_keys_sizes_and_connections_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    key, stored = new_key(scopes=("inference",))
    plain = make_config()
    tenants = (replace(plain.tenants[0], keys=(stored,)),)
    settings = ServerSettings(max_body_bytes=4096)
    left: list[str] = []
    leave = OpenConnections.leave
    monkeypatch.setattr(OpenConnections, "leave", lambda self, at: (left.append(at), leave(self, at)))
    for serving in run_server(make_config(tenants=tenants, server=settings)):
        with pytest.raises(exceptions.InvalidStatus) as refused, connect(serving):
            pass
        assert refused.value.response.status_code == 401
        headers = {"authorization": f"Bearer {key}"}
        with connect(serving, additional_headers=headers) as socket:
            socket.send(json.dumps(ASK))
            receive_stream(socket)
        with connect(serving, additional_headers=headers) as socket:
            socket.send(json.dumps({**ASK, "prompt": "x" * 5000}))
            with pytest.raises(exceptions.ConnectionClosed) as closed:
                socket.recv(60)
            assert closed.value.rcvd.code == 1009
        with connect(serving, additional_headers=headers):
            assert len(serving.http.server_state.connections) == 1
        for _ in range(500):
            if len(left) == 4:
                break
            time.sleep(0.01)
        assert len(left) == 4  # each connection left once
