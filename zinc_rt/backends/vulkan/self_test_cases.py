"""The operations of canonical-1, operands with edge cases, and the expected results.

Results are computed by NumPy and the oracle's own functions on request, in a few milliseconds; a file of results
would be a second definition. The kernel is kernels/spirv/self_test.comp, whose cases are in this order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from zinc_rt.kernels.reference.arithmetic import exp_log

KERNEL = "self_test"
CASES = 4096
SPECIAL = np.array(
    [
        0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x00000002, 0x007FFFFF, 0x00800000, 0x807FFFFF, 0x3F800000,
        0xBF800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0x00FFFFFF, 0x01000000,
        0x33000000, 0x34000000, 0x3F7FFFFF, 0x3F800001, 0x4B800000, 0x40000000, 0x3FFFFFFF, 0x41000000, 0x42AE0000,
        0xC2AE0000, 0x42B00000, 0x3F3504F3, 0x3F3504F2, 0x0000FFFF, 0x00400000, 0x7E800000, 0x7F000000, 0x00800001,
    ],
    np.uint32,
)  # fmt: skip
"""Bits of zeros, denormals, infinities, NaN, ties, and the places where exp and log turn."""

Float32 = np.ndarray
Compute = Callable[[Float32, Float32, Float32], np.ndarray]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. `want` computes the expected result from three float32 arrays: float32, or uint32 if the
    result is not a float. `operands`: the number of arrays that it uses."""

    name: str
    operands: int
    want: Compute


@dataclass(frozen=True, slots=True)
class Operands:
    """Operands as bits, uint32 [n] each."""

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray

    @property
    def floats(self) -> tuple[Float32, Float32, Float32]:
        return self.a.view(np.float32), self.b.view(np.float32), self.c.view(np.float32)


@dataclass(frozen=True, slots=True)
class WrongBits:
    """Wrong results of an operation on a device: the number of wrong cases, and the bits of the first one."""

    operation: Operation
    wrong: int
    cases: int
    operands: tuple[int, ...]
    want: int
    got: int

    def __str__(self) -> str:
        text = ", ".join(f"{name} {bits:#010x}" for name, bits in zip("abc", self.operands, strict=False))
        wrong = f"{self.wrong} of {self.cases} wrong"
        bits = f"expected {self.want:#010x}, got {self.got:#010x}"
        return f"{self.operation.name}: {wrong}, the first at {text}: {bits}"


def make_operands(count: int = CASES, seed: int = 1) -> Operands:
    """Return operands: every pair of special values, random bits, and numbers of the size found in models; the
    same at every call."""
    random = np.random.default_rng(seed)
    pairs = len(SPECIAL) ** 2
    bits = max(0, count - pairs) // 2
    sizes = max(0, count - pairs - bits)

    def make_column(special: np.ndarray) -> np.ndarray:
        usual = (random.standard_normal(sizes) * 8).astype(np.float32).view(np.uint32)
        anything = random.integers(0, 1 << 32, bits, dtype=np.uint32)
        return np.concatenate([special, anything, usual])[:count]

    first, second = np.repeat(SPECIAL, len(SPECIAL)), np.tile(SPECIAL, len(SPECIAL))
    return Operands(make_column(first), make_column(second), make_column(np.roll(second, 1)))


def find_wrong_bits(number: int, operands: Operands, got: np.ndarray) -> WrongBits | None:
    """Compare results of operation `number`, uint32 [n]. Return None if all bits are right. Any NaN matches any
    NaN."""
    operation = OPERATIONS[number]
    with np.errstate(all="ignore"):
        want = operation.want(*operands.floats)
    bad = got != want.view(np.uint32)
    if want.dtype == np.float32:
        bad &= ~(np.isnan(want) & np.isnan(got.view(np.float32)))
    if not bad.any():
        return None
    index = int(np.argmax(bad))
    seen = tuple(int(item[index]) for item in (operands.a, operands.b, operands.c)[: operation.operands])
    return WrongBits(operation, int(bad.sum()), len(got), seen, int(want.view(np.uint32)[index]), int(got[index]))


def _compare(a: Float32, b: Float32, c: Float32) -> np.ndarray:
    return ((a < b) | (a == b).astype(np.uint32) << 1 | (a > b).astype(np.uint32) << 2).astype(np.uint32)


def _maximum(a: Float32, b: Float32, c: Float32) -> np.ndarray:
    """Return NumPy's maximum, with +0 for two zeros if one is +0: NumPy leaves this undefined."""
    return np.where(
        (a == 0) & (b == 0), (a.view(np.uint32) & b.view(np.uint32)).view(np.float32), np.maximum(a, b)
    )


def _minimum(a: Float32, b: Float32, c: Float32) -> np.ndarray:
    return np.where(
        (a == 0) & (b == 0), (a.view(np.uint32) | b.view(np.uint32)).view(np.float32), np.minimum(a, b)
    )


def _half(a: Float32, b: Float32, c: Float32) -> np.ndarray:
    return a.view(np.uint32).astype(np.uint16).view(np.float16).astype(np.float32)


def _round_to_half(a: Float32, b: Float32, c: Float32) -> np.ndarray:
    return np.rint((a.view(np.uint32) & 0x807FFFFF | 0x47800000).view(np.float32))


def _dot(a: Float32, b: Float32, c: Float32) -> np.ndarray:
    total = np.zeros_like(a)
    for other in (b, c, b, c):
        total = total + a * other
    return total


OPERATIONS = (  # indexed by the numbers in self_test.comp
    Operation("a + b", 2, lambda a, b, c: a + b),
    Operation("a - b", 2, lambda a, b, c: a - b),
    Operation("a * b", 2, lambda a, b, c: a * b),
    Operation("a * b + c", 3, lambda a, b, c: a * b + c),
    Operation("fdiv_(a, b)", 2, lambda a, b, c: a / b),
    Operation("fsqrt_(a)", 1, lambda a, b, c: np.sqrt(a)),
    Operation("fexp_(a)", 1, lambda a, b, c: exp_log.exp(a)),
    Operation("flog_(a)", 1, lambda a, b, c: exp_log.log(a)),
    Operation("half_to_float(a)", 1, _half),
    Operation("fmax_(a, b)", 2, _maximum),
    Operation("fmin_(a, b)", 2, _minimum),
    Operation("a < b, a == b, a > b", 2, _compare),
    Operation("float(int)", 1, lambda a, b, c: (a.view(np.int32) >> 8).astype(np.float32)),
    Operation("frint_(a)", 1, _round_to_half),
    Operation("a sum of -0", 3, _dot),
)
