"""The output format of a model family as a table row: its markers, and the parser of a tool call's content."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zinc_rt.serve.formats.lark import Lark

Tools = Mapping[str, Mapping[str, Any]]  # by a function's name, the JSON schema of its arguments


@dataclass(frozen=True, slots=True)
class Mark:
    """A marker in an answer: its special token or, if the vocabulary has none, its text."""

    text: str


Part = str | Mark


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A complete call. `arguments`: the text of a JSON object."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class CallBegin:
    """A call whose arguments have begun. `at`: where in the call's text their first character is, a "{"."""

    name: str
    at: int


class MalformedCall(ValueError):
    """The text at the position of a call is not a valid call; the message states the reason."""


def call_id() -> str:
    """Return a random call id in OpenAI's format."""
    return f"call_{secrets.token_hex(12)}"


def no_calls(parts: Sequence[Part], tools: Tools) -> list[ToolCall]:
    """Reject calls; for formats without tool calls."""
    raise MalformedCall("this model's format does not support tool calls")


def no_begin(parts: Sequence[Part]) -> CallBegin | None:
    """Find no arguments; for formats whose arguments are not JSON, or are not the last part of a call."""
    return None


@dataclass(frozen=True, slots=True)
class Headers:
    """The syntax of an answer that is a sequence of messages, each with a header.

    `opens`: markers that begin a header; `begins`: the marker between header and text; `ends`: markers that end a
    message. A prompt ends after the first `opens` and the role. `recipient`: how a header without a marker begins.
    `kind`: return "content", "reasoning" or "call" for a header. `answer`: the header of the answer itself.
    """

    opens: tuple[str, ...]
    begins: str
    ends: tuple[str, ...]
    recipient: str
    kind: Callable[[str], str]
    answer: str

    def find_open_header(self, prompt: str) -> tuple[str, bool]:
        """Return the header in which, or in whose message, the prompt ends, and whether its message has begun."""
        header, begun, _ = prompt.rpartition(self.opens[0])[2].partition(self.begins)
        return header, bool(begun)


Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Format:
    """A row of the format table. `fits`: whether a chat template's text belongs to this family.

    `reasoning` and `call`: the start and end markers; an end marker "" means until the next start marker, or the
    end. `inner`: markers that have a meaning inside a call. `reasoning_title`: the text that precedes the
    reasoning. `call_ends_reasoning`: a call may follow unclosed reasoning. `bare`: an answer that begins with {
    is a call without a marker. `read`: parse the content of a call; raises MalformedCall. `demand`: return a Lark
    rule body for the text after the start marker, a call of one of the tools or a list of several; None if calls
    cannot be forced. `allow`: return a Lark rule body for any answer with valid calls, where it is not text
    around calls. `find_arguments`: in the first parts of a call, so that its arguments can be streamed.
    `between`: the separator of two forced calls; None if only one is possible. `headers`: the answer is a
    sequence of messages; `read` gets the header of a call as its first part. `adapt_messages`, `adapt_tool`: give
    a conversation, and the definition of a tool, the form that the family's template accepts.
    """

    name: str
    fits: Callable[[str], bool]
    reasoning: tuple[str, str] | None = None
    call: tuple[str, str] | None = None
    inner: tuple[str, ...] = ()
    reasoning_title: str = ""
    call_ends_reasoning: bool = False
    bare: bool = False
    read: Callable[[Sequence[Part], Tools], list[ToolCall]] = no_calls
    demand: Callable[[Lark, Tools, bool], str] | None = None
    allow: Callable[[Lark, Tools], str] | None = None
    between: str | None = None
    headers: Headers | None = None
    adapt_messages: Callable[[list[Fields]], list[Fields]] = list
    adapt_tool: Callable[[Fields], Fields] = dict
    call_id: Callable[[], str] = call_id
    find_arguments: Callable[[Sequence[Part]], CallBegin | None] = no_begin

    @property
    def marks(self) -> tuple[str, ...]:
        """Return all markers."""
        return tuple(filter(None, (*(self.reasoning or ()), *(self.call or ()), *self.inner)))

    def opens_reasoning(self, prompt: str) -> bool:
        """Return whether a prompt ends inside reasoning, so that the answer begins with reasoning."""
        return self.reasoning is not None and prompt.rstrip().endswith(self.reasoning[0])


def text_of(parts: Sequence[Part]) -> str:
    """Return the parts as written by the model."""
    return "".join(part.text if isinstance(part, Mark) else part for part in parts)
