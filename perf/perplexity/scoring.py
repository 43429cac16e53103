"""Compute perplexity and KL divergence: how well a model predicts a text, and the distance of two computations.

Defined as llama-perplexity defines them (llama.cpp, tools/perplexity/perplexity.cpp, commit 050fc7f): the text is
cut into chunks of `ctx` tokens, each read from an empty context, its first token replaced by the beginning-of-text
token where the tokenizer adds one; of each chunk the predictions of its second half are scored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from zinc_rt.engine.engine import Engine
from zinc_rt.host.errors import CheckFailed, UsageError
from zinc_rt.validate.measure import log_softmax

PIECE = 128  # tokens a step
GROUP = 16  # rows that are turned into float64 at once
LEAST_CTX = 4  # so that a chunk has a scored token
QUANTILES = (1.0, 0.999, 0.99, 0.95, 0.9, 0.5, 0.1, 0.05, 0.01, 0.001, 0.0)  # as llama-perplexity prints them


@dataclass(frozen=True, slots=True)
class TextChunk:
    """A chunk. `tokens` are the model's input. Row `first + i` of its logits predicts `targets[i]`."""

    tokens: tuple[int, ...]
    first: int
    targets: np.ndarray  # i32


def count_scored_tokens(ctx: int) -> int:
    """Return the number of scored predictions of a chunk: those of the second half, except the last token's."""
    return ctx - ctx // 2 - 1


