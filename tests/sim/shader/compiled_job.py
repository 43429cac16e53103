"""What a compiled kernel is given, and what it must give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

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


def random_words(rng: Random, *shape: int) -> Array:
    return rng.integers(0, 1 << 32, size=shape, dtype=U64).astype(U32)


class LinkedNodes:
    """A linked list and its heads, whose pointers are known once the nodes have an address."""

    def __init__(self, nodes: Array, next_index: Array, heads: Array) -> None:
        self.nodes, self.follows, self.heads = nodes, next_index, heads

    def place(self, place: Callable[[Array, str], int]) -> int:
        va = place(self.nodes.view(U8), "nodes")
        self.nodes["next"] = np.where(self.follows < 0, 0, va + 16 * self.follows).astype(U64)
        self.pointers = np.where(self.heads < 0, 0, va + 16 * self.heads).astype(U64)
        return place(self.pointers, "heads")


def list_differences(job: Job) -> list[str]:
    """Return the wrong results, compared bit for bit except for NaNs, which are equal, and padding of
    structures.
    """
    result: list[str] = []
    for location, expected in job.expected.items():
        got = np.asarray(job.args[location])
        if location == job.unordered:
            got, expected = np.sort(got), np.sort(expected)
        for name in got.dtype.names or (None,):
            result += first_difference(
                location, got if name is None else got[name], expected if name is None else expected[name]
            )
    return result


def first_difference(place: int, got: Array, expected: Array) -> list[str]:
    a, b = got.reshape(-1), np.ascontiguousarray(expected, got.dtype).reshape(-1)
    differ = a != b
    if a.dtype.kind == "f":
        differ = ~(np.isnan(a) & np.isnan(b)) & (a.view(f"u{a.itemsize}") != b.view(f"u{b.itemsize}"))
    index = np.flatnonzero(differ)
    if not len(index):
        return []
    return [
        f"argument {place}: {len(index)} of {len(a)} differ, first [{index[0]}]: {a[index[0]]} for {b[index[0]]}"
    ]
