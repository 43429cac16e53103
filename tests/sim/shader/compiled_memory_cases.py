"""Inputs and results of the C kernels about memory, lanes, barriers and stacks."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, pairwise

import numpy as np
from compiled_job import F32, I32, U8, U16, U32, U64, Array, Job, LinkedNodes, Random, random_words


def reduce_sum(rng: Random) -> Job:
    data = random_words(rng, 5, 128)
    return Job([np.zeros(5, U32), data], 5, 128, {0: data.sum(axis=1, dtype=U32)})


def prefix_sum(rng: Random) -> Job:
    data = random_words(rng, 3, 256)
    return Job([np.zeros((3, 256), U32), data], 3, 256, {0: data.cumsum(axis=1, dtype=U32)})


def bitonic_sort(rng: Random) -> Job:
    data = rng.integers(-1000, 1000, size=(2, 256)).astype(I32)
    data[1, :50] = np.iinfo(I32).min
    return Job([data], 2, 128, {0: np.sort(data, axis=1)})


def histogram(rng: Random) -> Job:
    data = rng.integers(0, 256, size=3000).astype(U8)
    return Job([np.zeros(64, U32), data, U32(3000)], 3, 128, {0: np.bincount(data // 4, minlength=64).astype(U32)})


def string_search(rng: Random) -> Job:
    text = bytes(rng.choice(list(b"abc"), size=200).astype(U8))
    pattern = b"ab?a"
    hits = [all(p in (ord("?"), t) for p, t in zip(pattern, text[i : i + 4], strict=True)) for i in range(197)]
    result = np.zeros(256, U8)
    wanted = result.copy()
    wanted[:197] = hits
    source, needle = np.frombuffer(text, U8).copy(), np.frombuffer(pattern, U8).copy()
    return Job(
        [result, np.zeros(1, U32), source, needle, U32(200), U32(4)],
        4,
        64,
        {0: wanted, 1: np.array([sum(hits)], U32)},
    )


def pointer_chase(rng: Random) -> Job:
    """The nodes point into their own array: `run` adds its address (see Linked)."""
    nodes = np.zeros(100, [("next", U64), ("value", U32), ("weight", U32)])
    nodes["value"], nodes["weight"] = random_words(rng, 100), random_words(rng, 100)
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
    return Job([np.zeros(32, U32), LinkedNodes(nodes, follows, heads)], 1, 32, {0: np.array(sums, U32)})


def wave_ops(rng: Random) -> Job:
    x = random_words(rng, 32)
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
    x = random_words(rng, 64)
    odd = sum(int(v & 1) << i for i, v in enumerate(x))
    before = [(odd & (1 << i) - 1).bit_count() for i in range(64)]
    rows = np.stack(
        [np.full(64, odd, U64), np.array(before, U64), x[::-1].astype(U64), np.roll(x, 32).astype(U64)], axis=1
    )
    return Job([np.zeros((64, 4), U64), x], 1, 64, {0: rows})


def relay(rng: Random) -> Job:
    x = random_words(rng, 2, 128)
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


def queens(rng: Random) -> Job:
    n = 6

    def count_solutions(rows: list[int]) -> int:
        if len(rows) == n:
            return 1
        free = [c for c in range(n) if all(c != d and abs(c - d) != len(rows) - k for k, d in enumerate(rows))]
        return sum(count_solutions([*rows, c]) for c in free)

    return Job(
        [np.zeros(64, U32), U32(n)],
        1,
        32,
        {0: np.array([count_solutions([i]) for i in range(n)] + [0] * (64 - n), U32)},
    )


def gather_scatter(rng: Random) -> Job:
    n = 500
    data = rng.standard_normal(n).astype(F32)
    source, to = rng.integers(0, n, size=n).astype(U32), rng.permutation(n).astype(U32)
    wanted = np.zeros(n, F32)
    wanted[to] = data[source] * F32(2) + data
    return Job([np.zeros(n, F32), data, source, to, U32(n)], 4, 64, {0: wanted})


def edit_distance(rng: Random) -> Job:
    argument, other = rng.integers(0, 4, size=(32, 16)).astype(U8), rng.integers(0, 4, size=16).astype(U8)

    def word_distance(word: list[int]) -> int:
        row = list(range(17))
        for r, letter in enumerate(word):
            following = [r + 1]
            for c in range(16):
                following.append(min(row[c] + (letter != other[c]), row[c + 1] + 1, following[c] + 1))
            row = following
        return row[16]

    return Job(
        [np.zeros(32, U32), argument, other],
        1,
        32,
        {0: np.array([word_distance(w) for w in argument.tolist()], U32)},
    )


def transpose(rng: Random) -> Job:
    data = random_words(rng, 64, 64)
    return Job([np.zeros((64, 64), U32), data, U32(64)], 4, 256, {0: data.T.copy()})


def life(rng: Random) -> Job:
    width, height = 24, 11
    now = (rng.random((height, width)) < 0.4).astype(U8)
    near = sum(np.roll(now, (dy, dx), (0, 1)) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if dx or dy)
    wanted = ((near == 3) | (near == 2) & (now == 1)).astype(U8)
    return Job([np.zeros_like(now), now, U32(width), U32(height)], 5, 64, {0: wanted})


def binary_search(rng: Random) -> Job:
    table = np.sort(rng.integers(0, 1 << 63, size=333, dtype=U64))
    sought = np.concatenate([table[::7], rng.integers(0, 1 << 63, size=60, dtype=U64), [0, (1 << 64) - 1]]).astype(
        U64
    )
    return Job(
        [np.zeros(len(sought), U32), table, sought, U32(333), U32(len(sought))], 2, 64,
        {0: np.searchsorted(table, sought).astype(U32)},
    )  # fmt: skip


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


def register_index(rng: Random) -> Job:
    data, picks = random_words(rng, 32, 8), rng.integers(0, 8, size=20).astype(U32)
    results = []
    for i, row in enumerate(data.tolist()):
        v, total = list(row), 0
        for k, index in enumerate(picks.tolist()):
            total = (total * 3 + v[index]) & 0xFFFFFFFF
            v[(index + i) & 7] = v[(index + i) & 7] + k & 0xFFFFFFFF
        pick = int(data.reshape(-1)[i]) & 7
        results.append(total + v[pick] & 0xFFFFFFFF)
    return Job([np.zeros(32, U32), data, picks, U32(20)], 1, 32, {0: np.array(results, U32)})


def generic_pointers(rng: Random) -> Job:
    data = random_words(rng, 32, 4)

    def sum_rows(rows: Array) -> Array:
        total = np.zeros(32, U32)
        for k in range(4):
            total = total * U32(5) + rows[:, k]
        return total

    k = np.arange(4, dtype=U32)
    rows = np.stack([sum_rows(data), sum_rows((data + k)[::-1]), sum_rows(data ^ k)], axis=1)
    return Job([np.zeros((32, 3), U32), data], 1, 32, {0: rows})


def grid_ids(rng: Random) -> Job:
    width, height, depth = 8, 9, 10
    z, y, x = np.meshgrid(np.arange(depth), np.arange(height), np.arange(width), indexing="ij")
    out = np.zeros((depth, height, width), U32)
    return Job([out, U32(width), U32(height)], (2, 3, 2), (4, 3, 5), {0: (x | y << 8 | z << 16).astype(U32)})


def buffer_resources(rng: Random) -> Job:
    n, room = 40, 48
    data = random_words(rng, n)
    padded = np.concatenate([data, np.zeros(64, U32)])
    wanted = np.zeros(64, U32)
    wanted[:room] = (padded[:64] + U32(3) * padded[16:80])[:room]
    return Job([np.zeros(64, U32), data, U32(n), U32(room)], 2, 32, {0: wanted})


def dynamic_stack(rng: Random) -> Job:
    data = random_words(rng, 32, 8)

    def reversed_sum(n: int) -> Array:
        total = np.zeros(32, U32)
        for k in range(n):
            total = total * U32(7) + data[:, n - 1 - k]
        return total

    return Job([np.zeros(32, U32), data, np.array([5, 8], U32)], 1, 32, {0: reversed_sum(5) ^ reversed_sum(8)})


def copies(rng: Random) -> Job:
    data = rng.integers(0, 256, size=(32, 64)).astype(U8)
    full = np.full((32, 256), 0x5A, U8)
    full[:, 3:64] = data[:, 1:62]
    full[:, 64:128] = data
    full[:, 70:110] = full[:, 64:104].copy()
    full[:, 128:136] = data[:, :8]
    full[np.arange(32), 200 + data[:, 0] % 50] = data[:, 63]
    return Job([np.zeros((32, 256), U8), data], 1, 32, {0: full})


def shared_queue(rng: Random) -> Job:
    n = 100
    data = random_words(rng, n) >> rng.integers(0, 31, size=n).astype(U32)
    odd = np.array([x for x in data.tolist() if x.bit_count() & 1], U32)
    wanted = np.zeros(n, U32)
    wanted[: len(odd)] = odd
    expected = {0: wanted, 1: np.array([len(odd)], U32)}
    return Job([np.zeros(n, U32), np.zeros(1, U32), data, U32(n)], 1, 64, expected, unordered=0)


CASES: dict[str, Callable[[Random], Job]] = {
    function.__name__: function
    for function in (
        reduce_sum, prefix_sum, bitonic_sort, histogram, string_search, pointer_chase, wave_ops,
        wave_ops64, relay, pixels, structs, queens, gather_scatter, edit_distance, transpose, life,
        binary_search, quicksort, atomic_loops, unpack, register_index, generic_pointers, grid_ids,
        buffer_resources, dynamic_stack, copies, shared_queue
    )
}  # fmt: skip
