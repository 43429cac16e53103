"""Calls in JSON: {"name": ..., "arguments": {...}}."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zinc_rt.serve.formats.format import CallBegin, MalformedCall, Part, ToolCall, Tools, text_of
from zinc_rt.serve.formats.lark import Lark, any_call


def read_json(text: str) -> Any:
    """Parse a JSON value, without Python's extensions. Raises MalformedCall."""

    def refuse(name: str) -> None:
        raise MalformedCall(f"{name} is no JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except RecursionError:
        raise MalformedCall("the JSON is nested too deeply") from None
    except MalformedCall:
        raise
    except ValueError as error:  # also for a number of more digits than Python reads
        raise MalformedCall(f"no JSON: {error}") from None


def read_values(text: str, *, separator: str) -> list[Any]:
    """Parse several JSON values. Raises MalformedCall."""
    decoder, index, values = json.JSONDecoder(), 0, list[Any]()
    while text[index:].strip():
        index += len(text) - index - len(text[index:].lstrip())
        try:
            _, end = decoder.raw_decode(text, index)
        except (ValueError, RecursionError) as error:
            raise MalformedCall(f"no JSON: {error}") from None
        values.append(read_json(text[index:end]))
        rest = text[end:].lstrip()
        if rest and not rest.startswith(separator):
            raise MalformedCall("text after the call")
        index = len(text) - len(rest.removeprefix(separator))
    return values


def write_json(value: Any) -> str:
    """Return the arguments as JSON text, in the form delivered to clients."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, which only an escape can write
        return json.dumps(value)
    return text


def call_of(value: Any) -> ToolCall:
    """Return the call of a JSON object with its arguments under "arguments" or "parameters"."""
    if not isinstance(value, dict):
        raise MalformedCall(f"expected a call to be an object, got {type(value).__name__}")
    name = value.get("name")
    if not isinstance(name, str) or not name.isprintable() or not name:
        raise MalformedCall('a call needs a "name"')
    arguments = value.get("arguments", value.get("parameters"))
    if isinstance(arguments, str):  # some write the object as a text
        arguments = read_json(arguments)
    if not isinstance(arguments, dict):
        raise MalformedCall(f'the call of {name} has no object "arguments"')
    return ToolCall(name, write_json(arguments))


_BEGIN = re.compile(r'[\s\[]*\{\s*"name"\s*:\s*"([^"\\]+)"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)')


def find_json_arguments(parts: Sequence[Part]) -> CallBegin | None:
    """Find the arguments of an object that begins with its name, as templates ask for it."""
    match = _BEGIN.match(text_of(parts))
    return CallBegin(match[1], match.end()) if match else None


class ObjectScanner:
    """Find the end of a JSON object in text that arrives in pieces, beginning with its "{"."""

    def __init__(self) -> None:
        self.depth = 0
        self.ended = False
        self._quoted = self._escaped = False

    def feed(self, text: str) -> str:
        """Return the part of the text that belongs to the object."""
        for index, letter in enumerate("" if self.ended else text):
            if self._quoted:
                self._quoted = self._escaped or letter != '"'
                self._escaped = letter == "\\" and not self._escaped
            elif letter == '"':
                self._quoted = True
            else:
                self.depth += (letter in "{[") - (letter in "}]")
                if self.depth == 0:
                    self.ended = True
                    return text[: index + 1]
        return "" if self.ended else text


def one_json_call(parts: Sequence[Part], tools: Tools) -> list[ToolCall]:
    """Parse the content of a call; for formats that mark each call."""
    return [call_of(read_json(text_of(parts)))]


def json_call(lark: Lark, name: str, schema: Mapping[str, Any], *, key: str = "arguments") -> str:
    """Return a rule for the JSON object of a call."""
    head = lark.text(f'{{"name": {write_json(name)}, "{key}": ')
    return f"{head} {lark.json(schema)} {lark.text('}')}"


def demand_lines(end: str) -> Callable[[Lark, Tools, bool], str]:
    """Return a rule for a call as an object on its own line, followed by the end marker."""

    def demand(lark: Lark, tools: Tools, many: bool) -> str:
        line = lark.text("\n")
        return f"{line} {any_call(lark, tools, json_call)} {line} {lark.mark(end)}"

    return demand
