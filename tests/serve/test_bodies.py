"""Large bodies are parsed in another process, with the same result and the same errors as small ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from embedded_server import MODEL, RunningServer

from zinc_rt.serve.api.parsing import MAX_VALUES, check_size, is_quickly_parsed, parse_body
from zinc_rt.serve.api.schema import ChatBody, CompletionBody
from zinc_rt.serve.errors import ServeError
from zinc_rt.serve.sandbox import Sandbox


def parse_text(value: object, kind: type[Any], *, strict: bool = True, max_ids: int = 10) -> Any:
    return parse_body(json.dumps(value).encode(), kind, max_ids=max_ids, strict=strict)


def test_only_short_and_simple_bodies_are_parsed_in_the_event_loop() -> None:
    assert is_quickly_parsed(json.dumps({"model": MODEL, "prompt": "a, b" * 1000}).encode())
    assert not is_quickly_parsed(b'{"prompt": "' + b"a" * (1 << 20) + b'"}')
    assert not is_quickly_parsed(b"[" * 10_000)
    assert not is_quickly_parsed(json.dumps(dict.fromkeys(map(str, range(5000)), 1)).encode())


def test_parsed_body_is_the_one_that_the_endpoint_expects() -> None:
    body = parse_text({"prompt": [[1, 2], [3.0]], "temperature": 0}, CompletionBody)
    assert isinstance(body, CompletionBody) and body.prompt == [[1, 2], [3]]
    assert parse_text({"prompt": [1], "tempature": 0}, CompletionBody, strict=False).prompt == [1]


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        ({"prompt": [1], "tempature": 0}, CompletionBody, "did you mean temperature"),
        ({"messages": [{"role": "user", "content": 3}]}, ChatBody, r"messages\[0\]\.content: expected"),
        ({}, ChatBody, "messages: required"),
        ([], ChatBody, "expected"),
        ({"prompt": [1] * 11}, CompletionBody, "more than 10 token ids"),
        ({"prompt": [[1] * 5] * 3}, CompletionBody, "more than 10 token ids"),
        ({"prompt": [[]] * (MAX_VALUES + 1)}, CompletionBody, "more than 65,536 values"),
        ({"metadata": {"a": [{}] * (MAX_VALUES + 1)}}, CompletionBody, "more than 65,536 values"),
    ],
)
def test_unusable_body_is_rejected_with_its_first_fault(value: object, kind: type[Any], message: str) -> None:
    with pytest.raises(ServeError, match=message) as refused:
        parse_text(value, kind)
    assert refused.value.status == 400


def test_deeply_nested_or_incomplete_text_is_not_json() -> None:
    for text in (b"[" * 100_000, b'{"a":' * 100_000, b'{"prompt": [1', b'{"seed": ' + b"9" * 10_000 + b"}"):
        with pytest.raises(ServeError, match=r"the body (is not JSON|cannot be read)"):
            parse_body(text, CompletionBody, max_ids=10, strict=True)


def test_size_counts_token_ids_apart() -> None:
    check_size({"prompt": [1] * 100_000}, 100_000)
    with pytest.raises(ServeError):
        check_size({"prompt": [1.5] * 100_000}, 100_000)


@pytest.fixture
def parsed_elsewhere(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The functions that run in another process during the test."""
    calls: list[object] = []
    call = Sandbox.call

    def record(
        sandbox: Sandbox, tenant: str, cpu_seconds: float, function: Callable[..., Any], *args: Any, **named: Any
    ) -> Any:
        calls.append(function)
        return call(sandbox, tenant, cpu_seconds, function, *args, **named)

    monkeypatch.setattr(Sandbox, "call", record)
    return calls


def test_large_body_is_answered_as_a_small_one(serving: RunningServer, parsed_elsewhere: list[object]) -> None:
    small = {"model": MODEL, "prompt": [5, 6, 7], "max_tokens": 3, "temperature": 0}
    large = {**small, "metadata": "x" * 300_000}

    def post(body: dict[str, Any], kind: str = "application/json") -> httpx.Response:
        headers = {"content-type": kind}
        return httpx.post(f"{serving.url}/v1/completions", content=json.dumps(body), headers=headers, timeout=60)

    expected = post(small).json()
    assert parsed_elsewhere == []
    assert post(large).json()["choices"] == expected["choices"]
    assert parsed_elsewhere == [parse_body]
    assert post(large, "text/plain").status_code == 415
    assert post({**large, "prompt": "x" * 1000}).json()["error"]["code"] == "context_length_exceeded"
    refused = post({**large, "promt": "x"})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "promt"
