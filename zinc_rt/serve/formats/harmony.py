"""Harmony, of gpt-oss: an answer is a sequence of messages with headers.

<|channel|>analysis<|message|> reasoning <|end|><|start|>assistant<|channel|>final<|message|> text. A call is
<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{arguments}<|call|>; the recipient may also
precede the channel. From https://cookbook.openai.com/articles/openai-harmony. <|return|> and <|call|> are end
tokens in the vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from zinc_rt.serve.formats.format import (
    CallBegin,
    Fields,
    Format,
    Headers,
    MalformedCall,
    Part,
    ToolCall,
    Tools,
    text_of,
)
from zinc_rt.serve.formats.json_calls import read_json, write_json
from zinc_rt.serve.formats.lark import Lark, any_call

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
END, CALL_END = "<|end|>", "<|call|>"
_RECIPIENT = re.compile(r"to=(?:functions\.)?([^\s<]+)")


def find_kind(header: str) -> str:
    """Return the kind of the message after a header: a message to a recipient is a call."""
    if _RECIPIENT.search(header):
        return "call"
    _, _, channel = header.rpartition(CHANNEL)
    return "reasoning" if channel.strip().startswith("analysis") else "content"


def read(parts: Sequence[Part], tools: Tools) -> list[ToolCall]:
    """Parse a message to a recipient: its header, then the JSON object of its arguments."""
    recipient = _RECIPIENT.search(text_of(parts[:1]))
    if recipient is None:
        raise MalformedCall("a call needs a recipient, to=functions.NAME")
    arguments = read_json(text_of(parts[1:]))
    if not isinstance(arguments, dict):
        raise MalformedCall(f"expected the arguments of {recipient[1]} to be an object")
    return [ToolCall(recipient[1], write_json(arguments))]


def find_arguments(parts: Sequence[Part]) -> CallBegin | None:
    """Find the arguments behind the header."""
    text, header = text_of(parts), text_of(parts[:1])
    recipient, at = _RECIPIENT.search(header), len(text) - len(text[len(header) :].lstrip())
    return CallBegin(recipient[1], at) if recipient and text[at:].startswith("{") else None


def _write_call(lark: Lark, name: str, schema: Mapping[str, Any]) -> str:
    head = lark.text(f"commentary to=functions.{name} ")
    return f"{head} {lark.mark(CONSTRAIN)} {lark.text('json')} {lark.mark(MESSAGE)} {lark.json(schema)}"


def _write_messages(lark: Lark, *channels: str) -> str:
    """Return a rule for the rest of a message of these channels, and the begin of the next."""
    names, message = " | ".join(map(lark.text, channels)), lark.mark(MESSAGE)
    turn = f"{lark.mark(START)} {lark.text('assistant')} {lark.mark(CHANNEL)}"
    return lark.rule(f"({names}) {message} {lark.until(END)} {turn}")


def demand(lark: Lark, tools: Tools, many: bool) -> str:
    """Return a rule for one call, after reasoning or at once."""
    return f"{_write_messages(lark, 'analysis')}? {any_call(lark, tools, _write_call)}"


def allow(lark: Lark, tools: Tools) -> str:
    """Return a rule for any answer in which a call, which ends it, is valid."""
    before = _write_messages(lark, "analysis", "commentary")
    last = f"{lark.text('final')} {lark.mark(MESSAGE)} {lark.free(without=END)}"
    return f"{lark.mark(CHANNEL)} {before}* ({last} | {any_call(lark, tools, _write_call)})"


def adapt_messages(messages: list[Fields]) -> list[Fields]:
    """Return messages as gpt-oss's template reads them: one call in a message, followed by its result, reasoning
    as `thinking`, and no content with a call. The template renders the text before a call as reasoning, so text
    after reasoning is added to it."""
    result: list[Fields] = []
    for index, message in enumerate(messages):
        if message["role"] == "tool" and any(message is answer for answer in result):
            continue  # it already follows its call
        if message["role"] != "assistant":
            result.append(message)
            continue
        fields = {name: value for name, value in message.items() if value is not None}
        texts = [fields.pop("reasoning_content", ""), fields.pop("content", "")]
        calls = fields.pop("tool_calls", None) or []
        if not calls:
            result.append({**fields, "content": texts[1]} | ({"thinking": texts[0]} if texts[0] else {}))
            continue
        if thinking := "\n\n".join(filter(None, texts)):
            fields["thinking"] = thinking
        answers = list(takewhile(lambda other: other["role"] == "tool", messages[index + 1 :]))
        for call in calls:
            result.append({**fields, "tool_calls": [call]})
            fields.pop("thinking", None)
            result += [answer for answer in answers if answer.get("tool_call_id") == call.get("id")]
    return result


def adapt_tool(tool: Fields) -> Fields:
    """Return a definition with a description, which gpt-oss's template requires and clients may omit."""
    function = tool.get("function")
    if not isinstance(function, dict) or isinstance(function.get("description"), str):
        return tool
    return {**tool, "function": {**function, "description": ""}}


HARMONY = Format(
    "harmony",
    fits=lambda template: CHANNEL in template and MESSAGE in template,
    call=(CHANNEL, CALL_END),
    inner=(START, CONSTRAIN, MESSAGE, END, "<|return|>"),
    headers=Headers(
        opens=(START, CHANNEL),
        begins=MESSAGE,
        ends=(END, CALL_END, "<|return|>"),
        recipient="to=",
        kind=find_kind,
        answer=f"{CHANNEL}final{MESSAGE}",
    ),
    read=read,
    find_arguments=find_arguments,
    demand=demand,
    allow=allow,
    adapt_messages=adapt_messages,
    adapt_tool=adapt_tool,
)
