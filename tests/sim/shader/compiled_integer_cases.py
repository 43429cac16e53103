"""Inputs and results of the C kernels that compute with integers."""

from __future__ import annotations

import base64 as base64_module
import hashlib
import zlib
from collections.abc import Callable

import numpy as np
from compiled_job import I32, I64, U8, U32, U64, Array, Job, Random, random_words


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


def power_modulo(rng: Random) -> Job:
    a, m = (rng.integers(1, (1 << 64) - 1, size=32, dtype=U64) for _ in range(2))
    e = rng.integers(0, 300, size=32).astype(U64)
    m[:3] = 1, 2, (1 << 64) - 1
    powers = [pow(int(x), int(y), int(z)) for x, y, z in zip(a, e, m, strict=True)]
    return Job([np.zeros(32, U64), a, e, m], 1, 32, {0: np.array(powers, U64)})


def divide_toward_zero(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def wrap(value: int, bits: int) -> int:
    return value & (1 << bits) - 1


def division(rng: Random) -> Job:
    a, b = random_words(rng, 64), random_words(rng, 64) >> rng.integers(0, 30, size=64).astype(U32)
    b[b == 0] = 1
    a[:4], b[:4] = (0x80000000, 0xFFFFFFFF, 7, 0), (3, 0xFFFFFFFE, 0x80000000, 5)
    rows = []
    for x, y in zip(a.view(I32).tolist(), b.view(I32).tolist(), strict=True):
        q, (ux, uy) = divide_toward_zero(x, y), (wrap(x, 32), wrap(y, 32))
        rows.append([wrap(q, 32), wrap(x - q * y, 32), ux // uy, ux % uy])
    return Job([np.zeros((64, 4), U32), a, b], 1, 64, {0: np.array(rows, U32)})


def division64(rng: Random) -> Job:
    a, b = (rng.integers(1, (1 << 64) - 1, size=32, dtype=U64) for _ in range(2))
    b >>= rng.integers(0, 62, size=32).astype(U64)
    b[b == 0] = 1
    a[:2], b[:2] = (1 << 63, 5), (3, 1 << 63)
    rows = []
    for x, y in zip(a.view(I64).tolist(), b.view(I64).tolist(), strict=True):
        q, (ux, uy) = divide_toward_zero(x, y), (wrap(x, 64), wrap(y, 64))
        rows.append([wrap(q, 64), wrap(x - q * y, 64), ux // uy, wrap(divide_toward_zero(x, 1000003), 64)])
    return Job([np.zeros((32, 4), U64), a, b], 1, 32, {0: np.array(rows, U64)})


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
    results = [interpret(_BYTECODE, int(x)) for x in inputs]
    return Job([np.zeros(64, I32), code, inputs, U32(len(code))], 2, 32, {0: np.array(results, U32).view(I32)})


def interpret(code: list[int], x: int) -> int:
    stack: list[int] = []
    index = 0

    def to_signed(value: int) -> int:
        return (value & 0xFFFFFFFF ^ 1 << 31) - (1 << 31)

    while index < len(code):
        op = code[index]
        if op == 0:
            stack.append(x)
        elif op == 1:
            index += 1
            stack.append(code[index])
        elif op in (2, 3, 4, 5, 7):
            b, a = stack.pop(), stack.pop()
            stack.append(to_signed({2: a + b, 3: a - b, 4: a * b, 5: a ^ b, 7: int(a < b)}[op]))
        elif op == 6:
            stack.append(stack[-1])
        elif op == 8:
            index += 1
            index += code[index] if not stack.pop() else 0
        elif op == 9:
            stack[-1] = to_signed(-stack[-1])
        elif op == 10:
            stack[-1], stack[-2] = stack[-2], stack[-1]
        else:
            stack[-1] = ~stack[-1]
        index += 1
    return stack[-1] & 0xFFFFFFFF


def split_digits(value: Array, bits: int, signed: bool) -> Array:
    parts = np.stack([value.astype(I64) >> bits * i & (1 << bits) - 1 for i in range(32 // bits)])
    return (parts ^ 1 << bits - 1) - (1 << bits - 1) if signed else parts


def dot_products(rng: Random) -> Job:
    a, b = random_words(rng, 64), random_words(rng, 64)
    rows = [
        (split_digits(a, 8, False) * split_digits(b, 8, False)).sum(axis=0) + 7,
        (split_digits(a, 8, True) * split_digits(b, 8, True)).sum(axis=0) - 7,
        (split_digits(a, 8, False) * split_digits(b, 8, True)).sum(axis=0) + np.arange(64),
        (split_digits(a, 4, True) * split_digits(b, 4, False)).sum(axis=0) + 100,
    ]
    return Job([np.zeros((64, 4), I32), a, b], 2, 32, {0: np.stack(rows, axis=1).astype(I32)})


def bit_tricks(rng: Random) -> Job:
    data = random_words(rng, 64)
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


def number_text(rng: Random) -> Job:
    data = random_words(rng, 64).view(I32)
    data[:6] = 0, 1, -1, 999, -1000, np.iinfo(I32).min
    text = [
        f"{'-' if x < 0 else ''}{abs(x) // 1000}.{abs(x) % 1000:03d}".rjust(16).encode() for x in data.tolist()
    ]
    return Job([np.zeros(64 * 16, U8), data], 2, 32, {0: np.frombuffer(b"".join(text), U8)})


def divisors(rng: Random) -> Job:
    a = rng.integers(2, 5000, size=64).astype(U32)
    b = rng.integers(1, 5000, size=64).astype(U32)
    rows = []
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        rows.append([int(np.gcd(x, y)), next((f for f in range(2, x) if f * f <= x and x % f == 0), x)])
    return Job([np.zeros((64, 2), U32), a, b], 1, 64, {0: np.array(rows, U32)})


def xtea(rng: Random) -> Job:
    data, key = random_words(rng, 64, 2), random_words(rng, 4)
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


def wide_integers(rng: Random) -> Job:
    numbers = [[int.from_bytes(rng.bytes(16), "little") for _ in range(32)] for _ in range(2)]
    numbers[1][0], full = numbers[0][0], (1 << 128) - 1
    rows = []
    for x, y in zip(*numbers, strict=True):
        turned = x >> (y & 127) | x << (-y & 127)
        rows += [x + y & full, x * y & full, turned & full, abs(x - y)]

    def pack_values(values: list[int]) -> Array:
        return np.frombuffer(b"".join(v.to_bytes(16, "little") for v in values), U64).copy()

    return Job(
        [np.zeros(32 * 8, U64), pack_values(numbers[0]), pack_values(numbers[1])], 1, 32, {0: pack_values(rows)}
    )


def utf8(rng: Random) -> Job:
    text = "".join(chr(int(c)) for c in rng.choice([65, 0x20AC, 0xE9, 0x1F600, 0x7FF, 0x800, 10], size=60))
    raw = text.encode()
    points = np.full(len(raw), 0xFFFFFFFF, U32)
    index = 0
    for letter in text:
        points[index] = ord(letter)
        index += len(letter.encode())
    return Job([np.zeros(len(raw), U32), np.frombuffer(raw, U8).copy(), U32(len(raw))], 4, 64, {0: points})


def function_table(rng: Random) -> Job:
    x, which = random_words(rng, 32), rng.integers(0, 4, size=32).astype(U8)
    choices = [x + U32(17), x * U32(2654435761), ~x >> U32(3), x * U32(2654435761) ^ x + U32(17)]
    return Job([np.zeros(32, U32), x, which], 1, 32, {0: np.choose(which, choices)})


def irreducible(rng: Random) -> Job:
    data = rng.integers(1, 100_000, size=64).astype(U32)
    return Job([np.zeros(64, U32), data], 1, 64, {0: np.array([count_steps(x) for x in data.tolist()], U32)})


def count_steps(x: int) -> int:
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
    a, b = random_words(rng, 64), random_words(rng, 64)
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


CASES: dict[str, Callable[[Random], Job]] = {
    function.__name__: function
    for function in (
        crc32, sha256, power_modulo, division, division64, recursion, bytecode, dot_products,
        bit_tricks, random_numbers, number_text, divisors, xtea, base64, wide_integers, utf8,
        function_table, irreducible, byte_shuffles
    )
}  # fmt: skip
