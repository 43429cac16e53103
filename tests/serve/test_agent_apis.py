"""Anthropic's messages and OpenAI's responses give the answers of a chat completion, whole and streamed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from embedded_server import MODEL, RunningServer, run_server

from zinc_rt.serve.api.blocks import AnswerBlocks
from zinc_rt.serve.api.messages import MessagesBody, _make_chat_body
from zinc_rt.serve.api.response_store import MAX_RESPONSES, ResponseStore
from zinc_rt.serve.api.responses import _convert_items
from zinc_rt.serve.config.settings import Config, DeviceSettings, ModelSettings, TenantSettings
from zinc_rt.serve.errors import ServeError
from zinc_rt.serve.formats.parser import CallDelta, Delta
from zinc_rt.serve.tenants.keys import new_key

ALICE, ALICE_KEPT = new_key("alice")
BOB, BOB_KEPT = new_key("bob")
CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Bonn"]}},
    "required": ["city"],
    "additionalProperties": False,
}
QUESTION = [{"role": "user", "content": "Which city?"}]


@pytest.fixture(scope="module")
def agent_server() -> Iterator[RunningServer]:
    """A server with two tenants and a model whose format has tool calls and reasoning."""
    tenants = (TenantSettings(id="alice", keys=(ALICE_KEPT,)), TenantSettings(id="bob", keys=(BOB_KEPT,)))
    model = ModelSettings(MODEL, MODEL, ctx=512, slots=4, format="hermes")
    yield from run_server(Config((model,), device=DeviceSettings("t_cpu", threads=1), tenants=tenants))


@pytest.fixture
def client(agent_server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=agent_server.url, headers={"x-api-key": ALICE}, timeout=120) as client:
        yield client


@pytest.fixture
def openai_agent(agent_server: RunningServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{agent_server.url}/v1", api_key=ALICE, max_retries=0, timeout=120)


def chat_text(client: httpx.Client, **fields: Any) -> str:
    body = {"model": MODEL, "messages": QUESTION, "max_tokens": 8, "temperature": 0, **fields}
    answer = client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


def read_events(text: str) -> list[dict[str, Any]]:
    """The data of a stream's events, whose names are those of the data."""
    events = []
    for block in text.strip().split("\n\n"):
        name, data = block.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


# --- blocks


def test_blocks_follow_the_order_of_the_answer() -> None:
    blocks = AnswerBlocks()
    deltas = [
        Delta(reasoning_content="Hm"),
        Delta(reasoning_content="."),
        Delta("I look."),
        Delta(tool_calls=(CallDelta(0, "c1", "now", "{"), CallDelta(0, arguments="}"))),
        Delta(tool_calls=(CallDelta(1, "c2", "now", "{}"),)),
        Delta("Done."),
    ]
    changes = [change for delta in deltas for change in blocks.feed([delta])] + blocks.close()
    assert [(block.kind, block.id, block.text) for block in blocks.blocks] == [
        ("reasoning", "", "Hm."),
        ("text", "", "I look."),
        ("call", "c1", "{}"),
        ("call", "c2", "{}"),
        ("text", "", "Done."),
    ]
    assert [change.change for change in changes if change.change != "text"] == ["begin", "end"] * 5
    assert "".join(change.text for change in changes) == "Hm.I look.{}{}Done."


# --- messages


