"""What ends a packet otherwise than by going on to the next one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from zinc_rt.sim.interfaces import Fault


class Illegal(Exception):
    """The queue stops at this packet for good. The message says why, as a clause."""


class FaultIn(Exception):
    """A Fault of work that an earlier packet launched: `label` says which."""

    def __init__(self, fault: Fault, label: str) -> None:
        super().__init__(f"{label}: {fault}")
        self.fault = fault
        self.label = label


@dataclass(slots=True)
class Wait:
    """The queue goes on once `ready()`; it is asked again and again and must not block.

    `preemptible`: the driver can take the queue off the hardware meanwhile (pm4.md §3.15: KFD queues, and user
    queues only where the packet says so).
    """

    ready: Callable[[], bool]
    text: str
    preemptible: bool = True
    then: Callable[[], None] | None = None  # once, when it is over
