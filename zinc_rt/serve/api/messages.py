"""Anthropic's Messages API: POST /v1/messages and /v1/messages/count_tokens, streamed or not.

A request is converted to that of a chat completion, so that both APIs give the same answer. The answer becomes
content blocks.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from zinc_rt.serve.api.answers import Answers
from zinc_rt.serve.api.asking import find_model
from zinc_rt.serve.api.blocks import AnswerBlock, AnswerBlocks, BlockChange
from zinc_rt.serve.api.bodies import BodyRoute
from zinc_rt.serve.api.chat import make_chat_answers
from zinc_rt.serve.api.openai import AskedBy, find_server, make_findings_header, make_ignored_header
from zinc_rt.serve.api.parsing import validate_body
from zinc_rt.serve.api.prompts import make_chat_prompt
from zinc_rt.serve.api.schema import IGNORED, MAX_TOOLS, Body, ChatBody, Integer, Name, Stop, TextPart
from zinc_rt.serve.api.sse import PING_SECONDS, EventStream, cancel_on_disconnect, format_event, make_receiver
from zinc_rt.serve.api.tool_use import parse_tool_use
from zinc_rt.serve.errors import ServeError
from zinc_rt.serve.tenants.auth import Inference

STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_LAX = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)  # cache_control, citations and what comes later

router = APIRouter(route_class=BodyRoute)


class ThinkingPart(BaseModel):
    """Reasoning of an earlier answer. `signature` is not checked: the reasoning is the client's own text."""

    model_config = _LAX

    type: Literal["thinking"]
    thinking: str


class RedactedPart(BaseModel):
    """Encrypted reasoning of another server. It is dropped."""

    model_config = _LAX

    type: Literal["redacted_thinking"]


class ToolUsePart(BaseModel):
    """A tool call of an earlier answer."""

    model_config = _LAX

    type: Literal["tool_use"]
    id: Name
    name: Name
    input: dict[str, Any]


class ToolResultPart(BaseModel):
    """The result of a tool call."""

    model_config = _LAX

    type: Literal["tool_result"]
    tool_use_id: Name
    content: str | list[TextPart] | None = None
    is_error: bool | None = None


ContentPart = Annotated[
    TextPart | ThinkingPart | RedactedPart | ToolUsePart | ToolResultPart, Field(discriminator="type")
]


class MessageParam(BaseModel):
    """A message of the conversation."""

    model_config = _LAX

    role: Literal["user", "assistant", "system"]
    content: str | list[ContentPart]


class AnthropicTool(BaseModel):
    """A tool that the client runs. Tools that Anthropic's servers run have another `type`."""

    model_config = _LAX

    name: Name
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None


class AnthropicToolChoice(BaseModel):
    """Which tools may or must be called."""

    model_config = _LAX

    type: Literal["auto", "any", "tool", "none"]
    name: Name | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(BaseModel):
    """Whether the answer begins with reasoning, if the model's template can switch it. The budget is ignored."""

    model_config = _LAX

    type: Literal["enabled", "disabled", "adaptive"]


