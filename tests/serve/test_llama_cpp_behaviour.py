"""What llama.cpp's server does on the endpoints we share (by its tools/server: documentation and tests): who comes
from there finds the same fields and the same manners. Where we differ, docs/serving.md says so.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from embedded_server import MODEL, RunningServer, make_config, run_server

from zinc_rt.serve.config.settings import TenantSettings
from zinc_rt.serve.tenants.keys import new_key

PROMPT = "I believe the meaning of life is"
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 2 + 2?"}]


@pytest.fixture
def asker(serving: RunningServer) -> Iterator[Asker]:
    with httpx.Client(base_url=serving.url, timeout=60) as client:
        yield Asker(client)


class Asker:
    """POST and GET, whose answers are JSON."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client

    def post(self, path: str, status: int = 200, **body: Any) -> Any:
        answer = self.client.post(path, json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    def get(self, path: str, status: int = 200) -> Any:
        answer = self.client.get(path)
        assert answer.status_code == status, answer.text
        return answer.json()

    def text(self, **body: Any) -> str:
        text: str = self.post("/v1/completions", **{"prompt": PROMPT, "max_tokens": 8, **body})["choices"][0][
            "text"
        ]
        return text

    def events(self, path: str, **body: Any) -> list[dict[str, Any]]:
        with self.client.stream("POST", path, json={"stream": True, **body}) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            lines = [line[6:] for line in answer.iter_lines() if line.startswith("data: ")]
        assert lines.pop() == "[DONE]"
        return [json.loads(line) for line in lines]


# --- tokens


@pytest.mark.parametrize("text", ["What is the capital of France ?", "", "  two  spaces\n", "naïve 你好 🌍"])
def test_detokenize_inverts_tokenize(asker: Asker, text: str) -> None:
    tokens = asker.post("/tokenize", content=text)["tokens"]
    assert all(isinstance(token, int) for token in tokens)
    assert asker.post("/detokenize", tokens=tokens)["content"] == text


def test_special_tokens_are_parsed_and_added_on_request(asker: Asker) -> None:
    marked = "<|im_start|>user"
    parsed, plain = (
        asker.post("/tokenize", content=marked, parse_special=parse)["tokens"] for parse in (True, False)
    )
    assert len(parsed) < len(plain) and asker.post("/tokenize", content=marked)["tokens"] == parsed
    without = asker.post("/tokenize", content="Hello")["tokens"]
    assert asker.post("/tokenize", content="Hello", add_special=True)["tokens"][-len(without) :] == without


def test_pieces_are_text_or_raw_bytes(asker: Asker) -> None:
    pieces = asker.post("/tokenize", content="a 🌍", with_pieces=True)["tokens"]
    assert all(isinstance(piece["id"], int) and piece["piece"] for piece in pieces)
    raw = b"".join(bytes(p) if isinstance(p, list) else p.encode() for p in (piece["piece"] for piece in pieces))
    assert raw.decode() == "a 🌍"


def test_suffix_is_rejected_or_filled_in(
    asker: Asker, serving: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    body: dict[str, Any] = {
        "prompt": "def add(a, b):",
        "suffix": "    return c",
        "max_tokens": 1,
        "return_token_ids": True,
    }
    assert "cannot fill in text" in asker.post("/v1/completions", 400, **body)["error"]["message"]
    tokenizer = serving.server.models[MODEL].core.tokenizer
    assert tokenizer is not None
    monkeypatch.setattr(tokenizer, "infill_ids", (3, 4, 5))
    (choice,) = asker.post("/v1/completions", **body)["choices"]
    assert choice["prompt_token_ids"] == tokenizer.encode_infill(body["prompt"], body["suffix"])
    for wrong in ({"echo": True}, {"prompt": [5, 6]}):
        assert asker.post("/v1/completions", 400, **body | wrong)["error"]["param"] == "suffix"


# --- templates


def test_apply_template_renders_without_generating(asker: Asker) -> None:
    prompt = asker.post("/apply-template", messages=MESSAGES)["prompt"]
    assert prompt.index("Be brief.") < prompt.index("What is 2 + 2?") and prompt.endswith("assistant\n")
    counted = len(asker.post("/tokenize", content=prompt)["tokens"])
    usage = asker.post("/v1/chat/completions", messages=MESSAGES, max_tokens=1)["usage"]
    assert usage["prompt_tokens"] == counted


@pytest.mark.parametrize(
    "messages",
    [
        None,
        "hello",
        123,
        [],
        [{"role": "user"}, 3],
        [{"content": "no role"}],
        [{"role": "nobody", "content": "x"}],
    ],
)
def test_invalid_messages_return_400_with_a_message(asker: Asker, messages: object) -> None:
    error = asker.post("/v1/chat/completions", 400, messages=messages)["error"]
    assert error["message"] and error["type"] == "invalid_request_error"


# --- health, models, props, slots


def test_health_is_ok(asker: Asker) -> None:
    assert asker.get("/health") == {"status": "ok"}


def test_models_is_a_list_of_objects(asker: Asker) -> None:
    models = asker.get("/v1/models")
    assert models["object"] == "list" and [model["id"] for model in models["data"]] == [MODEL]
    assert models["data"][0]["object"] == "model" and models["data"][0]["created"] > 0


def test_props_describe_the_server(asker: Asker) -> None:
    props = asker.get("/props")
    assert props["total_slots"] == 4 and props["model_alias"] == MODEL and "im_start" in props["chat_template"]
    settings = props["default_generation_settings"]
    assert (
        settings["n_ctx"] == 256
        and {"temperature", "top_k", "top_p", "min_p", "seed"} <= settings["params"].keys()
    )


def test_slots_show_activity_but_no_content(asker: Asker) -> None:
    assert [slot["id"] for slot in asker.get("/slots")] == [0, 1, 2, 3]
    assert wait_until(lambda: not any(slot["is_processing"] for slot in asker.get("/slots")))
    with asker.client.stream("POST", "/v1/completions", json=long_request(max_tokens=200, stream=True)) as answer:
        lines = answer.iter_lines()  # one that is dropped closes the response
        next(lines)
        seen = [slot for slot in asker.get("/slots") if slot["is_processing"]]
    assert len(seen) == 1 and seen[0]["id_task"] > 0 and "prompt" not in seen[0]
    assert PROMPT not in json.dumps(seen)


@pytest.mark.rest
def test_slots_return_503_on_request_when_none_is_free(asker: Asker) -> None:
    assert asker.get("/slots?fail_on_no_slot=1")
    with ThreadPoolExecutor(4) as pool:
        long = [pool.submit(asker.post, "/v1/completions", **long_request()) for _ in range(4)]
        assert wait_until(lambda: asker.client.get("/slots?fail_on_no_slot=1").status_code == 503)
        assert all(item.result()["choices"][0]["finish_reason"] == "length" for item in long)


def long_request(**more: Any) -> dict[str, Any]:
    return {"prompt": PROMPT, "max_tokens": 60, "ignore_eos": True, **more}


def wait_until(condition: Any) -> bool:
    until = time.monotonic() + 30
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True


# --- completions


def test_completion_has_its_fields(asker: Asker) -> None:
    answers = [asker.post("/v1/completions", model=MODEL, prompt=PROMPT, max_tokens=8) for _ in range(2)]
    first = answers[0]
    assert first["object"] == "text_completion" and first["model"] == MODEL and first["system_fingerprint"]
    assert first["id"] != answers[1]["id"] and first["created"] > 1_700_000_000
    choice, usage = first["choices"][0], first["usage"]
    assert choice["index"] == 0 and choice["finish_reason"] in ("length", "stop")
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


@pytest.mark.rest
def test_stream_matches_the_whole_completion(asker: Asker) -> None:
    wanted = {"prompt": PROMPT, "max_tokens": 12, "seed": 42, "temperature": 0.8}
    events = asker.events("/v1/completions", **wanted)
    assert "".join(event["choices"][0]["text"] for event in events) == asker.text(**wanted)
    assert len({event["id"] for event in events}) == 1
    assert [event["choices"][0]["finish_reason"] for event in events][-1] is not None
    chat = {"messages": MESSAGES, "max_tokens": 12, "seed": 42, "temperature": 0.8}
    events = asker.events("/v1/chat/completions", **chat)
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    streamed = "".join(event["choices"][0]["delta"].get("content") or "" for event in events)
    assert streamed == asker.post("/v1/chat/completions", **chat)["choices"][0]["message"]["content"]


def test_stream_reports_usage_on_request(asker: Asker) -> None:
    events = asker.events(
        "/v1/chat/completions", messages=MESSAGES, max_tokens=4, ignore_eos=True,
        stream_options={"include_usage": True},
    )  # fmt: skip
    assert events[-1]["choices"] == [] and events[-1]["usage"]["completion_tokens"] == 4
    assert not any(event.get("usage") for event in events[:-1])


@pytest.mark.rest
def test_seed_determines_the_text(asker: Asker) -> None:
    texts = [asker.text(seed=seed, temperature=1.0, ignore_eos=True) for seed in (42, 42, 42, 1, 2)]
    assert texts[0] == texts[1] == texts[2] and len(set(texts[2:])) == 3


@pytest.mark.rest
def test_temperature_0_is_deterministic_cached_or_not(asker: Asker) -> None:
    texts = {asker.text(temperature=0, seed=seed, cache_salt=salt) for seed in (1, 2) for salt in ("a", "a", "b")}
    assert len(texts) == 1


@pytest.mark.rest
def test_parallel_requests_match_solo_runs(asker: Asker) -> None:
    texts = [asker.text(seed=seed, temperature=0.9) for seed in range(6)]
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(lambda seed: asker.text(seed=seed, temperature=0.9), range(6))) == texts


@pytest.mark.rest
def test_prompt_can_be_tokens_or_a_list(asker: Asker) -> None:
    tokens = asker.post("/tokenize", content=PROMPT, add_special=True)["tokens"]
    text = asker.text(temperature=0)
    assert asker.text(prompt=tokens, temperature=0) == text
    several = asker.post("/v1/completions", prompt=[PROMPT, "One two", PROMPT], max_tokens=8, temperature=0)[
        "choices"
    ]
    assert [choice["index"] for choice in several] == [0, 1, 2]
    assert several[0]["text"] == several[2]["text"] == text != several[1]["text"]


@pytest.mark.rest
def test_stop_string_ends_text_and_is_excluded(asker: Asker) -> None:
    text = asker.text(temperature=0, max_tokens=24, ignore_eos=True)
    stop = text[10:13]
    answer = asker.post(
        "/v1/completions", prompt=PROMPT, max_tokens=24, temperature=0, stop=[stop], ignore_eos=True
    )
    assert answer["choices"][0]["text"] == text[: text.index(stop)]
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_probabilities_are_one_descending_list_per_token(asker: Asker) -> None:
    answer = asker.post("/v1/chat/completions", messages=MESSAGES, max_tokens=5, logprobs=True, top_logprobs=5)
    for item in answer["choices"][0]["logprobs"]["content"]:
        tops = [top["logprob"] for top in item["top_logprobs"]]
        assert item["token"] is not None and item["bytes"] is not None and item["logprob"] <= 0
        assert len(tops) == 5 and tops == sorted(tops, reverse=True)


def test_bias_of_100_forces_the_token(asker: Asker) -> None:
    (token,) = asker.post("/tokenize", content="a")["tokens"]
    assert asker.text(logit_bias={str(token): 100}, max_tokens=4) == "aaaa"


def test_prompt_beyond_context_returns_400_with_both_numbers(asker: Asker) -> None:
    error = asker.post("/v1/completions", 400, prompt=[7] * 300)["error"]
    assert "300" in error["message"] and "256" in error["message"]


def test_progress_is_sent_on_request(asker: Asker) -> None:
    events = asker.events(
        "/v1/chat/completions", return_progress=True, max_tokens=2, cache_salt="progress",
        messages=[{"role": "user", "content": "word " * 60}],
    )  # fmt: skip
    message = [event["prompt_progress"] for event in events if "prompt_progress" in event]
    assert message and all(item["processed"] <= item["total"] for item in message)


def test_client_disconnect_frees_the_slot(asker: Asker, serving: RunningServer) -> None:
    started = threading.Event()

    def read_one_event() -> None:
        with asker.client.stream("POST", "/v1/completions", json=long_request(stream=True)) as answer:
            next(answer.iter_lines())
            started.set()

    threads = [threading.Thread(target=read_one_event) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wait_until(lambda: not any(slot["is_processing"] for slot in asker.get("/slots")))


# --- keys


@pytest.fixture(scope="module")
def keyed_server() -> Iterator[tuple[str, str]]:
    key, kept = new_key("k1")
    tenants = (TenantSettings(id="ada", keys=(kept,)),)
    for serving in run_server(make_config(tenants=tenants)):
        yield serving.url, key


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(
    ("path", "open_to_all"),
    [("/health", True), ("/ready", True), ("/v1/models", False), ("/props", False), ("/slots", False)],
)
def test_health_is_public_and_other_endpoints_need_a_key(
    keyed_server: tuple[str, str], path: str, open_to_all: bool
) -> None:
    url, key = keyed_server
    statuses = [
        httpx.get(url + path, headers={"authorization": words}).status_code
        for words in (f"Bearer {key}", "Bearer wrong", "")
    ]
    assert statuses == ([200] * 3 if open_to_all else [200, 401, 401])


def test_wrong_key_returns_openai_error(keyed_server: tuple[str, str]) -> None:
    answer = httpx.post(
        f"{keyed_server[0]}/v1/completions", json={"prompt": "x"}, headers={"authorization": "Bearer x"}
    )
    assert answer.status_code == 401 and answer.json()["error"]["code"] == "invalid_api_key"
