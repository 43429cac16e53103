"""Prompts of bodies as token ids: texts, and conversations by the model's own template."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zinc_rt.host.errors import UsageError, ZincError
from zinc_rt.model.tokenizer import Tokenizer
from zinc_rt.serve.api.schema import CompletionBody, Message
from zinc_rt.serve.engine.served_model import ServedModel
from zinc_rt.serve.errors import ServeError

TAKEN = frozenset({"template", "messages", "bos_text", "eos_text", "now"})  # that rendering itself gives
MAX_PROMPTS = 512  # of one request: each is one of its own


def tokenizer_of(model: ServedModel) -> Tokenizer:
    """Raises ServeError 400 for a model without."""
    try:
        return model.core.needed_tokenizer("this endpoint")
    except UsageError as error:
        raise ServeError(400, error.message, param="model") from error


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as text, as far as it came as one, and as token ids."""

    text: str
    tokens: list[int]


def check_length(model: ServedModel, characters: int, least: int, param: str) -> None:
    """Refuse a text that cannot fit whatever its tokens are, before anybody looks for them: `least` of them, and
    one for as many characters as the longest covers. Raises ServeError 400."""
    longest = model.core.tokenizer.longest if model.core.tokenizer is not None else 1
    least = max(least, -(-characters // longest))
    if least > model.ctx:
        raise ServeError(
            400,
            f"the context of {model.id} is {model.ctx} tokens, and {param} has {least} or more",
            param=param,
            code="context_length_exceeded",
        )


def _characters(message: Message) -> int:
    content = message.content or ""
    return len(content) if isinstance(content, str) else sum(len(part.text) for part in content)


async def chat_prompt(
    model: ServedModel, messages: Sequence[Message], variables: Mapping[str, Any] | None = None
) -> Prompt:
    """A conversation by the model's own template, which `variables` reach. Raises ServeError 400 where it
    refuses."""
    check_length(model, sum(_characters(message) for message in messages), len(messages), "messages")
    given = [template_message(message, at) for at, message in enumerate(messages)]
    variables = variables or {}
    if taken := [name for name in variables if name in TAKEN]:
        raise ServeError(
            400, f"chat_template_kwargs: {taken[0]} is not a name to give", param="chat_template_kwargs"
        )

    def prompt() -> Prompt:
        text = model.core.chat_text(given, **variables)
        return Prompt(text, model.core.encode_chat(text))

    try:
        return await asyncio.to_thread(prompt)
    except ZincError as error:
        raise ServeError(400, error.message, param="messages") from error


async def text_prompts(model: ServedModel, body: CompletionBody) -> list[Prompt]:
    """Each of its prompts. Raises ServeError 400 for none, and for text without a tokenizer."""
    prompt: Any = body.prompt
    alone = isinstance(prompt, str) or bool(prompt and isinstance(prompt[0], int))
    prompts: Sequence[str | list[int]] = [prompt] if alone else prompt
    if len(prompts) > MAX_PROMPTS:
        raise ServeError(400, f"prompt: at most {MAX_PROMPTS} at once, not {len(prompts)}", param="prompt")
    for text in prompts:
        if isinstance(text, str):
            check_length(model, len(text), 0, "prompt")
    texts = any(isinstance(each, str) for each in prompts)
    tokenizer = tokenizer_of(model) if texts or body.echo else None

    def encoded(prompt: str | list[int]) -> Prompt:
        if isinstance(prompt, str):
            assert tokenizer is not None
            return Prompt(prompt, tokenizer.encode(prompt))
        return Prompt("" if tokenizer is None else tokenizer.decode(prompt, skip_special=True), prompt)

    try:
        return await asyncio.to_thread(lambda: [encoded(each) for each in prompts])
    except ZincError as error:
        raise ServeError(400, error.message, param="prompt") from error


def template_message(message: Message, at: int) -> dict[str, Any]:
    """A message as templates know them: its content one text. Raises ServeError 400."""
    made = message.model_dump(exclude_unset=True)
    made["role"] = "system" if message.role == "developer" else message.role
    if isinstance(message.content, list):
        made["content"] = "\n".join(part.text for part in message.content)
    if isinstance(calls := made.get("tool_calls"), list):
        made["tool_calls"] = [_template_call(call, f"messages[{at}].tool_calls") for call in calls]
    return made


def _template_call(call: Any, param: str) -> dict[str, Any]:
    """A call of an earlier turn: templates want its arguments as an object, not as the text that clients have."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise ServeError(400, f"{param}: wanted calls, each with a function that has a name", param=param)
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            arguments = None
    if not isinstance(arguments, dict):
        raise ServeError(400, f"{param}: arguments that are no JSON object", param=param)
    return {**call, "function": {**function, "arguments": arguments}}
