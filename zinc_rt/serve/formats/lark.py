"""Build grammars that force calls, rule by rule, in a family's syntax.

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
    """A set of rules. Its methods return expressions for use in other rules."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._rules: dict[str, str] = {}  # bodies by name

    def rule(self, body: str, *, name: str = "") -> str:
        """Add a rule and return its name. A rule whose name was allocated first may refer to itself."""
        name = name or f"r{len(self._rules)}"
        self._rules[name] = body
        return name

    def name(self) -> str:
        """Allocate the name of a rule whose body is added later."""
        return self.rule('""')

    def text(self, text: str) -> str:
        """Return an expression for exactly this text."""
        return json.dumps(text, ensure_ascii=False)

    def mark(self, text: str) -> str:
        """Return an expression for a marker: its token if it has one, otherwise its text."""
        id = self._tokenizer.added_id(text)
        return self.text(text) if id is None else f"<[{id}]>"

    def json(self, schema: Mapping[str, Any] | bool) -> str:
        """Return an expression for a JSON value of a schema. Keywords that llguidance does not support are
        dropped."""
        whole = schema if isinstance(schema, Mapping) else {}
        options = {"whitespace_pattern": WHITE_SPACE, "lenient": True}
        return self.rule(f"%json {json.dumps({**whole, 'x-guidance': options})}")

    def until(self, end: str) -> str:
        """Return an expression for any text up to and including an end text."""
        if self._tokenizer.added_id(end) is not None:
            return f"{self.rule(ANY_TEXT, name='ANY')} {self.mark(end)}"
        name = f"until{len(self._rules)}"
        self._rules[f"{name}[suffix={self.text(end)}]"] = ANY_TEXT
        return name

    def free(self, *, without: str) -> str:
        """Return an expression for any text without a marker."""
        if self._tokenizer.added_id(without) is not None:
            return self.rule(ANY_TEXT, name="ANY")
        letters = "".join(f"\\x{ord(letter):02x}" for letter in without)
        return self.rule(f"{ANY_TEXT} & ~/(?s:.*){letters}(?s:.*)/", name="FREE")

    def source(self, start: str) -> str:
        """Return the complete grammar."""
        rules = "\n".join(f"{name}: {body}" for name, body in self._rules.items())
        return f"%llguidance {{}}\nstart: {start}\n{rules}\n"


def any_call(lark: Lark, tools: Schemas, write: WriteCall) -> str:
    """Return an expression for a call of any of the tools."""
    return lark.rule(" | ".join(write(lark, name, schema) for name, schema in tools.items()))


def repeat_calls(call: str, between: str, *, many: bool) -> str:
    """Return an expression for one call, or for several separated by `between`."""
    return f"{call} ({between} {call})*" if many else call


def object_members(lark: Lark, members: Sequence[tuple[str, bool]], separator: str) -> str:
    """Return an expression for members in their order, with separators. Each member is paired with whether it
    is required."""
    later = first = '""'
    for member, required in reversed(members):
        alone, behind = f"{member} {later}", f"{lark.text(separator)} {member} {later}"
        first = lark.rule(alone if required else f"{alone} | {first}")
        later = lark.rule(behind if required else f"{behind} | {later}")
    return first
