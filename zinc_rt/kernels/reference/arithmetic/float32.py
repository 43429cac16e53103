"""float32-dequant: dequantised weights, the platform's BLAS and libm. Fast, checked with tolerances only."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from zinc_rt.kernels.reference.arithmetic.dequantise import dequantise
from zinc_rt.kernels.reference.arithmetic.rows import tokens_of
from zinc_rt.kernels.weight import Weight

BLOCK_ELEMENTS = 1 << 20  # weights dequantised at a time: 4 MiB
ONE = np.float32(1)
GELU_C0 = np.float32(0.79788456080286535587989211986876)  # sqrt(2/pi), ggml's SQRT_2_OVER_PI
GELU_C1 = np.float32(0.044715)  # ggml's GELU_COEF_A


class Float32Dequant:
    """float32 arithmetic with BLAS. BLAS chooses the order of its sums (by shape, thread count and chip), so
    results are not compared bit for bit.

    Threads are configured by BLAS's environment only.
    """

    name = "float32-dequant"

    def dequantise(self, weight: Weight) -> np.ndarray:
        return dequantise(weight)

    def linear(self, x: np.ndarray, weight: Weight) -> np.ndarray:
        rows, k = weight.shape
        flat = tokens_of(x, k)
        out = np.empty((len(flat), rows), np.float32)
        step = max(1, BLOCK_ELEMENTS // max(k, 1))
        for first in range(0, rows, step):
            block = dequantise(weight[first : first + step])
            np.matmul(flat, block.T, out=out[:, first : first + step])
        return out.reshape(*x.shape[:-1], rows)

    def with_wmma(self, ordering: str) -> Float32Dequant:
        return self

    def dot(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.asarray(np.sum(a * b, axis=-1, dtype=np.float32))

    def exp(self, x: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", under="ignore"):
            return np.exp(x)

    def log(self, x: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(x)

    def sigmoid(self, x: np.ndarray) -> np.ndarray:
        return ONE / (ONE + self.exp(-x))

    def silu(self, x: np.ndarray) -> np.ndarray:
        return x * self.sigmoid(x)

    def tanh(self, x: np.ndarray) -> np.ndarray:
        return np.tanh(x)

    def gelu(self, x: np.ndarray) -> np.ndarray:
        u = GELU_C0 * x * (ONE + GELU_C1 * x * x)
        return np.float32(0.5) * x * (ONE + np.tanh(u))

    def softplus(self, x: np.ndarray) -> np.ndarray:
        return np.where(x > 20, x, self.log(ONE + self.exp(x)))

    def rsqrt(self, x: np.ndarray) -> np.ndarray:
        return ONE / np.sqrt(x)

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
        (n, heads, _), kv_heads = q.shape, k.shape[1]
        group = heads // kv_heads
        out = np.zeros((n, heads, v.shape[2]), np.float32)
        for row, keys in _visible(mask):
            queries = q[row].reshape(kv_heads, group, -1)
            score = queries @ k[keys].transpose(1, 2, 0) * np.float32(scale)  # [KV, group, keys]
            if cap:
                score = self.tanh(score / np.float32(cap)) * np.float32(cap)
            m = score.max(axis=-1, keepdims=True)
            rest: np.ndarray | float = 0.0
            if sinks is not None:
                sink = sinks.reshape(kv_heads, group, 1)
                m = np.maximum(m, sink)
                rest = self.exp(sink - m)
            p = self.exp(score - m)
            o = p @ v[keys].transpose(1, 0, 2) / (p.sum(axis=-1, keepdims=True) + rest)
            out[row] = o.reshape(heads, -1)
        return out


def _visible(mask: np.ndarray) -> Iterator[tuple[int, slice | np.ndarray]]:
    """Yield (query, its keys) for each query that sees any key: a slice if they are adjacent, which copies
    nothing."""
    for row, visible in enumerate(mask):
        keys = np.flatnonzero(visible)
        if keys.size == 0:
            continue
        first, last = int(keys[0]), int(keys[-1])
        yield row, slice(first, last + 1) if last - first + 1 == keys.size else keys
