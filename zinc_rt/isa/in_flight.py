"""How much of memory a wave waits for at once: loads issued before the wait that needs the first of them.

By Little's law what a device has in flight, over the latency of memory, bounds what it reads a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zinc_rt.isa.instruction import Instruction
from zinc_rt.isa.lint.counters import LOAD, waits

_TURNS = 2  # of a loop: what one turn issues and the next waits for is in flight between them


@dataclass(frozen=True, slots=True)
class PendingLoads:
    """The most vector loads of one wave that may be pending at one place, and the bytes of all its lanes that they
    fetch."""

    loads: int
    bytes: int


def in_flight(code: Sequence[Instruction], wave: int, *, loop: bool = False) -> PendingLoads:
    """Of a stretch of code, taken in its order as if every instruction ran; of a `loop`, turn after turn. LOADCNT
    counts down in order: a wait for n settles all but the last n."""
    pending: list[int] = []
    most = most_bytes = 0
    for instruction in tuple(code) * (_TURNS if loop else 1):
        if instruction.row.unit == "load":
            pending.append(instruction.row.access_bytes * wave)
        for counter, remain in waits(instruction):
            if counter == LOAD:
                pending = pending[max(0, len(pending) - remain) :]
        most, most_bytes = max(most, len(pending)), max(most_bytes, sum(pending))
    return PendingLoads(most, most_bytes)
