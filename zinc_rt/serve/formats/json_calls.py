"""Calls that are written as JSON: {"name": ..., "arguments": {...}}."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from zinc_rt.serve.formats.format import MalformedCall, Part, ToolCall, Tools, text_of


def read_json(text: str) -> Any:
    """A JSON value, without Python's additions. Raises MalformedCall."""

    def refuse(name: str) -> None:
        raise MalformedCall(f"{name} is no JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except RecursionError:
        raise MalformedCall("the JSON is nested too deep") from None
    except json.JSONDecodeError as error:
        raise MalformedCall(f"no JSON: {error}") from None


def write_json(value: Any) -> str:
    """The text that arguments are delivered as."""
    return json.dumps(value, ensure_ascii=False)


def call_of(value: Any) -> ToolCall:
    """A call that is written as a JSON object, its arguments under "arguments" or "parameters"."""
    if not isinstance(value, dict):
        raise MalformedCall(f"a call is an object, not {type(value).__name__}")
    name = value.get("name")
    if not isinstance(name, str) or not name:
        raise MalformedCall('a call has a "name"')
    arguments = value.get("arguments", value.get("parameters"))
    if isinstance(arguments, str):  # some write the object as a text
        arguments = read_json(arguments)
    if not isinstance(arguments, dict):
        raise MalformedCall(f'the call of {name} has no object of "arguments"')
    return ToolCall(name, write_json(arguments))


def one_json_call(parts: Sequence[Part], tools: Tools) -> list[ToolCall]:
    """Of formats that mark each call."""
    return [call_of(read_json(text_of(parts)))]
