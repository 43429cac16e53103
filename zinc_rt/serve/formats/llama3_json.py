"""Llama 3.1 and later: an answer of the form {"name", "parameters"} is a call, optionally after
<|python_tag|>.

From https://www.llama.com/docs/model-cards-and-prompt-formats/llama3_1/ (JSON based tool calling).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from zinc_rt.serve.formats.format import Format, MalformedCall, Part, ToolCall, Tools, text_of
from zinc_rt.serve.formats.json_calls import call_of, find_json_arguments, json_call, read_values
from zinc_rt.serve.formats.lark import Lark, any_call


def read(parts: Sequence[Part], tools: Tools) -> list[ToolCall]:
    """Parse one or more calls separated by ";". An object that names no tool is a JSON answer, not a call."""
    calls = [call_of(value) for value in read_values(text_of(parts), separator=";")]
    if not calls:
        raise MalformedCall("the answer contains no tool call")
    for call in calls:
        if call.name not in tools:
            raise MalformedCall(f"unknown tool {call.name[:80]!r}")
    return calls


def demand(lark: Lark, tools: Tools, many: bool) -> str:
    """Return a rule for one call. The template supports no more."""
    return any_call(lark, tools, functools.partial(json_call, key="parameters"))


LLAMA3_JSON = Format(
    "llama3-json",
    fits=lambda template: "<|start_header_id|>" in template and "tools" in template,
    call=("<|python_tag|>", ""),
    bare=True,
    read=read,
    find_arguments=find_json_arguments,
    demand=demand,
)
