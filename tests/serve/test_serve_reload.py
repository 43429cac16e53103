"""The configuration's file, read again while a server runs: all of it, or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from embedded_server import MODEL, RunningServer, run_server

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
def config_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "serve.yaml"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def file_server(config_file: Path) -> Iterator[RunningServer]:
    yield from run_server(read_config(config_file))


def post_reload(filed: RunningServer) -> httpx.Response:
    return httpx.post(f"{filed.url}/v1/admin/reload", headers={"authorization": f"Bearer {ROOT_KEY}"}, timeout=30)


def count_tokens(filed: RunningServer, key: str = ALICE_KEY) -> int:
    """Return the number of tokens of an answer, or the status if there is none."""
    body = {"model": MODEL, "prompt": [5, 6, 7], "max_tokens": 9, "ignore_eos": True}
    headers = {"authorization": f"Bearer {key}"}
    answer = httpx.post(f"{filed.url}/v1/completions", json=body, headers=headers, timeout=30)
    completion_tokens: int = (
        answer.json()["usage"]["completion_tokens"] if answer.is_success else answer.status_code
    )
    return completion_tokens


@pytest.mark.rest
def test_limits_tenants_and_keys_are_applied_while_running(file_server: RunningServer, config_file: Path) -> None:
    assert count_tokens(file_server) == 3
    config_file.write_text(TEXT.replace("max_tokens: 3", "max_tokens: 5"))
    assert post_reload(file_server).json() == {"status": "reloaded", "applied": ["tenants"], "at_start": []}
    assert count_tokens(file_server) == 5
    _, other = new_key("k2")
    config_file.write_text(TEXT.replace("k1", "k2").replace(ALICE.sha256, other.sha256))
    assert post_reload(file_server).status_code == 200
    assert count_tokens(file_server) == 401
    config_file.write_text(TEXT.replace("id: alice", "id: bob"))
    assert post_reload(file_server).status_code == 200
    assert (count_tokens(file_server), file_server.server.tenancy.keys.find_caller(ALICE_KEY).tenant) == (3, "bob")  # type: ignore[union-attr]
    config_file.write_text(TEXT)
    assert post_reload(file_server).status_code == 200


def test_invalid_file_changes_nothing(file_server: RunningServer, config_file: Path) -> None:
    before = file_server.server.tenancy.config
    wrong = TEXT.replace("max_tokens: 3", "max_tokens: 0").replace("groups", "gruops")
    for text, output in [
        (wrong, f"{config_file}:6: gruops: unknown setting"),
        (TEXT + "server: {host: 0.0.0.0, port: x}", "server.port: x: expected a valid integer"),
        ("", "no settings"),
    ]:  # fmt: skip
        config_file.write_text(text)
        refused = post_reload(file_server)
        assert refused.status_code == 400 and output in refused.json()["error"]["message"]
    config_file.write_text(TEXT.replace("max_tokens: 3", "kv_reserved: 65"))
    refused = post_reload(file_server)
    assert refused.status_code == 409 and "at most 64 of 64 pages" in refused.json()["error"]["message"]
    assert file_server.server.tenancy.config is before and count_tokens(file_server) == 3


def test_settings_that_need_a_restart_are_named(file_server: RunningServer, config_file: Path) -> None:
    config_file.write_text(
        TEXT.replace("slots: 4", "slots: 5") + "server: {port: 1, body_s: 3}\nledger: {path: x}\n"
    )
    document = post_reload(file_server).json()
    assert document["at_start"] == ["ledger", "server.port", f"models.{MODEL}"]
    assert (
        file_server.server.tenancy.config.server.body_s == 3
        and file_server.server.tenancy.config.ledger.path is None
    )


def test_tenants_and_keys_created_by_api_survive_a_reload(file_server: RunningServer, config_file: Path) -> None:
    headers = {"authorization": f"Bearer {ROOT_KEY}"}
    with httpx.Client(base_url=file_server.url, headers=headers) as admin:
        admin.post("/v1/tenants", json={"id": "carol"}).raise_for_status()
        keys = [admin.post(f"/v1/tenants/{name}/keys").json()["key"] for name in ("carol", "alice")]
    config_file.write_text(TEXT)
    post_reload(file_server).raise_for_status()
    assert [count_tokens(file_server, key) for key in keys] == [9, 3]


def test_groups_keep_their_namespace_when_reordered(file_server: RunningServer, config_file: Path) -> None:
    model = file_server.server.model(MODEL)
    post_reload(file_server).raise_for_status()
    before = model.core.make_namespace(model.core.find_tenant("alice"))
    config_file.write_text(TEXT.replace("[{id: a}, {id: b}]", "[{id: b}, {id: a}]"))
    post_reload(file_server).raise_for_status()
    assert model.core.make_namespace(model.core.find_tenant("alice")) == before
    config_file.write_text(TEXT.replace("isolation_group: a", "isolation_group: b").replace("{id: a}, ", ""))
    post_reload(file_server).raise_for_status()
    assert model.core.make_namespace(model.core.find_tenant("alice")) != before


def test_reload_without_a_file_is_rejected(serving: RunningServer) -> None:
    refused = httpx.post(f"{serving.url}/v1/admin/reload")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "no_file")
