"""The interface of an ordering: the reductions and approximated functions that kernels must not implement
themselves."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from zinc_rt.kernels.weight import Weight


class Arithmetic(Protocol):
    """One named arithmetic ordering. Arrays are float32 with any strides; results are new arrays in C order."""

    name: str

    def dequantise(self, weight: Weight) -> np.ndarray:
        """float32 of `weight.shape`, by ggml's own formula: the same bits in every ordering."""
        ...

    def linear(self, x: np.ndarray, weight: Weight) -> np.ndarray:
        """x[..., K] times weight (N, K) -> [..., N]."""
        ...

    def dot(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Over the last axis of both; the other axes broadcast."""
        ...

    def exp(self, x: np.ndarray) -> np.ndarray: ...

    def log(self, x: np.ndarray) -> np.ndarray: ...

    def sigmoid(self, x: np.ndarray) -> np.ndarray: ...

    def silu(self, x: np.ndarray) -> np.ndarray: ...

    def tanh(self, x: np.ndarray) -> np.ndarray: ...

    def gelu(self, x: np.ndarray) -> np.ndarray:
        """The tanh form."""
        ...

    def softplus(self, x: np.ndarray) -> np.ndarray:
        """x above 20, else log(1 + exp(x)): llama.cpp's form."""
        ...

    def rsqrt(self, x: np.ndarray) -> np.ndarray:
        """1 / sqrt(x), the root and the quotient each rounded."""
        ...

    def attention(self, q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray, scale: float) -> np.ndarray:
        """softmax(q.k * scale) v -> [n, H, Dv].

        q[n, H, D], k[J, KV, D], v[J, KV, Dv]; query head h reads kv head h // (H // KV). mask is bool [n, J],
        True where the key may be seen; j is the key's absolute position. Keys no query sees may hold anything.
        A query that sees no key gives zeros.
        """
        ...
