"""Qwen 3 Coder, 3.5 and 3.6: calls as <function=NAME> with a <parameter=NAME> for each argument, as text.

From https://huggingface.co/Qwen/Qwen3-Coder-30B-A3B-Instruct, its chat template and tool parser.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from zinc_rt.serve.formats.format import Format, MalformedCall, Part, ToolCall, Tools, text_of
from zinc_rt.serve.formats.json_calls import read_json, write_json
from zinc_rt.serve.formats.lark import Lark, any_call
from zinc_rt.serve.formats.qwen3 import CALL, THINK

LINE, END = "\n", "\n</parameter>"
_FUNCTION = re.compile(r"\s*<function=([^<>\n]+)>(.*?)(?:</function>\s*)?", re.DOTALL)
_PARAMETER = re.compile(
    r"\s*<parameter=([^<>\n]+)>\n?(.*?)\n?</parameter>(?=\s*(?:<parameter=|</function>|$))", re.DOTALL
)


def read(parts: Sequence[Part], tools: Tools) -> list[ToolCall]:
    """Parse a single call. The tool's schema defines the type of each parameter."""
    match = _FUNCTION.fullmatch(text_of(parts))
    if match is None:
        raise MalformedCall("expected <function=NAME> followed by its parameters")
    name, inside = match[1].strip(), match[2]
    properties = (tools.get(name) or {}).get("properties")
    types = properties if isinstance(properties, Mapping) else {}
    arguments, index = {}, 0
    while one := _PARAMETER.match(inside, index):
        key, index = one[1].strip(), one.end()
        arguments[key] = value_of(one[2], types.get(key, {}))
    if inside[index:].strip():
        raise MalformedCall(
            f"the call of {name} contains text besides parameters: {inside[index:].strip()[:40]!r}"
        )
    return [ToolCall(name, write_json(arguments))]


def value_of(text: str, schema: Mapping[str, Any] | bool) -> Any:
    """Convert a parameter's text to the type of its schema. It stays a string if the schema names no type or
    the text does not match."""
    types = types_of(schema)
    if not types - {"string"}:
        return text
    word = text.strip()
    try:
        value = read_json(word.lower() if word in ("True", "False", "None") else word)
    except MalformedCall:
        return text
    return value if _type_of(value) & types else text


def types_of(schema: Mapping[str, Any] | bool) -> set[str]:
    """Return the types that a schema names."""
    if not isinstance(schema, Mapping):
        return set()
    named = schema.get("type")
    types = {named} if isinstance(named, str) else {item for item in _list(named) if isinstance(item, str)}
    for key in ("anyOf", "oneOf"):
        for branch in _list(schema.get(key)):
            types |= types_of(branch)
    for value in _list(schema.get("enum")):
        types |= _type_of(value) if named is None else set()
    return types


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _type_of(value: Any) -> set[str]:
    match value:
        case None:
            return {"null"}
        case bool():
            return {"boolean"}
        case int():
            return {"integer", "number"}
        case float():
            return {"number"}
        case str():
            return {"string"}
        case list():
            return {"array"}
    return {"object"}


def _write_call(lark: Lark, name: str, schema: Mapping[str, Any]) -> str:
    required = set(schema.get("required") or ())
    rules = [lark.text(f"<function={name}>\n")]
    for key, of in (schema.get("properties") or {}).items():
        body = f"{lark.text(f'<parameter={key}>{LINE}')} {_value(lark, of, schema)} {lark.text(LINE)}"
        rules.append(lark.rule(body) + ("" if key in required else "?"))
    return lark.rule(f"{' '.join(rules)} {lark.text('</function>')}")


def _value(lark: Lark, schema: Mapping[str, Any] | bool, whole: Mapping[str, Any]) -> str:
    texts = schema.get("enum") if isinstance(schema, Mapping) else None
    if isinstance(texts, list) and texts and all(isinstance(text, str) for text in texts):
        return f"({' | '.join(map(lark.text, texts))}) {lark.text(END)}"
    types = types_of(schema)
    if not types or "string" in types:
        return lark.until(END)
    assert isinstance(schema, Mapping)
    shared = {key: whole[key] for key in ("$defs", "definitions") if key in whole}
    return f"{lark.json({**shared, **schema})} {lark.text(END)}"


def demand(lark: Lark, tools: Tools, many: bool) -> str:
    """Return a rule for calls in the syntax that the template uses for earlier turns."""
    line = lark.text(LINE)
    return f"{line} {any_call(lark, tools, _write_call)} {line} {lark.mark(CALL[1])}"


QWEN3_XML = Format(
    "qwen3-xml",
    fits=lambda template: "<function=" in template and "<parameter=" in template,
    reasoning=THINK,
    call=CALL,
    call_ends_reasoning=True,
    read=read,
    demand=demand,
    between=LINE,
)
