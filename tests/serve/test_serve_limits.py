"""What is refused before anybody works for it: slow and large bodies, header bombs, floods, also of one tenant."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from http.client import HTTPResponse
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from embedded_server import MODEL, Serving, config, running
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, StreamingResponse

from zinc_rt.serve.api import bodies
from zinc_rt.serve.api.bodies import BoundedBodies
from zinc_rt.serve.config.settings import QueueDepths, ServerSettings, TenantSettings
from zinc_rt.serve.http.connections import HEADER_BYTES
from zinc_rt.serve.http.limits import RequestRate
from zinc_rt.serve.http.listening import bind, http_server
from zinc_rt.serve.tenants.keys import new_key
from zinc_rt.serve.tenants.tenancy import Tenancy

KEY, KEPT = new_key("k1")
TIGHT = ServerSettings(
    max_body_bytes=1000, header_s=0.4, body_s=0.4, idle_s=1, client_timeout_s=0.4, max_connections=6
)


@pytest.fixture(scope="module")
def tight() -> Iterator[int]:
    """The port of a server with tight limits, which answers with the number of bytes received."""
    app = FastAPI()
    settings = config(server=TIGHT, tenants=(TenantSettings(id="a", keys=(KEPT,)),))
    server: Any = SimpleNamespace(tenancy=Tenancy(settings), config=settings, models={})
    app.add_middleware(BoundedBodies, server=server)

    @app.post("/count")
    async def count(request: Request) -> PlainTextResponse:
        return PlainTextResponse(str(len(await request.body())))

    @app.get("/flood")
    async def flood() -> StreamingResponse:
        return StreamingResponse(b"x" * 65536 for _ in range(10_000))

    bound = bind("127.0.0.1", 0)
    http = http_server(app, settings.server)
    thread = threading.Thread(target=http.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    while not http.started:
        time.sleep(0.01)
    yield bound.getsockname()[1]
    http.should_exit = True
    thread.join()


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with closing(socket.create_connection(("127.0.0.1", port), timeout=20)) as result:
        yield result


def said(connection: socket.socket) -> str:
    """All that comes until the server closes."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:  # it closed before it had read all of ours
        pass
    return b"".join(parts).decode()


def post(length: int | str, key: str = KEY) -> bytes:
    lines = [
        "POST /count HTTP/1.1",
        "host: x",
        f"authorization: Bearer {key}",
        f"content-length: {length}",
        "",
        "",
    ]
    return "\r\n".join(lines).encode()


def test_request_within_the_limits_is_answered(tight: int) -> None:
    with connected(tight) as connection:
        for size in (1000, 3):
            connection.sendall(post(size) + b"x" * size)
            answer = HTTPResponse(connection)
            answer.begin()
            assert (answer.status, answer.read()) == (200, str(size).encode())


CHUNKED = post(1001).replace(b"content-length: 1001", b"transfer-encoding: chunked")
HEAD = b"POST /count HTTP/1.1\r\nhost: x\r\n"
SLOW_OR_LARGE = {
    "silent": (b"", b"", ""),
    "headers": (HEAD, b"a", "408"),
    "body": (post(20), b"x", "408"),
    "length": (post(1001), b"", "413"),
    "key": (post(20, "zrt_k1_wrong"), b"", "401"),  # no body is waited for
    "chunks": (CHUNKED, b"ff\r\n" + b"x" * 255 + b"\r\n", "413"),
    "a header": (HEAD + b"a: " + b"b" * HEADER_BYTES, b"b", "400"),
    "many headers": (HEAD + b"a: b\r\n" * (HEADER_BYTES // 6), b"a: b\r\n", "400"),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"", "400"),
    "negative": (HEAD + b"content-length: -1\r\n\r\n", b"", "400"),
    "two lengths": (HEAD + b"content-length: 3\r\ncontent-length: 4\r\n\r\n", b"", "400"),
    "HTTP/0.9": (b"GET /\r\n\r\n", b"", "400"),
}


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(("first", "then", "answer"), SLOW_OR_LARGE.values(), ids=SLOW_OR_LARGE)
def test_slow_or_large_requests_are_rejected_in_time(tight: int, first: bytes, then: bytes, answer: str) -> None:
    with connected(tight) as connection:
        connection.sendall(first)
        start = time.monotonic()
        try:
            while then and time.monotonic() - start < 10:
                connection.sendall(then)  # a byte now and then keeps nobody
                if _closed(connection, 0.1):
                    break
        except (BrokenPipeError, ConnectionResetError):
            pass
        result = said(connection)
    assert result.startswith(f"HTTP/1.1 {answer}") if answer else result == ""
    if answer:
        assert json.loads(result.partition("\r\n\r\n")[2])["error"]["message"]


def _closed(connection: socket.socket, seconds: float) -> bool:
    connection.settimeout(seconds)
    try:
        connection.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return False
    finally:
        connection.settimeout(20)
    return True


def test_body_bytes_per_second_are_limited_per_key(monkeypatch: pytest.MonkeyPatch) -> None:
    key, kept = new_key("k2")
    settings = config(tenants=(TenantSettings(id="a", keys=(kept,)),))
    server: Any = SimpleNamespace(tenancy=Tenancy(settings), config=settings, models={})
    monkeypatch.setattr(bodies, "BYTES_A_SECOND", 1000)
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += int(seconds * 1e9)

    now = [0]
    monkeypatch.setattr(bodies.time, "monotonic_ns", lambda: now[0])
    monkeypatch.setattr(bodies.asyncio, "sleep", sleep)

    async def counted(scope: Any, receive: Any, send: Any) -> None:
        assert len((await receive())["body"]) == 3000

    app = BoundedBodies(counted, server)
    headers = [(b"authorization", f"Bearer {key}".encode()), (b"host", b"x")]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers, "client": ("127.0.0.1", 1)}

    async def receive() -> Any:
        return {"type": "http.request", "body": b"x" * 3000}

    async def post_twice() -> None:
        for _ in range(2):
            await app(dict(scope), receive, receive)  # type: ignore[arg-type]

    asyncio.run(post_twice())
    assert sum(slept) == pytest.approx(2.0, abs=1e-6)


@pytest.mark.rest
def test_extra_bytes_after_a_request_close_the_connection(tight: int) -> None:
    with connected(tight) as connection:
        connection.sendall(post(5) + b"abcde" + b"GET / HT")
        assert "200 OK" in said(connection)  # and then it is closed


@pytest.mark.rest
def test_client_that_reads_nothing_is_disconnected(tight: int) -> None:
    with connected(tight) as connection:
        connection.sendall(b"GET /flood HTTP/1.1\r\nhost: x\r\n\r\n")
        time.sleep(1.0)
        assert len(said(connection)) < 10_000 * 65536


def test_connections_are_limited_and_their_slots_are_reused(tight: int) -> None:
    for _ in range(3):
        held = [socket.create_connection(("127.0.0.1", tight)) for _ in range(6)]
        with connected(tight) as late:
            assert said(late).startswith("HTTP/1.1 503")
        for item in held:
            item.close()
        time.sleep(0.1)
    with connected(tight) as connection:
        connection.sendall(post(3) + b"abc")
        assert "200 OK" in connection.recv(4096).decode()


def test_requests_per_minute_refill_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = 0
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns)
    rate = RequestRate(30)
    assert [rate.take() for _ in range(31)] == [*[0.0] * 30, 2.0]
    assert (rate.left, rate.full_in()) == (0, 60)
    now_ns = 2 * 10**9
    assert (rate.left, rate.take(), rate.take()) == (1, 0.0, 2.0)
    now_ns = 10**12
    assert (rate.left, rate.full_in()) == (30, 0)


