"""Grammars that demand calls, put together rule by rule, in the family's own syntax.

The dialect is llguidance's: https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zinc_rt.model.tokenizer import Tokenizer

# Between JSON's tokens: llama.cpp's rule (common/json-schema-to-grammar.cpp, SPACE_RULE). Unbounded, a model may
# go on with blanks until its limit.
WHITE_SPACE = r"( |\n{1,2}[ \t]{0,20})?"

ANY_TEXT = "/(?s:.*)/"

Schemas = Mapping[str, Mapping[str, Any]]  # of arguments, by function
WriteCall = Callable[["Lark", str, Mapping[str, Any]], str]


class Lark:
    """Rules so far. What its methods return stands in other rules."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._rules: dict[str, str] = {}  # bodies by name

    def rule(self, body: str, *, name: str = "") -> str:
        """A rule's name. One that was named before may stand in itself."""
        name = name or f"r{len(self._rules)}"
        self._rules[name] = body
        return name

    def name(self) -> str:
        """Of a rule whose body is still to come."""
        return self.rule('""')

    def text(self, text: str) -> str:
        """Exactly this."""
        return json.dumps(text, ensure_ascii=False)

    def mark(self, text: str) -> str:
        """A marker: its token where there is one, else its text."""
        id = self._tokenizer.added_id(text)
        return self.text(text) if id is None else f"<[{id}]>"

    def json(self, schema: Mapping[str, Any] | bool) -> str:
        """A JSON value of a schema; keywords that llguidance does not know are left out."""
        whole = schema if isinstance(schema, Mapping) else {}
        options = {"whitespace_pattern": WHITE_SPACE, "lenient": True}
        return self.rule(f"%json {json.dumps({**whole, 'x-guidance': options})}")

    def until(self, end: str) -> str:
        """Any text, up to an end and with it."""
        if self._tokenizer.added_id(end) is not None:
            return f"{self.rule(ANY_TEXT, name='ANY')} {self.mark(end)}"
        name = f"until{len(self._rules)}"
        self._rules[f"{name}[suffix={self.text(end)}]"] = ANY_TEXT
        return name

    def free(self, *, without: str) -> str:
        """Any text in which a mark does not occur."""
        if self._tokenizer.added_id(without) is not None:
            return self.rule(ANY_TEXT, name="ANY")
        letters = "".join(f"\\x{ord(letter):02x}" for letter in without)
        return self.rule(f"{ANY_TEXT} & ~/(?s:.*){letters}(?s:.*)/", name="FREE")

    def source(self, start: str) -> str:
        """The whole grammar."""
        rules = "\n".join(f"{name}: {body}" for name, body in self._rules.items())
        return f"%llguidance {{}}\nstart: {start}\n{rules}\n"


def any_call(lark: Lark, tools: Schemas, write: WriteCall) -> str:
    """A call of any of the tools."""
    return lark.rule(" | ".join(write(lark, name, schema) for name, schema in tools.items()))


def repeated(call: str, between: str, *, many: bool) -> str:
    """One call, or several with `between` in between."""
    return f"{call} ({between} {call})*" if many else call


def object_members(lark: Lark, members: Sequence[tuple[str, bool]], separator: str) -> str:
    """Members in their order, each with whether it is required, separated where there are two."""
    later = first = '""'
    for member, required in reversed(members):
        alone, behind = f"{member} {later}", f"{lark.text(separator)} {member} {later}"
        first = lark.rule(alone if required else f"{alone} | {first}")
        later = lark.rule(behind if required else f"{behind} | {later}")
    return first
