"""The reference of a judgement: the model on the CPU in canonical-1, whose bits do not depend on the machine.

A second, faster ordering of the same model shows which difference its arithmetic alone can make: other engines
quantise activations too, so the limits for them come from that measurement and not from a fixed number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from zinc_rt.engine.answering import Answering
from zinc_rt.engine.opening import ModelOptions, make_engine_opener
from zinc_rt.model.tokenizer.tokenizer import Tokenizer
from zinc_rt.validate.measure import log_softmax

BYTES = "bytes:"  # before the escaped bytes of a token that is not valid UTF-8, as in OpenAI's API
KEPT_PROMPTS = 256  # results of the last prompts
ROWS = 64  # of logits a step
QUANTISED_ACTIVATIONS = "canonical-1-q8"


@dataclass(slots=True)
class Oracle:
    """The reference model. Log-probabilities are natural logarithms of the whole vocabulary, f64."""

    core: Answering
    _rows: dict[tuple[int, ...], np.ndarray] = field(default_factory=dict)
    _greedy: dict[tuple[tuple[int, ...], int], tuple[int, ...]] = field(default_factory=dict)
    _ids: dict[str, int | None] = field(default_factory=dict)

    @property
    def tokenizer(self) -> Tokenizer:
        return self.core.require_tokenizer("zinc-rt judge")

    @property
    def ctx(self) -> int:
        return self.core.engine.limits.ctx

    @property
    def has_template(self) -> bool:
        return bool(self.core.engine.model.gguf.metadata.get("tokenizer.chat_template"))

    def chat_text(self, messages: Sequence[Mapping[str, Any]]) -> str:
        return self.core.render_chat(messages)

    def chat_tokens(self, messages: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
        return tuple(self.core.encode_chat(self.chat_text(messages)))

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text))

    def find_token(self, text: str) -> int | None:
        """Return the id of the only token with this text, or None. A token that is not valid UTF-8 is written as
        in OpenAI's API: bytes: and its escaped bytes.
        """
        if not self._ids:
            for token in range(self.tokenizer.vocab_size):
                piece = _format_bytes(self.tokenizer.piece_bytes(token))
                self._ids[piece] = None if piece in self._ids else token
        return self._ids.get(text)

    def is_partial(self, token: int) -> bool:
        """Return whether a token is not valid UTF-8 on its own: it begins or ends inside a character."""
        return _format_bytes(self.tokenizer.piece_bytes(token)).startswith(BYTES)

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text of an answer, without control tokens."""
        return b"".join(
            self.tokenizer.piece_bytes(token) for token in tokens if not self.tokenizer.is_special(token)
        ).decode(errors="replace")

    def rows(self, tokens: Sequence[int], first: int) -> np.ndarray:
        """Return log-probabilities f64 [len(tokens) - first, V] of the token after each position from `first`
        on.
        """
        key = (first, *tokens)
        if key not in self._rows:
            if len(self._rows) >= KEPT_PROMPTS:
                self._rows.pop(next(iter(self._rows)))
            self._rows[key] = log_softmax(self._compute_logits(tokens, first))
        return self._rows[key]

    def continue_greedily(self, prompt: Sequence[int], count: int) -> tuple[int, ...]:
        """Return the most likely continuation, at most `count` tokens, with the end token if it is reached."""
        key = (tuple(prompt), count)
        if key not in self._greedy:
            self._greedy[key] = tuple(self._continue(prompt, count))
        return self._greedy[key]

    def _continue(self, prompt: Sequence[int], count: int) -> Iterator[int]:
        engine = self.core.engine
        sequence = engine.open()
        try:
            logits = engine.extend(sequence, prompt, rows="last")
            for number in range(count):
                token = int(logits[-1].argmax())
                yield token
                if token in self.tokenizer.eog_ids or number + 1 == count:
                    return
                logits = engine.extend(sequence, [token], rows="last")
        finally:
            engine.release(sequence)

    def _compute_logits(self, tokens: Sequence[int], first: int) -> np.ndarray:
        engine = self.core.engine
        sequence, logits, start = engine.open(), [], 0
        try:
            while start < len(tokens):
                step = engine.limits.step_tokens
                size = min(step, first - start) if start < first else min(step, ROWS)
                part = tokens[start : start + size]
                rows = range(len(part)) if start >= first else ()
                logits.append(engine.step([(sequence, part)], list(rows)))
                start += size
        finally:
            engine.release(sequence)
        return np.concatenate(logits)


@contextmanager
def open_oracle(
    model: str | Path, ctx: int, *, ordering: str = "canonical-1", threads: int = 0
) -> Iterator[Oracle]:
    """Open the reference. Raises as LLM does."""
    opener = make_engine_opener(
        model, ModelOptions(device="cpu", slots=1, ctx=ctx, ordering=ordering, threads=threads)
    )
    core = Answering(replace(opener, limits=replace(opener.limits, rows=ROWS))())
    try:
        yield Oracle(core)
    finally:
        core.close()


def _format_bytes(piece: bytes) -> str:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return BYTES + "".join(f"\\x{byte:02x}" for byte in piece)
