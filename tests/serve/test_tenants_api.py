"""Tenants, keys, caches, sessions and usage over HTTP, while requests run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from embedded_server import MODEL, RunningServer, make_config, run_server
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

from zinc_rt.serve.app import make_app
from zinc_rt.serve.config.settings import GroupSettings, LedgerSettings, TenantSettings
from zinc_rt.serve.engine.server import InferenceServer
from zinc_rt.serve.tenants.keys import new_key

ROOT_KEY, ROOT = new_key("root", ["admin"])
ALICE_KEY, ALICE = new_key("k1")
ADMIN = {"authorization": f"Bearer {ROOT_KEY}"}
BY_ALICE = {"authorization": f"Bearer {ALICE_KEY}"}
# all but /v1/admin/..., which drains the server and reads no file here
documented = schemathesis.openapi.from_dict(make_app(InferenceServer(make_config())).openapi()).include(
    path_regex="/v1/tenants"
)


@pytest.fixture(scope="module")
def ledger_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("books") / "usage.sqlite"


@pytest.fixture(scope="module")
def keyed_server(ledger_path: Path) -> Iterator[RunningServer]:
    tenants = (
        TenantSettings(id="root", keys=(ROOT,)),
        TenantSettings(id="alice", keys=(ALICE,), slots_guaranteed=1, kv_reserved=0.25, session_pin_pages=8),
    )
    kept = LedgerSettings(path=str(ledger_path))
    yield from run_server(make_config(tenants=tenants, groups=(GroupSettings("team"),), ledger=kept))


@pytest.fixture
def admin_client(keyed_server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=keyed_server.url, headers=ADMIN, timeout=60) as client:
        yield client
        check = keyed_server.server.model(MODEL).core.scheduler.check()
        assert check == []


def post_completion(keyed: RunningServer, key: str, **body: Any) -> httpx.Response:
    argument = {"model": MODEL, "prompt": list(range(3, 60)), "max_tokens": 4, "temperature": 0, **body}
    headers = {"authorization": f"Bearer {key}"}
    return httpx.post(f"{keyed.url}/v1/completions", json=argument, headers=headers, timeout=60)


def cached_tokens(answer: httpx.Response) -> int:
    cached_tokens: int = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    return cached_tokens


def error_of(answer: httpx.Response) -> tuple[int, str, str | None]:
    body = answer.json()["error"]
    return answer.status_code, body["code"], body["param"]


@documented.parametrize()
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@pytest.mark.rest
def test_every_answer_matches_the_document(case: Any, keyed_server: RunningServer) -> None:
    """Whatever is asked of tenants by who may."""
    response = case.call(base_url=keyed_server.url, headers=ADMIN, timeout=30)
    case.validate_response(response, excluded_checks=[positive_data_acceptance, ignored_auth])


@pytest.mark.rest
def test_tenant_is_created_used_updated_and_deleted(
    admin_client: httpx.Client, keyed_server: RunningServer
) -> None:
    result = admin_client.post(
        "/v1/tenants", json={"id": "bob", "class": "batch", "slots": {"max": 2}, "kv_reserved": 0.5}
    )
    assert result.status_code == 201
    bob = result.json()
    assert (bob["class"], bob["slots"]["max"], bob["kv"]["reserved"], bob["keys"]) == ("batch", 2, 0.5, [])
    key = admin_client.post("/v1/tenants/bob/keys", json={"id": "b1", "scopes": ["inference", "usage"]})
    assert key.status_code == 201 and key.headers["cache-control"] == "no-store"
    text = key.json()["key"]
    assert post_completion(keyed_server, text).status_code == 200
    assert text.rpartition("_")[2] not in admin_client.get("/v1/tenants").text
    changed = admin_client.patch(
        "/v1/tenants/bob", json={"class": "standard", "slots": {"guaranteed": 1}, "max_tokens": 2}
    )
    assert changed.json()["slots"] == {"guaranteed": 1, "max": 2, "used": 0}
    assert post_completion(keyed_server, text).json()["usage"]["completion_tokens"] == 2
    assert admin_client.get("/v1/tenants/bob/keys").json()["data"][0]["id"] == "b1"
    assert admin_client.delete("/v1/tenants/bob/keys/b1").json()["deleted"]
    assert error_of(post_completion(keyed_server, text))[:2] == (401, "invalid_api_key")
    document = admin_client.get("/v1/tenants/bob/usage").json()
    used = document["usage"]
    assert document["time_to_first_token"]["count"] == used["requests_accepted"]
    assert document["inter_token_latency"]["count"] == used["tokens_generated"] - used["requests_accepted"]
    assert 0 < document["inter_token_latency"]["p50_ms"] <= document["inter_token_latency"]["p99_ms"] < 60_000
    cached = used.get("prompt_tokens_cached", 0)
    assert document["prefix_hit_rate"] == cached / (cached + used["prompt_tokens_computed"])
    assert document["groups"][0]["prefix_hit_rate"] == document["prefix_hit_rate"]
    assert not any("latency." in counter or "token." in counter for counter in used)
    assert used["requests_accepted"] == 2
    assert admin_client.delete("/v1/tenants/bob").json() == {
        "id": "bob", "object": "tenant.deleted", "deleted": True, "running": 0
    }  # fmt: skip
    assert error_of(admin_client.get("/v1/tenants/bob")) == (404, "tenant_not_found", None)
    assert admin_client.get("/v1/tenants/bob/usage").json()["usage"] == used  # the books keep it


def test_unsatisfiable_guarantees_return_409_with_the_limit(admin_client: httpx.Client) -> None:
    refused = admin_client.post("/v1/tenants", json={"id": "carol", "slots_guaranteed": 4})
    assert error_of(refused) == (409, "tenants_contradict", "slots_guaranteed")
    assert "at most 3" in refused.json()["error"]["message"]
    assert error_of(admin_client.get("/v1/tenants/carol"))[0] == 404
    refused = admin_client.patch("/v1/tenants/root", json={"kv": {"reserved": 0.8}})
    assert error_of(refused) == (409, "tenants_contradict", "kv_reserved")
    assert "at most 0.75" in refused.json()["error"]["message"]
    refused = admin_client.patch("/v1/tenants/root", json={"kv": {"reserved": 1000}})
    assert refused.status_code == 409 and "at most 48 of 64" in refused.json()["error"]["message"]
    assert error_of(admin_client.post("/v1/tenants", json={"id": "alice"})) == (409, "tenant_exists", "id")


@pytest.mark.rest(keep=6)
@pytest.mark.parametrize(("body", "param"), [
    ({}, "id"), ({"id": "../etc"}, "id"), ({"id": ":cache"}, "id"), ([], None),
    ({"id": "none", "wieght": 2}, "wieght"), ({"id": "none", "models": ["y"]}, "models"),
    ({"id": "none", "class": "vip"}, "class"), ({"id": "none", "slots": {"guarantee": 1}}, "slots.guarantee"),
    ({"id": "none", "kv": {"max": 3.5}}, "kv_max"), ({"id": "none", "group": "nobody"}, "isolation_group"),
    ({"id": "none", "keys": []}, "keys"), ({"id": "none", "weight": 1e9}, "weight"),
    ({"id": "none", "slots": {"max": 1, "guaranteed": 2}}, "slots_guaranteed"),
])  # fmt: skip
def test_invalid_tenant_returns_400(admin_client: httpx.Client, body: Any, param: str | None) -> None:
    answer = admin_client.post("/v1/tenants", json=body)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param


def test_key_sees_only_its_tenant(keyed_server: RunningServer) -> None:
    with httpx.Client(base_url=keyed_server.url, headers=BY_ALICE) as alice:
        assert alice.get("/v1/tenants/alice/usage").status_code == 200
        assert "books" not in alice.get("/v1/tenants/alice/usage").json()
        for other in ("root", "nobody"):
            assert error_of(alice.get(f"/v1/tenants/{other}/usage"))[:2] == (403, "insufficient_scope")
        for method, path in [
            ("GET", ""), ("GET", "/alice"), ("POST", ""), ("PATCH", "/alice"), ("DELETE", "/root"),
            ("POST", "/alice/keys"), ("DELETE", "/root/cache"), ("GET", "/root/sessions"),
        ]:  # fmt: skip
            assert error_of(alice.request(method, f"/v1/tenants{path}"))[:2] == (403, "insufficient_scope")
        assert alice.post("/v1/admin/reload").status_code == 403
        assert alice.post("/v1/admin/drain").status_code == 403
    assert httpx.get(f"{keyed_server.url}/v1/tenants").status_code == 401


def test_last_admin_key_cannot_be_deleted(admin_client: httpx.Client) -> None:
    assert error_of(admin_client.delete("/v1/tenants/root/keys/root"))[:2] == (409, "no_admin_key")
    assert error_of(admin_client.delete("/v1/tenants/root"))[:2] == (409, "no_admin_key")
    assert error_of(admin_client.post("/v1/tenants/alice/keys", json={"id": "k1"}))[:2] == (409, "key_exists")
    assert error_of(admin_client.post("/v1/tenants/alice/keys", json={"scopes": ["root"]}))[0] == 400
    assert error_of(admin_client.post("/v1/tenants/alice/keys", json={"sha256": "0" * 64}))[0] == 400


@pytest.mark.rest
def test_dropped_cache_is_not_hit(admin_client: httpx.Client, keyed_server: RunningServer) -> None:
    prompt = list(range(100, 180))
    post_completion(keyed_server, ALICE_KEY, prompt=prompt)
    assert cached_tokens(post_completion(keyed_server, ALICE_KEY, prompt=prompt)) == 64
    assert admin_client.delete("/v1/tenants/alice/cache").status_code == 200
    assert cached_tokens(post_completion(keyed_server, ALICE_KEY, prompt=prompt)) == 0


@pytest.mark.rest
def test_prefixes_are_found_only_within_a_namespace(
    admin_client: httpx.Client, keyed_server: RunningServer
) -> None:
    keys = {}
    for name, group in (("one", "team"), ("two", "team"), ("three", None)):
        admin_client.post("/v1/tenants", json={"id": name, "group": group}).raise_for_status()
        keys[name] = admin_client.post(f"/v1/tenants/{name}/keys").json()["key"]
    prompt = list(range(200, 280))
    assert [
        cached_tokens(post_completion(keyed_server, keys[name], prompt=prompt)) for name in ("one", "two", "three")
    ] == [0, 64, 0]
    assert cached_tokens(post_completion(keyed_server, keys["two"], prompt=prompt, cache_salt="s")) == 0
    for name in keys:
        assert admin_client.delete(f"/v1/tenants/{name}").status_code == 200
    admin_client.post("/v1/tenants", json={"id": "one", "group": "team"}).raise_for_status()
    key = admin_client.post("/v1/tenants/one/keys").json()["key"]
    assert cached_tokens(post_completion(keyed_server, key, prompt=prompt)) == 0  # whoever has the name now
    admin_client.delete("/v1/tenants/one")


def test_sessions_are_counted_pinned_and_dropped(admin_client: httpx.Client, keyed_server: RunningServer) -> None:
    for _ in range(2):
        post_completion(keyed_server, ALICE_KEY, session_id="s 1/é")
    (one,) = admin_client.get("/v1/tenants/alice/sessions").json()["data"]
    assert (one["id"], one["requests"]) == ("s 1/é", 2) and one["pinned_pages"] > 0
    name = "/v1/tenants/alice/sessions/s%201%2F%C3%A9"
    assert admin_client.get(name).json() == one
    assert admin_client.delete(name).json()["deleted"]
    assert error_of(admin_client.delete(name))[:2] == (404, "session_not_found")
    assert keyed_server.server.model(MODEL).core.scheduler.pins.list_pins() == []


def test_usage_shows_both_sides_of_the_ledger(admin_client: httpx.Client, keyed_server: RunningServer) -> None:
    post_completion(keyed_server, ALICE_KEY)
    document = admin_client.get("/v1/tenants/alice/usage?group_by=model,day&from=2020-01-01").json()
    assert document["groups"][0]["model"] == MODEL and document["lag_s"] == 0
    sides = document["books"]["all"]
    assert sides["unbalanced"] == [] and sides["device"]["input_tokens"] > 0
    assert error_of(admin_client.get("/v1/tenants/alice/usage?from=yesterday")) == (400, None, "from")
    assert error_of(admin_client.get("/v1/tenants/alice/usage?group_by=tenant"))[2] == "group_by"


@pytest.mark.rest
def test_tenant_can_be_deleted_during_an_answer(admin_client: httpx.Client, keyed_server: RunningServer) -> None:
    for policy, words in (("finish", 100), ("cancel", None)):
        admin_client.post("/v1/tenants", json={"id": "dave"}).raise_for_status()
        key = admin_client.post("/v1/tenants/dave/keys").json()["key"]
        body = {"model": MODEL, "prompt": [5, 6, 7], "max_tokens": 100, "ignore_eos": True, "stream": True,
                "stream_options": {"include_usage": True}}  # fmt: skip
        headers = {"authorization": f"Bearer {key}"}
        with httpx.stream(
            "POST", f"{keyed_server.url}/v1/completions", json=body, headers=headers, timeout=60
        ) as answer:
            lines = answer.iter_lines()
            next(lines)
            document = admin_client.delete(f"/v1/tenants/dave?running={policy}").json()
            assert document["running"] == (policy == "finish")
            text = "\n".join(lines)
        assert error_of(post_completion(keyed_server, key))[0] == 401
        assert (f'"completion_tokens":{words}' in text) == (words is not None)