def test_message_is_the_chat_answer(client: httpx.Client) -> None:
    body = {"model": MODEL, "max_tokens": 8, "temperature": 0, "messages": QUESTION}
    answer = client.post("/v1/messages", json=body).json()
    assert answer["content"] == [{"type": "text", "text": chat_text(client)}]
    assert (answer["type"], answer["role"], answer["stop_reason"]) == ("message", "assistant", "max_tokens")
    count = client.post("/v1/messages/count_tokens", json={"model": MODEL, "messages": QUESTION}).json()
    usage = answer["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == count["input_tokens"]
    events = read_events(client.post("/v1/messages", json={**body, "stream": True}).text)
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    text = "".join(event["delta"]["text"] for event in events if event["type"] == "content_block_delta")
    assert text == answer["content"][0]["text"]
    assert events[-2]["usage"]["output_tokens"] == usage["output_tokens"] == 8


def test_message_can_be_a_tool_call(client: httpx.Client) -> None:
    tools = [{"name": "weather", "description": "of a city", "input_schema": CITY}]
    body = {"model": MODEL, "max_tokens": 150, "temperature": 0, "tools": tools, "messages": QUESTION}
    one_call = {"type": "any", "disable_parallel_tool_use": True}
    answer = client.post("/v1/messages", json={**body, "tool_choice": one_call}).json()
    (call,) = [block for block in answer["content"] if block["type"] == "tool_use"]
    assert answer["stop_reason"] == "tool_use"
    assert (call["name"], call["input"]) == ("weather", {"city": "Bonn"})
    choice = {"type": "tool", "name": "weather"}
    events = read_events(client.post("/v1/messages", json={**body, "tool_choice": choice, "stream": True}).text)
    parts = [event["delta"]["partial_json"] for event in events if event["type"] == "content_block_delta"]
    assert json.loads("".join(parts)) == {"city": "Bonn"}


def test_conversation_with_tools_and_thinking_is_converted() -> None:
    body = MessagesBody.model_validate({
        "max_tokens": 5,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": "Time?"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "x"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "now", "input": {"zone": "é"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "noon"}]},
                {"type": "text", "text": "And?"},
            ]},
        ],
        "thinking": {"type": "disabled"},
        "stop_sequences": ["END"],
    })  # fmt: skip
    chat = _make_chat_body(body)
    assert [message.model_dump(exclude_unset=True) for message in chat.messages] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Time?"},
        {"role": "assistant", "content": "I look.", "reasoning_content": "Hm.", "tool_calls": [
            {"id": "t1", "type": "function", "function": {"name": "now", "arguments": '{"zone": "é"}'}}
        ]},
        {"role": "tool", "tool_call_id": "t1", "content": "noon"},
        {"role": "user", "content": "And?"},
    ]  # fmt: skip
    assert chat.stop == ["END"] and chat.chat_template_kwargs == {"enable_thinking": False}


def test_message_continues_the_assistants_last_one(client: httpx.Client) -> None:
    begun = [*QUESTION, {"role": "assistant", "content": "The city is "}]
    body = {"model": MODEL, "max_tokens": 6, "temperature": 0, "messages": begun}
    answer = client.post("/v1/messages", json=body).json()
    assert answer["content"][0]["text"] == chat_text(
        client, messages=begun, max_tokens=6, continue_final_message=True
    )
    prompt = client.post("/apply-template", json={"model": MODEL, "messages": QUESTION}).json()["prompt"]
    raw = {
        "model": MODEL,
        "prompt": f"{prompt}The city is ",
        "parse_special": True,
        "max_tokens": 6,
        "temperature": 0,
    }
    assert client.post("/v1/completions", json=raw).json()["choices"][0]["text"] == answer["content"][0]["text"]


@pytest.mark.parametrize(
    ("changes", "status", "message"),
    [
        ({"max_tokens": None}, 400, "max_tokens"),
        ({"model": "gpt-4"}, 404, "no model"),
        ({"tempature": 1}, 400, "did you mean temperature"),
        ({"tools": [{"type": "web_search_20260209", "name": "web_search"}]}, 400, "web_search"),
        ({"tools": [{"name": "a b", "input_schema": {}}]}, 400, "tools[0].function.name"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, 400, "type 'image' is not supported"),
    ],
)
def test_refused_message_has_anthropics_error(
    client: httpx.Client, changes: dict[str, Any], status: int, message: str
) -> None:
    kind = {400: "invalid_request_error", 404: "not_found_error"}[status]
    answer = client.post("/v1/messages", json={"model": MODEL, "max_tokens": 3, "messages": QUESTION, **changes})
    assert answer.status_code == status
    assert answer.json()["type"] == "error" and answer.json()["error"]["type"] == kind
    assert message in answer.json()["error"]["message"]


def test_wrong_key_and_ignored_parameters_of_messages(client: httpx.Client) -> None:
    body = {
        "model": MODEL,
        "max_tokens": 2,
        "messages": QUESTION,
        "metadata": {"user_id": "x"},
        "service_tier": "auto",
    }
    assert client.post("/v1/messages", json=body).headers["x-zinc-rt-ignored"] == "metadata, service_tier"
    refused = client.post("/v1/messages", json=body, headers={"x-api-key": "zrt_alice_wrong"})
    assert (refused.status_code, refused.json()["error"]["type"]) == (401, "authentication_error")


# --- responses


def test_response_is_the_chat_answer(client: httpx.Client, openai_agent: openai.OpenAI) -> None:
    response = openai_agent.responses.create(model=MODEL, input="Which city?", max_output_tokens=8, temperature=0)
    assert response.output_text == chat_text(client)
    assert response.status == "incomplete" and response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.usage is not None and response.usage.output_tokens == 8
    with openai_agent.responses.stream(
        model=MODEL, input="Which city?", max_output_tokens=8, temperature=0
    ) as stream:
        events = list(stream)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == response.output_text
    assert events[-1].type == "response.incomplete" and events[-1].response.output_text == text


