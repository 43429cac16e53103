"""Inputs and results of the C kernels that compute with floats."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from compiled_job import F16, F32, F64, I32, U16, U32, Job, Random, random_words
from sim.shader_model import model_floats as floats


def matmul_tiled(rng: Random) -> Job:
    n = 32
    a, b = (rng.standard_normal((n, n)).astype(F32) for _ in range(2))
    total = np.zeros((n, n), F32)
    for k in range(n):
        total = total + a[:, k : k + 1] * b[k]
    return Job([np.zeros((n, n), F32), a, b, U32(n)], 4, 256, {0: total})


def mandelbrot(rng: Random) -> Job:
    width, height, maximum = 32, 8, 60
    i = np.arange(width * height)
    left, top, step = F32(-2.0), F32(-1.1), F32(0.0901)
    cx, cy = left + (i % width).astype(F32) * step, top + (i // width).astype(F32) * step
    x, y, count = np.zeros_like(cx), np.zeros_like(cy), np.zeros(len(i), U16)
    for _ in range(maximum):
        inside = x * x + y * y <= 4
        following = x * x - y * y + cx
        y = np.where(inside, F32(2) * x * y + cy, y)
        x = np.where(inside, following, x)
        count += inside
    return Job([np.zeros(len(i), U16), U32(width), left, top, step, U32(maximum)], 4, 64, {0: count})


def double_precision(rng: Random) -> Job:
    n = 61
    a, b = (rng.standard_normal(n) * 10.0 ** rng.integers(-200, 200, size=n) for _ in range(2))
    a[:6], b[:6] = (1.0, -0.0, np.inf, 5e-324, 1e308, 3.0), (3.0, 7.0, 2.0, 3.0, 1e-308, 1e300)
    small = np.where((b < 1e9) & (b > -1e9), b, 0.0)
    fused = floats.fma64(a, b, np.full(n, -1.0))
    rows = np.stack([a / b, a * b - 3.5, fused, a.astype(F32).astype(F64) + small.astype(I32)], axis=1)
    return Job([np.zeros((n, 4)), a, b, U32(n)], 2, 32, {0: rows})


def float_division(rng: Random) -> Job:
    a, b = (random_words(rng, 192).view(F32) for _ in range(2))
    special = np.array([0, 1, 3, np.inf, np.nan, 1e-45, 1e-38, 3.4e38, -0.0, -7, 2.0**127, 1.1754944e-38], F32)
    a[:144], b[:144] = np.repeat(special, 12), np.tile(special, 12)
    return Job([np.zeros(192, F32), a, b], 3, 64, {0: a / b})


def half_precision(rng: Random) -> Job:
    a, b = (rng.integers(0, 1 << 16, size=64).astype(U16).view(F16) for _ in range(2))
    scaled = (a.astype(F32) * F32(0.1)).astype(F16)
    rows = np.stack([a + b, a * b, np.where(a > b, a - b, b), scaled], axis=1)
    return Job([np.zeros((64, 4), F16), a, b], 2, 32, {0: rows})


def fft(rng: Random) -> Job:
    """The same butterflies in the same order, in float32."""
    data = rng.standard_normal((2, 64, 2)).astype(F32)
    angles = -2 * np.pi * np.arange(32) / 64
    twiddle = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(F32)
    order = [int(f"{i:06b}"[::-1], 2) for i in range(64)]
    re, im = data[:, order, 0].copy(), data[:, order, 1].copy()
    half = 1
    while half < 64:
        t = np.arange(32)
        k = t & half - 1
        low = (t - k) * 2 + k
        c, s = twiddle[k * 32 // half, 0], twiddle[k * 32 // half, 1]
        x = re[:, low + half] * c - im[:, low + half] * s
        y = re[:, low + half] * s + im[:, low + half] * c
        re[:, low + half], im[:, low + half] = re[:, low] - x, im[:, low] - y
        re[:, low], im[:, low] = re[:, low] + x, im[:, low] + y
        half *= 2
    exact = np.fft.fft(data[..., 0].astype(F64) + 1j * data[..., 1])
    assert np.allclose(re + 1j * im, exact, atol=1e-4), "the reference is a Fourier transform"
    return Job([np.zeros((2, 64, 2), F32), data, twiddle], 2, 32, {0: np.stack([re, im], axis=2)})


def stencil(rng: Random) -> Job:
    n = 300
    data = rng.standard_normal(n).astype(F32)
    x = np.pad(data, 2)
    wanted = x[2:-2] * F32(6) - F32(4) * (x[1:-3] + x[3:-1]) + (x[:-4] + x[4:])
    return Job([np.zeros(n, F32), data, U32(n)], 3, 128, {0: wanted})


def softmax(rng: Random) -> Job:
    data = (rng.standard_normal((2, 128)) * 4).astype(F32)
    x = data * F32(1.44269504)
    power = floats.exp2((x - x.max(axis=1, keepdims=True)).reshape(-1)).reshape(2, 128)
    total, half = power.copy(), 64
    while half:
        total[:, :half] += total[:, half : 2 * half]
        half //= 2
    return Job([np.zeros((2, 128), F32), data], 2, 128, {0: power * floats.rcp(total[:, 0])[:, None]})


def square_roots(rng: Random) -> Job:
    data = np.abs(rng.standard_normal(32) * 1000).astype(F32)
    data[:5] = 0, 1, 4, 1e-40, 65535
    whole = np.array([int(np.sqrt(float(int(x)))) for x in data], U32)
    return Job(
        [np.zeros(32, F32), np.zeros(32), np.zeros(32, U32), data], 1, 32,
        {0: np.sqrt(data), 1: np.sqrt(data.astype(F64) * 3), 2: whole},
    )  # fmt: skip


def quantized(rng: Random) -> Job:
    blocks = 3
    raw = np.zeros((4, blocks), [("scale", F16), ("values", np.int8, 32)])
    raw["scale"] = rng.standard_normal((4, blocks)).astype(F16)
    raw["values"] = rng.integers(-128, 128, size=(4, blocks, 32))
    x = rng.standard_normal(blocks * 32).astype(F32)
    total = np.zeros((4, 32), F32)
    for k in range(blocks):
        scaled = raw["scale"][:, k, None].astype(F32) * raw["values"][:, k].astype(F32)
        total = total + scaled * x[32 * k : 32 * k + 32]
    lane = np.arange(32)
    for step in (1, 2, 4, 8, 16):
        total = total + total[:, lane ^ step]
    return Job([np.zeros(4, F32), raw, x, U32(blocks)], 2, 64, {0: total[:, 0].copy()})


def packed_half(rng: Random) -> Job:
    a, b = (rng.standard_normal((64, 2)).astype(F16) for _ in range(2))
    rows = np.stack([a + b, a * b[:, ::-1], np.maximum(a, -b)], axis=1)
    return Job([np.zeros((64, 3, 2), F16), a, b], 2, 32, {0: rows})


def matrix_cores(rng: Random) -> Job:
    """Small integers as float16: sums are exact in any order."""
    a, b = (rng.integers(-8, 9, size=(16, 16)) for _ in range(2))
    ai, bi = (rng.integers(-128, 128, size=(16, 16)) for _ in range(2))
    start = np.tile(np.arange(1, 9), 2)[:, None]
    return Job(
        [np.zeros((16, 16), F32), np.zeros((16, 16), I32), a.astype(F16), b.astype(F16), ai.astype(np.int8),
         bi.astype(np.int8)], 1, 32, {0: (a @ b).astype(F32), 1: (ai @ bi + start).astype(I32)},
    )  # fmt: skip


def float_atomics(rng: Random) -> Job:
    data = rng.integers(-100, 100, size=(2, 64)).astype(F32)
    sums = [data.sum(), 2 * data[:, 1::2].sum(), *(data.sum(axis=1) + 2 * data[:, ::2].sum(axis=1))]
    return Job([np.zeros(4, F32), data], 2, 64, {0: np.array(sums, F32)})


def medians(rng: Random) -> Job:
    n = 128
    data = rng.standard_normal(n).astype(F32)
    windows = data[np.minimum(np.arange(n)[:, None] + np.arange(9), n - 1)]
    whole = np.clip(data * F32(50), F32(-100), F32(100)).astype(I32)
    return Job(
        [np.zeros(n, F32), np.zeros(n, I32), data, U32(n)], 2, 64, {0: np.median(windows, axis=1), 1: whole}
    )


def brain_floats(rng: Random) -> Job:
    a = (rng.standard_normal(64).astype(F32).view(U32) >> U32(16)).astype(U16)
    b = rng.standard_normal(64).astype(F32)
    b[:4] = 1.00390625, 1.01171875, 3.3e38, 1e-40  # two ties, nearly too large, a denormal
    wide = floats.bf16_to_f32(a)
    rows = np.stack([floats.f32_to_bf16(wide * b), floats.f32_to_bf16(b)], axis=1)
    return Job([np.zeros((64, 2), U16), np.zeros(64, F32), a, b], 2, 32, {0: rows, 1: wide + b})


def polynomial(rng: Random) -> Job:
    x = (rng.standard_normal(64) * 20).astype(F32)
    k = np.rint(x * F32(1.44269504))
    r = floats.fma32(k, np.full(64, -0.693147182, F32), x)
    p = np.full(64, 0.0013888889, F32)
    for term in (0.0083333333, 0.041666667, 0.16666667, 0.5, 1.0, 1.0):
        p = floats.fma32(p, r, np.full(64, term, F32))
    assert np.allclose(np.ldexp(p.astype(F64), k.astype(int)), np.exp(x.astype(F64)), rtol=1e-5), "it is exp"
    d = x.astype(F64)
    wide = np.floor(d * 10) + floats.fma64(d, d, np.full(64, 0.1)) + np.trunc(d) * np.abs(d)
    mantissa, exponent = np.frexp(x)
    power = exponent + (mantissa * F32(1000)).astype(I32)
    return Job(
        [np.zeros(64, F32), np.zeros(64), np.zeros(64, I32), x], 2, 32,
        {0: np.ldexp(p, k.astype(I32)), 1: wide, 2: power.astype(I32)},
    )  # fmt: skip


CASES: dict[str, Callable[[Random], Job]] = {
    function.__name__: function
    for function in (
        matmul_tiled, mandelbrot, double_precision, float_division, half_precision, fft, stencil,
        softmax, square_roots, quantized, packed_half, matrix_cores, float_atomics, medians,
        brain_floats, polynomial
    )
}  # fmt: skip
