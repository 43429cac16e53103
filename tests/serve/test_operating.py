"""What an operator and a router ask of a server: metrics of what ran, a timeline by request, cached prefixes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import httpx
import numpy as np
import pytest
from asking import read_answers, run_in_server
from embedded_server import MODEL
from prometheus_client.parser import text_string_to_metric_families

from zinc_rt import Sampling
from zinc_rt.golden.embedded import FOLDER
from zinc_rt.serve.app import make_app
from zinc_rt.serve.config.settings import (
    GroupSettings,
    KeySettings,
    ModelSettings,
    ServerSettings,
    TenantSettings,
)
from zinc_rt.serve.engine.requests import EngineRequest
from zinc_rt.serve.engine.server import InferenceServer
from zinc_rt.serve.observe.routing import digest_prefix
from zinc_rt.serve.tenants.keys import new_key

T = TypeVar("T")
KEY = "a router's key of its own"
PROMPT = tuple(range(3, 43))


def run_over_http(main: Callable[[InferenceServer, httpx.AsyncClient], Awaitable[T]], **changes: object) -> T:
    async def run_server(server: InferenceServer) -> T:
        transport = httpx.ASGITransport(make_app(server))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await main(server, client)

    return run_in_server(run_server, **changes)


@pytest.mark.rest
def test_metrics_reflect_completed_work() -> None:
    async def check_server(server: InferenceServer, client: httpx.AsyncClient) -> dict[str, float]:
        for tenant in ("", "bob"):
            await read_answers(
                server, EngineRequest(MODEL, PROMPT, Sampling(max_tokens=5, ignore_eos=True), tenant=tenant)
            )
        await read_answers(
            server, EngineRequest(MODEL, PROMPT, Sampling(max_tokens=5, ignore_eos=True), tenant="bob")
        )
        text = (await client.get("/metrics")).raise_for_status().text
        samples = [item for family in text_string_to_metric_families(text) for item in family.samples]
        return {
            " ".join(
                [item.name, *(value for name, value in item.labels.items() if name != "model_name")]
            ): item.value
            for item in samples
        }

    result = run_over_http(check_server, tenants=(TenantSettings(id="ada"), TenantSettings(id="bob")))
    assert result["vllm:prompt_tokens_total"] == 3 * len(PROMPT) and result["vllm:generation_tokens_total"] == 15
    assert (
        result["vllm:prefix_cache_queries_total"] == 3 * len(PROMPT)
        and result["vllm:prefix_cache_hits_total"] == 32
    )
    assert result["vllm:request_success_total length"] == 3 == result["vllm:time_to_first_token_seconds_count"]
    assert result["vllm:inter_token_latency_seconds_count"] == 12
    assert result["zinc_rt_tenant_tokens_total generated ada"] == 5
    assert result["zinc_rt_tenant_tokens_total generated bob"] == 10
    assert result["zinc_rt_tenant_tokens_total prompt_cached bob"] == 32, "ada's page is not bob's to find"
    assert result["zinc_rt_step_seconds_count device"] == result["vllm:iteration_tokens_total_count"] >= 13
    assert result["vllm:num_requests_running"] == result["vllm:num_requests_waiting"] == 0
    assert result["vllm:kv_cache_usage_perc"] == 0, "what only the cache has is free"


@pytest.mark.rest
def test_timeline_names_requests_by_id() -> None:
    async def check_server(server: InferenceServer, client: httpx.AsyncClient) -> None:
        for id in ("req-a", "req-b"):
            await read_answers(
                server, EngineRequest(MODEL, PROMPT, Sampling(max_tokens=3, ignore_eos=True), request_id=id)
            )
        document = (await client.post("/v1/admin/trace")).raise_for_status().json()
        named = {e["args"]["request_id"] for e in document["traceEvents"] if "request_id" in e.get("args", {})}
        assert named == {"req-a", "req-b"}
        last = (await client.post("/v1/admin/trace", params={"steps": 2, "model": MODEL})).json()
        steps = [e["name"] for e in last["traceEvents"] if e["ph"] == "X" and e["tid"] == 1]
        count = document["otherData"]["steps"]
        assert steps == [f"step {count - 2}", f"step {count - 1}"] and last["otherData"]["steps_kept"] == 2
        assert (await client.post("/v1/admin/trace", params={"model": "x"})).status_code == 404
        assert (await client.post("/v1/admin/trace", params={"steps": 0})).status_code == 400

    run_over_http(check_server)


@pytest.mark.rest
def test_router_can_find_cached_prefixes_with_its_key() -> None:
    page = np.array(PROMPT[:16], "<i4").tobytes()
    tenants = (TenantSettings(id="ada"), TenantSettings(id="bob", isolation_group="team"))

    async def check_server(server: InferenceServer, client: httpx.AsyncClient) -> None:
        for tenant, salt in (("ada", ""), ("bob", ""), ("ada", "secret")):
            await read_answers(
                server, EngineRequest(MODEL, PROMPT, Sampling(max_tokens=2), tenant=tenant, cache_salt=salt)
            )
        load = (await client.get("/v1/admin/routing")).raise_for_status().json()
        model = load["models"][MODEL]
        owners = ("group team", "ada")
        assert model.pop("prefixes") == [digest_prefix(KEY, MODEL, owner, page) for owner in owners]
        assert model.pop("tokens_per_second") > 0
        assert load["ready"] and model == {
            "waiting": {"interactive": 0, "standard": 0, "batch": 0}, "running": 0, "slots": 4, "free_slots": 4,
            "kv_usage": 0.0, "page_tokens": 16, "lost": False,
        }  # fmt: skip

    run_over_http(
        check_server, tenants=tenants, groups=(GroupSettings("team"),), server=ServerSettings(router_key=KEY)
    )


def test_prefixes_are_hidden_without_a_router_key() -> None:
    async def check_server(server: InferenceServer, client: httpx.AsyncClient) -> None:
        await read_answers(server, EngineRequest(MODEL, PROMPT, Sampling(max_tokens=2)))
        load = (await client.get("/v1/admin/routing")).json()
        assert "prefixes" not in load["models"][MODEL]

    run_over_http(check_server)


def test_operator_endpoints_require_an_admin_key() -> None:
    keys = [new_key("k1", ("inference", "usage")), new_key("k2", ("admin",))]
    settings = tuple(kept for _, kept in keys)

    async def check_server(server: InferenceServer, client: httpx.AsyncClient) -> None:
        for method, path in (("GET", "/metrics"), ("POST", "/v1/admin/trace"), ("GET", "/v1/admin/routing")):
            statuses = [
                (await client.request(method, path, headers=headers)).status_code
                for headers in ({}, *({"authorization": f"Bearer {key}"} for key, _ in keys))
            ]
            assert statuses == [401, 403, 200], path

    run_over_http(check_server, tenants=(TenantSettings(id="ada", keys=settings),))


@pytest.mark.rest
def test_metrics_can_be_public() -> None:
    tenants = (TenantSettings(id="ada", keys=(KeySettings("k1", "0" * 64),)),)

    async def check_server(server: InferenceServer, client: httpx.AsyncClient) -> None:
        assert (await client.get("/metrics")).status_code == 200
        assert (await client.get("/v1/admin/routing")).status_code == 401

    run_over_http(check_server, tenants=tenants, server=ServerSettings(metrics_open=True))


def test_speculation_is_measured_and_changes_no_answer() -> None:
    """Each request with the model as its own draft model, and without drafts."""

    async def answer(
        server: InferenceServer, client: httpx.AsyncClient
    ) -> tuple[list[dict[str, object]], dict[str, float]]:
        bodies: list[dict[str, object]] = [
            {"prompt": list(PROMPT), "max_tokens": 24, "seed": 5, "temperature": 0.7, "logprobs": 2},
            {"prompt": list(PROMPT), "max_tokens": 24, "temperature": 0, "ignore_eos": True},
            {"prompt": list(PROMPT), "max_tokens": 24, "guided_regex": "[a-z]{4,30}", "seed": 2},
            {"prompt": list(PROMPT[:9]), "max_tokens": 24, "seed": 3, "draft_tokens": 0},
        ]
        replies = [(await client.post("/v1/completions", json=body)).raise_for_status().json() for body in bodies]
        text = (await client.get("/metrics")).raise_for_status().text
        samples = [item for family in text_string_to_metric_families(text) for item in family.samples]
        return [reply["choices"] for reply in replies], {item.name: item.value for item in samples}

    plain, _ = run_over_http(answer)
    model = ModelSettings(MODEL, MODEL, ctx=256, slots=4, speculate=f"draft:{FOLDER / MODEL}.gguf:3")
    drafted, metrics = run_over_http(answer, models=(model,))
    assert drafted == plain
    accepted = metrics["vllm:spec_decode_num_accepted_tokens_total"]
    assert metrics["vllm:spec_decode_num_draft_tokens_total"] > 0 < accepted
