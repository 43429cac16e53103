"""The configuration's file, read again while a server runs: all of it, or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from embedded_server import MODEL, Serving, running

from zinc_rt.serve.config.file import read_config
from zinc_rt.serve.tenants.keys import new_key

ROOT_KEY, ROOT = new_key("root", ["admin", "inference"])
ALICE_KEY, ALICE = new_key("k1")
TEXT = f"""\
device: {{tier: t_cpu, threads: 1}}
models: [{{id: {MODEL}, path: {MODEL}, ctx: 256, slots: 4}}]
tenants:
  - {{id: root, keys: [{{id: root, sha256: {ROOT.sha256}, scopes: [admin, inference]}}]}}
  - {{id: alice, max_tokens: 3, isolation_group: a, keys: [{{id: k1, sha256: {ALICE.sha256}}}]}}
groups: [{{id: a}}, {{id: b}}]
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "serve.yaml"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def filed(file: Path) -> Iterator[Serving]:
    yield from running(read_config(file))


def reload(filed: Serving) -> httpx.Response:
    return httpx.post(f"{filed.url}/v1/admin/reload", headers={"authorization": f"Bearer {ROOT_KEY}"}, timeout=30)


def tokens(filed: Serving, key: str = ALICE_KEY) -> int:
    """Return the number of tokens of an answer, or the status if there is none."""
    body = {"model": MODEL, "prompt": [5, 6, 7], "max_tokens": 9, "ignore_eos": True}
    headers = {"authorization": f"Bearer {key}"}
    answer = httpx.post(f"{filed.url}/v1/completions", json=body, headers=headers, timeout=30)
    completion_tokens: int = (
        answer.json()["usage"]["completion_tokens"] if answer.is_success else answer.status_code
    )
    return completion_tokens


@pytest.mark.rest
def test_limits_tenants_and_keys_are_applied_while_running(filed: Serving, file: Path) -> None:
    assert tokens(filed) == 3
    file.write_text(TEXT.replace("max_tokens: 3", "max_tokens: 5"))
    assert reload(filed).json() == {"status": "reloaded", "applied": ["tenants"], "at_start": []}
    assert tokens(filed) == 5
    _, other = new_key("k2")
    file.write_text(TEXT.replace("k1", "k2").replace(ALICE.sha256, other.sha256))
    assert reload(filed).status_code == 200
    assert tokens(filed) == 401
    file.write_text(TEXT.replace("id: alice", "id: bob"))
    assert reload(filed).status_code == 200
    assert (tokens(filed), filed.server.tenancy.keys.caller(ALICE_KEY).tenant) == (3, "bob")  # type: ignore[union-attr]
    file.write_text(TEXT)
    assert reload(filed).status_code == 200


def test_invalid_file_changes_nothing(filed: Serving, file: Path) -> None:
    before = filed.server.tenancy.config
    wrong = TEXT.replace("max_tokens: 3", "max_tokens: 0").replace("groups", "gruops")
    for text, output in [
        (wrong, f"{file}:6: gruops: unknown setting"),
        (TEXT + "server: {host: 0.0.0.0, port: x}", "server.port: x: expected a valid integer"),
        ("", "no settings"),
    ]:  # fmt: skip
        file.write_text(text)
        refused = reload(filed)
        assert refused.status_code == 400 and output in refused.json()["error"]["message"]
    file.write_text(TEXT.replace("max_tokens: 3", "kv_reserved: 65"))
    refused = reload(filed)
    assert refused.status_code == 409 and "at most 64 of 64 pages" in refused.json()["error"]["message"]
    assert filed.server.tenancy.config is before and tokens(filed) == 3


def test_settings_that_need_a_restart_are_named(filed: Serving, file: Path) -> None:
    file.write_text(TEXT.replace("slots: 4", "slots: 5") + "server: {port: 1, body_s: 3}\nledger: {path: x}\n")
    document = reload(filed).json()
    assert document["at_start"] == ["ledger", "server.port", f"models.{MODEL}"]
    assert filed.server.tenancy.config.server.body_s == 3 and filed.server.tenancy.config.ledger.path is None


def test_tenants_and_keys_created_by_api_survive_a_reload(filed: Serving, file: Path) -> None:
    headers = {"authorization": f"Bearer {ROOT_KEY}"}
    with httpx.Client(base_url=filed.url, headers=headers) as admin:
        admin.post("/v1/tenants", json={"id": "carol"}).raise_for_status()
        keys = [admin.post(f"/v1/tenants/{name}/keys").json()["key"] for name in ("carol", "alice")]
    file.write_text(TEXT)
    reload(filed).raise_for_status()
    assert [tokens(filed, key) for key in keys] == [9, 3]


def test_groups_keep_their_namespace_when_reordered(filed: Serving, file: Path) -> None:
    model = filed.server.model(MODEL)
    reload(filed).raise_for_status()
    before = model.core.namespace(model.core.tenant_number("alice"))
    file.write_text(TEXT.replace("[{id: a}, {id: b}]", "[{id: b}, {id: a}]"))
    reload(filed).raise_for_status()
    assert model.core.namespace(model.core.tenant_number("alice")) == before
    file.write_text(TEXT.replace("isolation_group: a", "isolation_group: b").replace("{id: a}, ", ""))
    reload(filed).raise_for_status()
    assert model.core.namespace(model.core.tenant_number("alice")) != before


def test_reload_without_a_file_is_rejected(serving: Serving) -> None:
    refused = httpx.post(f"{serving.url}/v1/admin/reload")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "no_file")
