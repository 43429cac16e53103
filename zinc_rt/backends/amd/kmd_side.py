"""Operations of the kernel driver for a ring. All differences between T1 and T2 are here.

T1 receives faults and resets as KFD events; T2 polls for them. T1 flushes HDP through a register, T2 with a
packet. T2's kernel driver detects the end of a submission by PROTECTED_FENCE_SIGNAL.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from zinc_rt.backends.amd.fence import wait_until
from zinc_rt.ir.graph import Node
from zinc_rt.kmd.errors import DriverError
from zinc_rt.kmd.events import EventKind, GpuReset, KfdEvent
from zinc_rt.kmd.kfd import KfdGpu
from zinc_rt.kmd.transport import MemoryFault, Queue, Transport
from zinc_rt.kmd.uapi import amdgpu
from zinc_rt.kmd.userq import UserqGpu
from zinc_rt.pm4.packet import Packet
from zinc_rt.pm4.packets import HdpFlush, ProtectedFenceSignal

KFD_PRIORITY = 7  # normal, of 0 to 15 (libhsakmt)
ASK_SECONDS = 0.1  # of KmdSide.ask_seconds: longer than a decode step, so that one asks nothing


@dataclass(frozen=True, slots=True)
class Incident:
    """An event that ended the queues: no earlier submission will finish."""

    kind: Literal["fault", "reset", "lost"]
    text: str
    fault: MemoryFault | None = None
    node: Node | None = None  # at which a replay stopped, where a simulated device said so


class KmdSide(Protocol):
    transport: Transport
    incidents: list[Incident]
    ask_seconds: float  # how often `look` is called while a fence is waited for: an ioctl each

    def create_queue(self, *, ring_bytes: int, priority: int) -> Queue:
        """Create a queue. `priority` is the stream's: 0 is normal, higher values go first."""

    def settle(self) -> None:
        """Wait until the GPU can access every allocation."""

    def flush_hdp(self) -> tuple[Packet, ...]:
        """Make CPU writes through the BAR visible, either immediately or with packets that precede the reads."""

    def after_fence(self) -> tuple[Packet, ...]:
        """Return the packets that end every submission, after its fence."""

    def look(self) -> None:
        """Collect incidents without waiting."""

    def close(self) -> None: ...


class KfdSide:
    def __init__(self, gpu: KfdGpu) -> None:
        self.transport: Transport = gpu
        self.incidents: list[Incident] = []
        self.ask_seconds = ASK_SECONDS
        self._gpu = gpu
        self._events = gpu.events
        self._watched: list[KfdEvent] = []
        with gpu.ledger.release_on_failure():
            self._watched = [self._events.create(EventKind.MEMORY), self._events.create(EventKind.HW_EXCEPTION)]

    def create_queue(self, *, ring_bytes: int, priority: int) -> Queue:
        return self._gpu.create_queue(ring_bytes=ring_bytes, priority=min(15, max(0, KFD_PRIORITY + priority)))

    def settle(self) -> None:
        """Do nothing: nothing is pending after MAP_MEMORY_TO_GPU returns."""

    def flush_hdp(self) -> tuple[Packet, ...]:
        self._gpu.flush_hdp()
        return ()

    def after_fence(self) -> tuple[Packet, ...]:
        return ()

    def look(self) -> None:
        try:
            fired = self._events.wait(self._watched, 0.0)
        except DriverError as error:
            _add_incident(self.incidents, Incident("lost", str(error)))
            return
        for item in fired:
            if isinstance(item.detail, MemoryFault):
                _add_incident(self.incidents, Incident("fault", format_fault(item.detail), item.detail))
            elif isinstance(item.detail, GpuReset):
                _add_incident(self.incidents, Incident("reset", _format_reset(item.detail)))

    def close(self) -> None:
        for event in self._watched:
            event.destroy()


class UserqSide:
    def __init__(self, gpu: UserqGpu) -> None:
        self.transport: Transport = gpu
        self.incidents: list[Incident] = []
        self.ask_seconds = ASK_SECONDS
        self._gpu = gpu
        self._old = gpu.fault()  # the kernel keeps the last one for good

    def create_queue(self, *, ring_bytes: int, priority: int) -> Queue:
        """Create a queue. Priority HIGH needs CAP_SYS_NICE and is never used."""
        if priority > 0:
            level = amdgpu.AMDGPU_USERQ_CREATE_FLAGS_QUEUE_PRIORITY_NORMAL_HIGH
        elif priority < 0:
            level = amdgpu.AMDGPU_USERQ_CREATE_FLAGS_QUEUE_PRIORITY_LOW
        else:
            level = amdgpu.AMDGPU_USERQ_CREATE_FLAGS_QUEUE_PRIORITY_NORMAL_LOW
        return self._gpu.create_queue(ring_bytes=ring_bytes, priority=level)

    def settle(self) -> None:
        self._gpu.settle()

    def flush_hdp(self) -> tuple[Packet, ...]:
        return (HdpFlush(),)

    def after_fence(self) -> tuple[Packet, ...]:
        return (ProtectedFenceSignal(),)

    def look(self) -> None:
        try:
            fault = self._gpu.fault()
        except DriverError as error:
            _add_incident(self.incidents, Incident("lost", str(error)))
            return
        if fault is not None and fault != self._old:
            self._old = fault
            _add_incident(self.incidents, Incident("fault", format_fault(fault), fault))

    def close(self) -> None:
        """Close. There are no resources to release."""


def wait_until_or_incident(
    side: KmdSide,
    reached: Callable[[], bool],
    timeout_seconds: float,
    watch: Callable[[], object] = lambda: None,
) -> None:
    """Poll until `reached`, an incident of `side`, or the timeout; call `watch` each time the side is polled.

    Afterwards the caller checks `reached` and `side.incidents` to see which it was.
    """
    end = time.monotonic() + timeout_seconds
    left = timeout_seconds
    while not side.incidents and not wait_until(reached, time.sleep, max(0.0, min(side.ask_seconds, left))):
        watch()
        side.look()
        left = end - time.monotonic()
        if left <= 0:
            return


def _add_incident(incidents: list[Incident], incident: Incident) -> None:
    """Add an incident unless it is present: on a lost device every query fails in the same way."""
    if incident not in incidents:
        incidents.append(incident)


def format_fault(fault: MemoryFault) -> str:
    causes = [name for name in ("not_present", "read_only", "no_execute", "imprecise") if getattr(fault, name)]
    words = ", ".join(name.replace("_", " ") for name in causes)
    if fault.status:
        words = f"status {fault.status:#x}" + (f", {words}" if words else "")
    return f"GPU page fault at {fault.va:#x}" + (f" ({words})" if words else "")


def _format_reset(reset: GpuReset) -> str:
    scope = "the whole GPU" if reset.whole_gpu else "a queue"
    cause = "an ECC error" if reset.ecc else "a hang"
    return f"{scope} was reset after {cause}" + ("; VRAM was lost" if reset.memory_lost else "")