# --- tenants, over a whole server


def tenants_of(*tenants: TenantSettings) -> tuple[tuple[TenantSettings, ...], dict[str, dict[str, str]]]:
    """Each tenant has a key; return the request headers."""
    result = {tenant.id: new_key(tenant.id) for tenant in tenants}
    keyed = tuple(replace(tenant, keys=(result[tenant.id][1],)) for tenant in tenants)
    return keyed, {name: {"authorization": f"Bearer {key}"} for name, (key, _) in result.items()}


TENANTS, HEADERS = tenants_of(
    TenantSettings(id="few", requests_per_minute=2),
    TenantSettings(id="short", max_tokens=3, max_context=20),
    TenantSettings(id="elsewhere", models=()),
    TenantSettings(id="narrow", slots_max=1, queue_max=2),
    TenantSettings(id="strict", prefill_rate=1, prefill_burst=40, on_limit="reject"),
    TenantSettings(id="free"),
)


@pytest.fixture(scope="module")
def limited() -> Iterator[Serving]:
    yield from running(config(tenants=TENANTS, queue=QueueDepths(standard=12)))


def complete(serving: Serving, tenant: str, **body: Any) -> httpx.Response:
    argument = {
        "model": MODEL,
        "prompt": [5, 6, 7, 8],
        "max_tokens": 4,
        "temperature": 0,
        "ignore_eos": True,
        **body,
    }
    return httpx.post(f"{serving.url}/v1/completions", json=argument, headers=HEADERS[tenant], timeout=60)


@pytest.mark.rest
def test_requests_above_the_tenant_rate_return_429(limited: Serving) -> None:
    answers = [complete(limited, "few") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[2].json()["error"]["code"] == "rate_limit_exceeded"
    assert 28 <= int(answers[2].headers["retry-after"]) <= 30
    first = answers[0].headers
    assert (first["x-ratelimit-limit-requests"], first["x-ratelimit-remaining-requests"]) == ("2", "1")
    assert answers[2].headers["x-ratelimit-remaining-requests"] == "0"
    assert complete(limited, "free").status_code == 200


def test_answer_length_is_limited_by_the_tenant(limited: Serving) -> None:
    assert complete(limited, "short", max_tokens=50).json()["usage"]["completion_tokens"] == 3
    assert complete(limited, "short", prompt=list(range(3, 21))).json()["usage"]["completion_tokens"] == 2
    refused = complete(limited, "short", prompt=list(range(3, 23)))
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")


def test_forbidden_models_and_classes_return_403(limited: Serving) -> None:
    refused = complete(limited, "elsewhere")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "model_not_allowed")
    refused = complete(limited, "free", priority="interactive")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "class_not_allowed")
    assert complete(limited, "free", priority="batch").status_code == 200


@pytest.mark.rest
def test_token_rate_rejects_only_tenants_that_opted_in(limited: Serving) -> None:
    for size in (40, 30):  # the second finds a little, and leaves a debt
        first = complete(limited, "strict", prompt=list(range(3, 3 + size)))
        assert (first.status_code, first.headers["x-ratelimit-limit-tokens"]) == (200, "40")
    refused = complete(limited, "strict")
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")


@pytest.mark.rest
def test_flood_fills_only_its_tenant_queue(limited: Serving) -> None:
    statuses: list[int] = []
    threads = [
        threading.Thread(target=lambda: statuses.append(complete(limited, "narrow", max_tokens=60).status_code))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    assert complete(limited, "free").status_code == 200
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200] * 3 + [429] * 5
