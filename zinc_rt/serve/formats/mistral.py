"""Mistral: [TOOL_CALLS] and a list of {"name", "arguments"}; in later versions [TOOL_CALLS]NAME[ARGS]{...}
for each call.

From https://github.com/mistralai/mistral-common (tokens of tokenizers v3 to v13). Ids have nine letters: the
templates reject others.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Mapping, Sequence
from typing import Any

from zinc_rt.serve.formats.format import CallBegin, Format, MalformedCall, Mark, Part, ToolCall, Tools, text_of
from zinc_rt.serve.formats.json_calls import call_of, json_call, read_json, write_json
from zinc_rt.serve.formats.lark import Lark, any_call, repeat_calls

TOOL_CALLS, ARGS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
LETTERS = string.ascii_letters + string.digits


def call_id() -> str:
    return "".join(secrets.choice(LETTERS) for _ in range(9))


def read(parts: Sequence[Part], tools: Tools) -> list[ToolCall]:
    """Parse calls in either syntax."""
    marks = [part.text for part in parts if isinstance(part, Mark)]
    if ARGS in marks:
        index = parts.index(Mark(ARGS))
        name = text_of(parts[: parts.index(Mark(CALL_ID))] if CALL_ID in marks else parts[:index]).strip()
        arguments = read_json(text_of(parts[index + 1 :]))
        if not name or not isinstance(arguments, dict):
            raise MalformedCall(f"expected a call of the form NAME{ARGS} and an object")
        return [ToolCall(name, write_json(arguments))]
    values = read_json(text_of(parts))
    if not isinstance(values, list) or not values:
        raise MalformedCall("expected the calls as a list of objects")
    return [call_of(value) for value in values]


def find_named_arguments(parts: Sequence[Part]) -> CallBegin | None:
    """Find the arguments of NAME[ARGS]{...}."""
    if Mark(ARGS) not in parts:
        return None
    index = parts.index(Mark(ARGS))
    name = text_of(parts[: parts.index(Mark(CALL_ID))] if Mark(CALL_ID) in parts else parts[:index]).strip()
    text, before = text_of(parts), len(text_of(parts[: index + 1]))
    at = len(text) - len(text[before:].lstrip())
    return CallBegin(name, at) if text[at:].startswith("{") else None


def demand_list(lark: Lark, tools: Tools, many: bool) -> str:
    calls = repeat_calls(any_call(lark, tools, json_call), lark.text(", "), many=many)
    return f"{lark.text(' ')}? {lark.text('[')} {calls} {lark.text(']')}"


def _named_call(lark: Lark, name: str, schema: Mapping[str, Any]) -> str:
    return lark.rule(f"{lark.text(name)} {lark.mark(ARGS)} {lark.json(schema)}")


def demand_named(lark: Lark, tools: Tools, many: bool) -> str:
    return any_call(lark, tools, _named_call)


MISTRAL_ARGS = Format(
    "mistral-args",
    fits=lambda template: TOOL_CALLS in template and ARGS in template,
    reasoning=("[THINK]", "[/THINK]"),
    call=(TOOL_CALLS, ""),
    inner=(ARGS, CALL_ID),
    read=read,
    find_arguments=find_named_arguments,
    demand=demand_named,
    between="",
    call_id=call_id,
)
MISTRAL = Format(
    "mistral",
    fits=lambda template: TOOL_CALLS in template or "[INST]" in template,
    call=(TOOL_CALLS, ""),
    inner=(ARGS, CALL_ID),
    read=read,
    demand=demand_list,
    call_id=call_id,
)
