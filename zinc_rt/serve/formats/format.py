"""A family's way to write reasoning and tool calls, as a row: its marks, and how the inside of a call is read."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zinc_rt.serve.formats.lark import Lark

Tools = Mapping[str, Mapping[str, Any]]  # by a function's name, the JSON schema of its arguments


@dataclass(frozen=True, slots=True)
class Mark:
    """A marker in an answer: its special token or, where the vocabulary has none, its text."""

    text: str


Part = str | Mark


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A whole call. `arguments`: the text of a JSON object."""

    name: str
    arguments: str


class MalformedCall(ValueError):
    """What stands where a call should be is none; the message says why."""


def call_id() -> str:
    """As OpenAI's look."""
    return f"call_{secrets.token_hex(12)}"


def no_calls(parts: Sequence[Part], tools: Tools) -> list[ToolCall]:
    """Of a format without calls."""
    raise MalformedCall("this model's format has no tool calls")


@dataclass(frozen=True, slots=True)
class Format:
    """A row of the table. `fits`: whether a chat template's text is of this family.

    `reasoning` and `call`: the marks in front and behind; "" behind: until the next mark in front, or the end.
    `inner`: marks that count inside a call. `reasoning_title`: what stands before the reasoning itself.
    `call_ends_reasoning`: a call may follow reasoning that was never closed. `bare`: an answer that begins with {
    is a call without a mark. `read`: the inside of a call; raises MalformedCall. `demand`: a Lark rule
    body for what stands behind the mark in front, a call of one of the tools, or a list of several; None: none can
    be demanded. `between`: what stands between two such; None: there is one.
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
    between: str | None = None
    call_id: Callable[[], str] = call_id

    @property
    def marks(self) -> tuple[str, ...]:
        """All that mean something."""
        return tuple(filter(None, (*(self.reasoning or ()), *(self.call or ()), *self.inner)))

    def opens_reasoning(self, prompt: str) -> bool:
        """Whether a prompt ends inside reasoning, so that the answer begins there."""
        return self.reasoning is not None and prompt.rstrip().endswith(self.reasoning[0])


def text_of(parts: Sequence[Part]) -> str:
    """As it was written."""
    return "".join(part.text if isinstance(part, Mark) else part for part in parts)
