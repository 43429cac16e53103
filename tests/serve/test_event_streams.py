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
from embedded_server import MODEL, Serving, config

from zinc_rt.serve.api import shape
from zinc_rt.serve.app import app
from zinc_rt.serve.config.settings import ServerSettings
from zinc_rt.serve.engine.endings import failure
from zinc_rt.serve.engine.server import InferenceServer

ASK: dict[str, Any] = {"model": MODEL, "prompt": "hello", "max_tokens": 8, "temperature": 0, "stream": True}
LONG: dict[str, Any] = {**ASK, "max_tokens": 240, "ignore_eos": True}


@pytest.fixture
def http(serving: Serving) -> Any:
    with httpx.Client(base_url=serving.url, timeout=60) as client:
        yield client


def stalled(serving: Serving, seconds: float) -> None:
    """Block the engine's thread for that long."""
    event = threading.Event()

    def sleep() -> None:
        event.set()
        time.sleep(seconds)

    async def call() -> None:
        await serving.server.call(sleep)

    threading.Thread(target=lambda: asyncio.run(call())).start()
    assert event.wait(10)


def until_idle(serving: Serving) -> None:
    for _ in range(500):
        if not serving.server.requests:
            return
        time.sleep(0.01)
    raise AssertionError("somebody still runs")


def data(text: str) -> list[str]:
    return [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]


def test_stream_is_uncached_server_sent_events(http: httpx.Client) -> None:
    reply = http.post("/v1/completions", json=ASK, headers={"x-request-id": "mine-1"})
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.headers["cache-control"] == "no-store" and reply.headers["x-accel-buffering"] == "no"
    assert reply.headers["x-request-id"] == "mine-1"
    *chunks, result = data(reply.text)
    assert result == "[DONE]"
    last = json.loads(chunks[-1])
    assert last["choices"][0]["finish_reason"] == "length" and last["zinc_rt"]["seed"] >= 0
    assert reply.text.endswith("\n\n")


def test_idle_stream_sends_pings(http: httpx.Client, serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape, "PING_SECONDS", 0.05)
    stalled(serving, 0.3)
    text = http.post("/v1/completions", json=ASK).text
    assert text.startswith(": ping\n\n") and data(text)[-1] == "[DONE]"


def test_prompt_progress_is_sent_on_request(
    http: httpx.Client, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shape, "PROGRESS_SECONDS", 0.02)
    stalled(serving, 0.1)
    chunks = data(http.post("/v1/completions", json={**ASK, "prompt": [9] * 99, "return_progress": True}).text)
    message = [
        document["prompt_progress"]
        for chunk in chunks[:-1]
        if "prompt_progress" in (document := json.loads(chunk))
    ]
    assert message and all(item["total"] == 99 for item in message)
    assert [item["processed"] for item in message] == sorted(item["processed"] for item in message)


def test_failure_before_first_token_sets_the_status(http: httpx.Client, serving: Serving) -> None:
    stalled(serving, 0.05)
    reply = http.post("/v1/completions", json={**ASK, "timeout_ms": 1})
    assert reply.status_code == 504 and reply.json()["error"]["code"] == "deadline_exceeded"
    assert reply.headers["content-type"] == "application/json"
    assert http.post("/v1/completions", json=ASK, headers={"x-request-timeout-ms": "soon"}).status_code == 400


def test_later_failure_ends_with_error_and_no_done(http: httpx.Client, serving: Serving) -> None:
    with http.stream("POST", "/v1/completions", json=LONG) as reply:
        lines = reply.iter_lines()
        assert next(lines).startswith("data: ")
        (running,) = serving.server.models[MODEL].streams.values()
        running.loop.call_soon_threadsafe(running.fail, failure("device_hang"))
        rest = data("\n".join(lines))
    assert json.loads(rest[-1])["error"]["code"] == "device_hang"
    assert "[DONE]" not in rest and reply.status_code == 200
    serving.server.models[MODEL].core.scheduler.cancel(running.number)
    until_idle(serving)


@pytest.mark.parametrize("stream", [True, False])
def test_client_disconnect_cancels_its_request(serving: Serving, stream: bool) -> None:
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
    async def statuses(strict: bool) -> list[int]:
        server = InferenceServer(config(server=ServerSettings(strict_parameters=strict)))  # with no model yet
        transport = httpx.ASGITransport(app(server))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            bodies: list[Any] = [{"mirostat": 2}, {"mirostat": 2, "strict_parameters": True}]
            chat = {"messages": [{"role": "user", "content": "hello"}]}
            return [
                (await client.post("/v1/chat/completions", json={**chat, **body})).status_code for body in bodies
            ]

    assert asyncio.run(statuses(strict=True)) == [400, 400]
    assert asyncio.run(statuses(strict=False)) == [404, 400]


def test_ready_reports_pending_requests_and_fails_while_draining(
    http: httpx.Client, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert http.get("/ready").json() == {"status": "ready", "requests": 0}
    monkeypatch.setattr(serving.server, "draining", True)
    reply = http.get("/ready")
    assert (
        reply.status_code == 503 and reply.json()["error"]["code"] == "draining" and reply.headers["retry-after"]
    )
    assert http.post("/v1/completions", json=ASK).status_code == 503
    assert http.get("/health").status_code == 200


def test_simulated_device_is_marked_in_every_answer(http: httpx.Client, serving: Serving) -> None:
    assert "x-zinc-rt-device" not in http.get("/v1/models").headers
    backend = serving.server.models[MODEL].core.engine.backend
    real, backend.device = backend.device, replace(backend.device, simulated=True)  # type: ignore[misc]
    try:
        for path in ("/v1/models", "/health", "/nowhere"):
            assert http.get(path).headers["x-zinc-rt-device"] == "simulated"
        assert http.post("/v1/completions", json=ASK).headers["x-zinc-rt-device"] == "simulated"
    finally:
        backend.device = real  # type: ignore[misc]
