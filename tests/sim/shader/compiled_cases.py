"""Inputs of the kernels in c_kernels/ and, computed without them, what they must give."""

from __future__ import annotations

import base64 as base64_module
import hashlib
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
from sim.shader_model import model_floats as floats

Array = np.ndarray
Random = np.random.Generator
U8, U16, U32, U64, F32, F16, F64 = np.uint8, np.uint16, np.uint32, np.uint64, np.float32, np.float16, np.float64
I32, I64 = np.int32, np.int64


@dataclass(slots=True)
class Job:
    """`args`: arrays become pointers, NumPy scalars are passed by value. `expected`: by place in `args`."""

    args: list[Array | np.generic]
    groups: int | tuple[int, int, int]
    threads: int | tuple[int, int, int]
    expected: dict[int, Array]
    unordered: int | None = None  # the argument whose elements may come in any order


def words(rng: Random, *shape: int) -> Array:
    return rng.integers(0, 1 << 32, size=shape, dtype=U64).astype(U32)


def reduce_sum(rng: Random) -> Job:
    data = words(rng, 5, 128)
    return Job([np.zeros(5, U32), data], 5, 128, {0: data.sum(axis=1, dtype=U32)})


def prefix_sum(rng: Random) -> Job:
    data = words(rng, 3, 256)
    return Job([np.zeros((3, 256), U32), data], 3, 256, {0: data.cumsum(axis=1, dtype=U32)})


def bitonic_sort(rng: Random) -> Job:
    data = rng.integers(-1000, 1000, size=(2, 256)).astype(I32)
    data[1, :50] = np.iinfo(I32).min
    return Job([data], 2, 128, {0: np.sort(data, axis=1)})


def matmul_tiled(rng: Random) -> Job:
    n = 32
    a, b = (rng.standard_normal((n, n)).astype(F32) for _ in range(2))
    total = np.zeros((n, n), F32)
    for k in range(n):
        total = total + a[:, k : k + 1] * b[k]
    return Job([np.zeros((n, n), F32), a, b, U32(n)], 4, 256, {0: total})


