"""POST /v1/completions as it is written: prompts that go on as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zinc_rt.batching.completion import TokenLogprob
from zinc_rt.serve.answers import Answers
from zinc_rt.serve.replies import TextChoice, TextCompletion, TextLogprobs
from zinc_rt.serve.schema import CompletionBody
from zinc_rt.serve.shape import ReplyHead, our_part, says_nothing
from zinc_rt.serve.text import ChoicePiece
from zinc_rt.serve.text_logprobs import TextOffsets, text_logprobs


class TextShape:
    """`echoes`: by prompt, the text that stands before each of its answers."""

    chunk_object = "text_completion"

    def __init__(self, answers: Answers, body: CompletionBody, head: ReplyHead, echoes: Sequence[str]) -> None:
        self.answers, self.body, self.head = answers, body, head
        self._echoes = [text for text in echoes for _ in range(body.n or 1)]
        self._offsets = [TextOffsets(answers.model.core.tokenizer, len(text)) for text in self._echoes]
        self._told = [False] * len(self._echoes)

    def delta(self, piece: ChoicePiece) -> dict[str, Any] | None:
        at, text = piece.index, "".join(delta.content for delta in piece.deltas)
        if not self._told[at]:
            self._told[at], text = True, self._echoes[at] + text
        if not text and says_nothing(piece, self.body):
            return None
        choice: dict[str, Any] = {
            "index": at,
            "text": text,
            "logprobs": self._logprobs(at, piece.logprobs),
            "finish_reason": piece.finish_reason,
        }
        if self.body.return_token_ids:
            choice["token_ids"] = list(piece.token_ids)
        return choice

    def whole(self) -> TextCompletion:
        return {
            **self.head.fields("text_completion"),  # type: ignore[typeddict-item]
            "choices": [self._choice(at) for at in range(len(self.answers.choices))],
            "usage": self.answers.usage(),
            "zinc_rt": our_part(self.answers),
        }

    def _choice(self, at: int) -> TextChoice:
        answer = self.answers.choices[at]
        choice: TextChoice = {
            "index": at,
            "text": self._echoes[at] + answer.content,
            "logprobs": self._logprobs(at, answer.logprobs),
            "finish_reason": answer.ended,
        }
        if self.body.return_token_ids:
            choice["token_ids"] = list(answer.token_ids)
            choice["prompt_token_ids"] = list(self.answers.asks[at // (self.body.n or 1)].tokens)
        return choice

    def _logprobs(self, at: int, logprobs: Sequence[TokenLogprob]) -> TextLogprobs | None:
        if self.body.logprobs is None:
            return None
        core = self.answers.model.core
        shown = [each for each in logprobs if each.token_id not in core.end_ids]
        return text_logprobs(core.tokenizer, shown, self.body.logprobs, self._offsets[at])