class CountTokensBody(Body):
    """The body of POST /v1/messages/count_tokens."""

    model: Name | None = None
    messages: list[MessageParam] = Field(min_length=1)
    system: str | list[TextPart] | None = None
    tools: Annotated[list[AnthropicTool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: AnthropicToolChoice | None = None
    thinking: Thinking | None = None
    strict_parameters: bool | None = None
    cache_control: Any = Field(None, description=IGNORED)
    context_management: Any = Field(None, description=IGNORED)
    mcp_servers: Any = Field(None, description=IGNORED)
    output_config: Any = Field(None, description=IGNORED)


class MessagesBody(CountTokensBody):
    """The body of POST /v1/messages."""

    max_tokens: Integer = Field(ge=1, le=(1 << 31) - 1)
    temperature: float | None = Field(None, ge=0, le=1)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: Integer | None = Field(None, ge=0)
    stop_sequences: list[Stop] | None = None
    stream: bool | None = None
    container: Any = Field(None, description=IGNORED)
    inference_geo: Any = Field(None, description=IGNORED)
    metadata: Any = Field(None, description=IGNORED)
    service_tier: Any = Field(None, description=IGNORED)


@router.post("/v1/messages", response_model=None)
async def create_message(request: Request, body: MessagesBody, by: AskedBy) -> Response:
    """Answer a conversation in Anthropic's format. With `stream`, the response is a stream of events."""
    answers = await make_chat_answers(
        find_server(request), _make_chat_body(body), by, stream_calls=bool(body.stream)
    )
    await answers.begin(find_server(request))
    shape = MessageShape(answers)
    if body.stream:
        return EventStream(shape.iterate_events(), make_ignored_header(body), anthropic=True)
    await cancel_on_disconnect(make_receiver(request), shape.finish())
    return JSONResponse(shape.whole(), headers=make_ignored_header(body) | make_findings_header(answers))


@router.post("/v1/messages/count_tokens", response_model=None)
async def count_tokens(request: Request, body: CountTokensBody, by: Inference) -> dict[str, int]:
    """Return the number of prompt tokens of a conversation."""
    chat = _make_chat_body(body)
    variables = dict(chat.chat_template_kwargs or {})
    if tools := parse_tool_use(chat).definitions:
        variables["tools"] = tools
    model = find_model(find_server(request), body.model)
    continued = bool(chat.continue_final_message)
    prompt = await make_chat_prompt(model, chat.messages, variables, continued=continued)
    return {"input_tokens": len(prompt.tokens)}


# --- requests


def _make_chat_body(body: CountTokensBody) -> ChatBody:
    """Return the request as one for a chat completion. Raises ServeError 400 for what has no equivalent."""
    messages: list[dict[str, Any]] = []
    if body.system is not None:
        messages.append({"role": "system", "content": _join_texts(body.system)})
    for message in body.messages:
        messages += _convert_message(message)
    fields: dict[str, Any] = {
        "model": body.model,
        "messages": messages,
        "strict_parameters": body.strict_parameters,
        "continue_final_message": messages[-1]["role"] == "assistant" or None,
    }
    if body.thinking is not None:
        fields["chat_template_kwargs"] = {"enable_thinking": body.thinking.type != "disabled"}
    if body.tools:
        fields["tools"] = [_convert_tool(tool) for tool in body.tools]
    if body.tool_choice is not None:
        fields["tool_choice"] = _convert_tool_choice(body.tool_choice)
        fields["parallel_tool_calls"] = False if body.tool_choice.disable_parallel_tool_use else None
    if isinstance(body, MessagesBody):
        fields |= {
            "max_tokens": body.max_tokens,
            "temperature": body.temperature,
            "top_p": body.top_p,
            "top_k": body.top_k,
            "stop": body.stop_sequences or None,
        }
    return validate_body(fields, ChatBody)


def _join_texts(content: str | Sequence[TextPart]) -> str:
    return content if isinstance(content, str) else "\n".join(part.text for part in content)


def _convert_message(message: MessageParam) -> list[dict[str, Any]]:
    """Return the chat messages of one message: each tool result is one of its own, before the user's text."""
    if isinstance(message.content, str):
        return [{"role": message.role, "content": message.content}]
    texts = [part for part in message.content if isinstance(part, TextPart)]
    thoughts = [part.thinking for part in message.content if isinstance(part, ThinkingPart)]
    calls = [part for part in message.content if isinstance(part, ToolUsePart)]
    results = [part for part in message.content if isinstance(part, ToolResultPart)]
    converted: list[dict[str, Any]] = [
        {"role": "tool", "tool_call_id": part.tool_use_id, "content": _join_texts(part.content or "")}
        for part in results
    ]
    if texts or thoughts or calls or not results:
        chat: dict[str, Any] = {"role": message.role, "content": _join_texts(texts)}
        if thoughts:
            chat["reasoning_content"] = "\n".join(thoughts)
        if calls:
            chat["tool_calls"] = [
                {
                    "id": part.id,
                    "type": "function",
                    "function": {"name": part.name, "arguments": json.dumps(part.input, ensure_ascii=False)},
                }
                for part in calls
            ]
        converted.append(chat)
    return converted


def _convert_tool(tool: AnthropicTool) -> dict[str, Any]:
    if tool.type not in (None, "custom") or tool.input_schema is None:
        raise ServeError(
            400,
            f"tools: {tool.name} of type {tool.type} runs on Anthropic's servers only; expected a tool with an "
            "input_schema, which the client runs",
            param="tools",
        )
    function: dict[str, Any] = {"name": tool.name, "parameters": tool.input_schema}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _convert_tool_choice(choice: AnthropicToolChoice) -> str | dict[str, Any]:
    if choice.type == "tool":
        if choice.name is None:
            raise ServeError(400, "tool_choice.name: required for type tool", param="tool_choice")
        return {"type": "function", "function": {"name": choice.name}}
    return {"auto": "auto", "any": "required", "none": "none"}[choice.type]


# --- answers


class MessageShape:
    """The response format of one message: content blocks, complete or as events."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.id = f"msg_{secrets.token_hex(12)}"
        self._blocks = AnswerBlocks()

    async def finish(self) -> None:
        """Wait until the answer is complete."""
        await self._blocks.collect(self.answers)

    def whole(self) -> dict[str, Any]:
        """Return the complete answer as one body."""
        return {
            **self._make_head(),
            "content": [_format_block(block) for block in self._blocks.blocks],
            **self._make_end(),
            "usage": self._make_usage(),
        }

    async def iterate_events(self) -> AsyncGenerator[bytes, None]:
        """Yield the events of a stream, with a ping after every 15 s of silence. Raises ServeError."""
        self.answers.quiet_seconds = PING_SECONDS
        begun = False
        async with self.answers:
            async for pieces in self.answers:
                if not pieces:
                    yield _format_event("ping")
                    continue
                events = b""
                if not begun:  # only now is it certain that there is an answer and no error
                    begun = True
                    events += self._format_start()
                for piece in pieces:
                    events += _format_changes(self._blocks.feed(piece.deltas))
                if events:
                    yield events
        end = _format_changes(self._blocks.close()) if begun else self._format_start()
        yield (
            end
            + _format_event("message_delta", delta=self._make_end(), usage=self._make_usage())
            + _format_event("message_stop")
        )

    def _format_start(self) -> bytes:
        usage = {**self._make_usage(), "output_tokens": 0}
        message = {**self._make_head(), "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        return _format_event("message_start", message=message)

    def _make_head(self) -> dict[str, Any]:
        return {"id": self.id, "type": "message", "role": "assistant", "model": self.answers.model.id}

    def _make_end(self) -> dict[str, Any]:
        choice = self.answers.choices[0]
        if choice.ended == "stop" and choice.reader.stopped:
            return {"stop_reason": "stop_sequence", "stop_sequence": choice.reader.stopped}
        return {"stop_reason": STOP_REASONS.get(choice.ended, "end_turn"), "stop_sequence": None}

    def _make_usage(self) -> dict[str, int]:
        """Return the token usage. Unlike OpenAI's, the prompt tokens do not include cached ones."""
        usage = self.answers.usage()
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        return {
            "input_tokens": usage["prompt_tokens"] - cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": usage["completion_tokens"],
        }


def _format_event(kind: str, **fields: Any) -> bytes:
    return format_event({"type": kind, **fields}, kind)


def _format_changes(changes: Iterable[BlockChange]) -> bytes:
    return b"".join(map(_format_change, changes))


def _format_change(change: BlockChange) -> bytes:
    block, text = change.block, change.text
    if change.change == "begin":
        empty = _format_block(AnswerBlock(block.index, block.kind, block.id, block.name))
        return _format_event("content_block_start", index=block.index, content_block=empty)
    if change.change == "end":
        return _format_event("content_block_stop", index=block.index)
    delta = {
        "text": {"type": "text_delta", "text": text},
        "reasoning": {"type": "thinking_delta", "thinking": text},
        "call": {"type": "input_json_delta", "partial_json": text},
    }[block.kind]
    return _format_event("content_block_delta", index=block.index, delta=delta)


def _format_block(block: AnswerBlock) -> dict[str, Any]:
    if block.kind == "text":
        return {"type": "text", "text": block.text}
    if block.kind == "reasoning":
        return {"type": "thinking", "thinking": block.text, "signature": ""}
    return {"type": "tool_use", "id": block.id, "name": block.name, "input": json.loads(block.text or "{}")}
