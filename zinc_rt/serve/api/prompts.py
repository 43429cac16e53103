"""Convert the prompts of a body to token ids: text, and conversations with the model's chat template."""

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


def find_tokenizer(model: ServedModel) -> Tokenizer:
    """Return the model's tokenizer. Raises ServeError 400 if it has none."""
    try:
        return model.core.require_tokenizer("this endpoint")
    except UsageError as error:
        raise ServeError(400, error.message, param="model") from error


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as token ids, and as text if the request gave text."""

    text: str
    tokens: list[int]


def check_length(model: ServedModel, characters: int, minimum: int, param: str) -> None:
    """Reject a text that cannot fit the context, before it is tokenized.

    The lower bound is `minimum` tokens, plus one for each group of as many characters as the longest token covers.
    Raises ServeError 400.
    """
    longest = model.core.tokenizer.longest if model.core.tokenizer is not None else 1
    minimum = max(minimum, -(-characters // longest))
    if minimum > model.ctx:
        raise ServeError(
            400,
            f"{param} has {minimum} or more tokens, and the context of {model.id} is {model.ctx} tokens",
            param=param,
            code="context_length_exceeded",
        )


def check_token_count(model: ServedModel, count: int, param: str) -> None:
    """Raise ServeError 400 if a prompt has more tokens than the model's context."""
    if count > model.ctx:
        raise ServeError(
            400,
            f"{param} has {count} tokens, and the context of {model.id} is {model.ctx} tokens",
            param=param,
            code="context_length_exceeded",
        )


def _count_characters(message: Message) -> int:
    content = message.content or ""
    return len(content) if isinstance(content, str) else sum(len(part.text) for part in content)


async def make_chat_prompt(
    model: ServedModel,
    messages: Sequence[Message],
    variables: Mapping[str, Any] | None = None,
    *,
    continued: bool = False,
) -> Prompt:
    """Render a conversation with the model's chat template and `variables`. `continued`: the prompt ends inside
    the last message, which the answer continues. Raises ServeError 400 if the template rejects it."""
    check_length(model, sum(_count_characters(message) for message in messages), len(messages), "messages")
    template_messages = model.format.adapt_messages(
        [make_template_message(message, index) for index, message in enumerate(messages)]
    )
    variables = dict(variables or {})
    if isinstance(tools := variables.get("tools"), list):
        variables["tools"] = [model.format.adapt_tool(tool) if isinstance(tool, dict) else tool for tool in tools]
    if taken := [name for name in variables if name in TAKEN]:
        raise ServeError(400, f"chat_template_kwargs: {taken[0]} is reserved", param="chat_template_kwargs")

    def render_prompt() -> Prompt:
        return Prompt(
            *model.core.make_chat_prompt(
                template_messages, marks=model.format.marks, continued=continued, **variables
            )
        )

    try:
        return await asyncio.to_thread(render_prompt)
    except ZincError as error:
        raise ServeError(400, error.message, param="messages") from error


async def make_text_prompts(model: ServedModel, body: CompletionBody) -> list[Prompt]:
    """Return the prompts of the body. Raises ServeError 400 if there are no prompts, or for text if the model has
    no tokenizer, or for a suffix if the model cannot fill in text.
    """
    prompt: Any = body.prompt
    alone = isinstance(prompt, str) or bool(prompt and isinstance(prompt[0], int))
    prompts: Sequence[str | list[int]] = [prompt] if alone else prompt
    if len(prompts) > MAX_PROMPTS:
        raise ServeError(400, f"prompt: at most {MAX_PROMPTS} per request, not {len(prompts)}", param="prompt")
    suffix = body.suffix or ""
    if suffix and (body.echo or not all(isinstance(one, str) for one in prompts)):
        raise ServeError(400, "suffix: expected a prompt of text, without echo", param="suffix")
    for one in prompts:
        if isinstance(one, str):
            check_length(model, len(one) + len(suffix), 0, "prompt")
        else:
            check_token_count(model, len(one), "prompt")
    texts = any(isinstance(prompt, str) for prompt in prompts)
    tokenizer = find_tokenizer(model) if texts or body.echo else None

    def encode_prompt(prompt: str | list[int]) -> Prompt:
        if isinstance(prompt, str):
            assert tokenizer is not None
            if suffix:
                return Prompt(prompt, tokenizer.encode_infill(prompt, suffix))
            return Prompt(prompt, tokenizer.encode(prompt, parse_special=bool(body.parse_special)))
        return Prompt("" if tokenizer is None else tokenizer.decode(prompt, skip_special=True), prompt)

    try:
        return await asyncio.to_thread(lambda: [encode_prompt(prompt) for prompt in prompts])
    except ZincError as error:
        raise ServeError(400, error.message, param="suffix" if suffix else "prompt") from error


def make_template_message(message: Message, index: int) -> dict[str, Any]:
    """Return a message in the form that templates expect, with its content as one text. Raises ServeError
    400."""
    fields = message.model_dump(exclude_unset=True)
    if fields.get("reasoning_content", "") is None:
        del fields["reasoning_content"]
    fields["role"] = "system" if message.role == "developer" else message.role
    if isinstance(message.content, list):
        fields["content"] = "\n".join(part.text for part in message.content)
    if isinstance(calls := fields.get("tool_calls"), list):
        fields["tool_calls"] = [_make_template_call(call, f"messages[{index}].tool_calls") for call in calls]
    return fields


def _make_template_call(call: Any, param: str) -> dict[str, Any]:
    """Return a tool call of an earlier turn. Clients send its arguments as JSON text; templates expect an
    object."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise ServeError(400, f"{param}: expected calls, each with a function that has a name", param=param)
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            arguments = None
    if not isinstance(arguments, dict):
        raise ServeError(400, f"{param}: the arguments are not a JSON object", param=param)
    return {**call, "function": {**function, "arguments": arguments}}
