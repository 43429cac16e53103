"""Tools and reasoning over HTTP, with openai-python: random weights call what they must, as they must."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from embedded_server import MODEL, RunningServer, make_config, run_server

from zinc_rt.serve.config.settings import ModelSettings

WEATHER = {
    "type": "object",
    "properties": {"city": {"enum": ["Ulm", "Köln"]}, "days": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}


def tool_schema(name: str, schema: dict[str, Any], **more: Any) -> Any:
    return {"type": "function", "function": {"name": name, "description": "x", "parameters": schema, **more}}


TOOLS = [
    tool_schema("weather", WEATHER),
    tool_schema("now", {"type": "object", "properties": {}, "additionalProperties": False}),
]
THINK = "499"  # <think>: random weights would begin to reason as soon as call, and not end
ASK: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Weather?"}],
    "max_tokens": 150,
    "temperature": 1.0,
    "tools": TOOLS,
    "logit_bias": {THINK: -100},
}


@pytest.fixture(scope="module")
def families_server() -> Iterator[RunningServer]:
    """The same model with the formats of several families, which cannot be detected from the tiny template."""
    names = ("qwen3", "qwen3-xml", "mistral", "plain")
    models = tuple(ModelSettings(name, MODEL, ctx=256, slots=2, format=name) for name in names)
    yield from run_server(make_config(models=models))


@pytest.fixture
def families_client(families_server: RunningServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{families_server.url}/v1", api_key="none", max_retries=0) as result:
        yield result


def parse_call(message: Any) -> tuple[str, dict[str, Any]]:
    (call,) = message.tool_calls
    assert call.type == "function" and call.id
    return call.function.name, json.loads(call.function.arguments)


@pytest.mark.parametrize("family", ["qwen3", "qwen3-xml", "mistral"])
@pytest.mark.rest
def test_named_tool_is_called_with_valid_arguments(families_client: openai.OpenAI, family: str) -> None:
    choice: Any = {"type": "function", "function": {"name": "weather"}}
    result = families_client.chat.completions.create(model=family, seed=3, tool_choice=choice, **ASK).choices[0]
    assert result.finish_reason == "tool_calls" and result.message.content is None
    name, arguments = parse_call(result.message)
    assert name == "weather" and arguments["city"] in ("Ulm", "Köln") and 0 <= arguments["days"] <= 9


@pytest.mark.rest
def test_stream_has_the_same_call_in_pieces_and_no_content(families_client: openai.OpenAI) -> None:
    asked = {"model": "qwen3", "seed": 4, "tool_choice": "required", "parallel_tool_calls": False, **ASK}
    choice = families_client.chat.completions.create(**asked).choices[0]
    name = text = content = ""
    reason = None
    for chunk in families_client.chat.completions.create(stream=True, **asked):
        delta, reason = chunk.choices[0].delta, chunk.choices[0].finish_reason
        content += delta.content or ""
        for piece in delta.tool_calls or ():
            assert piece.index == 0 and piece.function is not None
            name, text = name or piece.function.name or "", text + (piece.function.arguments or "")
    assert content == "" and reason == choice.finish_reason == "tool_calls"
    assert (name, json.loads(text)) == parse_call(choice.message)


@pytest.mark.rest
def test_call_cut_by_the_limit_is_neither_call_nor_content(families_client: openai.OpenAI) -> None:
    asked = {**ASK, "max_tokens": 20}
    result = families_client.chat.completions.create(model="qwen3", seed=3, tool_choice="required", **asked)
    choice = result.choices[0]
    assert choice.finish_reason == "length" and not choice.message.tool_calls and not choice.message.content
    assert "cut inside a tool call" in result.model_extra["zinc_rt"]["tool_parse_error"]  # type: ignore[index]


def test_strict_tools_allow_a_plain_answer(families_client: openai.OpenAI) -> None:
    asked = {**ASK, "tools": [tool_schema("weather", WEATHER, strict=True)], "max_tokens": 12}
    choice = families_client.chat.completions.create(model="qwen3", seed=1, **asked).choices[0]
    assert choice.finish_reason in ("length", "stop") and choice.message.content


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "plain", "tool_choice": "required"}, "plain, has no tool calls"),
        ({"tool_choice": {"type": "function", "function": {"name": "no"}}}, "no function 'no'"),
        ({"tool_choice": "required", "response_format": {"type": "json_object"}}, "can follow only one of them"),
        ({"tool_choice": "required", "tools": [tool_schema("x", {"type": "objct"})]}, "objct"),
    ],
)
def test_unsupported_tool_choice_is_rejected(
    families_client: openai.OpenAI, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=message):
        families_client.chat.completions.create(**{"model": "qwen3", **ASK, **change})


def test_tool_result_is_passed_to_the_model(families_client: openai.OpenAI) -> None:
    function = {"name": "weather", "arguments": '{"city": "Ulm", "days": 1}'}
    call = {"id": "call_1", "type": "function", "function": function}
    turns: Any = [
        *ASK["messages"],
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ]
    result = families_client.chat.completions.create(
        model="qwen3", messages=turns, tools=TOOLS, max_tokens=4, extra_body={"ignore_eos": True}
    )
    assert result.usage is not None and result.usage.completion_tokens == 4


def test_reasoning_has_a_separate_field_streamed_or_not(families_client: openai.OpenAI) -> None:
    asked = {"model": "qwen3", "messages": ASK["messages"], "max_tokens": 4, "logit_bias": {THINK: 100}}
    message = families_client.chat.completions.create(**asked).choices[0].message
    assert message.reasoning_content == 3 * "<think>" and not message.content  # type: ignore[attr-defined]
    chunks = families_client.chat.completions.create(stream=True, **asked)
    deltas = [chunk.choices[0].delta.model_dump() for chunk in chunks if chunk.choices]
    assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == 3 * "<think>"
    assert not any(delta["content"] for delta in deltas)


@pytest.mark.rest(keep=1)
@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"guided_regex": "("}, "guided_regex"),
        ({"grammar": "root ::= " + "(" * 20000}, "grammar"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"$ref": "file:///x"}}}}, "file:///x"),
        ({"guided_json": {"properties": {f"k{n}": {"type": "string"} for n in range(20000)}}}, "too large"),
    ],
)  # fmt: skip
def test_schema_bombs_are_rejected_and_the_next_request_is_served(
    families_client: openai.OpenAI, payload: Any, message: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=message):
        families_client.completions.create(model="qwen3", prompt="x", max_tokens=2, extra_body=payload)
    assert families_client.completions.create(model="qwen3", prompt="x", max_tokens=2).choices[0].text
