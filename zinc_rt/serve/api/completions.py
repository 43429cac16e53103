"""Response format of POST /v1/completions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from zinc_rt.engine.answering import TokenLogprob
from zinc_rt.model.tokenizer import StreamDecoder, Tokenizer
from zinc_rt.serve.api.answers import Answers
from zinc_rt.serve.api.replies import TextChoice, TextCompletion, TextLogprobs
from zinc_rt.serve.api.schema import CompletionBody
from zinc_rt.serve.api.shape import ReplyHead, is_empty_piece, make_extension_fields
from zinc_rt.serve.api.text import ChoicePiece
from zinc_rt.serve.api.token_texts import LEAST_LOGPROB, format_token_text


@dataclass(slots=True, eq=False)
class TextOffsets:
    """The text offsets of consecutive tokens."""

    tokenizer: Tokenizer | None
    offset: int = 0
    _decoder: StreamDecoder | None = field(init=False)

    def __post_init__(self) -> None:
        self._decoder = None if self.tokenizer is None else self.tokenizer.stream_decoder()

    def take(self, id: int) -> int:
        """Return the offset of this token and advance to the end of its text."""
        begin = self.offset
        if (
            self.tokenizer is not None
            and self._decoder is not None
            and not (begin == 0 and id == self.tokenizer.bos_id)
        ):  # which no text shows
            self.offset += len(self._decoder.feed(id))
        return begin


def format_text_logprobs(
    tokenizer: Tokenizer | None, logprobs: Sequence[TokenLogprob | int], top: int, offsets: TextOffsets
) -> TextLogprobs:
    """Return the logprobs of consecutive tokens. A bare token id has no logprob. The alternatives include the
    token itself."""
    legacy: TextLogprobs = {
        "tokens": [],
        "token_logprobs": [],
        "top_logprobs": [] if top else None,
        "text_offset": [],
    }
    for item in logprobs:
        id = item if isinstance(item, int) else item.token_id
        text = format_token_text(tokenizer, id)
        legacy["tokens"].append(text)
        legacy["text_offset"].append(offsets.take(id))
        if isinstance(item, int):
            legacy["token_logprobs"].append(None)
            alternatives = None
        else:
            logprob = max(item.logprob, LEAST_LOGPROB)
            legacy["token_logprobs"].append(logprob)
            alternatives = {format_token_text(tokenizer, id): max(value, LEAST_LOGPROB) for id, value in item.top}
            alternatives[text] = logprob
        if legacy["top_logprobs"] is not None:
            legacy["top_logprobs"].append(alternatives)
    return legacy


@dataclass(frozen=True, slots=True)
class Echo:
    """The echoed prompt that precedes an answer: its text and, if logprobs are requested, its tokens with
    their logprobs."""

    text: str = ""
    logprobs: Sequence[TokenLogprob | int] = ()


class TextShape:
    """Completion chunks. `echoes`: the echo that precedes each answer, by prompt; empty if echo was not
    requested."""

    chunk_object = "text_completion"

    def __init__(
        self, answers: Answers, body: CompletionBody, head: ReplyHead, echoes: Sequence[Echo] = ()
    ) -> None:
        self.answers, self.body, self.head = answers, body, head
        tokenizer = answers.model.core.tokenizer
        self._echoes = [echo for echo in echoes for _ in range(body.n or 1)] or [Echo()] * len(answers.choices)
        self._offsets = [TextOffsets(tokenizer) for _ in self._echoes]
        self._told = [False] * len(self._echoes)

    def delta(self, piece: ChoicePiece) -> dict[str, Any] | None:
        index, text = piece.index, "".join(delta.content for delta in piece.deltas)
        logprobs: Sequence[TokenLogprob | int] = piece.logprobs
        if not self._told[index]:
            self._told[index], echo = True, self._echoes[index]
            text, logprobs = echo.text + text, [*echo.logprobs, *logprobs]
        if not text and is_empty_piece(piece, self.body):
            return None
        choice: dict[str, Any] = {
            "index": index,
            "text": text,
            "logprobs": self._format_logprobs(index, logprobs),
            "finish_reason": piece.finish_reason,
        }
        if self.body.return_token_ids:
            choice["token_ids"] = list(piece.token_ids)
        return choice

    def whole(self) -> TextCompletion:
        return {
            **self.head.fields("text_completion"),  # type: ignore[typeddict-item]
            "choices": [self._format_choice(index) for index in range(len(self.answers.choices))],
            "usage": self.answers.usage(),
            "zinc_rt": make_extension_fields(self.answers),
        }

    def _format_choice(self, index: int) -> TextChoice:
        answer = self.answers.choices[index]
        echo = self._echoes[index]
        choice: TextChoice = {
            "index": index,
            "text": echo.text + answer.content,
            "logprobs": self._format_logprobs(index, [*echo.logprobs, *answer.logprobs]),
            "finish_reason": answer.ended,
        }
        if self.body.return_token_ids:
            choice["token_ids"] = list(answer.token_ids)
            choice["prompt_token_ids"] = list(self.answers.asks[index // (self.body.n or 1)].tokens)
        return choice

    def _format_logprobs(self, index: int, logprobs: Sequence[TokenLogprob | int]) -> TextLogprobs | None:
        if self.body.logprobs is None:
            return None
        tokenizer = self.answers.model.core.tokenizer
        return format_text_logprobs(tokenizer, logprobs, self.body.logprobs, self._offsets[index])
