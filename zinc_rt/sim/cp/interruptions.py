"""What ends a packet otherwise than by going on to the next one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from zinc_rt.sim.cp.fetch import FetchFrame
from zinc_rt.sim.interfaces import Fault


class Illegal(Exception):
    """The queue stops at this packet for good. The message says why, as a clause."""


class FaultIn(Exception):
    """A Fault of something else than the packet being executed: `label` says what it was of, `at` (frame,
    position) where the packet that launched it stands; None: the present one."""

    def __init__(
        self, fault: Fault, label: str, at: tuple[FetchFrame, int] | None = None, doing: str = ""
    ) -> None:
        """`doing`: the access in words, where that is known better than by Fault.access."""
        super().__init__(f"{label}: {fault}")
        self.fault = fault
        self.label = label
        self.at = at
        self.doing = doing


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
