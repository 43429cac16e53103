"""Launches in the fewest levels: what depends on nothing of a level moves into it, past the barriers of its node.

Nodes come one after the other and bring barriers of their own, so that two chains which never meet (keys and
values, chosen and shared experts) would wait for each other. Here each launch goes to the first level behind
those that it depends on, as a list scheduler's; between levels there is a barrier, and within one launches may
overlap. A launch depends on an earlier one, of another interval between barriers, where one of both writes
bytes that the other touches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

REACH = 32  # intervals that a launch moves at most, which bounds both the search and how long a value lives

Touch = tuple[str, int, int, bool]
"""Memory's name, the first byte and the one behind the last, whether it may be written."""

T = TypeVar("T")


def levelled(intervals: Iterable[Sequence[T]], touches: Callable[[T], Sequence[Touch]]) -> list[list[T]]:
    """The launches of intervals, those of one in any order, as levels; in a level they keep their order."""
    levels: list[list[T]] = []
    recent: deque[list[tuple[int, Sequence[Touch]]]] = deque()
    floor = 0
    for interval in intervals:
        if len(recent) == REACH:
            floor = max(floor, *(level + 1 for level, _ in recent.popleft()))
        earlier = sorted((each for found in recent for each in found), key=lambda each: -each[0])
        placed = []
        for launch in interval:
            touched = touches(launch)
            level = next((at + 1 for at, other in earlier if _meet(touched, other)), floor)
            level = max(level, floor)
            if level == len(levels):
                levels.append([])
            levels[level].append(launch)
            placed.append((level, touched))
        recent.append(placed)
    return levels


def _meet(some: Sequence[Touch], others: Sequence[Touch]) -> bool:
    return any(
        (writes or also) and memory == where and first < end and begin < behind
        for memory, first, behind, writes in some
        for where, begin, end, also in others
    )
