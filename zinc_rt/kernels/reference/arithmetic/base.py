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
        """Dequantise to float32 of `weight.shape`, by ggml's own formula: the same bits in every ordering."""
        ...

    def linear(self, x: np.ndarray, weight: Weight) -> np.ndarray:
        """Multiply x[..., K] by weight (N, K) -> [..., N]."""
        ...

    def with_wmma(self, ordering: str) -> Arithmetic:
        """Return this ordering with the `linear` of an ordering of ir.op.WMMA_FORMS. float32-dequant has no
        defined bits and returns itself."""
        ...

    def dot(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Compute dot products over the last axis of both; the other axes broadcast."""
        ...

    def exp(self, x: np.ndarray) -> np.ndarray: ...

    def log(self, x: np.ndarray) -> np.ndarray: ...

    def sigmoid(self, x: np.ndarray) -> np.ndarray: ...

    def silu(self, x: np.ndarray) -> np.ndarray: ...

    def tanh(self, x: np.ndarray) -> np.ndarray: ...

    def gelu(self, x: np.ndarray) -> np.ndarray:
        """Compute the tanh form of GELU."""
        ...

    def softplus(self, x: np.ndarray) -> np.ndarray:
        """Compute softplus: x above 20, else log(1 + exp(x)), as in llama.cpp."""
        ...

    def rsqrt(self, x: np.ndarray) -> np.ndarray:
        """Compute 1 / sqrt(x), rounding the root and the quotient separately."""
        ...

    def attention(
        self,
        q: np.ndarray,
        k: np.ndarray,
        v: np.ndarray,
        mask: np.ndarray,
        scale: float,
        cap: float = 0.0,
        sinks: np.ndarray | None = None,
    ) -> np.ndarray:
        """Compute softmax(q.k * scale) v -> [n, H, Dv]; with a cap, softmax(tanh(q.k * scale / cap) * cap) v.

        q[n, H, D], k[J, KV, D], v[J, KV, Dv]; query head h reads kv head h // (H // KV). mask is bool [n, J], True
        if the key is visible; j is the key's absolute position. Keys that no query sees may have any content. A
        query that sees no key yields zeros. Sinks[H] are logits of the softmax without a value.
        """
        ...
