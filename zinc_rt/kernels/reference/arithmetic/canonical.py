"""canonical-1, the default ordering: every result is defined to the bit by docs/canonical-1.md."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arithmetic import activations, exp_log, wmma
from zinc_rt.kernels.reference.arithmetic.attention import attend
from zinc_rt.kernels.reference.arithmetic.dequantise import dequantise
from zinc_rt.kernels.reference.arithmetic.dot import dot
from zinc_rt.kernels.reference.arithmetic.rows import RowBlocks, tokens_of
from zinc_rt.kernels.weight import Weight


class Canonical1:
    name = "canonical-1"

    def __init__(self, threads: int = 1) -> None:
        self._rows = RowBlocks(threads)

    dequantise = staticmethod(dequantise)
    dot = staticmethod(dot)
    exp = staticmethod(exp_log.exp)
    log = staticmethod(exp_log.log)
    sigmoid = staticmethod(activations.sigmoid)
    silu = staticmethod(activations.silu)
    tanh = staticmethod(activations.tanh)
    gelu = staticmethod(activations.gelu)
    softplus = staticmethod(activations.softplus)
    rsqrt = staticmethod(activations.rsqrt)
    attention = staticmethod(attend)

    def linear(self, x: np.ndarray, weight: Weight) -> np.ndarray:
        """Multiply by a weight. Each output is one dot of a dequantised row; a block of rows is dequantised once
        for all tokens."""
        rows, k = weight.shape
        tokens = tokens_of(x, k)
        out = np.empty((len(tokens), rows), np.float32)

        def work(first: int, last: int) -> None:
            block = dequantise(weight[first:last])
            for token, row in zip(tokens, out, strict=True):
                row[first:last] = dot(block, token)

        self._rows.each_block(rows, k, work)
        return out.reshape(*x.shape[:-1], rows)

    def with_wmma(self, ordering: str) -> Canonical1:
        """Return canonical-1 with the `linear` of wmma-f16 or wmma-bf16, on the same threads."""
        return _MatrixCores(self._rows, wmma.FORMATS[ordering])


class _MatrixCores(Canonical1):
    def __init__(self, rows: RowBlocks, form: wmma.Halves) -> None:
        self._rows, self._form = rows, form

    def linear(self, x: np.ndarray, weight: Weight) -> np.ndarray:
        """Multiply by a weight with the sums of a matrix instruction (docs/wmma-f16.md)."""
        rows, k = weight.shape
        halves, factors = wmma.round_rows(tokens_of(x, k), self._form)
        out = np.empty((len(halves), rows), np.float32)

        def work(first: int, last: int) -> None:
            block = wmma.round_halves(dequantise(weight[first:last]), self._form)
            out[:, first:last] = wmma.products(halves, block, self._form)

        self._rows.each_block(rows, k, work)
        with np.errstate(all="ignore"):
            return (out * factors[:, None]).reshape(*x.shape[:-1], rows)