def histogram(rng: Random) -> Job:
    data = rng.integers(0, 256, size=3000).astype(U8)
    return Job([np.zeros(64, U32), data, U32(3000)], 3, 128, {0: np.bincount(data // 4, minlength=64).astype(U32)})


def crc32(rng: Random) -> Job:
    lengths = rng.integers(0, 40, size=70)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(U32)
    text = rng.integers(0, 256, size=int(starts[-1]) + 1).astype(U8)
    sums = [zlib.crc32(text[starts[i] : starts[i + 1]].tobytes()) for i in range(70)]
    return Job([np.zeros(70, U32), text, starts, U32(70)], 2, 64, {0: np.array(sums, U32)})


def sha256(rng: Random) -> Job:
    messages = [rng.bytes(int(n)) for n in rng.integers(0, 56, size=32)]
    blocks = [m + b"\x80" + bytes(55 - len(m)) + (8 * len(m)).to_bytes(8, "big") for m in messages]
    digests = b"".join(hashlib.sha256(m).digest() for m in messages)
    return Job(
        [np.zeros((32, 8), U32), np.frombuffer(b"".join(blocks), U32).copy()], 1, 32,
        {0: np.frombuffer(digests, U32).reshape(32, 8)},
    )  # fmt: skip


def mandelbrot(rng: Random) -> Job:
    width, height, most = 32, 8, 60
    i = np.arange(width * height)
    left, top, step = F32(-2.0), F32(-1.1), F32(0.0901)
    cx, cy = left + (i % width).astype(F32) * step, top + (i // width).astype(F32) * step
    x, y, count = np.zeros_like(cx), np.zeros_like(cy), np.zeros(len(i), U16)
    for _ in range(most):
        inside = x * x + y * y <= 4
        following = x * x - y * y + cx
        y = np.where(inside, F32(2) * x * y + cy, y)
        x = np.where(inside, following, x)
        count += inside
    return Job([np.zeros(len(i), U16), U32(width), left, top, step, U32(most)], 4, 64, {0: count})


def string_search(rng: Random) -> Job:
    text = bytes(rng.choice(list(b"abc"), size=200).astype(U8))
    pattern = b"ab?a"
    hits = [all(p in (ord("?"), t) for p, t in zip(pattern, text[i : i + 4], strict=True)) for i in range(197)]
    found = np.zeros(256, U8)
    wanted = found.copy()
    wanted[:197] = hits
    source, needle = np.frombuffer(text, U8).copy(), np.frombuffer(pattern, U8).copy()
    return Job(
        [found, np.zeros(1, U32), source, needle, U32(200), U32(4)],
        4,
        64,
        {0: wanted, 1: np.array([sum(hits)], U32)},
    )


def power_modulo(rng: Random) -> Job:
    a, m = (rng.integers(1, (1 << 64) - 1, size=32, dtype=U64) for _ in range(2))
    e = rng.integers(0, 300, size=32).astype(U64)
    m[:3] = 1, 2, (1 << 64) - 1
    powers = [pow(int(x), int(y), int(z)) for x, y, z in zip(a, e, m, strict=True)]
    return Job([np.zeros(32, U64), a, e, m], 1, 32, {0: np.array(powers, U64)})


def _truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _wrapped(value: int, bits: int) -> int:
    return value & (1 << bits) - 1


def division(rng: Random) -> Job:
    a, b = words(rng, 64), words(rng, 64) >> rng.integers(0, 30, size=64).astype(U32)
    b[b == 0] = 1
    a[:4], b[:4] = (0x80000000, 0xFFFFFFFF, 7, 0), (3, 0xFFFFFFFE, 0x80000000, 5)
    rows = []
    for x, y in zip(a.view(I32).tolist(), b.view(I32).tolist(), strict=True):
        q, (ux, uy) = _truncated(x, y), (_wrapped(x, 32), _wrapped(y, 32))
        rows.append([_wrapped(q, 32), _wrapped(x - q * y, 32), ux // uy, ux % uy])
    return Job([np.zeros((64, 4), U32), a, b], 1, 64, {0: np.array(rows, U32)})


def division64(rng: Random) -> Job:
    a, b = (rng.integers(1, (1 << 64) - 1, size=32, dtype=U64) for _ in range(2))
    b >>= rng.integers(0, 62, size=32).astype(U64)
    b[b == 0] = 1
    a[:2], b[:2] = (1 << 63, 5), (3, 1 << 63)
    rows = []
    for x, y in zip(a.view(I64).tolist(), b.view(I64).tolist(), strict=True):
        q, (ux, uy) = _truncated(x, y), (_wrapped(x, 64), _wrapped(y, 64))
        rows.append([_wrapped(q, 64), _wrapped(x - q * y, 64), ux // uy, _wrapped(_truncated(x, 1000003), 64)])
    return Job([np.zeros((32, 4), U64), a, b], 1, 32, {0: np.array(rows, U64)})


def double_precision(rng: Random) -> Job:
    n = 61
    a, b = (rng.standard_normal(n) * 10.0 ** rng.integers(-200, 200, size=n) for _ in range(2))
    a[:6], b[:6] = (1.0, -0.0, np.inf, 5e-324, 1e308, 3.0), (3.0, 7.0, 2.0, 3.0, 1e-308, 1e300)
    small = np.where((b < 1e9) & (b > -1e9), b, 0.0)
    fused = floats.fma64(a, b, np.full(n, -1.0))
    rows = np.stack([a / b, a * b - 3.5, fused, a.astype(F32).astype(F64) + small.astype(I32)], axis=1)
    return Job([np.zeros((n, 4)), a, b, U32(n)], 2, 32, {0: rows})


def float_division(rng: Random) -> Job:
    a, b = (words(rng, 192).view(F32) for _ in range(2))
    special = np.array([0, 1, 3, np.inf, np.nan, 1e-45, 1e-38, 3.4e38, -0.0, -7, 2.0**127, 1.1754944e-38], F32)
    a[:144], b[:144] = np.repeat(special, 12), np.tile(special, 12)
    return Job([np.zeros(192, F32), a, b], 3, 64, {0: a / b})


def half_precision(rng: Random) -> Job:
    a, b = (rng.integers(0, 1 << 16, size=64).astype(U16).view(F16) for _ in range(2))
    scaled = (a.astype(F32) * F32(0.1)).astype(F16)
    rows = np.stack([a + b, a * b, np.where(a > b, a - b, b), scaled], axis=1)
    return Job([np.zeros((64, 4), F16), a, b], 2, 32, {0: rows})


def recursion(rng: Random) -> Job:
    data = rng.integers(0, 1000, size=32).astype(U32)

    def ackermann(m: int, n: int) -> int:
        return n + 1 if not m else ackermann(m - 1, ackermann(m, n - 1) if n else 1)

    def fibonacci(n: int) -> int:
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    rows = [[ackermann(x % 3, x // 3 % 4), fibonacci(x % 11)] for x in data.tolist()]
    return Job([np.zeros((32, 2), U32), data], 1, 32, {0: np.array(rows, U32)})


# x * x - 7; if x < 20: double it, else: not; then exclusive or with x, minus 200.
_BYTECODE = [0, 0, 4, 1, 7, 3, 0, 1, 20, 7, 8, 4, 6, 2, 1, 0, 11, 0, 5, 9, 6, 10, 1, 200, 3, 2]


def bytecode(rng: Random) -> Job:
    inputs = np.concatenate([rng.integers(0, 40, size=48), rng.integers(-(1 << 31), 1 << 31, size=16)]).astype(I32)
    code = np.array(_BYTECODE, U8)
    results = [_interpret(_BYTECODE, int(x)) for x in inputs]
    return Job([np.zeros(64, I32), code, inputs, U32(len(code))], 2, 32, {0: np.array(results, U32).view(I32)})


def _interpret(code: list[int], x: int) -> int:
    stack: list[int] = []
    at = 0

    def signed(value: int) -> int:
        return (value & 0xFFFFFFFF ^ 1 << 31) - (1 << 31)

    while at < len(code):
        op = code[at]
        if op == 0:
            stack.append(x)
        elif op == 1:
            at += 1
            stack.append(code[at])
        elif op in (2, 3, 4, 5, 7):
            b, a = stack.pop(), stack.pop()
            stack.append(signed({2: a + b, 3: a - b, 4: a * b, 5: a ^ b, 7: int(a < b)}[op]))
        elif op == 6:
            stack.append(stack[-1])
        elif op == 8:
            at += 1
            at += code[at] if not stack.pop() else 0
        elif op == 9:
            stack[-1] = signed(-stack[-1])
        elif op == 10:
            stack[-1], stack[-2] = stack[-2], stack[-1]
        else:
            stack[-1] = ~stack[-1]
        at += 1
    return stack[-1] & 0xFFFFFFFF


def pointer_chase(rng: Random) -> Job:
    """The nodes point into their own array: `run` adds its address (see Linked)."""
    nodes = np.zeros(100, [("next", U64), ("value", U32), ("weight", U32)])
    nodes["value"], nodes["weight"] = words(rng, 100), words(rng, 100)
    order = rng.permutation(100)
    follows = np.full(100, -1)
    for a, b in pairwise(order):
        follows[a] = -1 if a % 7 == 0 else b
    heads = rng.integers(-1, 100, size=32)
    sums = []
    for head in heads.tolist():
        total = 0
        while head >= 0:
            total = (total * 31 + int(nodes["value"][head]) * int(nodes["weight"][head])) & 0xFFFFFFFF
            head = int(follows[head])
        sums.append(total)
    return Job([np.zeros(32, U32), Linked(nodes, follows, heads)], 1, 32, {0: np.array(sums, U32)})


class Linked:
    """A linked list and its heads: pointers that are known once the nodes have an address."""

    def __init__(self, nodes: Array, follows: Array, heads: Array) -> None:
        self.nodes, self.follows, self.heads = nodes, follows, heads

    def place(self, place: Callable[[Array, str], int]) -> int:
        va = place(self.nodes.view(U8), "nodes")
        self.nodes["next"] = np.where(self.follows < 0, 0, va + 16 * self.follows).astype(U64)
        self.pointers = np.where(self.heads < 0, 0, va + 16 * self.heads).astype(U64)
        return place(self.pointers, "heads")


def wave_ops(rng: Random) -> Job:
    x = words(rng, 32)
    lane = np.arange(32)
    odd = sum(int(v & 1) << i for i, v in enumerate(x))
    sums = x.copy()
    for shift in (1, 2, 4, 8):
        moved = np.where(lane % 16 >= shift, np.roll(sums, shift), 0).astype(U32)
        sums = sums + moved
    before = [(odd & (1 << i) - 1).bit_count() for i in range(32)]
    rows = np.stack(
        [np.full(32, odd), before, np.full(32, x[0]), x[::-1], sums, np.full(32, x[5]), x[lane ^ 16], x[lane ^ 1]],
        axis=1,
    )
    return Job([np.zeros((32, 8), U32), x], 1, 32, {0: rows.astype(U32)})


def wave_ops64(rng: Random) -> Job:
    x = words(rng, 64)
    odd = sum(int(v & 1) << i for i, v in enumerate(x))
    before = [(odd & (1 << i) - 1).bit_count() for i in range(64)]
    rows = np.stack(
        [np.full(64, odd, U64), np.array(before, U64), x[::-1].astype(U64), np.roll(x, 32).astype(U64)], axis=1
    )
    return Job([np.zeros((64, 4), U64), x], 1, 64, {0: rows})


def relay(rng: Random) -> Job:
    x = words(rng, 2, 128)
    now = x.copy()
    for i in range(9):
        now = now ^ np.roll(now + U32(i), 37, axis=1) * U32(3)
    return Job([np.zeros((2, 128), U32), x, U32(9)], 2, 128, {0: now})


def pixels(rng: Random) -> Job:
    n = 150
    rgba = rng.integers(0, 256, size=(n, 4)).astype(U8)
    r, g, b = (rgba[:, i].astype(np.int64) for i in range(3))
    packed = (r >> 3) << 11 | (g >> 2) << 5 | b >> 3
    grey = (77 * r + 150 * g + 29 * b + 128) >> 8
    apart = (np.diff(g, prepend=0)).astype(np.int8).astype(np.int64)
    slope = np.where(apart < 0, -(-apart // 2), apart // 2)
    slope[0] = -1
    return Job(
        [np.zeros(n, U16), np.zeros(n, U8), np.zeros(n, np.int8), rgba, U32(n)], 3, 64,
        {0: packed.astype(U16), 1: grey.astype(U8), 2: slope.astype(np.int8)},
    )  # fmt: skip


def structs(rng: Random) -> Job:
    kind = np.dtype({"names": ["kind", "count", "key", "mass", "tail"], "formats": [U8, U16, U32, U64, (U32, 3)],
                     "offsets": [0, 2, 4, 8, 16], "itemsize": 32})  # fmt: skip
    data = rng.integers(0, 256, size=(50, 32)).astype(U8).view(kind).reshape(50)
    order = rng.permutation(50).astype(U32)
    wanted = data[order].copy()
    wanted["count"] += wanted["kind"]
    wanted["mass"] *= U64(3)
    wanted["tail"] = wanted["tail"][:, [2, 1, 0]]
    out = np.zeros(50, kind)
    return Job([out, data, order, U32(50)], 2, 32, {0: wanted})


def _digits(value: Array, bits: int, signed: bool) -> Array:
    parts = np.stack([value.astype(I64) >> bits * i & (1 << bits) - 1 for i in range(32 // bits)])
    return (parts ^ 1 << bits - 1) - (1 << bits - 1) if signed else parts


def dot_products(rng: Random) -> Job:
    a, b = words(rng, 64), words(rng, 64)
    rows = [
        (_digits(a, 8, False) * _digits(b, 8, False)).sum(axis=0) + 7,
        (_digits(a, 8, True) * _digits(b, 8, True)).sum(axis=0) - 7,
        (_digits(a, 8, False) * _digits(b, 8, True)).sum(axis=0) + np.arange(64),
        (_digits(a, 4, True) * _digits(b, 4, False)).sum(axis=0) + 100,
    ]
    return Job([np.zeros((64, 4), I32), a, b], 2, 32, {0: np.stack(rows, axis=1).astype(I32)})


def bit_tricks(rng: Random) -> Job:
    data = words(rng, 64)
    data[:4] = 0, 0xFFFFFFFF, 0x80000000, 1
    rows = []
    for x in data.tolist():
        shift = x & 31
        clz, ctz = 32 - (x | 1).bit_length(), ((x | 1 << 31) & -(x | 1 << 31)).bit_length() - 1
        spread = sum((x >> i & 1) << (2 * i if i < 16 else 2 * (i - 16) + 1) for i in range(32))
        rows.append([
            x.bit_count() | clz << 8 | ctz << 16, int(f"{x:032b}"[::-1], 2),
            int.from_bytes(x.to_bytes(4, "little"), "big"), x ^ x >> 1, spread,
            x << shift | x >> (-x & 31), ((x ^ 1 << 31) - (1 << 31) >> 7) + (x & -x),
            x % 3 if x & (x - 1) else ~x,
        ])  # fmt: skip
    return Job(
        [np.zeros((64, 8), U32), data], 1, 64, {0: np.array([[v & 0xFFFFFFFF for v in r] for r in rows], U32)}
    )


def random_numbers(rng: Random) -> Job:
    i = np.arange(64)
    seed = 0x123456789ABCDEF
    x = (2463534242 + i).astype(U32)
    state = U64(seed) + i.astype(U64) * U64(0x9E3779B97F4A7C15)
    mixed = np.zeros(64, U32)
    for _ in range(20):
        x = x ^ x << U32(13)
        x = x ^ x >> U32(17)
        x = x ^ x << U32(5)
        old = state
        state = old * U64(6364136223846793005) + U64(1442695040888963407)
        s, r = ((old >> U64(18) ^ old) >> U64(27)).astype(U32), (old >> U64(59)).astype(U32)
        mixed = mixed + (s >> r | s << (-r & U32(31)))
    return Job([np.zeros((64, 2), U32), U64(seed), U32(20)], 1, 64, {0: np.stack([x, mixed], axis=1)})


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


def queens(rng: Random) -> Job:
    n = 6

    def count(rows: list[int]) -> int:
        if len(rows) == n:
            return 1
        free = [c for c in range(n) if all(c != d and abs(c - d) != len(rows) - k for k, d in enumerate(rows))]
        return sum(count([*rows, c]) for c in free)

    return Job(
        [np.zeros(64, U32), U32(n)], 1, 32, {0: np.array([count([i]) for i in range(n)] + [0] * (64 - n), U32)}
    )


def gather_scatter(rng: Random) -> Job:
    n = 500
    data = rng.standard_normal(n).astype(F32)
    source, to = rng.integers(0, n, size=n).astype(U32), rng.permutation(n).astype(U32)
    wanted = np.zeros(n, F32)
    wanted[to] = data[source] * F32(2) + data
    return Job([np.zeros(n, F32), data, source, to, U32(n)], 4, 64, {0: wanted})


def number_text(rng: Random) -> Job:
    data = words(rng, 64).view(I32)
    data[:6] = 0, 1, -1, 999, -1000, np.iinfo(I32).min
    text = [
        f"{'-' if x < 0 else ''}{abs(x) // 1000}.{abs(x) % 1000:03d}".rjust(16).encode() for x in data.tolist()
    ]
    return Job([np.zeros(64 * 16, U8), data], 2, 32, {0: np.frombuffer(b"".join(text), U8)})


def edit_distance(rng: Random) -> Job:
    given, other = rng.integers(0, 4, size=(32, 16)).astype(U8), rng.integers(0, 4, size=16).astype(U8)

    def distance(word: list[int]) -> int:
        row = list(range(17))
        for r, letter in enumerate(word):
            following = [r + 1]
            for c in range(16):
                following.append(min(row[c] + (letter != other[c]), row[c + 1] + 1, following[c] + 1))
            row = following
        return row[16]

    return Job([np.zeros(32, U32), given, other], 1, 32, {0: np.array([distance(w) for w in given.tolist()], U32)})


def transpose(rng: Random) -> Job:
    data = words(rng, 64, 64)
    return Job([np.zeros((64, 64), U32), data, U32(64)], 4, 256, {0: data.T.copy()})


def life(rng: Random) -> Job:
    width, height = 24, 11
    now = (rng.random((height, width)) < 0.4).astype(U8)
    near = sum(np.roll(now, (dy, dx), (0, 1)) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if dx or dy)
    wanted = ((near == 3) | (near == 2) & (now == 1)).astype(U8)
    return Job([np.zeros_like(now), now, U32(width), U32(height)], 5, 64, {0: wanted})


def stencil(rng: Random) -> Job:
    n = 300
    data = rng.standard_normal(n).astype(F32)
    x = np.pad(data, 2)
    wanted = x[2:-2] * F32(6) - F32(4) * (x[1:-3] + x[3:-1]) + (x[:-4] + x[4:])
    return Job([np.zeros(n, F32), data, U32(n)], 3, 128, {0: wanted})


def binary_search(rng: Random) -> Job:
    table = np.sort(rng.integers(0, 1 << 63, size=333, dtype=U64))
    sought = np.concatenate([table[::7], rng.integers(0, 1 << 63, size=60, dtype=U64), [0, (1 << 64) - 1]]).astype(
        U64
    )
    return Job(
        [np.zeros(len(sought), U32), table, sought, U32(333), U32(len(sought))], 2, 64,
        {0: np.searchsorted(table, sought).astype(U32)},
    )  # fmt: skip


def divisors(rng: Random) -> Job:
    a = rng.integers(2, 5000, size=64).astype(U32)
    b = rng.integers(1, 5000, size=64).astype(U32)
    rows = []
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        rows.append([int(np.gcd(x, y)), next((f for f in range(2, x) if f * f <= x and x % f == 0), x)])
    return Job([np.zeros((64, 2), U32), a, b], 1, 64, {0: np.array(rows, U32)})


def xtea(rng: Random) -> Job:
    data, key = words(rng, 64, 2), words(rng, 4)
    a, b, total = data[:, 0].copy(), data[:, 1].copy(), 0
    for _ in range(16):
        a += ((b << U32(4) ^ b >> U32(5)) + b) ^ (U32(total) + key[total & 3])
        total = total + 0x9E3779B9 & 0xFFFFFFFF
        b += ((a << U32(4) ^ a >> U32(5)) + a) ^ (U32(total) + key[total >> 11 & 3])
    return Job([data, key, U32(16)], 1, 64, {0: np.stack([a, b], axis=1)})


def base64(rng: Random) -> Job:
    data = rng.integers(0, 256, size=95).astype(U8)
    text = np.frombuffer(base64_module.b64encode(data.tobytes()), U8)
    return Job([np.zeros(len(text), U8), data, U32(95)], 1, 32, {0: text})


def quicksort(rng: Random) -> Job:
    data = rng.integers(-50, 50, size=(32, 24)).astype(I32)
    return Job([data], 1, 32, {0: np.sort(data, axis=1)})


def atomic_loops(rng: Random) -> Job:
    data = np.abs(rng.standard_normal(128)).astype(F32)
    wide = rng.integers(0, (1 << 64) - 1, size=128, dtype=U64)
    low = wide.astype(U32)
    totals = np.array(
        [low.sum(dtype=U32), np.bitwise_xor.reduce(low), min(0, int(low.view(I32).min())) & 0xFFFFFFFF], U32
    )
    return Job(
        [np.zeros(1, U32), np.zeros(1, U64), np.zeros(3, U32), data, wide], 2, 64,
        {0: data.max(keepdims=True).view(U32), 1: wide.max(keepdims=True), 2: totals},
    )  # fmt: skip


def softmax(rng: Random) -> Job:
    data = (rng.standard_normal((2, 128)) * 4).astype(F32)
    x = data * F32(1.44269504)
    power = floats.exp2((x - x.max(axis=1, keepdims=True)).reshape(-1)).reshape(2, 128)
    total, half = power.copy(), 64
    while half:
        total[:, :half] += total[:, half : 2 * half]
        half //= 2
    return Job([np.zeros((2, 128), F32), data], 2, 128, {0: power * floats.rcp(total[:, 0])[:, None]})


def wide_integers(rng: Random) -> Job:
    numbers = [[int.from_bytes(rng.bytes(16), "little") for _ in range(32)] for _ in range(2)]
    numbers[1][0], full = numbers[0][0], (1 << 128) - 1
    rows = []
    for x, y in zip(*numbers, strict=True):
        turned = x >> (y & 127) | x << (-y & 127)
        rows += [x + y & full, x * y & full, turned & full, abs(x - y)]

    def packed(values: list[int]) -> Array:
        return np.frombuffer(b"".join(v.to_bytes(16, "little") for v in values), U64).copy()

    return Job([np.zeros(32 * 8, U64), packed(numbers[0]), packed(numbers[1])], 1, 32, {0: packed(rows)})


def unpack(rng: Random) -> Job:
    room = 96
    streams, results = [], []
    for _ in range(32):
        stream, result = [], []
        while len(result) < room - 16:
            count, back = int(rng.integers(1, 17)), int(rng.integers(0, min(15, len(result)) + 1))
            stream.append(count - 1 | back << 4)
            if not back:
                literal = rng.integers(0, 256, size=count).tolist()
                stream += literal
                result += literal
            else:
                for _ in range(count):
                    result.append(result[-back])
        streams.append(stream)
        results.append(result + [0] * (room - len(result)))
    starts = np.concatenate([[0], np.cumsum([len(s) for s in streams])]).astype(U32)
    return Job(
        [np.zeros((32, room), U8), np.array(list(chain(*streams)), U8), starts, U32(room)], 1, 32,
        {0: np.array(results, U8)},
    )  # fmt: skip


def utf8(rng: Random) -> Job:
    text = "".join(chr(int(c)) for c in rng.choice([65, 0x20AC, 0xE9, 0x1F600, 0x7FF, 0x800, 10], size=60))
    raw = text.encode()
    points = np.full(len(raw), 0xFFFFFFFF, U32)
    at = 0
    for letter in text:
        points[at] = ord(letter)
        at += len(letter.encode())
    return Job([np.zeros(len(raw), U32), np.frombuffer(raw, U8).copy(), U32(len(raw))], 4, 64, {0: points})


def function_table(rng: Random) -> Job:
    x, which = words(rng, 32), rng.integers(0, 4, size=32).astype(U8)
    choices = [x + U32(17), x * U32(2654435761), ~x >> U32(3), x * U32(2654435761) ^ x + U32(17)]
    return Job([np.zeros(32, U32), x, which], 1, 32, {0: np.choose(which, choices)})


def register_index(rng: Random) -> Job:
    data, picks = words(rng, 32, 8), rng.integers(0, 8, size=20).astype(U32)
    results = []
    for i, row in enumerate(data.tolist()):
        v, total = list(row), 0
        for k, at in enumerate(picks.tolist()):
            total = (total * 3 + v[at]) & 0xFFFFFFFF
            v[(at + i) & 7] = v[(at + i) & 7] + k & 0xFFFFFFFF
        pick = int(data.reshape(-1)[i]) & 7
        results.append(total + v[pick] & 0xFFFFFFFF)
    return Job([np.zeros(32, U32), data, picks, U32(20)], 1, 32, {0: np.array(results, U32)})


def generic_pointers(rng: Random) -> Job:
    data = words(rng, 32, 4)

    def sums(rows: Array) -> Array:
        total = np.zeros(32, U32)
        for k in range(4):
            total = total * U32(5) + rows[:, k]
        return total

    k = np.arange(4, dtype=U32)
    rows = np.stack([sums(data), sums((data + k)[::-1]), sums(data ^ k)], axis=1)
    return Job([np.zeros((32, 3), U32), data], 1, 32, {0: rows})


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


def grid_ids(rng: Random) -> Job:
    width, height, depth = 8, 9, 10
    z, y, x = np.meshgrid(np.arange(depth), np.arange(height), np.arange(width), indexing="ij")
    out = np.zeros((depth, height, width), U32)
    return Job([out, U32(width), U32(height)], (2, 3, 2), (4, 3, 5), {0: (x | y << 8 | z << 16).astype(U32)})


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


def buffer_resources(rng: Random) -> Job:
    n, room = 40, 48
    data = words(rng, n)
    padded = np.concatenate([data, np.zeros(64, U32)])
    wanted = np.zeros(64, U32)
    wanted[:room] = (padded[:64] + U32(3) * padded[16:80])[:room]
    return Job([np.zeros(64, U32), data, U32(n), U32(room)], 2, 32, {0: wanted})


def dynamic_stack(rng: Random) -> Job:
    data = words(rng, 32, 8)

    def turned(n: int) -> Array:
        total = np.zeros(32, U32)
        for k in range(n):
            total = total * U32(7) + data[:, n - 1 - k]
        return total

    return Job([np.zeros(32, U32), data, np.array([5, 8], U32)], 1, 32, {0: turned(5) ^ turned(8)})


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


def irreducible(rng: Random) -> Job:
    data = rng.integers(1, 100_000, size=64).astype(U32)
    return Job([np.zeros(64, U32), data], 1, 64, {0: np.array([_jumps(x) for x in data.tolist()], U32)})


def _jumps(x: int) -> int:
    steps, odd = 0, x & 1
    while True:
        if not odd:
            x //= 2
            steps += 1
            if steps > 60:
                break
            odd = x & 1
            continue
        if x <= 1:
            break
        odd = 0
        for _ in range(3):
            x = x * 3 + 1 & 0xFFFFFFFF
            steps += 1
            if steps > 60 or not x & 1:
                break
        else:
            break
        if steps > 60:
            break
    return (x << 8 | steps) & 0xFFFFFFFF


def byte_shuffles(rng: Random) -> Job:
    a, b = words(rng, 64), words(rng, 64)
    rows = []
    for i, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        pair = (x << 32 | y).to_bytes(8, "little")
        shuffled = int.from_bytes(bytes([pair[5], 0, pair[6], pair[1]]), "little")
        apart = sum(abs(p - q) for p, q in zip(x.to_bytes(4, "little"), y.to_bytes(4, "little"), strict=True))
        field = ((y >> 4 & 127) ^ 64) - 64
        both = x << 32 | y
        rows.append([shuffled, both >> 8 * (i & 3), both >> (i & 31), apart + i + (x >> (i & 15) & 511) - field])
    return Job(
        [np.zeros((64, 4), U32), a, b], 2, 32, {0: np.array([[v & 0xFFFFFFFF for v in r] for r in rows], U32)}
    )


def copies(rng: Random) -> Job:
    data = rng.integers(0, 256, size=(32, 64)).astype(U8)
    wanted = np.full((32, 256), 0x5A, U8)
    wanted[:, 3:64] = data[:, 1:62]
    wanted[:, 64:128] = data
    wanted[:, 70:110] = wanted[:, 64:104].copy()
    wanted[:, 128:136] = data[:, :8]
    wanted[np.arange(32), 200 + data[:, 0] % 50] = data[:, 63]
    return Job([np.zeros((32, 256), U8), data], 1, 32, {0: wanted})


def shared_queue(rng: Random) -> Job:
    n = 100
    data = words(rng, n) >> rng.integers(0, 31, size=n).astype(U32)
    odd = np.array([x for x in data.tolist() if x.bit_count() & 1], U32)
    wanted = np.zeros(n, U32)
    wanted[: len(odd)] = odd
    expected = {0: wanted, 1: np.array([len(odd)], U32)}
    return Job([np.zeros(n, U32), np.zeros(1, U32), data, U32(n)], 1, 64, expected, unordered=0)


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
        reduce_sum, prefix_sum, bitonic_sort, matmul_tiled, histogram, crc32, sha256, mandelbrot,
        string_search, power_modulo, division, division64, double_precision, float_division,
        half_precision, recursion, bytecode, pointer_chase, wave_ops, wave_ops64, relay, pixels,
        structs, dot_products, bit_tricks, random_numbers, fft, queens, gather_scatter, number_text,
        edit_distance, transpose, life, stencil, binary_search, divisors, xtea, base64, quicksort,
        atomic_loops, softmax, wide_integers, unpack, utf8, function_table, register_index,
        generic_pointers, square_roots, quantized, packed_half, grid_ids, matrix_cores,
        float_atomics, buffer_resources, dynamic_stack, medians, brain_floats, irreducible, byte_shuffles,
        copies, shared_queue, polynomial,
    )
}  # fmt: skip