def split_chunks(
    tokens: Sequence[int], ctx: int, *, bos: int | None = None, maximum: int | None = None
) -> list[TextChunk]:
    """Split a text into chunks. Raise UsageError for a text shorter than a chunk, and for invalid counts."""
    if ctx < LEAST_CTX:
        raise UsageError(f"--ctx {ctx}: expected {LEAST_CTX} tokens or more per chunk")
    if maximum is not None and maximum < 1:
        raise UsageError(f"--chunks {maximum}: expected 1 or more")
    count = len(tokens) // ctx
    if not count:
        raise UsageError(
            f"the text has {len(tokens)} tokens, but a chunk has {ctx}",
            next="use a longer text or a smaller --ctx",
        )
    pieces = []
    for number in range(count if maximum is None else min(maximum, count)):
        own = list(tokens[number * ctx : (number + 1) * ctx])
        targets = np.array(own[ctx // 2 + 1 :], np.int32)
        if bos is not None:
            own[0] = bos
        pieces.append(TextChunk(tuple(own), ctx // 2, targets))
    return pieces


def iterate_rows(engine: Engine, chunk: TextChunk) -> Iterator[np.ndarray]:
    """Yield the scored logits, f32 [n, V] at a time, in order. Raise CheckFailed for a non-finite logit."""
    sequence = engine.open()
    last = len(chunk.tokens) - 1  # nothing follows its prediction
    try:
        for start in range(0, len(chunk.tokens), PIECE):
            part = chunk.tokens[start : start + PIECE]
            scored = [index for index in range(len(part)) if chunk.first <= start + index < last]
            logits = engine.step([(sequence, part)], scored, role="prompt")
            if np.isnan(logits).any():
                row, token = map(int, np.argwhere(np.isnan(logits))[0])
                raise CheckFailed(
                    f"position {start + scored[row]}: logit {token} is not a number",
                    next="zinc-rt validate shows the layer in which it starts",
                )
            if scored:
                yield logits
    finally:
        engine.release(sequence)


@dataclass(slots=True)
class TokenScores:
    """The scores of every token, in order, with natural logarithms. `nll` is the negative log-probability. With a
    base, also the base's, the divergence KL(base || this) of the whole distribution, the difference of the token's
    probability, whether both have the same most likely token, and whether their logits have the same bits.
    """

    nll: list[float] = field(default_factory=list)
    base_nll: list[float] = field(default_factory=list)
    kl: list[float] = field(default_factory=list)
    p_diff: list[float] = field(default_factory=list)
    same_top: list[bool] = field(default_factory=list)
    same_bits: list[bool] = field(default_factory=list)

    def add(self, logits: np.ndarray, targets: np.ndarray, base: np.ndarray | None = None) -> None:
        """Add logits f32 [n, V] and targets i32 [n]; `base` are the logits of the base."""
        for start in range(0, len(targets), GROUP):
            stop = start + GROUP
            other = None if base is None else base[start:stop]
            self._group(logits[start:stop], targets[start:stop], other)

    def _group(self, logits: np.ndarray, targets: np.ndarray, base: np.ndarray | None) -> None:
        rows = np.arange(len(targets))
        own = log_softmax(logits)
        picked = own[rows, targets]
        self.nll += (-picked).tolist()
        if base is None:
            return
        theirs = log_softmax(base)
        self.base_nll += (-theirs[rows, targets]).tolist()
        weight = np.exp(theirs)
        with np.errstate(invalid="ignore"):  # tokens that are impossible in the base do not count
            terms = np.where(weight > 0, weight * (theirs - own), 0.0)
        # rounding alone can bring a sum of equal distributions below 0
        self.kl += np.maximum(terms.sum(axis=1), 0.0).tolist()
        self.p_diff += (np.exp(picked) - weight[rows, targets]).tolist()
        self.same_top += (logits.argmax(axis=1) == base.argmax(axis=1)).tolist()
        self.same_bits += (logits.view(np.uint32) == base.view(np.uint32)).all(axis=1).tolist()


def compute_mean_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and its standard error: the square root of the variance over n - 1."""
    array = np.asarray(values, np.float64)
    mean = float(array.mean())
    return mean, math.sqrt(float(np.square(array - mean).mean()) / (len(array) - 1)) if len(array) > 1 else 0.0


@dataclass(frozen=True, slots=True)
class ValueAndError:
    """A value with its standard error."""

    value: float
    error: float


def compute_perplexity(nll: Sequence[float]) -> ValueAndError:
    mean, error = compute_mean_error(nll)
    value = math.exp(mean)
    return ValueAndError(value, value * error)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of a computation with a base. Quantiles are by share. Δp is the difference of the correct
    token's probability. `same_bits` counts rows of logits.
    """

    base: ValueAndError
    log_ratio: ValueAndError  # ln(PPL / PPL base)
    correlation: float  # of both's log-probabilities; NaN where one does not vary
    kl: ValueAndError
    kl_quantiles: dict[float, float]
    p_diff: ValueAndError
    p_diff_rms: ValueAndError
    p_diff_quantiles: dict[float, float]
    same_top: ValueAndError  # a share
    same_bits: int


def compare_with_base(scores: TokenScores) -> Comparison:
    """Return the comparison of scores with their base."""
    count = len(scores.nll)
    own, base = (np.asarray(item, np.float64) for item in (scores.nll, scores.base_nll))
    (mean, error), (base_mean, base_error) = compute_mean_error(scores.nll), compute_mean_error(scores.base_nll)
    covariance = float(((own - mean) * (base - base_mean)).mean()) / (count - 1) if count > 1 else 0.0
    variance = error * error + base_error * base_error - 2 * covariance
    squares = np.square(np.asarray(scores.p_diff, np.float64))
    square, square_error = compute_mean_error(squares.tolist())
    rms = math.sqrt(square)
    same = float(np.mean(scores.same_top))
    return Comparison(
        base=compute_perplexity(scores.base_nll),
        log_ratio=ValueAndError(mean - base_mean, math.sqrt(max(0.0, variance))),
        correlation=covariance / (error * base_error) if error and base_error else math.nan,
        kl=ValueAndError(*compute_mean_error(scores.kl)),
        kl_quantiles=_compute_quantiles(scores.kl),
        p_diff=ValueAndError(*compute_mean_error(scores.p_diff)),
        p_diff_rms=ValueAndError(rms, 0.5 / rms * square_error if rms else 0.0),
        p_diff_quantiles=_compute_quantiles(scores.p_diff),
        same_top=ValueAndError(same, math.sqrt(same * (1 - same) / (count - 1)) if count > 1 else 0.0),
        same_bits=sum(scores.same_bits),
    )


def _compute_quantiles(values: Sequence[float]) -> dict[float, float]:
    return {share: float(np.quantile(values, share)) for share in QUANTILES}


Rows = Callable[[int], np.ndarray]  # the next so many rows of logits, f32 [n, V]


def score_chunks(
    engine: Engine,
    parts: Sequence[TextChunk],
    *,
    base: Rows | None = None,
    keep: Callable[[np.ndarray], None] = lambda rows: None,
    chunk_done: Callable[[int, TokenScores], None] = lambda number, scores: None,
) -> TokenScores:
    """Score every chunk on the engine. `base` returns rows of the base as needed; `keep` receives each computed
    row.
    """
    scores = TokenScores()
    for number, chunk in enumerate(parts):
        index = 0
        for rows in iterate_rows(engine, chunk):
            keep(rows)
            targets = chunk.targets[index : index + len(rows)]
            scores.add(rows, targets, None if base is None else base(len(rows)))
            index += len(rows)
        chunk_done(number, scores)
    return scores


def make_row_source(engine: Engine, parts: Sequence[TextChunk]) -> Rows:
    """Use another engine as a base that computes rows on demand."""
    pending = np.empty((0, engine.model.vocab), np.float32)
    pieces = (piece for chunk in parts for piece in iterate_rows(engine, chunk))

    def compute_rows(count: int) -> np.ndarray:
        nonlocal pending
        while len(pending) < count:
            pending = np.concatenate([pending, next(pieces)])
        taken, pending = pending[:count], pending[count:]
        return taken

    return compute_rows
