"""A configuration is taken as a whole, or every error of it is told with its line."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from zinc_rt.host.errors import InputError
from zinc_rt.sched.kv.pages import PageQuota
from zinc_rt.sched.tenant import CLASSES, Priority, compute_floors
from zinc_rt.serve.config.file import parse_config, read_config
from zinc_rt.serve.config.settings import Config, TenantLimits
from zinc_rt.serve.tenants.quotas import make_scheduler_classes, make_scheduler_tenants

DIGEST = "0123456789abcdef" * 4
WHOLE = f"""\
version: 1
server: {{host: 127.0.0.1, port: 8080, max_body_bytes: 8388608, header_s: 10, body_s: 30, idle_s: 75,
         max_connections: 1024, cors: []}}
device: {{tier: auto, device: null}}
models:
  - {{id: qwen3.6-35b, path: M.gguf, ctx: 32768, slots: 16, kv: {{dtype: f32, pages: auto}}, state_rows: auto,
     step_tokens: auto, speculate: "ngram:2", prefill_ordering: wmma-f16, pinned: true, format: auto,
     embeddings: null}}
classes: {{interactive: {{age_s: 2}}, standard: {{age_s: 10, floor_slots: 4}},
          batch: {{age_s: 60, floor_slots: 1}}}}
defaults: {{class: standard, weight: 1.0, slots_max: 16, kv_max: 1.0, requests_per_minute: null, queue_max: 64}}
tenants:
  - id: alice
    class: interactive
    slots_guaranteed: 2
    kv_reserved: 0.1
    keys: [{{id: k1, sha256: {DIGEST}, scopes: [inference, admin], expires: 2027-01-31}}]
    isolation_group: team-a
  - {{id: bob, slots_max: 3}}
groups: [{{id: team-a}}]
queue: {{interactive: 256, standard: 1024, batch: 8192}}
ledger: {{path: usage.sqlite, durability: second, on_failure: continue}}
log: {{level: info, prompts: never}}
"""
LEAST = "models: [{id: m, path: m.gguf, slots: 4}]\n"


def config_errors(text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        parse_config(text, "f.yaml")
    return caught.value.message.splitlines()


def test_complete_configuration_is_parsed() -> None:
    config = parse_config(WHOLE, "f.yaml")
    (model,), (alice, bob) = config.models, config.tenants
    assert (model.ctx, model.slots, model.step_tokens, model.kv.pages) == (32768, 16, 0, None)
    assert model.prefill_ordering == "wmma-f16"
    assert (alice.priority, alice.kv_reserved, alice.slots_max) == (Priority.INTERACTIVE, 0.1, 16)
    assert (bob.priority, bob.slots_max, bob.queue_max) == (Priority.STANDARD, 3, 64)
    (key,) = alice.keys
    assert key.scopes == ("inference", "admin") and key.expires == datetime(2027, 1, 31, tzinfo=UTC)
    assert config.keyed and config.ledger.path == "usage.sqlite"


def test_all_errors_are_reported_at_once_with_lines() -> None:
    text = """\
server: {host: 127.0.0.1, porrt: 8080}
models:
  - {id: m, path: m.gguf, slots: 0}
  - {id: n, path: 3, kv: {dtype: f8}}
tenants:
  - id: alice
    clas: interactive
    weight: heavy
    kv_reserved: 2.5
  - {id: ../x, keys: [{id: k1, sha256: abc, expires: never}]}
  - {}
"""
    assert config_errors(text) == [
        "f.yaml:1: server.porrt: unknown setting: did you mean port?",
        "f.yaml:3: models.0.slots: 0: expected greater than or equal to 1",
        "f.yaml:4: models.1.kv.dtype: f8: expected 'f32', 'f16' or 'q8_0'",
        "f.yaml:4: models.1.path: 3: expected a valid string",
        "f.yaml:7: tenants.0.clas: unknown setting: did you mean class?",
        "f.yaml:8: tenants.0.weight: heavy: expected a valid number, unable to parse string as a number",
        "f.yaml:9: tenants.0.kv_reserved: 2.5: expected a fraction from 0.0 to 1.0, or a whole number of pages",
        "f.yaml:10: tenants.1.id: ../x: expected a text that matches '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$'",
        "f.yaml:10: tenants.1.keys.0.expires: never: "
        "expected a date or a time like 2027-01-31 or 2027-01-31T12:00Z",
        "f.yaml:10: tenants.1.keys.0.sha256: abc: expected a text that matches '^[0-9a-f]{64}$'",
        "f.yaml:11: tenants.2.id: is missing",
    ]


def test_contradictions_are_reported_with_lines() -> None:
    text = """\
models:
  - {id: m, path: m.gguf, slots: 4, step_tokens: 2, state_rows: 3}
  - {id: m, path: n.gguf}
defaults: {slots_max: 3}
tenants:
  - {id: alice, slots_guaranteed: 4, kv_reserved: 0.7, isolation_group: a}
  - {id: bob, kv_reserved: 0.7, kv_max: 0.5, slots_guaranteed: 1, decode_burst: 3, models: [q], on_limit: reject}
  - {id: bob}
