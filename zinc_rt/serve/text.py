"""An answer's tokens on their way to text: whole characters, stop strings, logprobs, one choice at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

from zinc_rt.batching.completion import Answer, TokenLogprob
from zinc_rt.model.tokenizer import Tokenizer
from zinc_rt.sampling import Sampling
from zinc_rt.serve.requests import Delivered
from zinc_rt.text import TextOut


@dataclass(frozen=True, slots=True)
class Piece:
    """What is new of a choice. `text` may lag behind `token_ids`; `finish_reason` comes once, with the last."""

    index: int
    text: str
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: str | None = None


@dataclass(slots=True, eq=False)
class ChoiceText:
    """A choice while it is made, and as a whole when it is. `first`: the index of its request's first choice."""

    index: int
    tokenizer: Tokenizer | None
    sampling: Sampling
    end_ids: frozenset[int]
    answer: Answer = field(init=False)
    expired: bool = False  # its deadline ended it

    def __post_init__(self) -> None:
        decoder = None if self.tokenizer is None else self.tokenizer.stream_decoder()
        text_out = None if decoder is None else TextOut(decoder, self.sampling.stop)
        self.answer = Answer(self.index, text_out, self.end_ids)

    @property
    def stopped(self) -> bool:
        """Whether a stop string ended it, so that no more of it need be made."""
        return self.answer.stop is not None

    def feed(self, delivered: Delivered) -> Piece | None:
        """What becomes of a delivery; None where nothing can be told yet, or it had ended."""
        answer, first = self.answer, len(self.answer.token_ids)
        if answer.told:
            return None
        logprobs = delivered.logprobs or (None,) * len(delivered.token_ids)
        for token, logprob in zip(delivered.token_ids, logprobs, strict=True):
            if answer.feed(token, logprob):
                break
        if delivered.finish_reason is not None:
            self.expired = delivered.finish_reason == "deadline"
            answer.end("length" if self.expired else delivered.finish_reason)
        piece = answer.piece()
        if piece is None:
            return None
        return Piece(
            self.index, piece.text, piece.token_ids, tuple(answer.logprobs[first:]), piece.finish_reason
        )
