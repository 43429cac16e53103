"""Scheduling of launches into the fewest dependency levels, across the barriers of nodes.

Nodes are in sequence with barriers inside each, so two independent chains (keys and values, chosen and shared
experts) would wait for each other. Here each launch is placed in the first level after those that it depends on,
as by a list scheduler; there is a barrier between levels, and launches within one may overlap. A launch depends on
an earlier one from another interval between barriers if one of the two writes bytes that the other accesses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

REACH = 32  # intervals that a launch moves at most, which bounds both the search and how long a value lives

Touch = tuple[str, int, int, bool]
"""Memory's name, the first byte and the one behind the last, whether it may be written."""

T = TypeVar("T")


def group_by_level(intervals: Iterable[Sequence[T]], touches: Callable[[T], Sequence[Touch]]) -> list[list[T]]:
    """Return the launches of intervals (unordered within an interval) as levels; each level keeps their order."""
    levels: list[list[T]] = []
    recent: deque[list[tuple[int, Sequence[Touch]]]] = deque()
    floor = 0
    for interval in intervals:
        if len(recent) == REACH:
            floor = max(floor, *(level + 1 for level, _ in recent.popleft()))
        earlier = sorted((item for previous in recent for item in previous), key=lambda item: -item[0])
        placed = []
        for launch in interval:
            touched = touches(launch)
            level = next((index + 1 for index, other in earlier if _have_conflict(touched, other)), floor)
            level = max(level, floor)
            if level == len(levels):
                levels.append([])
            levels[level].append(launch)
            placed.append((level, touched))
        recent.append(placed)
    return levels


def _have_conflict(a: Sequence[Touch], b: Sequence[Touch]) -> bool:
    return any(
        (writes or also) and memory == where and first < end and begin < behind
        for memory, first, behind, writes in a
        for where, begin, end, also in b
    )
