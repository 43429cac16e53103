"""The memory-level parallelism of a wave: loads issued before the wait that needs the first of them.

By Little's law, memory throughput is at most the bytes in flight divided by the memory latency.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.lint.counters import LOAD, list_waits

_TURNS = 2  # of a loop: an operation may be issued in one iteration and waited for in the next


@dataclass(frozen=True, slots=True)
class PendingLoads:
    """The maximum number of pending vector loads of one wave, and the bytes that they fetch for all lanes."""

    loads: int
    bytes: int


def count_in_flight(code: Sequence[Instruction], wave: int, *, loop: bool = False) -> PendingLoads:
    """Return the maximum pending loads in a sequence of instructions, assuming that every instruction executes.

    A `loop` is repeated. LOADCNT counts down in order: a wait for n completes all but the last n loads.
    """
    pending: list[int] = []
    maximum = most_bytes = 0
    for instruction in tuple(code) * (_TURNS if loop else 1):
        if instruction.row.unit == "load":
            pending.append(instruction.row.access_bytes * wave)
        for counter, remain in list_waits(instruction):
            if counter == LOAD:
                pending = pending[max(0, len(pending) - remain) :]
        maximum, most_bytes = max(maximum, len(pending)), max(most_bytes, sum(pending))
    return PendingLoads(maximum, most_bytes)
