"""What somebody tries who should not get through: paths, keys, bodies that explode, prefixes of others."""

from __future__ import annotations

import json
import random
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest
from embedded_server import MODEL, RunningServer, make_config, run_server

from zinc_rt.serve.config.settings import ServerSettings, TenantSettings
from zinc_rt.serve.tenants.keys import Keyring, new_key

ROOT_KEY, ROOT = new_key("root", ["admin"])
KEYS = {name: new_key(name) for name in ("alice", "mallory")}


@pytest.fixture(scope="module")
def guarded_server() -> Iterator[RunningServer]:
    tenants = [TenantSettings(id=name, keys=(kept,)) for name, (_, kept) in KEYS.items()]
    settings = make_config(
        tenants=(TenantSettings(id="root", keys=(ROOT,)), *tenants), server=ServerSettings(body_s=5)
    )
    yield from run_server(settings)


def auth_headers(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {KEYS[name][0]}", "content-type": "application/json"}


def send_raw(serving: RunningServer, target: str, method: str = "GET", key: str = "") -> str:
    """Return the answer to a raw target that a client library would normalise."""
    address = httpx.URL(serving.url)
    lines = [f"{method} {target} HTTP/1.1", "host: x", "connection: close"]
    lines += [f"authorization: Bearer {key}"] if key else []
    with closing(socket.create_connection((address.host, address.port), timeout=20)) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1"))
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts).decode()


@pytest.mark.parametrize("target", [
    "/../../etc/passwd", "/..%2f..%2fetc%2fpasswd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/v1//tenants",
    "/./v1/tenants/../x", "/v1/models/..%2f..%2fetc%2fpasswd", "/v1/models/%00", "/v1/tenants/..%2froot/keys",
    "/static/../config.py", "/chat.html%00.txt", "/\\..\\config.py", "http://evil.example/v1/tenants",
    "/v1/tenants;x=1", "*", "/%ff",
])  # fmt: skip
def test_path_cannot_reach_files_or_bypass_keys(guarded_server: RunningServer, target: str) -> None:
    for key in ("", KEYS["mallory"][0]):
        answer = send_raw(guarded_server, target, key=key)
        assert answer.split()[1] in ("400", "401", "403", "404"), answer
        assert "root:" not in answer and "sha256" not in answer


@pytest.mark.rest(keep=9)
@pytest.mark.parametrize(
    "target", ["/v1/tenants", "/v1/tenants/", "/v1/Tenants", "/v1/tenants/alice", "/V1/tenants"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "DELETE", "HEAD", "PUT", "OPTIONS", "TRACE", "FOO"])
def test_method_or_spelling_cannot_bypass_a_scope(guarded_server: RunningServer, method: str, target: str) -> None:
    answer = send_raw(guarded_server, target, method, KEYS["mallory"][0])
    assert answer.split()[1] in ("307", "400", "401", "403", "404", "405", "415"), answer
    assert [tenant.id for tenant in guarded_server.server.tenancy.config.tenants] == ["root", "alice", "mallory"]


BOMBS: dict[str, bytes] = {
    "deep": b'{"model": "m", "prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep objects": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "a long number": b'{"model": "m", "prompt": "x", "seed": ' + b"9" * 100_000 + b"}",
    "no number": b'{"model": "m", "prompt": "x", "temperature": NaN}',
    "infinity": b'{"model": "m", "prompt": "x", "temperature": 1e999}',
    "many ids": json.dumps({"model": MODEL, "prompt": [5] * 300_000}).encode(),
    "many prompts": json.dumps({"model": MODEL, "prompt": [[5]] * 100_000}).encode(),
    "many messages": json.dumps(
        {"model": MODEL, "messages": [{"role": "user", "content": "x"}] * 50_000}
    ).encode(),
    "a long word": json.dumps({"model": MODEL, "prompt": "a" * 1_000_000}).encode(),
    "long stop": json.dumps({"model": MODEL, "prompt": "x", "stop": ["y" * 100_000]}).encode(),
    "half a pair": b'{"model": "m", "prompt": "\\ud800"}',
    "not UTF-8": b'{"model": "m", "prompt": "\xff"}',
    "many names": b"{" + b",".join(b'"a%d":1' % n for n in range(100_000)) + b"}",
    "one name": b"{" + b",".join(b'"model":"m"' for _ in range(100_000)) + b"}",
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
@pytest.mark.rest(keep=1)
@pytest.mark.slow(keep=5)
def test_exploding_body_is_rejected_without_blocking_others(guarded_server: RunningServer, bomb: bytes) -> None:
    for path in ("/v1/completions", "/v1/chat/completions", "/tokenize", "/v1/tenants"):
        answer = httpx.post(
            f"{guarded_server.url}{path}", content=bomb, headers=auth_headers("mallory"), timeout=60
        )
        tokenized = path == "/tokenize" and answer.status_code == 200
        assert 400 <= answer.status_code < 500 or tokenized, (path, answer.text[:300])
        assert len(answer.content) < 10_000 or tokenized
    assert httpx.get(f"{guarded_server.url}/health", timeout=5).status_code == 200


def nested_schema(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema, "b": schema}, "required": ["a", "b"]}
    return schema


GRAMMARS: dict[str, dict[str, Any]] = {
    "wide regex": {"guided_regex": "(a|b|c|d|e|f|g|h){1,5000}(x{1,3000}){1,3000}"},
    "deep regex": {"guided_regex": "(" * 5000 + "a" + ")*" * 5000},
    "backreference": {"guided_regex": r"(a+)+\1$"},
    "many words": {"guided_choice": [f"{n}" * 20 for n in range(20_000)]},
    "deep schema": {"guided_json": nested_schema(12)},
    "wide schema": {"guided_json": {"type": "object", "properties": {f"p{n}": {"type": "string", "pattern": "a{9}"}
                                                                      for n in range(3000)}}},
    "schema of itself": {"guided_json": {"$ref": "#"}},
    "schema from elsewhere": {"guided_json": {"$ref": "http://127.0.0.1:1/schema.json"}},
    "left recursion": {"guided_grammar": 'root ::= root root | "a" | root'},
    "long grammar": {"guided_grammar": "root ::= " + " | ".join(f'"{n}"' for n in range(200_000))},
}  # fmt: skip


@pytest.mark.parametrize("grammar", GRAMMARS.values(), ids=GRAMMARS)
@pytest.mark.rest(keep=2)
def test_exploding_grammar_is_stopped_without_blocking_others(
    guarded_server: RunningServer, grammar: dict[str, Any]
) -> None:
    body = {"model": MODEL, "prompt": [5, 6, 7], "max_tokens": 3, **grammar}
    answer = httpx.post(
        f"{guarded_server.url}/v1/completions", json=body, headers=auth_headers("mallory"), timeout=30
    )
    assert answer.status_code in (200, 400), answer.text[:300]
    assert len(answer.content) < 10_000
    assert post_completion(guarded_server, "alice", [8, 9]) == 0
    assert guarded_server.server.model(MODEL).lost == ""


def post_completion(serving: RunningServer, name: str, prompt: list[int]) -> Any:
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 1, "temperature": 0}
    answer = httpx.post(f"{serving.url}/v1/completions", json=body, headers=auth_headers(name), timeout=60)
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


