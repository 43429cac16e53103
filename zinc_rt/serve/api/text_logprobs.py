"""Logprobs as plain completions have them: lists over tokens, and where each begins in the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from zinc_rt.engine.answering import TokenLogprob
from zinc_rt.model.tokenizer import StreamDecoder, Tokenizer
from zinc_rt.serve.api.replies import TextLogprobs
from zinc_rt.serve.api.token_texts import LEAST_LOGPROB, token_text


@dataclass(slots=True, eq=False)
class TextOffsets:
    """Where tokens begin in a text that they are decoded to, one after the other."""

    tokenizer: Tokenizer | None
    offset: int = 0
    _decoder: StreamDecoder | None = field(init=False)

    def __post_init__(self) -> None:
        self._decoder = None if self.tokenizer is None else self.tokenizer.stream_decoder()

    def take(self, id: int) -> int:
        """Where this one begins; the next begins behind it."""
        begin = self.offset
        if (
            self.tokenizer is not None
            and self._decoder is not None
            and not (begin == 0 and id == self.tokenizer.bos_id)
        ):  # which no text shows
            self.offset += len(self._decoder.feed(id))
        return begin


def text_logprobs(
    tokenizer: Tokenizer | None, logprobs: Sequence[TokenLogprob | int], top: int, offsets: TextOffsets
) -> TextLogprobs:
    """Of tokens in a row; a bare token id is one without. The alternatives hold the token itself too."""
    made: TextLogprobs = {
        "tokens": [],
        "token_logprobs": [],
        "top_logprobs": [] if top else None,
        "text_offset": [],
    }
    for each in logprobs:
        id = each if isinstance(each, int) else each.token_id
        text = token_text(tokenizer, id)
        made["tokens"].append(text)
        made["text_offset"].append(offsets.take(id))
        if isinstance(each, int):
            made["token_logprobs"].append(None)
            alternatives = None
        else:
            logprob = max(each.logprob, LEAST_LOGPROB)
            made["token_logprobs"].append(logprob)
            alternatives = {token_text(tokenizer, id): max(value, LEAST_LOGPROB) for id, value in each.top}
            alternatives[text] = logprob
        if made["top_logprobs"] is not None:
            made["top_logprobs"].append(alternatives)
    return made
