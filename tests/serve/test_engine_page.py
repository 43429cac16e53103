"""The engine page in Chromium: what it shows of a script, and of a server that works."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator

import pytest
from embedded_server import MODEL, RunningServer
from fastapi.responses import JSONResponse
from headless_chromium import Browser, Tab, open_tab
from scripted_api import ApiScript, ScriptedSite, listening_site

METRICS = """# HELP vllm:num_requests_running Choices of requests in a slot.
vllm:num_requests_running{model_name="m"} 1.0
vllm:num_requests_waiting{model_name="m"} 7.0
zinc_rt_waiting{model_name="m",priority="interactive"} 5.0
zinc_rt_waiting{model_name="m",priority="standard"} 2.0
zinc_rt_kv_pages{model_name="m",owner="request"} 30.0
zinc_rt_kv_pages{model_name="m",owner="cache"} 10.0
zinc_rt_kv_pages{model_name="m",owner="free"} 24.0
vllm:generation_tokens_total{model_name="m"} 1e+02
vllm:prefix_cache_queries_total{model_name="m"} 400.0
vllm:prefix_cache_hits_total{model_name="m"} 300.0
vllm:time_to_first_token_seconds_bucket{le="0.1",model_name="m"} 1.0
vllm:time_to_first_token_seconds_bucket{le="0.5",model_name="m"} 20.0
vllm:time_to_first_token_seconds_bucket{le="+Inf",model_name="m"} 20.0
zinc_rt_tenant_tokens_total{kind="generated",model_name="m",tenant="alice"} 9120.0
"""
SLOT = {
    "id": 0,
    "id_task": 41,
    "model": "m",
    "next_token": {"n_decoded": 28, "n_remain": 4},
    "zinc_rt": {"tenant": "alice", "priority": "interactive", "state": "decode", "prompt_tokens": 312},
}
TENANT = {
    "id": "alice",
    "class": "interactive",
    "weight": 1.0,
    "slots": {"guaranteed": 2, "max": 8, "used": 1},
    "kv": {"used": 30, "max": 64},
    "queue": {"waiting": 7, "max": 64},
    "share": 0.5,
}


@pytest.fixture(scope="module")
def engine_site() -> Iterator[ScriptedSite]:
    with listening_site() as result:
        yield result


@pytest.fixture
def engine_script(engine_site: ScriptedSite) -> ApiScript:
    model = {"id": "m", "zinc_rt": {"slots": 2, "tier": "t1", "simulated": True, "random_weights": True}}
    free = {**SLOT, "id": 1, "id_task": -1, "zinc_rt": {}}
    pages = {"metrics": METRICS, "slots": [SLOT, free], "v1/tenants": {"data": [TENANT]}}
    engine_site.script = ApiScript(models=[model], pages=pages)
    return engine_site.script


@pytest.fixture
def engine_page(chrome_browser: Browser, engine_site: ScriptedSite, engine_script: ApiScript) -> Iterator[Tab]:
    with open_tab(chrome_browser) as result:
        result.open_url(f"{engine_site.url}engine")
        result.wait_until("document.querySelector('tbody tr')")
        yield result
        assert result.complaints == []


def read_tiles(page: Tab) -> dict[str, str]:
    """What each says, by its name."""
    rows = page.ask("[...document.querySelectorAll('.tile')].map(each => each.innerText.split('\\n'))")
    return {name: " ".join(output) for name, *output in rows}


def test_page_shows_slots_queues_pages_and_tenants(engine_page: Tab) -> None:
    assert engine_page.text("h2").split("\n") == ["m", "simulated", "random weights", "t1"]
    shown = read_tiles(engine_page)
    assert shown["Running"] == "1 of 2 slots"
    assert shown["Waiting"] == "7 – preempted 5 interactive · 2 standard"
    assert shown["KV pages in use"] == "30 of 64, 10 cached"
    assert shown["Prefix cache"] == "75 % of prompts" and shown["Time to first token"] == "≤ 500 ms p95"
    rows = engine_page.ask("[...document.querySelectorAll('tbody tr')].map(each => each.innerText.split('\\t'))")
    assert rows == [
        ["0", "● decode", "41", "alice", "interactive", "312", "–", "–", "28", "4"],
        ["1", "○ free", *["–"] * 8],
        ["alice", "interactive", "1", "1 / 8", "2", "30 / 64", "7 / 64", "50 %", "–", "–", "9,120"],
    ]


def test_page_updates_live_and_keeps_scroll_position(engine_page: Tab, engine_script: ApiScript) -> None:
    engine_page.ask("document.querySelector('.scroller').focus()")
    engine_script.pages["metrics"] = METRICS.replace("1e+02", "1e+03").replace(
        'waiting{model_name="m"} 7', 'waiting{model_name="m"} 3'
    )
    engine_page.wait_until("document.querySelectorAll('.tile .value')[1].innerText.startsWith('3')")
    assert engine_page.ask("document.activeElement.className") == "scroller"
    assert float(read_tiles(engine_page)["Generated tokens"].split()[0].replace(",", "")) > 0


def test_missing_permission_is_shown(engine_page: Tab, engine_script: ApiScript) -> None:
    del engine_script.pages["v1/tenants"]
    engine_page.wait_until("document.querySelector('.problem')")
    assert engine_page.text(".problem") == "/v1/tenants: no path v1/tenants"
    assert engine_page.count("section") == 1
    engine_page.complaints.clear()  # of the 404


def test_forbidden_path_is_not_polled_forever(engine_page: Tab, engine_script: ApiScript) -> None:
    refusal = JSONResponse({"error": {"message": "admin is needed"}}, 403)
    engine_script.pages["v1/tenants"] = refusal
    engine_page.wait_until("document.querySelector('.problem')")
    assert engine_page.text(".problem") == "/v1/tenants: admin is needed"
    engine_page.fetched.clear()
    engine_page.wait_until("moments.length > 4")
    assert any(url.endswith("/metrics") for url in engine_page.fetched)
    assert not any(url.endswith("/v1/tenants") for url in engine_page.fetched)
    engine_script.pages["v1/tenants"] = {"data": [TENANT]}
    engine_page.click("#key")
    engine_page.type("an admin's")
    engine_page.press("Enter")
    engine_page.wait_until("document.querySelectorAll('section').length === 2")
    engine_page.complaints.clear()  # of the 403


def test_names_cannot_inject_script(engine_page: Tab, engine_script: ApiScript) -> None:
    hostile = "<img src=x onerror=\"document.title='owned'\">"
    engine_script.models[0]["id"] = hostile
    engine_script.pages["slots"] = [{**SLOT, "model": hostile, "zinc_rt": {"tenant": hostile, "state": hostile}}]
    engine_script.pages["v1/tenants"] = {"data": [{**TENANT, "id": hostile}]}
    engine_page.wait_until("document.querySelector('h2').innerText.includes('onerror')")
    assert engine_page.count("main img") == 0 and engine_page.ask("document.title") == "ZINC_RT · engine"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_phone_needs_no_horizontal_scrolling(engine_page: Tab, scheme: str) -> None:
    engine_page.set_viewport(width=380, height=800, scheme=scheme)
    assert engine_page.ask("document.documentElement.scrollWidth") <= 380
    dark = engine_page.ask("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)"
    assert dark == (scheme == "dark")


def test_both_pages_work_with_a_real_server(chrome_browser: Browser, serving: RunningServer) -> None:
    """An answer on the page is the API's for the same request; while it is made the engine page shows it."""
    with open_tab(chrome_browser) as chat, open_tab(chrome_browser) as engine:
        chat.open_url(f"{serving.url}/")
        chat.wait_until("models.length")
        assert "random weights" in chat.text("#facts")
        for field, value in (("max_tokens", "24"), ("seed", "7")):
            chat.click(f"#{field}")
            chat.type(value)
        chat.click("#prompt")
        chat.type("Hello")
        chat.press("Enter")
        chat.wait_until("chat.turns.length === 2 && !running")
        output = chat.ask("chat.turns[1]")
        assert "error" not in output and output["seed"] == 7
        assert f"{output['usage']['completion_tokens']} tokens" in chat.text("li.turn:last-child .stats")
        body = chat.ask("request(chat.turns.slice(0, 1))")
        whole = post_chat(serving.url, {**body, "stream": False, "stream_options": None})
        assert whole["choices"][0]["message"]["content"] == output["content"] != ""
        chat.click("#max_tokens")
        chat.ask("document.activeElement.select()")
        chat.type("200")
        chat.ask("at('prompt').focus()")
        chat.type("Go on")
        chat.press("Enter")
        chat.wait_until("chat.turns.at(-1).first")
        chat.press("Escape")
        chat.wait_until("!running")
        engine.open_url(f"{serving.url}/engine")
        engine.wait_until("document.querySelector('.tile')")
        assert engine.text("h2").split("\n")[0] == MODEL
        engine.wait_until(
            "document.querySelector('.tile .value').innerText.startsWith('0 ')"
        )  # nobody makes it any more
        assert engine.count("section:first-of-type tbody tr") == 4  # slots
        assert engine.text("section:last-of-type tbody th") == "default"
        assert chat.complaints == [] and engine.complaints == []


def post_chat(url: str, body: dict[str, object]) -> dict[str, list[dict[str, dict[str, str]]]]:
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        document: dict[str, list[dict[str, dict[str, str]]]] = json.load(answer)
    return document
