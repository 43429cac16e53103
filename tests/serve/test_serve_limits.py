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
from embedded_server import MODEL, RunningServer, make_config, run_server
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, StreamingResponse

from zinc_rt.serve.api import bodies
from zinc_rt.serve.api.bodies import BoundedBodies
from zinc_rt.serve.config.settings import QueueDepths, ServerSettings, TenantSettings
from zinc_rt.serve.http.connections import HEADER_BYTES, MAX_HEADERS, URL_BYTES
from zinc_rt.serve.http.limits import RequestRate
from zinc_rt.serve.http.listening import bind, make_http_server
from zinc_rt.serve.tenants.keys import new_key
from zinc_rt.serve.tenants.tenancy import Tenancy

KEY, KEPT = new_key("k1")
TIGHT = ServerSettings(
    max_body_bytes=1000, header_s=0.4, body_s=0.4, idle_s=1, client_timeout_s=0.4, max_connections=6
)


@pytest.fixture(scope="module")
def tight_server_port() -> Iterator[int]:
    """The port of a server with tight limits, which answers with the number of bytes received."""
    app = FastAPI()
    settings = make_config(server=TIGHT, tenants=(TenantSettings(id="a", keys=(KEPT,)),))
    server: Any = SimpleNamespace(tenancy=Tenancy(settings), config=settings, models={})
    app.add_middleware(BoundedBodies, server=server)

    @app.post("/count")
    async def count_bytes(request: Request) -> PlainTextResponse:
        return PlainTextResponse(str(len(await request.body())))

    @app.get("/flood")
    async def stream_flood() -> StreamingResponse:
        return StreamingResponse(b"x" * 65536 for _ in range(10_000))

    bound = bind("127.0.0.1", 0)
    http = make_http_server(app, settings.server)
    thread = threading.Thread(target=http.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    while not http.started:
        time.sleep(0.01)
    yield bound.getsockname()[1]
    http.should_exit = True
    thread.join()


@contextmanager
def connect(port: int) -> Iterator[socket.socket]:
    with closing(socket.create_connection(("127.0.0.1", port), timeout=20)) as result:
        yield result


def read_until_closed(connection: socket.socket) -> str:
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


def test_request_within_the_limits_is_answered(tight_server_port: int) -> None:
    with connect(tight_server_port) as connection:
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
    "a header": (HEAD + b"a: ", b"b" * (HEADER_BYTES // 2), "431"),
    "many headers": (HEAD + b"a: b\r\n" * MAX_HEADERS, b"a: b\r\n", "431"),
    "large headers": (HEAD + b"a: " + b"b" * (HEADER_BYTES // 2) + b"\r\n", b"a: " + b"b" * 9999 + b"\r\n", "431"),
    "many headers at once": (HEAD + b"a: b\r\n" * 10_000 + b"\r\n", b"", "431"),
    "a long URL": (b"POST /" + b"x" * URL_BYTES, b"x", "414"),
    "chunk extensions": (CHUNKED + b"1;", b"x" * (HEADER_BYTES // 2), ""),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"", "400"),
    "negative": (HEAD + b"content-length: -1\r\n\r\n", b"", "400"),
    "two lengths": (HEAD + b"content-length: 3\r\ncontent-length: 4\r\n\r\n", b"", "400"),
    "HTTP/0.9": (b"GET /\r\n\r\n", b"", "400"),
}


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(("first", "later", "status"), SLOW_OR_LARGE.values(), ids=SLOW_OR_LARGE)
def test_slow_or_large_requests_are_rejected_in_time(
    tight_server_port: int, first: bytes, later: bytes, status: str
) -> None:
    with connect(tight_server_port) as connection:
        connection.sendall(first)
        start = time.monotonic()
        try:
            while later and time.monotonic() - start < 10:
                connection.sendall(later)  # a byte now and then keeps nobody
                if is_closed(connection, 0.1):
                    break
        except (BrokenPipeError, ConnectionResetError):
            pass
        result = read_until_closed(connection)
    assert result.startswith(f"HTTP/1.1 {status}") if status else result == ""
    if status:
        assert json.loads(result.partition("\r\n\r\n")[2])["error"]["message"]


def is_closed(connection: socket.socket, seconds: float) -> bool:
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
    settings = make_config(tenants=(TenantSettings(id="a", keys=(kept,)),))
    server: Any = SimpleNamespace(tenancy=Tenancy(settings), config=settings, models={})
    monkeypatch.setattr(bodies, "BYTES_A_SECOND", 1000)
    slept: list[float] = []

    async def record_sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += int(seconds * 1e9)

    now = [0]
    # of this module only: the server of another test sleeps in its own thread
    monkeypatch.setattr(bodies, "time", SimpleNamespace(monotonic_ns=lambda: now[0]))
    monkeypatch.setattr(bodies, "asyncio", SimpleNamespace(sleep=record_sleep, timeout=asyncio.timeout))

    async def read_body(scope: Any, receive: Any, send: Any) -> None:
        assert len((await receive())["body"]) == 3000

    app = BoundedBodies(read_body, server)
    headers = [(b"authorization", f"Bearer {key}".encode()), (b"host", b"x")]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers, "client": ("127.0.0.1", 1)}

    async def receive_body() -> Any:
        return {"type": "http.request", "body": b"x" * 3000}

    async def post_twice() -> None:
        for _ in range(2):
            await app(dict(scope), receive_body, receive_body)  # type: ignore[arg-type]

    asyncio.run(post_twice())
    assert sum(slept) == pytest.approx(2.0, abs=1e-6)


@pytest.mark.rest
def test_extra_bytes_after_a_request_close_the_connection(tight_server_port: int) -> None:
    with connect(tight_server_port) as connection:
        connection.sendall(post(5) + b"abcde" + b"GET / HT")
        assert "200 OK" in read_until_closed(connection)  # and then it is closed


@pytest.mark.rest
def test_client_that_reads_nothing_is_disconnected(tight_server_port: int) -> None:
    with connect(tight_server_port) as connection:
        connection.sendall(b"GET /flood HTTP/1.1\r\nhost: x\r\n\r\n")
        time.sleep(1.0)
        assert len(read_until_closed(connection)) < 10_000 * 65536


def test_connections_with_requests_are_limited_and_their_slots_are_reused(tight_server_port: int) -> None:
    for _ in range(3):
        held = [socket.create_connection(("127.0.0.1", tight_server_port)) for _ in range(6)]
        for item in held:
            item.sendall(b"GET /flood HTTP/1.1\r\nhost: x\r\n\r\n")
            assert item.recv(8) == b"HTTP/1.1"
        with connect(tight_server_port) as late:
            assert read_until_closed(late).startswith("HTTP/1.1 503")
        for item in held:
            item.close()
        time.sleep(0.1)
    with connect(tight_server_port) as connection:
        connection.sendall(post(3) + b"abc")
        assert "200 OK" in connection.recv(4096).decode()


def test_connections_without_requests_keep_nobody_out(tight_server_port: int) -> None:
    held = [socket.create_connection(("127.0.0.1", tight_server_port)) for _ in range(6)]
    for number in range(2):
        with connect(tight_server_port) as connection:
            connection.sendall(post(3) + b"abc")
            assert "200 OK" in connection.recv(4096).decode()
        assert is_closed(held[number], 10)  # the one that was there longest
    for item in held:
        item.close()


def test_requests_per_minute_refill_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = 0
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns)
    rate = RequestRate(30)
    assert [rate.take() for _ in range(31)] == [*[0.0] * 30, 2.0]
    assert (rate.left, rate.seconds_until_full()) == (0, 60)
    now_ns = 2 * 10**9
    assert (rate.left, rate.take(), rate.take()) == (1, 0.0, 2.0)
    now_ns = 10**12
    assert (rate.left, rate.seconds_until_full()) == (30, 0)


# --- tenants, over a whole server


def make_tenants(*tenants: TenantSettings) -> tuple[tuple[TenantSettings, ...], dict[str, dict[str, str]]]:
    """Each tenant has a key; return the request headers."""
    result = {tenant.id: new_key(tenant.id) for tenant in tenants}
    keyed = tuple(replace(tenant, keys=(result[tenant.id][1],)) for tenant in tenants)
    return keyed, {name: {"authorization": f"Bearer {key}"} for name, (key, _) in result.items()}


TENANTS, HEADERS = make_tenants(
    TenantSettings(id="few", requests_per_minute=2),
    TenantSettings(id="short", max_tokens=3, max_context=20),
    TenantSettings(id="elsewhere", models=()),
    TenantSettings(id="narrow", slots_max=1, queue_max=2),
    TenantSettings(id="strict", prefill_rate=1, prefill_burst=40, on_limit="reject"),
    TenantSettings(id="free"),
)


@pytest.fixture(scope="module")
def limited_server() -> Iterator[RunningServer]:
    yield from run_server(make_config(tenants=TENANTS, queue=QueueDepths(standard=12)))


def post_completion(serving: RunningServer, tenant: str, **body: Any) -> httpx.Response:
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
def test_requests_above_the_tenant_rate_return_429(limited_server: RunningServer) -> None:
    answers = [post_completion(limited_server, "few") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[2].json()["error"]["code"] == "rate_limit_exceeded"
    assert 28 <= int(answers[2].headers["retry-after"]) <= 30
    first = answers[0].headers
    assert (first["x-ratelimit-limit-requests"], first["x-ratelimit-remaining-requests"]) == ("2", "1")
    assert answers[2].headers["x-ratelimit-remaining-requests"] == "0"
    assert post_completion(limited_server, "free").status_code == 200


def test_answer_length_is_limited_by_the_tenant(limited_server: RunningServer) -> None:
    assert post_completion(limited_server, "short", max_tokens=50).json()["usage"]["completion_tokens"] == 3
    assert (
        post_completion(limited_server, "short", prompt=list(range(3, 21))).json()["usage"]["completion_tokens"]
        == 2
    )
    refused = post_completion(limited_server, "short", prompt=list(range(3, 23)))
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")


def test_forbidden_models_and_classes_return_403(limited_server: RunningServer) -> None:
    refused = post_completion(limited_server, "elsewhere")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "model_not_allowed")
    refused = post_completion(limited_server, "free", priority="interactive")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "class_not_allowed")
    assert post_completion(limited_server, "free", priority="batch").status_code == 200


@pytest.mark.rest
def test_token_rate_rejects_only_tenants_that_opted_in(limited_server: RunningServer) -> None:
    for size in (40, 30):  # the second finds a little, and leaves a debt
        first = post_completion(limited_server, "strict", prompt=list(range(3, 3 + size)))
        assert (first.status_code, first.headers["x-ratelimit-limit-tokens"]) == (200, "40")
    refused = post_completion(limited_server, "strict")
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")


@pytest.mark.rest
def test_flood_fills_only_its_tenant_queue(limited_server: RunningServer) -> None:
    statuses: list[int] = []
    threads = [
        threading.Thread(
            target=lambda: statuses.append(post_completion(limited_server, "narrow", max_tokens=60).status_code)
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    assert post_completion(limited_server, "free").status_code == 200
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200] * 3 + [429] * 5