def test_response_can_be_a_function_call(openai_agent: openai.OpenAI) -> None:
    tools: Any = [
        {"type": "function", "name": "weather", "parameters": CITY, "strict": True},
        {"type": "web_search"},
    ]
    with openai_agent.responses.stream(
        model=MODEL,
        input="?",
        tools=tools,
        tool_choice="required",
        parallel_tool_calls=False,
        max_output_tokens=150,
        temperature=0,
    ) as stream:
        response = stream.get_final_response()
    (call,) = [item for item in response.output if item.type == "function_call"]
    assert (call.name, json.loads(call.arguments), response.status) == ("weather", {"city": "Bonn"}, "completed")
    raw = openai_agent.responses.with_raw_response.create(
        model=MODEL, input="?", tools=tools, max_output_tokens=2, service_tier="auto"
    )
    assert raw.headers["x-zinc-rt-ignored"] == "service_tier, tools[1]"


def test_response_continues_an_earlier_one_of_the_same_tenant(
    agent_server: RunningServer, client: httpx.Client, openai_agent: openai.OpenAI
) -> None:
    first = openai_agent.responses.create(model=MODEL, input="Which city?", max_output_tokens=8, temperature=0)
    second = openai_agent.responses.create(
        model=MODEL, input="And now?", previous_response_id=first.id, max_output_tokens=8, temperature=0
    )
    messages = [
        *QUESTION,
        {"role": "assistant", "content": first.output_text},
        {"role": "user", "content": "And now?"},
    ]
    assert second.output_text == chat_text(client, messages=messages)
    assert openai_agent.responses.retrieve(second.id).output_text == second.output_text
    items = openai_agent.responses.input_items.list(second.id).data
    assert [getattr(item, "content", None) for item in items] == ["And now?"]
    other = openai.OpenAI(base_url=f"{agent_server.url}/v1", api_key=BOB, max_retries=0)
    for call in (other.responses.retrieve, other.responses.delete):
        with pytest.raises(openai.NotFoundError, match="no response"):
            call(first.id)
    openai_agent.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError, match="no response"):
        openai_agent.responses.create(model=MODEL, input="?", previous_response_id=first.id)
    unstored = openai_agent.responses.create(model=MODEL, input="?", store=False, max_output_tokens=2)
    with pytest.raises(openai.NotFoundError):
        openai_agent.responses.retrieve(unstored.id)


def test_response_follows_a_schema(openai_agent: openai.OpenAI) -> None:
    format: Any = {"type": "json_schema", "name": "city", "strict": True, "schema": CITY}
    response = openai_agent.responses.create(
        model=MODEL, input="?", text={"format": format}, max_output_tokens=100, temperature=0
    )
    assert json.loads(response.output_text) == {"city": "Bonn"}


def test_items_become_messages() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "now", "arguments": "{}"}
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Time?"}]},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        call,
        {**call, "call_id": "c2"},
        {"type": "function_call_output", "call_id": "c1", "output": "noon"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "noon"}]},
        {"type": "message", "role": "assistant", "content": "Noon."},
    ]
    function = {"name": "now", "arguments": "{}"}
    assert _convert_items(items) == [
        {"role": "user", "content": "Time?"},
        {"role": "assistant", "content": "I look.", "reasoning_content": "Hm.", "tool_calls": [
            {"id": "c1", "type": "function", "function": function},
            {"id": "c2", "type": "function", "function": function},
        ]},
        {"role": "tool", "tool_call_id": "c1", "content": "noon"},
        {"role": "tool", "tool_call_id": "c2", "content": "noon"},
        {"role": "assistant", "content": "Noon."},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"type": "message", "role": "user", "content": [{"type": "input_image"}]}, r"input\[0\]: expected text"),
        ({"type": "function_call_output", "output": None}, r"input\[0\]: expected text"),
        ({"type": "web_search_call"}, "items of type web_search_call are not supported"),
        ({"type": "message", "content": "x"}, "items of type message"),
    ],
)
def test_unsupported_item_is_refused_by_name(item: dict[str, Any], message: str) -> None:
    with pytest.raises(ServeError, match=message):
        _convert_items([item])


def test_store_keeps_the_last_responses_of_each_tenant() -> None:
    store = ResponseStore()
    for number in range(MAX_RESPONSES + 1):
        store.add("alice", {"id": f"r{number}", "output": []}, ({"content": "x"},), 1)
    store.add("bob", {"id": "r0", "output": []}, (), 0)
    assert store.find("bob", "r0") and store.find("alice", "r1").input_items == [{"content": "x"}]
    with pytest.raises(ServeError, match="too old"):
        store.find("alice", "r0")
    store.add("bob", {"id": "large", "output": []}, ({"content": "x" * (17 << 20)},), 1)
    with pytest.raises(ServeError):
        store.find("bob", "large")