@pytest.mark.rest
def test_prompt_of_another_tenant_costs_as_many_steps_as_a_new_one(guarded_server: RunningServer) -> None:
    """Time follows what is computed: nothing of alice's prefix is there for mallory, in tokens or in steps."""
    core = guarded_server.server.model(MODEL).core
    known, fresh = list(range(3, 200)), list(range(203, 400))
    post_completion(guarded_server, "alice", known)

    def computed_steps(prompt: list[int]) -> tuple[int, int, int]:
        before, steps = core.ledger.usage("mallory"), core.scheduler.counts.steps
        hit = post_completion(guarded_server, "mallory", prompt)
        tokens = core.ledger.usage("mallory")["prompt_tokens_computed"] - before["prompt_tokens_computed"]
        return hit, tokens, core.scheduler.counts.steps - steps

    assert computed_steps(known) == computed_steps(fresh)
    assert post_completion(guarded_server, "alice", known) == 192


def test_key_check_takes_constant_time() -> None:
    """Of the right id and all but the last character, of the right id alone, of an id that is not there: what a
    quarter of interleaved batches stays below is the same within a tenth."""
    good, kept = new_key("k1")
    ring = Keyring([TenantSettings(id="a", keys=(kept,))])
    near = good[:-1] + ("a" if good[-1] != "a" else "b")
    kinds = {"near": near, "id": "zrt_k1_" + "a" * 52, "nobody": "zrt_k2_" + "a" * 52}
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(300):
        for name, key in random.sample(list(kinds.items()), len(kinds)):
            start = time.perf_counter_ns()
            for _ in range(20):
                ring.find_caller(key)
            times[name].append(time.perf_counter_ns() - start)
    minimum = {name: statistics.quantiles(item, n=4)[0] for name, item in times.items()}
    assert max(minimum.values()) < 1.1 * min(minimum.values()), minimum


@pytest.mark.rest
def test_flood_of_wrong_keys_and_slow_bodies_does_not_affect_streams(guarded_server: RunningServer) -> None:
    """While it goes on, what alice is given is what she is given without it."""
    body = {"model": MODEL, "prompt": [5, 6, 7], "max_tokens": 40, "temperature": 0, "ignore_eos": True}

    def send_completion() -> Any:
        answer = httpx.post(
            f"{guarded_server.url}/v1/completions", json=body, headers=auth_headers("alice"), timeout=60
        )
        return answer.json()["choices"]

    alone, over = send_completion(), threading.Event()
    address = httpx.URL(guarded_server.url)
    slow = [socket.create_connection((address.host, address.port)) for _ in range(50)]
    for item in slow:
        item.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n")

    def flood_models() -> None:
        with httpx.Client(base_url=guarded_server.url) as client:
            while not over.is_set():
                assert client.get("/v1/models", headers={"authorization": "Bearer zrt_alice_x"}).status_code == 401

    threads = [threading.Thread(target=flood_models) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        assert send_completion() == alone
    finally:
        over.set()
        for thread in threads:
            thread.join()
        for item in slow:
            item.close()
