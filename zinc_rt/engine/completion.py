"""What comes back of a request: its answer as a whole, or piece by piece as it is made."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from zinc_rt.engine.text_out import TextOut


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token and its logprob at temperature 1, before any filter or penalty; `top`: the likeliest in its place,
    with theirs, falling."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer. `finish_reason`: "stop" at an end token, a stop token or a stop string (then `stop` says which
    string), "length" at max_tokens, else what ended it early ("cancelled", "deadline", "logits_not_finite").

    `token_ids` has the end token too, `text` neither that nor a stop string; without a tokenizer it is "". `seed`
    makes the same answer again. `index`: which of the prompt's n answers. `cached_tokens` of the prompt's
    `prompt_tokens` were not computed again.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    seed: int
    index: int = 0
    stop: str | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TextPiece:
    """What is new of an answer. `text` has whole characters only and may lag behind `token_ids`; `finish_reason`
    is there in an answer's last piece."""

    text: str
    token_ids: tuple[int, ...]
    index: int = 0
    finish_reason: str | None = None


@dataclass(slots=True, eq=False)
class Answer:
    """An answer while it is made. `silent`: tokens that are not shown, as end tokens; `text_out` is None without a
    tokenizer. `ended` is "" until it is complete."""

    index: int
    text_out: TextOut | None
    silent: Container[int] = ()
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    text: str = ""
    ended: str = ""
    _shown: tuple[int, int, bool] = (0, 0, False)  # tokens, characters and the end that were in a piece already

    def feed(self, token: int, logprob: TokenLogprob | None = None) -> bool:
        """Take a token; whether a stop string is complete with it. What comes after the end is dropped."""
        if self.ended:
            return False
        self.token_ids.append(token)
        if logprob is not None:
            self.logprobs.append(logprob)
        if self.text_out is None or token in self.silent:
            return False
        self.text += self.text_out.feed(token)
        if self.stop is None:
            return False
        self.end("stop")
        return True

    def end(self, reason: str) -> None:
        """Nothing more comes. Only the first reason counts."""
        if not self.ended:
            self.ended = reason
            self.text += self.text_out.close() if self.text_out is not None else ""

    @property
    def told(self) -> bool:
        """Whether its end was in a piece."""
        return self._shown[2]

    @property
    def stop(self) -> str | None:
        return self.text_out.stopped if self.text_out is not None else None

    def piece(self) -> TextPiece | None:
        """What is new since the last piece; None where nothing is."""
        tokens, characters, ended = self._shown
        self._shown = now = len(self.token_ids), len(self.text), bool(self.ended)
        if now == (tokens, characters, ended):
            return None
        return TextPiece(self.text[characters:], tuple(self.token_ids[tokens:]), self.index, self.ended or None)
