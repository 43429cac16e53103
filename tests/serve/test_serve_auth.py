"""Keys: who has one, what it opens, and that nobody learns one by asking."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import JSONResponse

from zinc_rt.serve.config.settings import Config, ModelSettings, ServerSettings, TenantSettings
from zinc_rt.serve.errors import ServeError
from zinc_rt.serve.tenants import failed_keys
from zinc_rt.serve.tenants.auth import Admin, Anybody, Inference
from zinc_rt.serve.tenants.failed_keys import FailedKeys
from zinc_rt.serve.tenants.keys import Keyring, digest_secret, new_key
from zinc_rt.serve.tenants.tenancy import Tenancy

BASE = Config((ModelSettings("m", "m.gguf"),))


def make_application(config: Config) -> FastAPI:
    api = FastAPI()
    api.state.server = SimpleNamespace(tenancy=Tenancy(config))

    @api.exception_handler(ServeError)
    async def handle_error(request: Any, error: ServeError) -> JSONResponse:
        return JSONResponse(error.body(), error.status)

    @api.get("/any")
    async def get_caller(caller: Anybody) -> list[str]:
        return [caller.tenant, caller.key]

    @api.get("/ask")
    async def get_tenant(caller: Inference) -> str:
        return caller.tenant

    @api.get("/admin")
    async def get_admin_tenant(caller: Admin) -> str:
        return caller.tenant

    return api


async def get_status(config: Config, path: str, *, address: str = "127.0.0.1", **headers: str) -> tuple[int, Any]:
    transport = httpx.ASGITransport(make_application(config), client=(address, 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
        answer = await client.get(path, headers=headers)
        return answer.status_code, answer.json()


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def keyed_config() -> Iterator[tuple[Config, dict[str, str]]]:
    result = {
        "alice": new_key("k1"),
        "root": new_key("k2", ["admin"]),
        "late": new_key("k3", expires=datetime.now(UTC) - timedelta(seconds=1)),
    }
    tenants = tuple(TenantSettings(id=name, keys=(key,)) for name, (_, key) in result.items())
    yield replace(BASE, tenants=tenants), {name: text for name, (text, _) in result.items()}


def test_key_is_shown_once_and_stored_as_digest() -> None:
    text, kept = new_key("k1")
    prefix, id, secret = text.split("_")
    assert (prefix, id, len(secret)) == ("zrt", "k1", 52)
    assert kept.sha256 == digest_secret(secret) and secret not in repr(kept)
    ring = Keyring([TenantSettings(id="alice", keys=(kept,))])
    caller = ring.find_caller(text)
    assert caller is not None and (caller.tenant, caller.key) == ("alice", "k1")


@pytest.mark.parametrize("change", [
    lambda text: text[:-1], lambda text: text + "a", lambda text: text.upper(), lambda text: text[4:],
    lambda text: text.replace("k1", "k2"), lambda text: text.replace("zrt", "sk"), lambda text: "\udcff_k1_x",
    lambda text: "", lambda text: "zrt__", lambda text: "zrt_k1_", lambda text: "zrt_k1_" + "a" * 100_000,
])  # fmt: skip
def test_malformed_key_matches_no_tenant(change: Any) -> None:
    text, kept = new_key("k1")
    other = new_key("k2")[1]
    assert Keyring([TenantSettings(id="alice", keys=(kept, other))]).find_caller(change(text)) is None


@pytest.mark.anyio
async def test_keys_grant_their_scopes(keyed_config: tuple[Config, dict[str, str]]) -> None:
    config, keys = keyed_config
    bearer = {name: f"Bearer {key}" for name, key in keys.items()}
    assert await get_status(config, "/any", authorization=bearer["alice"]) == (200, ["alice", "k1"])
    assert await get_status(config, "/ask", authorization=bearer["alice"]) == (200, "alice")
    assert await get_status(config, "/admin", authorization=bearer["root"]) == (200, "root")
    status, body = await get_status(config, "/admin", authorization=bearer["alice"])
    assert status == 403 and "lacks the scope admin" in body["error"]["message"]
    status, body = await get_status(config, "/ask", authorization=bearer["root"])
    assert (status, body["error"]["code"]) == (403, "insufficient_scope")
    for wrong in ("", "Basic YTpi", "Bearer", "Bearer zrt_k1_abc", f"Token {keys['alice']}", bearer["late"]):
        status, body = await get_status(config, "/any", authorization=wrong)
        assert (status, body["error"]["code"]) == (401, "invalid_api_key")
    assert (
        "k3 has expired" in (await get_status(config, "/any", authorization=bearer["late"]))[1]["error"]["message"]
    )


@pytest.mark.anyio
async def test_only_local_requests_are_accepted_without_keys() -> None:
    assert await get_status(BASE, "/admin") == (200, "default")
    assert await get_status(BASE, "/any", authorization="Bearer sk-whatever") == (200, ["default", ""])
    assert (await get_status(BASE, "/any", host="localhost:8080"))[0] == 200
    assert (await get_status(BASE, "/any", host="[::1]:8080"))[0] == 200
    assert (await get_status(BASE, "/any", origin="http://127.0.0.1:8080"))[0] == 200
    for headers in (
        {"host": "evil.example"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"host": ""},
    ):
        assert (await get_status(BASE, "/any", **headers))[0] == 403
    open_to_all = replace(BASE, server=ServerSettings("0.0.0.0", insecure=True))
    assert (await get_status(open_to_all, "/ask", address="10.0.0.7", host="box:8080"))[0] == 200
    assert (await get_status(open_to_all, "/admin", address="10.0.0.7", host="box:8080"))[0] == 403
    friendly = replace(BASE, server=ServerSettings(cors=("https://ui.example",)))
    assert (await get_status(friendly, "/any", origin="https://ui.example"))[0] == 200


def test_address_with_many_wrong_keys_waits_and_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns, slept = time.monotonic_ns(), list[float]()
    monkeypatch.setattr(time, "monotonic_ns", lambda: now_ns)

    async def record_sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(failed_keys, "asyncio", SimpleNamespace(sleep=record_sleep))
    failures = FailedKeys()

    async def fail(address: str, count: int) -> None:
        for _ in range(count):
            await failures.delay(address)

    asyncio.run(fail("10.0.0.1", failed_keys.BURST))
    assert slept == []
    asyncio.run(fail("10.0.0.1", 3))
    assert slept == [1.0, 2.0, 2.0]
    asyncio.run(fail("10.0.0.2", failed_keys.BURST))
    assert len(slept) == 3
    now_ns += 60 * 10**9
    asyncio.run(fail("10.0.0.1", failed_keys.BURST))
    assert len(slept) == 3


def test_only_so_many_requests_with_wrong_keys_wait() -> None:
    failures = FailedKeys()

    async def flood() -> list[BaseException | None]:
        for _ in range(failed_keys.BURST):
            await failures.delay("10.0.0.1")
        tasks = [asyncio.ensure_future(failures.delay("10.0.0.1")) for _ in range(failed_keys.MAX_DELAYED + 5)]
        for _ in range(3):
            await asyncio.sleep(0)
        refused = [task.exception() for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return refused

    refused = asyncio.run(flood())
    assert len(refused) == 5
    assert all(isinstance(error, ServeError) and error.status == 429 for error in refused)
    assert failures._delayed == 0
