"""Running one opcode by itself, and float64 to hold its result against.

Nothing here or in the tests beside it calls the arithmetic under test to get a wanted value: formulas are spelled
out in float64 from the models' definitions, weights are dequantised by the `gguf` package.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from zinc_rt.golden.tiny_models.quantize import quantize
from zinc_rt.ir.op import Op
from zinc_rt.kernels.reference.arithmetic import ORDERINGS, arithmetic
from zinc_rt.kernels.reference.table import FUNCTIONS
from zinc_rt.kernels.weight import Weight

__all__ = [
    "ORDERINGS",
    "QUANTS",
    "assert_close",
    "assert_same",
    "dequantise64",
    "make_pages",
    "make_weight",
    "product_error_limit",
    "random_floats",
    "run_op",
]

QUANTS = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_k", "q6_k")
EPS = 2.0**-24  # half a unit in the last place of 1
SMALLEST = 2.0**-149  # of the denormals: results near it have few bits to be right in


def run_op(op: Op, ordering: str, *inputs: Any, **attrs: Any) -> Any:
    """Run a node like T-CPU: overflow and NaN are results, not warnings."""
    with np.errstate(all="ignore"):
        return FUNCTIONS[op](arithmetic(ordering), *inputs, **attrs)


def random_floats(seed: int, *shape: int, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=shape) * scale).astype(np.float32)


def make_weight(values: np.ndarray, dtype: str = "f32") -> Weight:
    values = np.ascontiguousarray(values, np.float32)
    match dtype:
        case "f32":
            return Weight("f32", values.shape, values)
        case "f16":
            return Weight("f16", values.shape, values.astype(np.float16))
        case "bf16":
            return Weight("bf16", values.shape, (values.view(np.uint32) >> 16).astype(np.uint16))
    raw = quantize(values, dtype).view(np.uint8).reshape(*values.shape[:-1], -1)
    return Weight(dtype, values.shape, raw)


def dequantise64(w: Weight) -> np.ndarray:
    """Return the weight's values in float64, computed by the gguf package."""
    match w.dtype:
        case "f32" | "f16":
            return w.raw.astype(np.float64)
        case "bf16":
            return (w.raw.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return dequantize(w.raw, GGMLQuantizationType[w.dtype.upper()]).astype(np.float64).reshape(w.shape)


def product_error_limit(x: np.ndarray, w: Weight, ordering: str) -> np.ndarray:
    """Return the allowed error of W x: rounding and, in canonical-1-q8, half a quantisation step of the
    activations.
    """
    magnitude = np.abs(dequantise64(w))
    x = np.abs(x.astype(np.float64))
    limit = 16 * EPS * (x @ magnitude.T) + 1e-40
    block = {"q8_0": 32, "q4_0": 32, "q4_k": 256, "q5_k": 256, "q6_k": 256}.get(w.dtype)
    if ordering == "canonical-1-q8" and block:
        peak = np.repeat(x.reshape(len(x), -1, block).max(axis=-1), block, axis=-1)
        limit += (peak * (0.5 / 127 + 2**-11) + 2.0**-24) @ magnitude.T  # dx of a block of 32 is a half float
    return limit


def assert_close(
    got: np.ndarray, want: np.ndarray, limit: float | np.ndarray, *, relative: bool = True, zero: bool = False
) -> None:
    """|got - want| <= limit * |want|, or <= limit where it is absolute, everywhere; and not trivially so."""
    assert got.shape == want.shape
    assert got.dtype == np.float32
    assert np.isfinite(want).all(), "the expected values must be finite"
    assert zero or np.abs(want).max(initial=0) > 0, "an all-zero expectation proves nothing"
    allowed = (limit * np.abs(want) if relative else limit) + 16 * SMALLEST
    over = np.abs(got.astype(np.float64) - want) - allowed
    worst = np.unravel_index(np.argmax(np.where(np.isnan(over), np.inf, over)), over.shape)
    assert over[worst] <= 0, f"at {tuple(map(int, worst))}: got {got[worst]!r}, expected {want[worst]!r}"


def assert_same(got: np.ndarray, want: np.ndarray) -> None:
    """The same bits, and not trivially so. No NaN is expected."""
    assert got.shape == want.shape and got.dtype == want.dtype
    assert not np.isnan(got).any() if got.dtype.kind == "f" else True
    assert got.any(), "all zero on both sides proves nothing"
    assert got.tobytes() == want.tobytes()


def make_pages(seed: int, lengths: list[int], *, page_tokens: int, pages: int) -> tuple[np.ndarray, int]:
    """(page table i32 [slots, pages], cache rows): slots' pages scattered over the pool, the rest unset."""
    needed = [-(-length // page_tokens) for length in lengths]
    pool = np.random.default_rng(seed).permutation(sum(needed) + 2)
    table = np.full((len(lengths), pages), -1, np.int32)
    taken = 0
    for slot, count in enumerate(needed):
        table[slot, :count] = pool[taken : taken + count]
        taken += count
    return table, len(pool) * page_tokens
