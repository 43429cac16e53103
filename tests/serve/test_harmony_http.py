"""gpt-oss over HTTP with a Harmony chat template: reasoning, tools and channels, whole and streamed.

The model is tiny, and its answers are scripted: a runner replaces each sampled token. The template below has the
structure and the requirements of gpt-oss's; HARMONY_TEMPLATE names a file with another one, such as that.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from embedded_server import RunningServer, run_server
from faulty_runner import FaultyRunner

from zinc_rt.golden.tiny_models.writer import build_tiny, write_content
from zinc_rt.sched.plan import Drawn
from zinc_rt.serve.config.settings import Config, DeviceSettings, ModelSettings

MODEL = "gptoss"
TEMPLATE = """
<|start|>system<|message|>Current date: {{ strftime_now("%Y-%m-%d") }}
Reasoning: {{ reasoning_effort if reasoning_effort is defined else "medium" }}
{%- if tools %} Tools: commentary{% endif %}<|end|>
{%- set first = messages[0].role in ("developer", "system") %}
{%- if first or tools %}<|start|>developer<|message|>{% if first %}{{ messages[0].content }}{% endif %}
{%- for tool in tools or [] %}
{{ "// " + tool.function.description }}
type {{ tool.function.name }} = {{ tool.function.parameters | tojson }};{% endfor %}
{{- "<|end|>" }}{% endif %}
{%- set last = namespace(name="") %}
{%- for m in messages[1 if first else 0:] %}
{%- if m.role == "assistant" and "content" in m and "<|channel|>" in m.content %}{{ raise_exception("tags") }}
{%- elif m.role == "assistant" and m.tool_calls %}
{%- if m.content and m.thinking %}{{ raise_exception("both content and thinking") }}{% endif %}
{%- if m.thinking %}<|start|>assistant<|channel|>analysis<|message|>{{ m.thinking }}<|end|>{% endif %}
{%- set last.name = m.tool_calls[0].function.name %}<|start|>assistant to=functions.{{ last.name -}}
<|channel|>commentary json<|message|>{{ m.tool_calls[0].function.arguments | tojson }}<|call|>
{%- elif m.role == "assistant" %}<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>
{%- elif m.role == "tool" %}<|start|>functions.{{ last.name }} to=assistant<|channel|>commentary<|message|>
{{- m.content | tojson }}<|end|>
{%- else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|start|>assistant{% endif -%}
""".strip()
THOUGHT = "<|channel|>analysis<|message|>We need the weather.<|end|><|start|>assistant"
FINAL = "<|channel|>final<|message|>It is sunny.<|return|>"
ARGUMENTS = {"city": "Ulm", "days": 2}
CALL = f"<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{json.dumps(ARGUMENTS)}<|call|>"
SCHEMA = {"type": "object", "properties": {"city": {"enum": ["Ulm"]}}, "required": ["city"]}
TOOLS: Any = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]
QUESTION: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Weather in Ulm?"}]


class ScriptedRunner(FaultyRunner):
    """Replaces every sampled token of a request by the next one of `script`."""

    script: tuple[int, ...] = ()

    def collect(self, handle: Any) -> Drawn:
        plan, _ = handle
        drawn = super().collect(handle)
        records = self.model.core.scheduler.records
        for row, slot in enumerate(plan.row_slot[: plan.rows].tolist()):
            index = int(plan.row_position[row]) - int(records[slot]["prompt_len"])
            drawn.tokens[row] = self.script[index]
        return drawn


@pytest.fixture(scope="module")
def harmony_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    path = tmp_path_factory.mktemp("harmony") / f"{MODEL}.gguf"
    content = build_tiny("gptoss", layers=2, context=2048)
    given = os.environ.get("HARMONY_TEMPLATE")
    template = Path(given).read_text() if given else TEMPLATE
    extra = {**content.vocabulary.extra, "chat_template": template}
    write_content(path, replace(content, vocabulary=replace(content.vocabulary, extra=extra)))
    model = ModelSettings(MODEL, str(path), ctx=2048, slots=2)
    yield from run_server(Config((model,), device=DeviceSettings("t_cpu", threads=1)))


@pytest.fixture
def play(harmony_server: RunningServer) -> Iterator[Callable[[str], None]]:
    """play(text): the next answers are this text."""
    served = harmony_server.server.models[MODEL]
    runner, real = ScriptedRunner(served), served.core.scheduler.runner
    tokenizer = served.core.tokenizer
    assert tokenizer is not None

    def set_script(text: str) -> None:
        runner.script = tuple(tokenizer.encode(text, add_special=False))

    served.core.scheduler.runner = runner
    yield set_script
    served.core.scheduler.runner = real


@pytest.fixture
def client(harmony_server: RunningServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{harmony_server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def render(server: RunningServer, **body: Any) -> str:
    reply = httpx.post(f"{server.url}/apply-template", json={"model": MODEL, **body}, timeout=60)
    assert reply.status_code == 200, reply.text
    return str(reply.json()["prompt"])


def test_format_is_detected_and_prompt_has_tools_and_effort(harmony_server: RunningServer) -> None:
    effort = {"chat_template_kwargs": {"reasoning_effort": "high"}}
    prompt = render(harmony_server, messages=QUESTION, tools=TOOLS, **effort)
    assert harmony_server.server.models[MODEL].format.name == "harmony"
    assert "Reasoning: high" in prompt and "weather" in prompt and "Be brief." in prompt
    assert prompt.endswith("<|start|>user<|message|>Weather in Ulm?<|end|><|start|>assistant")
    assert "Reasoning: medium" in render(harmony_server, messages=QUESTION)


def test_reasoning_effort_reaches_the_template(
    harmony_server: RunningServer, play: Callable[[str], None], client: openai.OpenAI
) -> None:
    play(THOUGHT + FINAL)
    tokenizer = harmony_server.server.models[MODEL].core.tokenizer
    assert tokenizer is not None
    for effort in ("low", "high"):
        prompt = render(harmony_server, messages=QUESTION, chat_template_kwargs={"reasoning_effort": effort})
        assert f"Reasoning: {effort}" in prompt
        asked: Any = {"model": MODEL, "messages": QUESTION, "reasoning_effort": effort}
        usage = client.chat.completions.create(**asked).usage
        assert usage is not None and usage.prompt_tokens == len(tokenizer.encode(prompt))


def test_conversation_with_a_call_is_rendered(harmony_server: RunningServer) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": json.dumps(ARGUMENTS)}}
    two = {"id": "c2", "type": "function", "function": {"name": "now", "arguments": ""}}
    turns = [
        *QUESTION,
        {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny <|end|>"},
        {"role": "assistant", "content": "I look again.", "reasoning_content": "Hm.", "tool_calls": [call, two]},
        {"role": "tool", "tool_call_id": "c1", "content": "cloudy"},
        {"role": "tool", "tool_call_id": "c2", "content": "windy"},
    ]
    later = [
        {"role": "assistant", "content": None, "reasoning_content": "Only thought."},
        {"role": "user", "content": "Again?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "snowy"},
    ]
    prompt = render(harmony_server, messages=turns, tools=TOOLS)
    assert "<|start|>assistant<|channel|>analysis<|message|>Hm.<|end|>" in prompt
    assert '<|start|>assistant to=functions.weather<|channel|>commentary json<|message|>{"city": "Ulm"' in prompt
    assert "<|start|>functions.weather to=assistant<|channel|>commentary<|message|>" in prompt
    assert "analysis<|message|>Hm.\n\nI look again.<|end|>" in prompt
    order = ["to=functions.weather<", "functions.weather to=", "to=functions.now<", "functions.now to="]
    places = [prompt.index(text, prompt.index("I look again.")) for text in order]
    assert places == sorted(places)
    prompt = render(harmony_server, messages=[*turns, *later], tools=TOOLS)
    results = ["sunny", "cloudy", "to=functions.now", "windy", "Again?", "snowy"]  # c1 is a call in each turn
    assert sorted(results, key=prompt.index) == results
    assert all(prompt.count(text) == 1 for text in ("sunny", "cloudy", "windy", "snowy"))


def test_chat_completion_separates_the_channels(play: Callable[[str], None], client: openai.OpenAI) -> None:
    play(THOUGHT + FINAL)
    asked: dict[str, Any] = {"model": MODEL, "messages": QUESTION, "max_tokens": 200}
    choice = client.chat.completions.create(**asked).choices[0]
    message = choice.message.model_dump()
    assert (message["content"], message["reasoning_content"]) == ("It is sunny.", "We need the weather.")
    assert choice.finish_reason == "stop"
    deltas = [
        chunk.choices[0].delta.model_dump() for chunk in client.chat.completions.create(stream=True, **asked)
    ]
    for field in ("content", "reasoning_content"):
        assert "".join(delta.get(field) or "" for delta in deltas) == message[field]
    assert len([delta for delta in deltas if delta.get("reasoning_content")]) > 1


def test_chat_completion_has_the_call(play: Callable[[str], None], client: openai.OpenAI) -> None:
    play(THOUGHT + CALL)
    asked: dict[str, Any] = {"model": MODEL, "messages": QUESTION, "tools": TOOLS, "max_tokens": 200}
    choice = client.chat.completions.create(**asked).choices[0]
    (call,) = choice.message.tool_calls or []
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", ARGUMENTS)
    assert choice.finish_reason == "tool_calls" and not choice.message.content
    assert choice.message.model_dump()["reasoning_content"] == "We need the weather."
    name = arguments = reasoning = ""
    for chunk in client.chat.completions.create(stream=True, **asked):
        delta = chunk.choices[0].delta
        reasoning += delta.model_dump().get("reasoning_content") or ""
        for piece in delta.tool_calls or ():
            assert piece.function is not None
            name, arguments = name or piece.function.name or "", arguments + (piece.function.arguments or "")
    assert (name, json.loads(arguments), reasoning) == ("weather", ARGUMENTS, "We need the weather.")


def test_response_has_reasoning_text_and_call(play: Callable[[str], None], client: openai.OpenAI) -> None:
    tools: Any = [{"type": "function", "name": "weather", "parameters": SCHEMA}]
    play(THOUGHT + FINAL)
    asked: dict[str, Any] = {"model": MODEL, "input": "Weather in Ulm?", "max_output_tokens": 200}
    response = client.responses.create(reasoning={"effort": "low"}, **asked)
    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert response.output_text == "It is sunny." and response.status == "completed"
    play(THOUGHT + CALL)
    with client.responses.stream(tools=tools, **asked) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert [item.type for item in final.output] == ["reasoning", "function_call"]
    call = next(item for item in final.output if item.type == "function_call")
    assert (call.name, json.loads(call.arguments)) == ("weather", ARGUMENTS)
    pieces = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert "".join(pieces) == call.arguments and len(pieces) > 1
    thought = [event.delta for event in events if event.type == "response.reasoning_text.delta"]
    assert "".join(thought) == "We need the weather."
