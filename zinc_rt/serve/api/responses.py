"""OpenAI's Responses API: POST /v1/responses, streamed or not, and the responses that were stored.

A request is converted to that of a chat completion, so that both APIs give the same answer. The answer becomes
items: reasoning, a message, function calls.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from zinc_rt.serve.api.answers import Answers
from zinc_rt.serve.api.blocks import AnswerBlock, AnswerBlocks, BlockChange
from zinc_rt.serve.api.bodies import BodyRoute
from zinc_rt.serve.api.chat import make_chat_answers
from zinc_rt.serve.api.openai import (
    REFUSALS,
    AskedBy,
    find_server,
    make_findings_header,
    make_ignored_header,
)
from zinc_rt.serve.api.parsing import validate_body
from zinc_rt.serve.api.response_store import ResponseStore
from zinc_rt.serve.api.schema import IGNORED, MAX_TOOLS, Body, ChatBody, Integer, Name
from zinc_rt.serve.api.shape import make_extension_fields
from zinc_rt.serve.api.sse import (
    PING,
    PING_SECONDS,
    EventStream,
    cancel_on_disconnect,
    format_event,
    make_receiver,
)
from zinc_rt.serve.errors import ServeError
from zinc_rt.serve.tenants.auth import Inference

_LAX = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)
_TEXT_PARTS = ("input_text", "output_text", "text", "reasoning_text", "summary_text")

router = APIRouter(responses=REFUSALS, route_class=BodyRoute)


class ResponseItem(BaseModel):
    """An item of a conversation. Which fields it has depends on its type: see `_convert_items`."""

    model_config = _LAX

    type: str = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None


class TextFormat(BaseModel):
    """The format of the text: OpenAI's response format without its inner object."""

    model_config = _LAX

    type: Literal["text", "json_object", "json_schema"]


class TextSettings(Body):
    """`format`: that of the text."""

    format: TextFormat | None = None
    verbosity: Any = Field(None, description=IGNORED)


class Reasoning(BaseModel):
    """`effort`: as `reasoning_effort` of a chat completion. The reasoning is given whole, without a summary."""

    model_config = _LAX

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None


