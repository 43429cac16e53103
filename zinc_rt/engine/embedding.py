"""Embeddings and scores: collect the hidden states of prompts from the steps of a model, and pool them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zinc_rt.model.pooling import Pooler, normalise
from zinc_rt.sched.plan import StepPlan


@dataclass(frozen=True, slots=True)
class Embedding:
    """The embedding of one text, f32 [D]; with pooling "none", f32 [T, D]; with a rank head, the score of each
    label, f32 [labels]. `cached_tokens` of the text's `prompt_tokens` came from the prefix cache."""

    values: np.ndarray
    prompt_tokens: int
    cached_tokens: int = 0


class HiddenStates:
    """The hidden states of prompts that are being computed, and the embeddings of computed ones until they are
    taken, by request number. One thread uses it."""

    def __init__(self, pooler: Pooler) -> None:
        self._pooler = pooler
        self._hidden: dict[int, np.ndarray] = {}
        self._pooled: dict[int, np.ndarray] = {}

    def collect(self, plan: StepPlan, hidden: np.ndarray) -> None:
        """Copy the prompts' rows of a step that has ended. `hidden`: f32 [tokens, D]."""
        index = plan.decode_tokens
        for piece in plan.prompts:
            number, rows = piece.request.number, hidden[index : index + piece.last - piece.first]
            index += len(rows)
            # the other rows have no effect, and may not be computed if they are cached
            if self._pooler.tokens == "last":
                if piece.draws:
                    self._pooled[number] = self._pooler.pool(rows)
                continue
            if number not in self._hidden:
                self._hidden[number] = np.zeros((piece.request.prompt, hidden.shape[1]), np.float32)
            self._hidden[number][piece.first : piece.last] = rows
            if piece.draws:
                self._pooled[number] = self._pooler.pool(self._hidden.pop(number))

    def take(self, number: int) -> np.ndarray | None:
        """Return the embedding of an ended request, None if it was not computed, and forget the request."""
        self._hidden.pop(number, None)
        return self._pooled.pop(number, None)


def shorten(embedding: np.ndarray, dimensions: int | None) -> np.ndarray:
    """Return the first elements of an embedding f32 [..., D], all if `dimensions` is None, with L2 norm 1."""
    return normalise(embedding[..., :dimensions])


def list_scores(embeddings: Sequence[Embedding], *, by_head: bool) -> list[float]:
    """Return the relevance of each document to a query. `by_head`: `embeddings` are the scores of a rank head for
    each document; otherwise those of the query and of each document, not normalised, and the relevance is their
    cosine similarity."""
    if by_head:
        return [float(item.values[0]) for item in embeddings]
    query, *documents = (shorten(item.values, None).astype(np.float64) for item in embeddings)
    return [float(query @ document) for document in documents]