"""
    assert config_errors(text) == [
        "f.yaml:2: models.0.state_rows: each of 4 slots needs one, plus one zero row: expected 5 or more",
        "f.yaml:2: models.0.step_tokens: 4 slots decode one token each: expected 4 or more",
        "f.yaml:3: models.1.id: 'm' is used twice: expected a unique name",
        "f.yaml:6: tenants.0.isolation_group: no group 'a': expected one of none",
        "f.yaml:6: tenants.0.slots_guaranteed: 4, and slots_max is 3: expected at most slots_max",
        "f.yaml:7: tenants.1.decode_burst: needs decode_rate as well",
        "f.yaml:7: tenants.1.kv_reserved: 0.7, and kv_max is 0.5: expected at most kv_max",
        "f.yaml:7: tenants.1.kv_reserved: 0.7: at most 0.3 are available after the other guarantees",
        "f.yaml:7: tenants.1.models: no model 'q': expected some of m, m",
        "f.yaml:7: tenants.1.on_limit: reject needs prefill_rate or decode_rate: no rate is set",
        "f.yaml:7: tenants.1.slots_guaranteed: 1: at most 0 are available after the other guarantees",
        "f.yaml:8: tenants.2.id: 'bob' is used twice: expected a unique name",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LEAST + "server: {host: 0.0.0.0}", "f.yaml:2: server.host: 0.0.0.0 is reachable from other machines"),
        (LEAST + "server: {port: 1\n", "f.yaml:3: "),
        (LEAST + "server: {}\nserver: {}", "f.yaml:3: server is set twice: first in line 2"),
        (LEAST + "tenants: [{id: a, slots_guaranteed: 3}, {id: b, slots_guaranteed: 2}]",
         "tenants.1.slots_guaranteed: 2: at most 1 are available"),
        (LEAST + "tenants: [&a {id: a, models: [*a]}]", "an alias inside the node that it refers to"),
        (LEAST + "tenants: [{<<: {id: a}}]", "merge keys (<<) are not supported"),
        (LEAST + "log: !!python/object/apply:os.system [ls]", "f.yaml:2: log: ['ls']: expected settings"),
        (LEAST + "log: {level: !!python/name:os.system x}", "could not determine a constructor"),
        (LEAST + f"tenants: [{{id: a, keys: &k [{{id: k, sha256: {DIGEST}}}]}}, {{id: b, keys: *k}}]",
         "'k' is already a key of a"),
        (LEAST + "classes: {standard: {floor_slots: 3}}", "at most half of the 4 slots of m"),
        ("models: []", "f.yaml:1: models: the list is empty"),
        ("", "f.yaml:1: the file has no settings"),
        ("- 3", "f.yaml:1: the file has no settings"),
    ],
)  # fmt: skip
def test_invalid_file_is_rejected(text: str, message: str) -> None:
    assert message in "\n".join(config_errors(text))


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.yaml: no such file"):
        read_config(tmp_path / "none.yaml")
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not UTF-8 at byte 0"):
        read_config(tmp_path / "b.yaml")


def test_tenants_convert_to_scheduler_tenants() -> None:
    config = parse_config(WHOLE, "f.yaml")
    alice, bob = make_scheduler_tenants(config, [100, 8])
    assert alice.pages == (PageQuota(10, None, 0), PageQuota(0, None, 0))
    assert (alice.slots_guaranteed, alice.priority, bob.slots_max) == (2, Priority.INTERACTIVE, 3)
    small = replace(config.tenants[1], kv_reserved=3, kv_max=0.25, decode_rate=50)
    (bob,) = make_scheduler_tenants(replace(config, tenants=(small,)), [100])
    assert bob.pages == (PageQuota(3, 25, None),) and bob.decode == (50, 50)


def test_classes_convert_to_scheduler_classes() -> None:
    text = "classes: {standard: {age_s: 5, floor_slots: 2, gap_ms: 40}, interactive: {first_token_ms: 0}}"
    classes = make_scheduler_classes(parse_config(LEAST + text, "f.yaml"))
    assert classes[Priority.STANDARD].gap_ns == 40_000_000 and classes[Priority.STANDARD].first_token_ns is None
    assert classes[Priority.INTERACTIVE].gap_ns == 30_000_000
    assert classes[Priority.INTERACTIVE].first_token_ns is None
    assert classes[Priority.BATCH] == CLASSES[Priority.BATCH]
    assert (classes[Priority.STANDARD].age_ns, compute_floors(4, classes)[Priority.STANDARD]) == (5 * 10**9, 2)


def test_bare_model_makes_a_configuration() -> None:
    config = Config.for_model("models/M.Q8_0.gguf")
    assert [model.id for model in config.models] == ["M.Q8_0"] and [tenant.id for tenant in config.tenants] == [
        "default"
    ]
    assert config.defaults == TenantLimits() and not config.keyed
