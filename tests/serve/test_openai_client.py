"""openai-python against the server: what its users write works as they write it."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import openai
import pytest
from embedded_server import MODEL

from zinc_rt import LLM, Sampling

HELLO: Any = [{"role": "user", "content": "hello there"}]
GREEDY: Any = {"model": MODEL, "messages": HELLO, "max_tokens": 12, "temperature": 0}


def test_chat_returns_answer_and_usage(openai_client: openai.OpenAI) -> None:
    result = openai_client.chat.completions.create(**GREEDY)
    assert result.object == "chat.completion" and result.id.startswith("chatcmpl-") and result.model == MODEL
    assert result.system_fingerprint and result.system_fingerprint.startswith("fp_")
    choice, usage = result.choices[0], result.usage
    assert choice.message.role == "assistant" and choice.message.content
    assert choice.finish_reason == "length"
    assert usage is not None and usage.completion_tokens == 12
    assert usage.total_tokens == usage.prompt_tokens + 12


def test_streamed_chat_matches_whole_chat(openai_client: openai.OpenAI) -> None:
    whole = openai_client.chat.completions.create(**GREEDY)
    chunks = list(
        openai_client.chat.completions.create(**GREEDY, stream=True, stream_options={"include_usage": True})
    )
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert choices[0].delta.role == "assistant" and all(choice.delta.role is None for choice in choices[1:])
    assert "".join(choice.delta.content or "" for choice in choices) == whole.choices[0].message.content
    assert [choice.finish_reason for choice in choices if choice.finish_reason] == ["length"]
    assert chunks[-1].choices == [] and chunks[-1].usage is not None and whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_usage_is_in_every_chunk_on_request(openai_client: openai.OpenAI) -> None:
    options: Any = {"include_usage": True, "continuous_usage_stats": True}
    chunks = list(openai_client.chat.completions.create(**GREEDY, stream=True, stream_options=options))
    counts = [chunk.usage.completion_tokens for chunk in chunks if chunk.usage]
    assert len(counts) == len(chunks) and counts == sorted(counts) and counts[-1] == 12


@pytest.mark.rest
def test_seed_reproduces_the_answer_and_is_returned(openai_client: openai.OpenAI) -> None:
    ask = {**GREEDY, "temperature": 1.0}
    first = openai_client.chat.completions.create(**ask)
    assert first.model_extra is not None
    second = openai_client.chat.completions.create(**ask, seed=first.model_extra["zinc_rt"]["seed"])
    assert second.choices[0].message.content == first.choices[0].message.content
    other = openai_client.chat.completions.create(**ask, seed=1)
    assert other.choices[0].message.content != first.choices[0].message.content


@pytest.mark.rest
def test_n_choices_are_sampled_independently(openai_client: openai.OpenAI) -> None:
    ask = {**GREEDY, "temperature": 1.0, "seed": 7, "n": 3}
    result = openai_client.chat.completions.create(**ask)
    texts = [choice.message.content for choice in result.choices]
    assert [choice.index for choice in result.choices] == [0, 1, 2] and len(set(texts)) == 3
    streamed = ["", "", ""]
    for chunk in openai_client.chat.completions.create(**ask, stream=True):
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content or ""
    assert streamed == texts


def test_logprobs_list_each_token_and_its_alternatives(openai_client: openai.OpenAI) -> None:
    result = openai_client.chat.completions.create(**GREEDY, logprobs=True, top_logprobs=3)
    logprobs = result.choices[0].logprobs
    assert logprobs is not None and logprobs.content is not None and len(logprobs.content) == 12
    for item in logprobs.content:
        assert (
            len(item.top_logprobs) == 3 and item.top_logprobs[0].logprob == item.logprob
        )  # greedy: the likeliest
    spelled = b"".join(bytes(item.bytes or []) for item in logprobs.content)
    assert spelled.decode(errors="replace") == result.choices[0].message.content


def test_completion_supports_stream_echo_and_stop(openai_client: openai.OpenAI) -> None:
    ask: Any = {"model": MODEL, "prompt": "hello", "max_tokens": 8, "temperature": 0}
    result = openai_client.completions.create(**ask, echo=True)
    assert result.object == "text_completion" and result.choices[0].text.startswith("hello")
    plain = openai_client.completions.create(**ask).choices[0].text
    assert result.choices[0].text == "hello" + plain
    assert (
        "".join(chunk.choices[0].text for chunk in openai_client.completions.create(**ask, stream=True)) == plain
    )
    stop = plain[3:5]
    stopped = openai_client.completions.create(**ask, stop=[stop])
    assert stopped.choices[0].text == plain[: plain.index(stop)]
    assert stopped.choices[0].finish_reason == "stop"


@pytest.mark.rest
def test_several_prompts_are_answered_in_order(openai_client: openai.OpenAI) -> None:
    ask: Any = {"model": MODEL, "max_tokens": 6, "temperature": 0, "n": 2}
    prompts: Any = ["hello", [5, 6, 7], "world"]
    alone = [
        openai_client.completions.create(**ask, prompt=prompt, extra_body={"return_token_ids": True})
        for prompt in prompts
    ]
    assert all(len(item.choices) == 2 for item in alone)
    together = openai_client.completions.create(**ask, prompt=["hello", "world"])
    texts = [choice.text for item in (alone[0], alone[2]) for choice in item.choices]
    assert [choice.text for choice in together.choices] == texts
    assert [choice.index for choice in together.choices] == [0, 1, 2, 3]
    streamed = [""] * 4
    for chunk in openai_client.completions.create(**ask, prompt=["hello", "world"], stream=True):
        for choice in chunk.choices:
            streamed[choice.index] += choice.text
    assert streamed == texts


def test_completion_logprobs_are_lists_over_tokens(openai_client: openai.OpenAI) -> None:
    ask: Any = {"model": MODEL, "prompt": "hello", "max_tokens": 8, "temperature": 0, "logprobs": 2}
    choice = openai_client.completions.create(**ask).choices[0]
    logprobs = choice.logprobs
    assert logprobs is not None and logprobs.tokens is not None and len(logprobs.tokens) == 8
    assert logprobs.top_logprobs is not None and logprobs.token_logprobs is not None
    for token, logprob, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, strict=True):
        assert top[token] == logprob == max(top.values())
    assert logprobs.text_offset is not None and logprobs.text_offset == sorted(logprobs.text_offset)


@pytest.mark.rest
def test_async_clients_share_the_device(serving: Any) -> None:
    async def main() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{serving.url}/v1", api_key="none") as client:

            async def stream_one(seed: int) -> str:
                stream = await client.chat.completions.create(
                    model=MODEL, messages=HELLO, max_tokens=6, seed=seed, stream=True
                )
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

            return list(await asyncio.gather(*(stream_one(seed % 3) for seed in range(9))))

    result = asyncio.run(main())
    assert result[:3] == result[3:6] == result[6:] and len(set(result)) == 3


def test_models_are_listed(openai_client: openai.OpenAI) -> None:
    assert [model.id for model in openai_client.models.list()] == [MODEL]
    model = openai_client.models.retrieve(MODEL)
    assert model.model_extra is not None and model.model_extra["zinc_rt"]["deterministic"] is True
    with pytest.raises(openai.NotFoundError, match="no model 'gpt-9'"):
        openai_client.models.retrieve("gpt-9")


@pytest.mark.rest(keep=5)
@pytest.mark.parametrize(
    ("change", "param", "message"),
    [
        ({"temprature": 1}, "temprature", "did you mean temperature"),
        ({"mirostat": 2}, "mirostat", "unknown parameter mirostat"),
        ({"temperature": 2.5}, "temperature", "less than or equal to 2"),
        ({"temperature": "warm"}, "temperature", "expected a valid number"),
        ({"n": 0}, "n", "greater than or equal to 1"),
        ({"n": 8}, "n", "each choice needs a slot"),
        ({"top_p": 0}, "top_p", "greater than 0"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop", "at most 4"),
        ({"stop": ["a" * 600, "b" * 600]}, "stop", "together at most 1024 bytes"),
        ({"logit_bias": {"99999": 1}}, "logit_bias", "outside the vocabulary of 512"),
        ({"logit_bias": {"5": 101}}, "logit_bias", "less than or equal to 100"),
        ({"top_logprobs": 2}, "top_logprobs", "requires logprobs"),
        ({"min_tokens": 20}, "min_tokens", "0 to max_tokens"),
        ({"messages": []}, "messages", "at least 1"),
        ({"messages": [{"role": "pirate", "content": ""}]}, "messages[0].role", "'system'"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///"}}]}]},
            "messages[0].content[0].type",
            "expected 'text'",
        ),
        ({"chat_template_kwargs": {"template": "x"}}, "chat_template_kwargs", "is reserved"),
    ],
)
def test_invalid_parameter_is_named(
    openai_client: openai.OpenAI, change: dict[str, Any], param: str, message: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        openai_client.chat.completions.create(**{**GREEDY, "extra_body": change})
    error: Any = caught.value.body
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error" and error["param"] == param
    assert message in error["message"]


def test_too_long_context_error_gives_both_numbers(openai_client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match=r"300 tokens, and the context of .* is 256") as caught:
        openai_client.completions.create(model=MODEL, prompt=[5] * 300)
    assert caught.value.code == "context_length_exceeded"


def test_unknown_parameters_are_ignored_on_request(openai_client: openai.OpenAI) -> None:
    body = {"strict_parameters": False, "mirostat": 2}
    assert openai_client.chat.completions.create(**GREEDY, extra_body=body).choices[0].message.content
    assert openai_client.chat.completions.create(**GREEDY, user="me", store=False, metadata={"a": "b"}).choices


def test_expired_deadline_is_a_timeout(openai_client: openai.OpenAI) -> None:
    patient = openai_client.with_options(max_retries=0)
    with pytest.raises(openai.InternalServerError, match="deadline") as caught:
        patient.chat.completions.create(**GREEDY, extra_body={"timeout_ms": 1})
    assert caught.value.status_code == 504 and caught.value.code == "deadline_exceeded"


@pytest.mark.parametrize("path", ["audio/speech", "images/generations"])
def test_unsupported_endpoint_returns_501(openai_client: openai.OpenAI, path: str) -> None:
    with pytest.raises(openai.APIStatusError, match="is not offered") as caught:
        openai_client.with_options(max_retries=0).post(f"/{path}", body={}, cast_to=object)
    assert caught.value.status_code == 501


def test_answers_match_generate(openai_client: openai.OpenAI) -> None:
    prompts = [[5, 6, 7], list(range(9, 60)), [200] * 33]
    samplings = [
        Sampling(max_tokens=10),
        Sampling(max_tokens=9, temperature=0.9, top_p=0.8, seed=3, n=2, presence_penalty=1.0),
        Sampling(max_tokens=8, temperature=1.0, top_k=20, seed=4, logit_bias={7: 3.0}, repetition_penalty=1.2),
    ]
    with LLM(MODEL, tier="t_cpu", slots=4, ctx=256) as llm:
        wanted = [llm.generate([prompt], item) for prompt, item in zip(prompts, samplings, strict=True)]

    def complete_async(prompt: list[int], sampling: Sampling) -> Any:
        extra = {
            "top_k": sampling.top_k,
            "repetition_penalty": sampling.repetition_penalty,
            "return_token_ids": True,
        }
        return {
            "model": MODEL, "prompt": prompt, "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature, "top_p": sampling.top_p, "seed": sampling.seed or 0,
            "n": sampling.n,
            "presence_penalty": sampling.presence_penalty,
            "logit_bias": {str(id): bias for id, bias in sampling.logit_bias.items()}, "extra_body": extra,
        }  # fmt: skip

    for prompt, sampling, completions in zip(prompts, samplings, wanted, strict=True):
        result = openai_client.completions.create(**complete_async(prompt, sampling))
        tokens: list[list[int]] = [[] for _ in completions]
        for chunk in openai_client.completions.create(**complete_async(prompt, sampling), stream=True):
            for choice in chunk.choices:
                tokens[choice.index] += choice.model_extra["token_ids"]  # type: ignore[index]
        for index, completion in enumerate(completions):
            assert result.choices[index].text == completion.text
            assert result.choices[index].model_extra["token_ids"] == list(completion.token_ids) == tokens[index]  # type: ignore[index]
            assert result.choices[index].finish_reason == completion.finish_reason


SCHEMA: Any = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}, "rain": {"type": "boolean"}},
    "required": ["city", "rain"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.rest
def test_answer_follows_a_json_schema(openai_client: openai.OpenAI, stream: bool) -> None:
    format: Any = {"type": "json_schema", "json_schema": {"name": "weather", "schema": SCHEMA, "strict": True}}
    ask = {**GREEDY, "max_tokens": 100, "temperature": 1.0, "seed": 5, "n": 2, "response_format": format}
    if stream:
        texts = ["", ""]
        for chunk in openai_client.chat.completions.create(**ask, stream=True):
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
    else:
        texts = [choice.message.content or "" for choice in openai_client.chat.completions.create(**ask).choices]
    for text in texts:
        document = json.loads(text)
        assert (
            set(document) == {"city", "rain"}
            and document["city"] in ("Rome", "Oslo")
            and isinstance(document["rain"], bool)
        )


def test_completions_follow_regex_and_choice(openai_client: openai.OpenAI) -> None:
    ask: Any = {"model": MODEL, "prompt": ["hello", "world"], "max_tokens": 20, "temperature": 1.0}
    result = openai_client.completions.create(**ask, extra_body={"guided_regex": "[0-9]{3}-[a-c]"})
    assert all(re.fullmatch("[0-9]{3}-[a-c]", choice.text) for choice in result.choices)
    assert [choice.finish_reason for choice in result.choices] == ["stop", "stop"]
    result = openai_client.completions.create(**ask, extra_body={"guided_choice": ["yes", "no"]})
    assert {choice.text for choice in result.choices} <= {"yes", "no"}


def test_invalid_grammar_is_rejected(openai_client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="guided_regex"):
        openai_client.chat.completions.create(**GREEDY, extra_body={"guided_regex": "["})


@pytest.mark.rest
def test_echoed_prompt_has_prefill_logprobs(openai_client: openai.OpenAI) -> None:
    ask: Any = {"model": MODEL, "temperature": 0, "logprobs": 2, "max_tokens": 5}
    plain = openai_client.completions.create(**ask, prompt="hello world").choices[0]
    echoed = openai_client.completions.create(**ask, prompt="hello world", echo=True).choices[0]
    assert plain.logprobs is not None and echoed.logprobs is not None
    tokens, values = echoed.logprobs.tokens or [], echoed.logprobs.token_logprobs or []
    assert echoed.text == "hello world" + plain.text and "".join(tokens[:-5]) == "hello world"
    assert tokens[-5:] == plain.logprobs.tokens and values[-5:] == plain.logprobs.token_logprobs
    assert values[0] is None and (echoed.logprobs.top_logprobs or [])[0] is None
    # A token that was drawn greedily and is then read has the logprob it was drawn with.
    choice = openai_client.completions.create(
        model=MODEL, prompt=[104, 101, 108, *range(40, 60)], temperature=0, logprobs=2, max_tokens=4,
        extra_body={"return_token_ids": True},
    ).choices[0]  # fmt: skip
    token_ids = choice.model_extra["token_ids"]  # type: ignore[index]
    read = openai_client.completions.create(
        model=MODEL, prompt=[104, 101, 108, *range(40, 60), *token_ids], logprobs=2, max_tokens=0, echo=True
    )
    assert read.choices[0].logprobs is not None and choice.logprobs is not None
    assert read.choices[0].logprobs.token_logprobs[-4:] == choice.logprobs.token_logprobs  # type: ignore[index]
    assert read.choices[0].logprobs.top_logprobs[-4:] == choice.logprobs.top_logprobs  # type: ignore[index]
    assert read.usage is not None and read.usage.completion_tokens == 0
    assert read.choices[0].finish_reason == "length"


def test_echo_is_streamed_for_each_choice(openai_client: openai.OpenAI) -> None:
    ask: Any = {"model": MODEL, "prompt": ["ab", "cd"], "max_tokens": 3, "n": 2, "logprobs": 0, "echo": True}
    texts, tokens = [""] * 4, [0] * 4
    for chunk in openai_client.completions.create(**ask, stream=True, seed=1):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            assert choice.logprobs is not None and choice.logprobs.tokens is not None
            tokens[choice.index] += len(choice.logprobs.tokens)
    assert [text[:2] for text in texts] == ["ab", "ab", "cd", "cd"]
    whole = openai_client.completions.create(**ask, seed=1)
    assert [choice.text for choice in whole.choices] == texts
    assert tokens == [len(choice.logprobs.tokens or []) for choice in whole.choices if choice.logprobs]


PLACES = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]}
TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "description": "now", "parameters": PLACES}},
    {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}},
]


@pytest.mark.parametrize(
    ("change", "param", "message"),
    [
        (
            {"tool_choice": {"type": "function", "function": {"name": "moon"}}},
            "tool_choice",
            "no function ",
        ),
        ({"tools": None, "tool_choice": "required"}, "tool_choice", "the request has no tools"),
        ({"tools": [TOOLS[0], TOOLS[0]]}, "tools", "the same name"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name", "pattern"),
    ],
)
def test_invalid_tool_parameter_is_named(
    openai_client: openai.OpenAI, change: dict[str, Any], param: str, message: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=message) as caught:
        openai_client.chat.completions.create(**{**GREEDY, "tools": TOOLS, **change})
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 400, "the body is missing"),
        (b"null", 400, "expected a JSON object"),
        (b'{"messages":', 400, "not JSON"),
        (b"[" * 100_000, 400, "cannot be read"),
        (b'{"seed": ' + b"9" * 5000 + b"}", 400, "cannot be read"),
        (b'{"messages": [{"role": "user", "content": "\xff"}]}', 400, "cannot be read"),
        (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', 400, "lone surrogate"),
        (b'{"messages": [{"role": "user", "content": "x"}], "\\ud800": 1}', 400, "unknown parameter"),
        (b'{"messages": [{"role": "user", "content": "x"}], "temperature": NaN}', 400, "finite"),
    ],
)
def test_malformed_bodies_return_400(openai_client: openai.OpenAI, body: bytes, status: int, message: str) -> None:
    headers = {"content-type": "application/json"}
    reply = openai_client._client.post("chat/completions", content=body, headers=headers)
    assert reply.status_code == status and message in reply.json()["error"]["message"]


def test_non_json_content_type_returns_415(openai_client: openai.OpenAI) -> None:
    reply = openai_client._client.post("chat/completions", content=b"messages=hello")
    assert reply.status_code == 415 and "expected application/json" in reply.json()["error"]["message"]
