"""Inputs of the kernels in opencl/ and, computed by NumPy or plain Python, what they must give."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from compiled_float_cases import matrix_cores
from compiled_job import F16, F32, F64, I32, U8, U16, U32, U64, Array, Job, Random, random_words


def group_scan(rng: Random) -> Job:
    data = random_words(rng, 2, 128)
    return Job([np.zeros((2, 128), U32), data], 2, 128, {0: data.cumsum(axis=1, dtype=U32)})


def bins(rng: Random) -> Job:
    data = rng.integers(0, 256, 300).astype(U8)
    return Job([np.zeros(16, U32), data, U32(300)], 2, 64, {0: np.bincount(data & 15, minlength=16).astype(U32)})


def last_group(rng: Random) -> Job:
    data = random_words(rng, 3, 64)
    sums = data.sum(axis=1, dtype=U32)
    args = [np.zeros(1, U32), np.zeros(3, U32), np.zeros(1, U32), data, U32(3)]
    return Job(args, 3, 64, {0: sums.sum(dtype=U32, keepdims=True), 1: sums})


def tile_transpose(rng: Random) -> Job:
    data = rng.standard_normal((16, 24)).astype(F32)
    return Job([np.zeros((24, 16), F32), data, U32(16), U32(24)], 6, (8, 8, 1), {0: data.T.copy()})


def switches(rng: Random) -> Job:
    data = random_words(rng, 128)
    return Job([np.zeros(128, U32), data], 2, 64, {0: np.array([expected_switch(int(x)) for x in data], U32)})


def expected_switch(x: int) -> int:
    y, all_ = x >> 4, 0xFFFFFFFF
    match x & 15:
        case 0:
            y = ~y
        case 1:
            y *= 7
        case 2:
            y = y + 0x12345 & all_
            y ^= y >> 3
        case 3:
            y ^= y >> 3
        case 4:
            y = y << 5 | y >> 27
        case 5:
            y = y.bit_count()
        case 6:
            y = 6
        case 7:
            y = int(f"{y:032b}"[::-1], 2)
        case 8:
            y %= 1000
        case 9:
            y //= 77
        case 10:
            y = 32 - y.bit_length() if y else 99
        case 11:
            for _ in range(x >> 28):
                y = y * 3 + 1
        case 12:
            y &= -y
        case _:
            y = x
    return y & all_


def private_sort(rng: Random) -> Job:
    data = rng.integers(-50, 50, (64, 13)).astype(I32)
    return Job([data], 1, 64, {0: np.sort(data, axis=1)})


def generic_sum(rng: Random) -> Job:
    data = random_words(rng, 48)
    result = []
    for i in range(32):
        own = [0] * 4
        for k in range(4):
            own[k ^ (i & 3)] = int(data[i]) + k
        first = [data[:4], data[:4], own][i % 3]
        result.append(fold_values(first) + fold_values(data[i & 15 :][:5]) & 0xFFFFFFFF)
    return Job([np.zeros(32, U32), data], 1, 32, {0: np.array(result, U32)})


def fold_values(values: Array | list[int]) -> int:
    total = 0
    for value in values:
        total = total * 31 + int(value) & 0xFFFFFFFF
    return total


def vectors4(rng: Random) -> Job:
    data, pick = rng.standard_normal((64, 4)).astype(F32), rng.integers(-3, 4, (64, 4)).astype(I32)
    by = rng.standard_normal(4).astype(F32)
    result = data[:, ::-1] * by + data[:, [0, 0, 1, 1]]
    result = np.where(pick > 0, result, -data)
    result[:, 0::2] += result[:, 1::2]
    return Job([np.zeros((64, 4), F32), data, pick, vector_of(by)], 1, 64, {0: result})


def vector_of(values: Array) -> np.generic:
    """A vector that is passed by value."""
    return np.frombuffer(values.tobytes(), np.dtype(f"V{values.nbytes}"))[0]


def saturating_bytes(rng: Random) -> Job:
    a, b = rng.integers(0, 256, (2, 64, 4)).astype(U8)
    return Job([np.zeros((64, 4), U8), a, b], 1, 64, {0: np.minimum(a.astype(int) + b, 255).astype(U8)})


def bit_fields(rng: Random) -> Job:
    kind, delta, rest, flag = (rng.integers(0, 1 << bits, 50) for bits in (3, 11, 17, 1))
    identity, low, high = (rng.integers(0, 1 << bits, 50) for bits in (16, 4, 4))
    signed = delta - (delta >> 10 << 11)
    form = np.dtype([("word", U32), ("id", U16), ("nibbles", U8), ("pad", U8)])
    items = np.zeros(50, form)
    items["word"] = kind | delta << 3 | rest << 14 | flag << 31
    items["id"], items["nibbles"] = identity, low | high << 4
    after = items.copy()
    after["word"] = (kind ^ low & 7) | (delta - 5 & 0x7FF) << 3 | rest << 14 | flag << 31
    out = np.zeros(50, I32)
    wanted = np.where(flag == 1, signed * kind - low, rest + high * identity).astype(I32)
    return Job([out, items, U32(50)], 1, 64, {0: wanted, 1: after})


def horner64(rng: Random) -> Job:
    x = rng.uniform(-1, 1, 32)
    total = np.zeros(32, F64)
    for k in range(9, 0, -1):
        total = total * x + 1.0 / k
    return Job([np.zeros(32, F64), x, U32(9)], 1, 32, {0: np.where(x < 0, -total, total)})


def halves2(rng: Random) -> Job:
    a, b = rng.standard_normal((2, 50, 2)).astype(F16)
    return Job([np.zeros((50, 2), F16), a, b, U32(50)], 1, 64, {0: (a + b[:, ::-1]) * a - b})


def constant_structs(rng: Random) -> Job:
    data = random_words(rng, 64)
    rules = [
        (1, 3, -5, 50),
        (6, -2, 0, 9),
        (8, 11, -100, 100),
        (0x30, 1, 7, 8),
        (0xC0, -7, -1, 1),
    ]
    wanted = []
    for x in data.tolist():
        total = 0
        for k in range(5):
            mask, gain, low, high = rules[(k + x & 0xFFFFFFFF) % 5]
            total += min(max((x & mask) * gain, low), high)
        wanted.append(total)
    return Job([np.zeros(64, I32), data], 1, 64, {0: np.array(wanted, I32)})


def collatz(rng: Random) -> Job:
    wanted = []
    for i in range(100):
        x, steps = i + 1, 0
        while x != 1 and steps < 40:
            x, steps = (3 * x + 1 if x & 1 else x >> 1), steps + 1
        wanted.append(steps)
    return Job([np.zeros(100, U32), U32(100), U32(40)], 2, 64, {0: np.array(wanted, U32)})


def row_sums(rng: Random) -> Job:
    a, x = rng.standard_normal((3, 160)).astype(F32), rng.standard_normal(160).astype(F32)
    parts = np.zeros((3, 64), F32)
    for k in range(160):
        parts[:, k % 64] += a[:, k] * x[k]
    step = 32
    while step:
        parts[:, :step] += parts[:, step : 2 * step]
        step //= 2
    return Job([np.zeros(3, F32), a, x, U32(160)], 3, 64, {0: parts[:, 0].copy()})


def lanes_exchange(rng: Random) -> Job:
    data = random_words(rng, 64)
    rows = data.reshape(4, 16)
    other = rows[:, np.arange(16) * 5 & 15]
    following = np.concatenate([rows[:, 1:], np.zeros((4, 1), U32)], axis=1)
    wanted = other * U32(3) + following + (rows & U32(1)) * U32(100)
    return Job([np.zeros(64, U32), data], 1, 64, {0: wanted.reshape(-1)})


def atomics_scopes(rng: Random) -> Job:
    data = random_words(rng, 128)
    start = np.array([5, 5, 0xFFFFFFFF, 0, 0xFFFFFFFF, 0, 0], U32)
    total = data.sum(dtype=U32)
    wanted = [5 + total, 5 - total, data.min(), data.max()]
    wanted += [
        np.bitwise_and.reduce(data | 0xFFFF),
        np.bitwise_or.reduce(data & 0xFF00FF),
        np.bitwise_xor.reduce(data),
    ]
    wide = np.array([int((data.astype(U64) << U64(20)).sum()), int((data & 7).sum())], U64)
    expected = np.array([int(item) & 0xFFFFFFFF for item in wanted], U32)
    return Job([start, np.zeros(2, U64), data], 2, 64, {0: expected, 1: wide})


def mad_wide(rng: Random) -> Job:
    x = random_words(rng, 64)
    y = x * U32(2654435761) + np.arange(64, dtype=U32)
    signed = x.view(I32).astype(np.int64) * y.view(I32).astype(np.int64)
    wide = x.astype(U64) * y + (y.astype(U64) << U64(32) | x)
    args = [np.zeros(64, U32), np.zeros(64, U64), x]
    return Job(args, 1, 64, {0: x * y + (y >> U32(7)), 1: wide ^ signed.view(U64) >> U64(13)})


def helpers(rng: Random) -> Job:
    data = random_words(rng, 64)
    wanted = []
    for x in data.tolist():
        pairs = [[k, x, x + k & 0xFFFFFFFF] for k in range(3)]
        for k in range(6):
            p = pairs[(x + k & 0xFFFFFFFF) % 3]
            p[0] = p[0] + (x + k) * 5 & 0xFFFFFFFF
            p[1] ^= p[0] >> 3
            p[2] = p[2] * 3 + p[1] & (1 << 64) - 1
        total = 0
        for p in pairs:
            total = total * 17 + p[2] + p[0] & (1 << 64) - 1
        wanted.append(total)
    return Job([np.zeros(64, U64), data], 1, 64, {0: np.array(wanted, U64)})


def saxpy_guarded(rng: Random) -> Job:
    x, y = rng.standard_normal((2, 100)).astype(F32)
    y = y.copy()
    return Job([y, x, F32(1.5), U32(100)], 2, 64, {0: F32(1.5) * x + y})


def halo_blur(rng: Random) -> Job:
    data = random_words(rng, 100)
    wide = np.pad(data, 1)
    return Job([np.zeros(100, U32), data, U32(100)], 2, 64, {0: wide[:-2] + U32(2) * wide[1:-1] + wide[2:]})


def radix_split(rng: Random) -> Job:
    data = rng.integers(0, 64, (2, 128)).astype(U32)
    return Job([data, U32(6)], 2, 128, {0: np.sort(data, axis=1)})


def automaton(rng: Random) -> Job:
    table = [[1, 0, 2, 0], [1, 3, 0, 0], [2, 2, 3, 1], [3, 1, 0, 2]]
    text = rng.integers(0, 256, (32, 20)).astype(U8)
    wanted = []
    for row in text.tolist():
        state = hits = 0
        for letter in row:
            state = table[state][letter & 3]
            hits += state == 3
            if hits > 9:
                break
        wanted.append(hits << 8 | state)
    return Job([np.zeros(32, U32), text, U32(20)], 1, 32, {0: np.array(wanted, U32)})


def sum_of_bytes(rng: Random) -> Job:
    a, b = rng.integers(-128, 128, (2, 100, 4)).astype(np.int8), rng.integers(-128, 128, (100, 4)).astype(np.int8)
    products = (a.astype(I32) * b).sum(axis=2)
    parts = np.zeros((2, 64), I32)
    for k in range(100):
        parts[:, k % 64] += products[:, k]
    return Job([np.zeros((2, 8), I32), a, b, U32(100)], 2, 64, {0: parts.reshape(2, 8, 8).sum(axis=2, dtype=I32)})


def publish(rng: Random) -> Job:
    data = random_words(rng, 32)
    wanted = np.concatenate([data] + [data * U32(3) + U32(group) for group in (1, 2)])
    args = [np.zeros(96, U32), np.zeros(32, U32), np.zeros(1, U32), data]
    return Job(args, 3, 32, {0: wanted, 1: data * U32(3), 2: np.ones(1, U32)})


def grid_strides(rng: Random) -> Job:
    data = random_words(rng, 300)
    sums = np.zeros(96, U64)
    for i in range(300):
        sums[i % 96] += U64(data[i] | 1)
    return Job([np.zeros(96, U64), data, U32(300), U32(3)], 3, 32, {0: sums})


CASES: dict[str, Callable[[Random], Job]] = {
    function.__name__: function
    for function in (
        group_scan, bins, last_group, tile_transpose, switches, private_sort, generic_sum, vectors4,
        saturating_bytes, bit_fields, horner64, halves2, constant_structs, collatz, row_sums, lanes_exchange,
        atomics_scopes, mad_wide, helpers, saxpy_guarded, halo_blur, radix_split, automaton, sum_of_bytes,
        publish, grid_strides,
    )
} | {"matrix_copies": matrix_cores}  # fmt: skip