class ResponseTool(BaseModel):
    """A tool. Only functions are offered to the model: others run on OpenAI's servers."""

    model_config = _LAX

    type: str
    name: Name | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ResponsesBody(Body):
    """The body of POST /v1/responses."""

    model: Name | None = None
    input: str | Annotated[list[ResponseItem], Field(min_length=1)]
    instructions: str | None = None
    previous_response_id: Name | None = None
    store: bool | None = Field(None, description="false: the response cannot be referred to later")
    stream: bool | None = None
    max_output_tokens: Integer | None = Field(None, ge=1, le=(1 << 31) - 1)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    text: TextSettings | None = None
    reasoning: Reasoning | None = None
    tools: Annotated[list[ResponseTool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    background: Literal[False] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    seed: Integer | None = Field(None, ge=0, le=(1 << 64) - 1, description="as in a chat completion")
    metadata: dict[str, Any] | None = Field(None, description="returned with the response")
    strict_parameters: bool | None = None
    include: Any = Field(None, description=IGNORED)
    max_tool_calls: Any = Field(None, description=IGNORED)
    prompt_cache_key: Any = Field(None, description=IGNORED)
    prompt_cache_options: Any = Field(None, description=IGNORED)
    prompt_cache_retention: Any = Field(None, description=IGNORED)
    safety_identifier: Any = Field(None, description=IGNORED)
    service_tier: Any = Field(None, description=IGNORED)
    stream_options: Any = Field(None, description=IGNORED)
    top_logprobs: Any = Field(None, description=IGNORED)
    truncation: Literal["auto", "disabled"] | None = Field(None, description=IGNORED)
    user: Any = Field(None, description=IGNORED)
    client_metadata: Any = Field(None, description=IGNORED)


@router.post("/v1/responses", response_model=None)
async def create_response(request: Request, body: ResponsesBody, by: AskedBy) -> Response:
    """Answer a conversation as a response object. With `stream`, the response is a stream of events."""
    store, tenant = find_store(request), by.caller.tenant
    before: tuple[dict[str, Any], ...] = ()
    if body.previous_response_id is not None:
        before = store.find(tenant, body.previous_response_id, "previous_response_id").conversation
    own = _list_input(body)
    conversation = (*before, *own)
    answers = await make_chat_answers(
        find_server(request), _make_chat_body(body, conversation), by, stream_calls=bool(body.stream)
    )
    await answers.begin(find_server(request))
    shape = ResponseShape(answers, body)
    headers = make_ignored_header(body)
    if unoffered := [f"tools[{at}]" for at, tool in enumerate(body.tools or []) if tool.type != "function"]:
        headers["x-zinc-rt-ignored"] = ", ".join(filter(None, (headers.get("x-zinc-rt-ignored"), *unoffered)))

    def keep(response: dict[str, Any]) -> None:
        if body.store is not False:
            store.add(tenant, response, (*conversation, *response["output"]), len(own))

    if body.stream:
        return EventStream(shape.iterate_events(keep), headers)
    await cancel_on_disconnect(make_receiver(request), shape.finish())
    response = shape.whole()
    keep(response)
    return JSONResponse(response, headers=headers | make_findings_header(answers))


@router.get("/v1/responses/{id}", response_model=None)
async def get_response(request: Request, id: str, by: Inference) -> dict[str, Any]:
    """Return a stored response."""
    return find_store(request).find(by.tenant, id).response


@router.get("/v1/responses/{id}/input_items", response_model=None)
async def list_input_items(request: Request, id: str, by: Inference) -> dict[str, Any]:
    """Return the input of a stored response, without that of earlier responses."""
    items = find_store(request).find(by.tenant, id).input_items
    first, last = (items[0].get("id"), items[-1].get("id")) if items else (None, None)
    return {"object": "list", "data": items, "first_id": first, "last_id": last, "has_more": False}


@router.delete("/v1/responses/{id}", response_model=None)
async def delete_response(request: Request, id: str, by: Inference) -> dict[str, Any]:
    """Forget a stored response."""
    find_store(request).delete(by.tenant, id)
    return {"id": id, "object": "response", "deleted": True}


def find_store(request: Request) -> ResponseStore:
    store: ResponseStore = request.app.state.responses
    return store


# --- requests


def _list_input(body: ResponsesBody) -> list[dict[str, Any]]:
    if isinstance(body.input, str):
        items: list[dict[str, Any]] = [{"type": "message", "role": "user", "content": body.input}]
    else:
        items = [{"type": item.type, **item.model_dump(exclude_unset=True)} for item in body.input]
    return [{"id": _make_id("item"), **item} for item in items]


def _make_chat_body(body: ResponsesBody, conversation: Sequence[dict[str, Any]]) -> ChatBody:
    """Return the request as one for a chat completion. Raises ServeError 400 for what has no equivalent."""
    messages = _convert_items(conversation)
    if body.instructions is not None:
        messages.insert(0, {"role": "system", "content": body.instructions})
    fields: dict[str, Any] = {
        "model": body.model,
        "messages": messages,
        "max_tokens": body.max_output_tokens,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "seed": body.seed,
        "reasoning_effort": body.reasoning and body.reasoning.effort,
        "parallel_tool_calls": body.parallel_tool_calls,
        "chat_template_kwargs": body.chat_template_kwargs,
        "tool_choice": _convert_tool_choice(body.tool_choice),
    }
    if functions := [tool for tool in body.tools or [] if tool.type == "function"]:
        fields["tools"] = [_convert_tool(tool) for tool in functions]
    if body.text is not None and body.text.format is not None:
        fields["response_format"] = _convert_format(body.text.format)
    return validate_body(fields, ChatBody)


def _convert_items(items: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the chat messages of the items. An answer's reasoning, text and calls are separate items here, and
    one message there."""
    messages: list[dict[str, Any]] = []
    answer: dict[str, Any] | None = None  # the assistant's message that the next item may belong to

    def find_answer() -> dict[str, Any]:
        nonlocal answer
        if answer is None:
            answer = {"role": "assistant", "content": ""}
            messages.append(answer)
        return answer

    for index, item in enumerate(items):
        param = f"input[{index}]"
        match item["type"]:
            case "message" if item.get("role") == "assistant":
                text = _join_parts(item.get("content"), param)
                if answer is not None and (answer["content"] or "tool_calls" in answer):
                    answer = None  # a message of its own
                find_answer()["content"] += text
            case "message" if item.get("role") is not None:
                messages.append({"role": item["role"], "content": _join_parts(item.get("content"), param)})
                answer = None
            case "reasoning":
                parts = item.get("content") or item.get("summary") or []
                if answer is not None and (answer["content"] or "tool_calls" in answer):
                    answer = None
                if text := _join_parts(parts, param):
                    find_answer()["reasoning_content"] = text
            case "function_call":
                call = {"name": item.get("name"), "arguments": item.get("arguments")}
                call_id = item.get("call_id") or item.get("id")
                find_answer().setdefault("tool_calls", []).append(
                    {"id": call_id, "type": "function", "function": call}
                )
            case "function_call_output":
                output = _join_parts(item.get("output"), param)
                messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": output})
                answer = None
            case kind:
                raise ServeError(
                    400,
                    f"{param}: items of type {kind[:64]} are not supported; expected message, reasoning, "
                    "function_call or function_call_output",
                    param=param,
                )
    return messages


def _join_parts(content: Any, param: str) -> str:
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for part in content if isinstance(content, list) else [None]:
        text = part.get("text") if isinstance(part, dict) and part.get("type") in _TEXT_PARTS else None
        if not isinstance(text, str):
            raise ServeError(400, f"{param}: expected text, or a list of parts with text", param=param)
        texts.append(text)
    return "\n".join(texts)


def _convert_tool(tool: ResponseTool) -> dict[str, Any]:
    function = tool.model_dump(include={"name", "description", "parameters", "strict"}, exclude_none=True)
    return {"type": "function", "function": function}


def _convert_tool_choice(choice: str | dict[str, Any] | None) -> Any:
    if isinstance(choice, dict) and choice.get("type") == "function":
        return {"type": "function", "function": {"name": choice.get("name")}}
    if isinstance(choice, dict):
        raise ServeError(400, "tool_choice: expected none, auto, required or a function", param="tool_choice")
    return choice


def _convert_format(format: TextFormat) -> dict[str, Any]:
    if format.type != "json_schema":
        return {"type": format.type}
    inner = format.model_dump(exclude_unset=True, exclude={"type"})
    return {"type": "json_schema", "json_schema": inner}


# --- answers


def _make_id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(16)}"


class ResponseShape:
    """The response format of one answer: items, complete or as events."""

    def __init__(self, answers: Answers, body: ResponsesBody) -> None:
        self.answers, self.body = answers, body
        self.id, self.created_at = _make_id("resp"), int(time.time())
        self.complete = False
        self._blocks = AnswerBlocks()
        self._item_ids: list[str] = []
        self._number = 0  # of the next event

    async def finish(self) -> None:
        """Wait until the answer is complete."""
        await self._blocks.collect(self.answers)
        self.complete = True

    def whole(self) -> dict[str, Any]:
        """Return the response as far as it is there, as one body."""
        body, cut = self.body, self.complete and self.answers.choices[0].ended == "length"
        status = "in_progress" if not self.complete else "incomplete" if cut else "completed"
        functions = [tool for tool in body.tools or [] if tool.type == "function"]
        response: dict[str, Any] = {
            "id": self.id,
            "object": "response",
            "created_at": self.created_at,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "model": self.answers.model.id,
            "output": [self._format_item(block, status) for block in self._blocks.blocks] if self.complete else [],
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": body.previous_response_id,
            "reasoning": {"effort": body.reasoning and body.reasoning.effort, "summary": None},
            "store": body.store is not False,
            "temperature": 1.0 if body.temperature is None else body.temperature,
            "text": {"format": body.text.format.model_dump(exclude_unset=True)}
            if body.text is not None and body.text.format is not None
            else {"format": {"type": "text"}},
            "tool_choice": body.tool_choice or "auto",
            "tools": [tool.model_dump() for tool in functions],
            "top_p": 1.0 if body.top_p is None else body.top_p,
            "truncation": "disabled",
            "usage": self._make_usage() if self.complete else None,
        }
        if self.complete:
            response["zinc_rt"] = make_extension_fields(self.answers)
        return response

    async def iterate_events(self, keep: Callable[[dict[str, Any]], None]) -> AsyncGenerator[bytes, None]:
        """Yield the events of a stream, with a comment after every 15 s of silence. Raises ServeError. `keep` gets
        the complete response before its last event, after which the client may refer to it."""
        self.answers.quiet_seconds = PING_SECONDS
        begun = False
        async with self.answers:
            async for pieces in self.answers:
                if not pieces:
                    yield PING
                    continue
                events = b"" if begun else self._format_start()
                begun = True  # only now is it certain that there is an answer and no error
                for piece in pieces:
                    events += b"".join(map(self._format_change, self._blocks.feed(piece.deltas)))
                if events:
                    yield events
        end = b"" if begun else self._format_start()
        end += b"".join(map(self._format_change, self._blocks.close()))
        self.complete = True
        response = self.whole()
        keep(response)
        kind = "response.completed" if response["status"] == "completed" else "response.incomplete"
        yield end + self._format_event(kind, response=response)

    def _format_start(self) -> bytes:
        kinds = ("response.created", "response.in_progress")
        return b"".join(self._format_event(kind, response=self.whole()) for kind in kinds)

    def _format_event(self, kind: str, **fields: Any) -> bytes:
        self._number += 1
        return format_event({"type": kind, "sequence_number": self._number - 1, **fields}, kind)

    def _format_change(self, change: BlockChange) -> bytes:
        block, kind = change.block, change.block.kind
        if change.change == "begin":
            empty = AnswerBlock(block.index, kind, block.id, block.name)
            item = self._format_item(empty, "in_progress") | ({"content": []} if kind != "call" else {})
            events = self._format_event("response.output_item.added", output_index=block.index, item=item)
            if kind == "text":
                events += self._format_part_event("response.content_part.added", block, part=_format_part(""))
            return events
        name = {
            "text": "response.output_text",
            "reasoning": "response.reasoning_text",
            "call": "response.function_call_arguments",
        }[kind]
        extra: dict[str, Any] = {"logprobs": []} if kind == "text" else {}
        if change.change == "text":
            return self._format_part_event(f"{name}.delta", block, delta=change.text, **extra)
        if kind == "call":
            events = self._format_part_event(f"{name}.done", block, arguments=block.text, name=block.name)
        else:
            events = self._format_part_event(f"{name}.done", block, text=block.text, **extra)
        if kind == "text":
            events += self._format_part_event("response.content_part.done", block, part=_format_part(block.text))
        item = self._format_item(block, "completed")
        return events + self._format_event("response.output_item.done", output_index=block.index, item=item)

    def _format_part_event(self, event: str, block: AnswerBlock, **fields: Any) -> bytes:
        place: dict[str, Any] = {"item_id": self._find_item_id(block), "output_index": block.index}
        if block.kind != "call":
            place["content_index"] = 0
        return self._format_event(event, **place, **fields)

    def _find_item_id(self, block: AnswerBlock) -> str:
        while len(self._item_ids) <= block.index:
            kind = {"text": "msg", "reasoning": "rs", "call": "fc"}[self._blocks.blocks[len(self._item_ids)].kind]
            self._item_ids.append(_make_id(kind))
        return self._item_ids[block.index]

    def _format_item(self, block: AnswerBlock, status: str) -> dict[str, Any]:
        head = {"id": self._find_item_id(block), "status": status}
        if block.kind == "call":
            call = {"call_id": block.id, "name": block.name, "arguments": block.text}
            return {"type": "function_call", **head, **call}
        if block.kind == "reasoning":
            content = [{"type": "reasoning_text", "text": block.text}]
            return {"type": "reasoning", **head, "summary": [], "content": content}
        return {"type": "message", **head, "role": "assistant", "content": [_format_part(block.text)]}

    def _make_usage(self) -> dict[str, Any]:
        usage = self.answers.usage()
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        return {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": self.answers.choices[0].reasoning_tokens},
            "total_tokens": usage["total_tokens"],
        }


def _format_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
