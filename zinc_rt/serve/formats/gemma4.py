"""Gemma 4: <|channel>thought reasoning <channel|>, <|tool_call>call:NAME{key:value}<tool_call|>. Strings are
enclosed in <|"|>, keys are not quoted.

From the chat template in Gemma 4's GGUF files (macro format_argument). <|tool_response> is an end token in
the vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from zinc_rt.serve.formats.format import Format, MalformedCall, Mark, Part, ToolCall, Tools
from zinc_rt.serve.formats.json_calls import read_json, write_json
from zinc_rt.serve.formats.lark import Lark, any_call, object_members

QUOTE = '<|"|>'
CALL = ("<|tool_call>", "<tool_call|>")
MAX_DEPTH = 64
_HEAD = re.compile(r"\s*call:([^{}\s]+)\s*")
_BARE = re.compile(r"[^,{}\[\]:]*")
_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"true|false|null|-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")


class _Reader:
    """A recursive-descent parser of a call. The quote token is represented by a character that does not occur
    in text."""

    QUOTE = "\ue000"  # private use: replaced where a model writes it

    def __init__(self, parts: Sequence[Part]) -> None:
        self._text = "".join(
            (self.QUOTE if part.text == QUOTE else part.text)
            if isinstance(part, Mark)
            else part.replace(self.QUOTE, "\ufffd")
            for part in parts
        )
        self._at = 0

    def call(self) -> ToolCall:
        head = self._match(_HEAD)
        if head is None:
            raise MalformedCall("a call is call:NAME{...}")
        arguments = self._object(0)
        self._match(_SPACE)
        if self._at < len(self._text):
            raise MalformedCall(f"unexpected text after the call of {head[1]}")
        return ToolCall(head[1], write_json(arguments))

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
        return match

    def _accept(self, letter: str) -> bool:
        self._match(_SPACE)
        if self._text[self._at : self._at + 1] != letter:
            return False
        self._at += 1
        return True

    def _expect(self, letter: str) -> None:
        if not self._accept(letter):
            raise MalformedCall(f"expected {letter} at character {self._at} of the call")

    def _object(self, depth: int) -> dict[str, Any]:
        self._expect("{")
        members: dict[str, Any] = {}
        if self._accept("}"):
            return members
        while True:
            key = self._string() if self._accept(self.QUOTE) else self._bare_string()
            self._expect(":")
            members[key] = self._value(depth + 1)
            if self._accept("}"):
                return members
            self._expect(",")

    def _list(self, depth: int) -> list[Any]:
        items: list[Any] = []
        if self._accept("]"):
            return items
        while True:
            items.append(self._value(depth + 1))
            if self._accept("]"):
                return items
            self._expect(",")

    def _value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise MalformedCall("the call is nested too deeply")
        if self._accept(self.QUOTE):
            return self._string()
        if self._accept("["):
            return self._list(depth)
        if self._text[self._at : self._at + 1] == "{":
            return self._object(depth)
        word = self._bare_string()
        if _WORD.fullmatch(word) is None:
            raise MalformedCall(f"{word[:40]!r} is not a valid value: strings must be enclosed in {QUOTE}")
        return read_json(word)

    def _string(self) -> str:
        end = self._text.find(self.QUOTE, self._at)
        if end < 0:
            raise MalformedCall("unterminated string")
        text, self._at = self._text[self._at : end], end + 1
        return text

    def _bare_string(self) -> str:
        text = self._match(_BARE)
        word = text[0].strip() if text else ""
        if not word:
            raise MalformedCall(f"expected a key or a value at character {self._at} of the call")
        return word


def read(parts: Sequence[Part], tools: Tools) -> list[ToolCall]:
    """Parse a single call."""
    return [_Reader(parts).call()]


class _Values:
    """Grammar rules in this syntax for values of a JSON schema."""

    def __init__(self, lark: Lark, whole: Mapping[str, Any]) -> None:
        self._lark, self._whole = lark, whole
        self._refs: dict[str, str] = {}
        self._any = ""

    def object(self, schema: Mapping[str, Any]) -> str:
        """Return a rule for {k:v,...}: the schema's properties by name, sorted as in the template, or any
        object without a schema."""
        lark, required = self._lark, set(schema.get("required") or ())
        properties = sorted((schema.get("properties") or {}).items())
        if not properties and schema.get("additionalProperties", True) is not False and schema is not self._whole:
            member = lark.rule(f"/[a-zA-Z_][a-zA-Z_0-9]*/ {lark.text(':')} {self._any_value()}")
            return lark.rule(f"{lark.text('{')} ({member} ({lark.text(',')} {member})*)? {lark.text('}')}")
        members = [(f"{lark.text(f'{key}:')} {self.value(of)}", key in required) for key, of in properties]
        return lark.rule(f"{lark.text('{')} {object_members(lark, members, ',')} {lark.text('}')}")

    def value(self, schema: Any) -> str:
        """Return a rule for a value of a schema. Unsupported keywords allow any value."""
        if not isinstance(schema, Mapping):
            return self._any_value()
        if isinstance(ref := schema.get("$ref"), str):
            return self._reference(ref)
        argument = [schema["const"]] if "const" in schema else schema.get("enum")
        if argument:
            return self._alternatives([self._literal(value) for value in argument])
        branches = schema.get("anyOf") or schema.get("oneOf")
        if branches:
            return self._alternatives([self.value(branch) for branch in branches])
        named = schema.get("type")
        if isinstance(named, list):
            return self._alternatives([self._typed(item, schema) for item in named])
        return self._typed(named, schema)

    def _typed(self, named: Any, schema: Mapping[str, Any]) -> str:
        lark = self._lark
        match named:
            case "string":
                return f"{lark.mark(QUOTE)} {lark.until(QUOTE)}"
            case "integer":
                return lark.rule("/-?(0|[1-9][0-9]{0,17})/")
            case "number":
                return lark.rule(r"/-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?/")
            case "boolean":
                return lark.rule('"true" | "false"')
            case "null":
                return lark.text("null")
            case "array":
                item = self.value(schema.get("items", True))
                return lark.rule(f"{lark.text('[')} ({item} ({lark.text(',')} {item})*)? {lark.text(']')}")
            case "object":
                return self.object(schema)
        return self._any_value()

    def _alternatives(self, rules: Sequence[str]) -> str:
        return self._lark.rule(" | ".join(rules))

    def _literal(self, value: Any) -> str:
        lark = self._lark
        if isinstance(value, str):
            return f"{lark.mark(QUOTE)} {lark.text(value)} {lark.mark(QUOTE)}" if value else 2 * lark.mark(QUOTE)
        return lark.text(write_json(value)) if isinstance(value, int | float | None) else self._any_value()

    def _reference(self, ref: str) -> str:
        known = self._refs.get(ref)
        if known is None:
            self._refs[ref] = known = self._lark.name()
            self._lark.rule(self.value(_resolve(self._whole, ref)), name=known)
        return known

    def _any_value(self) -> str:
        if not self._any:
            self._any = self._lark.name()
            names = ("string", "number", "boolean", "null", "array", "object")
            self._lark.rule(" | ".join(self._typed(name, {}) for name in names), name=self._any)
        return self._any


def _resolve(whole: Mapping[str, Any], ref: str) -> Any:
    index: Any = whole
    for step in ref.removeprefix("#").strip("/").split("/"):
        index = index.get(step) if isinstance(index, Mapping) else None
    return index


def _write_call(lark: Lark, name: str, schema: Mapping[str, Any]) -> str:
    return lark.rule(f"{lark.text(f'call:{name}')} {_Values(lark, schema).object(schema)}")


def demand(lark: Lark, tools: Tools, many: bool) -> str:
    """Return a rule for calls in the syntax that the template uses for earlier turns."""
    return f"{any_call(lark, tools, _write_call)} {lark.mark(CALL[1])}"


GEMMA4 = Format(
    "gemma4",
    fits=lambda template: "<|tool_call>" in template or ("<|channel>" in template and "<channel|>" in template),
    reasoning=("<|channel>", "<channel|>"),
    call=CALL,
    inner=(QUOTE,),
    reasoning_title="thought",
    read=read,
    demand=demand,
    between="",
)
