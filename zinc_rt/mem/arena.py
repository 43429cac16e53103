"""Packing buffers with known lifetimes into one arena."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Alive at every node from `first` to `last`, both included."""

    first: int
    last: int
    size_bytes: int


# No order is best for every graph: chains of equal layers like one, wide temporaries another.
_ORDERS: tuple[Callable[[Lifetime], tuple[int, ...]], ...] = (
    lambda life: (-life.size_bytes, life.first),
    lambda life: (life.first, -life.size_bytes),
    lambda life: (life.first - life.last, -life.size_bytes, life.first),
    lambda life: (-life.size_bytes * (1 + life.last - life.first), life.first),
)


def pack(lifetimes: Sequence[Lifetime]) -> list[int]:
    """One offset each, so that no two that are alive at the same node overlap.

    Each goes to the lowest gap that fits; of a few fixed orders to place them in, the one with the smallest arena
    wins. Offsets are sums of sizes: give sizes already aligned.
    """
    floor = floor_bytes(lifetimes)
    best: list[int] = []
    smallest: int | None = None
    for order in _ORDERS:
        keys = [order(life) for life in lifetimes]
        offsets = _place(lifetimes, sorted(range(len(lifetimes)), key=keys.__getitem__))
        end = max((o + life.size_bytes for o, life in zip(offsets, lifetimes, strict=True)), default=0)
        if smallest is None or end < smallest:
            best, smallest = offsets, end
        if smallest == floor:
            break
    return best


def _place(lifetimes: Sequence[Lifetime], order: Sequence[int]) -> list[int]:
    placed = np.zeros((len(lifetimes), 4), dtype=np.int64)  # first, last, offset, end
    offsets = [0] * len(lifetimes)
    for count, number in enumerate(order):
        life = lifetimes[number]
        known = placed[:count]
        beside = known[(known[:, 0] <= life.last) & (known[:, 1] >= life.first)]
        offset = _lowest_gap(beside[np.argsort(beside[:, 2], kind="stable")], life.size_bytes)
        placed[count] = life.first, life.last, offset, offset + life.size_bytes
        offsets[number] = offset
    return offsets


def _lowest_gap(beside: np.ndarray, size_bytes: int) -> int:
    """Lowest offset with `size_bytes` free, given the ranges in use sorted by offset."""
    ends = np.maximum.accumulate(np.concatenate(([0], beside[:, 3])))
    fits = np.flatnonzero(beside[:, 2] - ends[:-1] >= size_bytes)
    return int(ends[fits[0]] if fits.size else ends[-1])


def floor_bytes(lifetimes: Sequence[Lifetime]) -> int:
    """The most bytes alive at one node: no packing can be smaller."""
    change: dict[int, int] = {}
    for life in lifetimes:
        change[life.first] = change.get(life.first, 0) + life.size_bytes
        change[life.last + 1] = change.get(life.last + 1, 0) - life.size_bytes
    alive = most = 0
    for node in sorted(change):
        alive += change[node]
        most = max(most, alive)
    return most
