"""The comparisons of WAIT_REG_MEM and related packets: unsigned, number 0 to 6 (pm4.md §3.6)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from zinc_rt.sim.cp.interruptions import IllegalPacket


def _compare_always(value: int, reference: int) -> bool:
    return True


FUNCTIONS: Mapping[int, Callable[[int, int], bool]] = {
    0: _compare_always,
    1: operator.lt,
    2: operator.le,
    3: operator.eq,
    4: operator.ne,
    5: operator.ge,
    6: operator.gt,
}


def find_function(number: int) -> Callable[[int, int], bool]:
    if number not in FUNCTIONS:
        raise IllegalPacket(f"compare function {number} does not exist, expected 0 to 6")
    return FUNCTIONS[number]
