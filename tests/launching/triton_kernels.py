"""Triton kernels for test_triton.py and test_pytest_plugin.py."""

import numpy as np
import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def add_without_mask(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i), mask=i < n)


@triton.jit
def double_strided(x, stride, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i * stride, 2 * tl.load(x + i * stride, mask=i < n), mask=i < n)


@triton.jit
def mixed(pair, start, large, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, start + pair[1] * tl.load(pair[0] + i).to(tl.float32))
    tl.store(out + BLOCK, large.to(tl.float32))


@triton.jit
def gather_pointers(table, out, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    source = tl.load(table + row).to(tl.pointer_type(tl.float32))
    tl.store(out + row * BLOCK + i, tl.load(source + i))


@triton.jit
def print_values(x, BLOCK: tl.constexpr):
    tl.device_print("value", tl.load(x + tl.arange(0, BLOCK)))


@triton.jit
def assert_positive(x, BLOCK: tl.constexpr):
    value = tl.load(x + tl.arange(0, BLOCK))
    tl.device_assert(value > 0, "must be positive")
    tl.store(x + tl.arange(0, BLOCK), value)


@triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 1024})], key=["n"])
@triton.jit
def tuned(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def matmul(a, b, out, M, N, K, BLOCK: tl.constexpr, STEP: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, STEP)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for first in range(0, K, STEP):
        left = tl.load(a + rows[:, None] * K + first + k[None, :])
        right = tl.load(b + (first + k[:, None]) * N + columns[None, :])
        total = tl.dot(left, right, total)
    tl.store(out + rows[:, None] * N + columns[None, :], total)


class Opaque:
    """An object with a pointer and no size."""

    dtype = np.dtype(np.float32)

    def data_ptr(self) -> int:
        return 1 << 40
