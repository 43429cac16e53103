"""Streams as bytes: what is said in silence, how failures look before and after the first byte, who leaves."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from dataclasses import replace
from typing import Any
from urllib.parse import urlparse

import httpx
import pytest
from embedded_server import MODEL, RunningServer, make_config

from zinc_rt.serve.api import shape
from zinc_rt.serve.app import make_app
from zinc_rt.serve.config.settings import ServerSettings
from zinc_rt.serve.engine.endings import make_failure
from zinc_rt.serve.engine.server import InferenceServer

ASK: dict[str, Any] = {"model": MODEL, "prompt": "hello", "max_tokens": 8, "temperature": 0, "stream": True}
LONG: dict[str, Any] = {**ASK, "max_tokens": 240, "ignore_eos": True}


@pytest.fixture
def http_client(serving: RunningServer) -> Any:
    with httpx.Client(base_url=serving.url, timeout=60) as client:
        yield client


def stall_engine(serving: RunningServer, seconds: float) -> None:
    """Block the engine's thread for that long."""
    event = threading.Event()

    def block_engine() -> None:
        event.set()
        time.sleep(seconds)

    async def call_engine() -> None:
        await serving.server.call(block_engine)

    threading.Thread(target=lambda: asyncio.run(call_engine())).start()
    assert event.wait(10)


def until_idle(serving: RunningServer) -> None:
    for _ in range(500):
        if not serving.server.requests:
            return
        time.sleep(0.01)
    raise AssertionError("somebody still runs")


def data_lines(text: str) -> list[str]:
    return [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]


def test_stream_is_uncached_server_sent_events(http_client: httpx.Client) -> None:
    reply = http_client.post("/v1/completions", json=ASK, headers={"x-request-id": "mine-1"})
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.headers["cache-control"] == "no-store" and reply.headers["x-accel-buffering"] == "no"
    assert reply.headers["x-request-id"] == "mine-1"
    *chunks, result = data_lines(reply.text)
    assert result == "[DONE]"
    last = json.loads(chunks[-1])
    assert last["choices"][0]["finish_reason"] == "length" and last["zinc_rt"]["seed"] >= 0
    assert reply.text.endswith("\n\n")


def test_idle_stream_sends_pings(
    http_client: httpx.Client, serving: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shape, "PING_SECONDS", 0.05)
    stall_engine(serving, 0.3)
    text = http_client.post("/v1/completions", json=ASK).text
    assert text.startswith(": ping\n\n") and data_lines(text)[-1] == "[DONE]"


def test_prompt_progress_is_sent_on_request(
    http_client: httpx.Client, serving: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shape, "PROGRESS_SECONDS", 0.02)
    stall_engine(serving, 0.1)
    chunks = data_lines(
        http_client.post("/v1/completions", json={**ASK, "prompt": [9] * 99, "return_progress": True}).text
    )
    message = [
        document["prompt_progress"]
        for chunk in chunks[:-1]
        if "prompt_progress" in (document := json.loads(chunk))
    ]
    assert message and all(item["total"] == 99 for item in message)
    assert [item["processed"] for item in message] == sorted(item["processed"] for item in message)


def test_failure_before_first_token_sets_the_status(http_client: httpx.Client, serving: RunningServer) -> None:
    stall_engine(serving, 0.05)
    reply = http_client.post("/v1/completions", json={**ASK, "timeout_ms": 1})
    assert reply.status_code == 504 and reply.json()["error"]["code"] == "deadline_exceeded"
    assert reply.headers["content-type"] == "application/json"
    assert (
        http_client.post("/v1/completions", json=ASK, headers={"x-request-timeout-ms": "soon"}).status_code == 400
    )


def test_later_failure_ends_with_error_and_no_done(http_client: httpx.Client, serving: RunningServer) -> None:
    with http_client.stream("POST", "/v1/completions", json=LONG) as reply:
        lines = reply.iter_lines()
        assert next(lines).startswith("data: ")
        (running,) = serving.server.models[MODEL].streams.values()
        running.loop.call_soon_threadsafe(running.fail, make_failure("device_hang"))
        rest = data_lines("\n".join(lines))
    assert json.loads(rest[-1])["error"]["code"] == "device_hang"
    assert "[DONE]" not in rest and reply.status_code == 200
    serving.server.models[MODEL].core.scheduler.cancel(running.number)
    until_idle(serving)


@pytest.mark.parametrize("stream", [True, False])
def test_client_disconnect_cancels_its_request(serving: RunningServer, stream: bool) -> None:
    until_idle(serving)
    core = serving.server.models[MODEL].core
    before = core.usage()["tokens_generated"]
    body = json.dumps({**LONG, "stream": stream}).encode()
    address = urlparse(serving.url)
    with socket.create_connection((address.hostname, address.port)) as client:
        head = f"POST /v1/completions HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
        client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        while core.usage()["tokens_generated"] == before:
            time.sleep(0.005)
    until_idle(serving)
    assert 0 < core.usage()["tokens_generated"] - before < 240


def test_unknown_parameters_are_ignored_unless_strict() -> None:
    async def response_statuses(strict: bool) -> list[int]:
        server = InferenceServer(make_config(server=ServerSettings(strict_parameters=strict)))  # with no model yet
        transport = httpx.ASGITransport(make_app(server))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            bodies: list[Any] = [{"mirostat": 2}, {"mirostat": 2, "strict_parameters": True}]
            chat = {"messages": [{"role": "user", "content": "hello"}]}
            return [
                (await client.post("/v1/chat/completions", json={**chat, **body})).status_code for body in bodies
            ]

    assert asyncio.run(response_statuses(strict=True)) == [400, 400]
    assert asyncio.run(response_statuses(strict=False)) == [404, 400]


def test_ready_reports_pending_requests_and_fails_while_draining(
    http_client: httpx.Client, serving: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert http_client.get("/ready").json() == {"status": "ready", "requests": 0}
    monkeypatch.setattr(serving.server, "draining", True)
    reply = http_client.get("/ready")
    assert (
        reply.status_code == 503 and reply.json()["error"]["code"] == "draining" and reply.headers["retry-after"]
    )
    assert http_client.post("/v1/completions", json=ASK).status_code == 503
    assert http_client.get("/health").status_code == 200


def test_simulated_device_is_marked_in_every_answer(http_client: httpx.Client, serving: RunningServer) -> None:
    assert "x-zinc-rt-device" not in http_client.get("/v1/models").headers
    backend = serving.server.models[MODEL].core.engine.backend
    real, backend.device = backend.device, replace(backend.device, simulated=True)  # type: ignore[misc]
    try:
        for path in ("/v1/models", "/health", "/nowhere"):
            assert http_client.get(path).headers["x-zinc-rt-device"] == "simulated"
        assert http_client.post("/v1/completions", json=ASK).headers["x-zinc-rt-device"] == "simulated"
    finally:
        backend.device = real  # type: ignore[misc]
