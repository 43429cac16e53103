"""Embedding models: which files have one, and how the hidden states of a text become its embedding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from zinc_rt.host.errors import InputError
from zinc_rt.kernels.reference.arithmetic.dequantise import dequantise
from zinc_rt.kernels.weight import Weight
from zinc_rt.model.gguf import GGUFFile

POOLINGS = ("none", "mean", "cls", "last", "rank")  # enum llama_pooling_type in llama.cpp include/llama.h
ENCODERS = ("bert", "nomic-bert")  # architectures without a vocabulary head

_POOL: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean": lambda hidden: hidden.mean(axis=0, dtype=np.float64).astype(np.float32),
    "cls": lambda hidden: hidden[0].copy(),
    "last": lambda hidden: hidden[-1].copy(),
    "none": np.copy,
}


@dataclass(frozen=True, slots=True)
class RankHead:
    """The classification head of a reranker: weights of the file, `dense` (D, D) and `output` (labels, D). It
    reads the hidden state of one token, the last one if `last`, else the first. `softmax`: of the labels. Facts:
    llama.cpp src/llama-graph.cpp, build_pooling."""

    dense: Weight | None
    dense_bias: Weight | None
    output: Weight
    output_bias: Weight | None
    last: bool
    softmax: bool


class RankScorer:
    """A rank head with dequantised weights. It computes in float64 on every tier, as a mean is: one row for each
    text."""

    def __init__(self, head: RankHead) -> None:
        self._dense, self._dense_bias = _widen(head.dense), _widen(head.dense_bias)
        self._output, self._output_bias = dequantise(head.output).astype(np.float64), _widen(head.output_bias)
        self._softmax = head.softmax

    def score(self, hidden: np.ndarray) -> np.ndarray:
        """Return the score of each label, f32 [labels], from a hidden state, f32 [D]. The first one is the
        relevance of a document."""
        values = hidden.astype(np.float64)
        if self._dense is not None:
            values = np.tanh(_project(values, self._dense, self._dense_bias))
        values = _project(values, self._output, self._output_bias)
        if self._softmax:
            powers = np.exp(values - values.max())
            values = powers / powers.sum()
        return values.astype(np.float32)


class Pooler:
    """How the hidden states of a text become its embedding, or with a rank head its scores. `tokens`: the pooling
    of the tokens' hidden states."""

    def __init__(self, pooling: str, head: RankHead | None = None) -> None:
        self.tokens = pooling if head is None else "last" if head.last else "cls"
        self._scorer = None if head is None else RankScorer(head)

    def pool(self, hidden: np.ndarray) -> np.ndarray:
        """Return what `pool` and the rank head make of hidden states, f32 [T, D]."""
        pooled = pool(hidden, self.tokens)
        return pooled if self._scorer is None else self._scorer.score(pooled)


def _widen(weight: Weight | None) -> np.ndarray | None:
    return None if weight is None else dequantise(weight).astype(np.float64)


def _project(values: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    product: np.ndarray = (weight * values).sum(axis=1)  # not BLAS, whose order depends on its number of threads
    return product if bias is None else product + bias


def find_pooling(gguf: GGUFFile) -> str:
    """Return the pooling of an embedding model, one of POOLINGS, or "" for a model that generates text. A decoder
    with pooling "none" generates text. Raise InputError for an unknown kind."""
    number = gguf.metadata.get(f"{gguf.architecture}.pooling_type", 0)
    if not isinstance(number, int) or not 0 <= number < len(POOLINGS):
        raise InputError(
            f"{gguf.path}: {gguf.architecture}.pooling_type is {number!r}, expected 0 to {len(POOLINGS) - 1}"
        )
    return POOLINGS[number] if number or gguf.architecture in ENCODERS else ""


def needs_whole_sequences(gguf: GGUFFile) -> bool:
    """Return whether every token sees its whole sequence, so that one step must compute all of it."""
    return gguf.metadata.get(f"{gguf.architecture}.attention.causal") is False


def pool(hidden: np.ndarray, pooling: str) -> np.ndarray:
    """Return the embedding of a text, f32 [D], from the hidden state of each of its tokens, f32 [T, D]; with
    pooling "none", all of them. A mean is computed in float64 on every tier. It is not normalised."""
    return _POOL[pooling](hidden)


def normalise(embedding: np.ndarray) -> np.ndarray:
    """Return an embedding f32 [..., D] divided by its L2 norm. A zero vector is returned as it is."""
    wide = embedding.astype(np.float64)
    norm = np.sqrt((wide * wide).sum(axis=-1, keepdims=True))
    return (wide / np.where(norm == 0, 1.0, norm)).astype(np.float32)
