"""Pack buffers with known lifetimes into one arena."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A buffer that is alive at every node from `first` to `last`, both included."""

    first: int
    last: int
    size_bytes: int


def align_up(size_bytes: int, alignment: int) -> int:
    return -(-size_bytes // alignment) * alignment


# No order is best for every graph: chains of equal layers like one, wide temporaries another.
_ORDERS: tuple[Callable[[Lifetime], tuple[int, ...]], ...] = (
    lambda life: (-life.size_bytes, life.first),
    lambda life: (life.first, -life.size_bytes),
    lambda life: (life.first - life.last, -life.size_bytes, life.first),
    lambda life: (-life.size_bytes * (1 + life.last - life.first), life.first),
)


def pack_lifetimes(lifetimes: Sequence[Lifetime]) -> list[int]:
    """Return an offset for each lifetime, such that buffers that are alive at the same node do not overlap.

    Each buffer is put into the lowest gap that fits; several fixed placement orders are tried, and the smallest
    arena is used. Offsets are sums of sizes: pass aligned sizes.
    """
    floor = compute_floor_bytes(lifetimes)
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
    alive: dict[int, list[tuple[int, int]]] = {}  # by node: ranges in use there
    start: dict[int, list[tuple[int, int]]] = {}  # by node: ranges in use from there on
    offsets = [0] * len(lifetimes)
    for number in order:
        life = lifetimes[number]
        beside = list(alive.get(life.first, ()))
        for node in range(life.first + 1, life.last + 1):
            beside += start.get(node, ())
        offset = _find_lowest_gap(sorted(beside), life.size_bytes)
        taken = offset, offset + life.size_bytes
        for node in range(life.first, life.last + 1):
            alive.setdefault(node, []).append(taken)
        start.setdefault(life.first, []).append(taken)
        offsets[number] = offset
    return offsets


def _find_lowest_gap(overlapping: list[tuple[int, int]], size_bytes: int) -> int:
    """Return the lowest offset with `size_bytes` free, given the ranges in use sorted by offset."""
    free = 0
    for offset, end in overlapping:
        if offset - free >= size_bytes:
            break
        free = max(free, end)
    return free


def compute_floor_bytes(lifetimes: Sequence[Lifetime]) -> int:
    """Return the maximum of the bytes alive at one node, a lower bound for every packing."""
    change: dict[int, int] = {}
    for life in lifetimes:
        change[life.first] = change.get(life.first, 0) + life.size_bytes
        change[life.last + 1] = change.get(life.last + 1, 0) - life.size_bytes
    alive = maximum = 0
    for node in sorted(change):
        alive += change[node]
        maximum = max(maximum, alive)
    return maximum
