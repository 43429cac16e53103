"""Convert an answer's tokens to text: complete characters, stop strings, reasoning and tool calls."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Protocol

from zinc_rt.engine.answering import TextOutput, TokenLogprob
from zinc_rt.model.tokenizer import Tokenizer
from zinc_rt.serve.engine.requests import Delivered
from zinc_rt.serve.formats.parser import Delta


class TokenReader(Protocol):
    """A reader of one answer's tokens. Text after a stop string is dropped.

    `error`: why text that looked like a tool call is not a valid call. formats/answer_text.py implements it
    for chats.
    """

    @property
    def stopped(self) -> str | None: ...
    @property
    def calls(self) -> int: ...
    @property
    def error(self) -> str | None: ...
    def feed(self, token: int) -> list[Delta]: ...
    def close(self, *, cut: bool = False) -> list[Delta]: ...


class RawText:
    """The model's text, unchanged. `silent`: tokens that are not shown. Without a tokenizer the text is ""."""

    calls, error = 0, None

    def __init__(self, tokenizer: Tokenizer | None, stops: tuple[str, ...], silent: Container[int]) -> None:
        self._text = None if tokenizer is None else TextOutput(tokenizer.stream_decoder(), stops)
        self._silent = silent

    @property
    def stopped(self) -> str | None:
        return None if self._text is None else self._text.stopped

    def feed(self, token: int) -> list[Delta]:
        if self._text is None or token in self._silent:
            return []
        return _make_content_deltas(self._text.feed(token))

    def close(self, *, cut: bool = False) -> list[Delta]:
        return [] if self._text is None else _make_content_deltas(self._text.close())


def _make_content_deltas(text: str) -> list[Delta]:
    return [Delta(text)] if text else []


@dataclass(frozen=True, slots=True)
class ChoicePiece:
    """The new part of a choice. `deltas` may lag `token_ids`; `finish_reason` is set once, in the last piece."""

    index: int
    deltas: tuple[Delta, ...]
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: str | None = None


@dataclass(slots=True, eq=False)
class ToolCallText:
    """The part of a tool call generated so far."""

    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(slots=True, eq=False)
class ChoiceText:
    """The text of a choice, incremental and complete. `ended`: its finish_reason, "" before the end."""

    index: int
    reader: TokenReader
    shown: bool = True  # else nothing of it is wanted but its end
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    content: str = ""
    reasoning_content: str = ""
    reasoning_tokens: int = 0
    tool_calls: list[ToolCallText] = field(default_factory=list)
    ended: str = ""

    def feed(self, delivered: Delivered) -> ChoicePiece | None:
        """Return the new piece for a delivery, or None if it adds nothing."""
        if self.ended:
            return None
        first, deltas = len(self.token_ids), list[Delta]()
        for index, token in enumerate(delivered.token_ids if self.shown else ()):
            self.token_ids.append(token)
            if delivered.logprobs is not None:
                self.logprobs.append(delivered.logprobs[index])
            new = self.reader.feed(token)
            self.reasoning_tokens += any(delta.reasoning_content for delta in new)
            deltas += new
            if self.reader.stopped is not None:
                self.ended = "stop"
                break
        if not self.ended and (reason := delivered.finish_reason):
            self.ended = reason
        if self.ended:
            deltas += self.reader.close(cut=self.ended == "length")
            if self.reader.calls and self.ended == "stop":
                self.ended = "tool_calls"
        for delta in deltas:
            self._take(delta)
        new_ids = tuple(self.token_ids[first:])
        return ChoicePiece(self.index, tuple(deltas), new_ids, tuple(self.logprobs[first:]), self.ended or None)

    def _take(self, delta: Delta) -> None:
        self.content += delta.content
        self.reasoning_content += delta.reasoning_content
        for piece in delta.tool_calls:
            if piece.index == len(self.tool_calls):
                self.tool_calls.append(ToolCallText())
            call = self.tool_calls[piece.index]
            call.id, call.name = call.id or piece.id or "", call.name or piece.name or ""
            call.arguments += piece.arguments
