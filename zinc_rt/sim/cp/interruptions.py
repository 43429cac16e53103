"""Exceptions and waits that end or suspend a packet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from zinc_rt.sim.cp.fetch import FetchFrame
from zinc_rt.sim.interfaces import Fault


class IllegalPacket(Exception):
    """The queue permanently stops at this packet. The message gives the reason, as a clause."""


class MemoryFaultStop(Exception):
    """A Fault of work other than the current packet: `label` names the work; `at` (frame, position) is the packet
    that launched it, None for the current packet.
    """

    def __init__(
        self, fault: Fault, label: str, at: tuple[FetchFrame, int] | None = None, doing: str = ""
    ) -> None:
        """`doing`: a more precise description of the access than Fault.access."""
        super().__init__(f"{label}: {fault}")
        self.fault = fault
        self.label = label
        self.at = at
        self.doing = doing


@dataclass(slots=True)
class QueueWait:
    """A condition: the queue continues once `ready()` returns true; it is polled and must not block.

    `preemptible`: the driver can take the queue off the hardware meanwhile (pm4.md §3.15: KFD queues, and
    user queues only if the packet permits it).
    """

    ready: Callable[[], bool]
    text: str
    preemptible: bool = True
    then: Callable[[], None] | None = None  # once, when it is over
