"""KFD events: a page of 64-bit slots that the GPU writes, waits with a deadline, and fault and reset events."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from zinc_rt.kmd.errors import DriverError
from zinc_rt.kmd.kfd_memory import KfdMemory
from zinc_rt.kmd.open_kfd import OpenKfd
from zinc_rt.kmd.resources import AllocatedResource
from zinc_rt.kmd.transport import DeviceBuffer, MemoryFault, Placement
from zinc_rt.kmd.uapi import kfd
from zinc_rt.kmd.uapi.host_memory import HostArray, make_record_array
from zinc_rt.kmd.uapi.structs import StructBytes

SLOT_BYTES = 8
PAGE_SIZE_BYTES = kfd.KFD_SIGNAL_EVENT_LIMIT * SLOT_BYTES
UNSIGNALLED = (1 << 64) - 1  # amdkfd/kfd_events.c, UNSIGNALED_EVENT_SLOT
_LONGEST_MS = 0x7FFFFFFF  # longer waits are cut to this by KFD; all ones would have no end


class EventKind(Enum):
    SIGNAL = kfd.KFD_IOC_EVENT_SIGNAL
    HW_EXCEPTION = kfd.KFD_IOC_EVENT_HW_EXCEPTION
    MEMORY = kfd.KFD_IOC_EVENT_MEMORY


@dataclass(frozen=True, slots=True)
class GpuReset:
    """The GPU was reset: its queues are lost, and with `memory_lost` also the content of VRAM."""

    gpu_id: int
    whole_gpu: bool
    ecc: bool  # else a hang
    memory_lost: bool


@dataclass(eq=False, slots=True)
class KfdEvent:
    """A KFD event.

    RELEASE_MEM writes any value except UNSIGNALLED to `slot_va`, then interrupts with `trigger` as context id.
    """

    kind: EventKind
    event_id: int
    trigger: int
    slot_va: int  # 0 for kinds without a slot
    age: int  # of the last set this process has seen
    held: AllocatedResource

    def destroy(self) -> None:
        self.held.release()


@dataclass(frozen=True, slots=True)
class FiredEvent:
    event: KfdEvent
    detail: MemoryFault | GpuReset | None  # of MEMORY and HW_EXCEPTION events


class KfdEvents:
    """All events of a process. KFD accepts one event page per process and keeps it until the process exits."""

    def __init__(self, file: OpenKfd) -> None:
        self._file = file
        self.page: DeviceBuffer | None = None
        self._page_given = False  # to KFD, which takes one page once and never lets go of it

    def take_page(self, memory: KfdMemory) -> None:
        """Allocate the page for signal events. Once passed to KFD, it persists until the process exits."""
        page = memory.allocate(
            PAGE_SIZE_BYTES,
            Placement.GTT,
            "event page",
            ledger=self._file.ledger,
            kept_by_kfd=lambda: self._page_given,  # freeing it would be refused with EPERM
        )
        page.host.view[:] = b"\xff" * page.size_bytes
        self.page = page

    def create(self, kind: EventKind, *, auto_reset: bool = True) -> KfdEvent:
        """Create an event. With `auto_reset`, a wait that observes the event clears it."""
        request = kfd.CREATE_EVENT.new(event_type=kind.value, auto_reset=int(auto_reset))
        page = self.page
        if kind is EventKind.SIGNAL:
            if page is None:
                raise ValueError("signal events need a page: open a GPU first")
            if not self._page_given:
                request["event_page_offset"] = page.handle  # its handle, once; the header calls it an offset
        ioctl = self._file.ioctl(kfd.IOC_CREATE_EVENT, request, kind.name.lower())
        if kind is EventKind.SIGNAL:
            self._page_given = True
        event_id = ioctl["event_id"]

        def give_back() -> None:
            self._file.ioctl(kfd.IOC_DESTROY_EVENT, kfd.DESTROY_EVENT.new(event_id=event_id))

        held = self._file.ledger.hold("event", f"{kind.name.lower()} {event_id}", give_back)
        slot = page.gpu_va + ioctl["event_slot_index"] * SLOT_BYTES if page and kind is EventKind.SIGNAL else 0
        return KfdEvent(kind, event_id, ioctl["event_trigger_data"], slot, 1, held)

    def set(self, event: KfdEvent) -> None:
        """Set an event from the CPU. It must be a SIGNAL event."""
        self._file.ioctl(kfd.IOC_SET_EVENT, kfd.SET_EVENT.new(event_id=event.event_id))

    def reset(self, event: KfdEvent) -> None:
        self._file.ioctl(kfd.IOC_RESET_EVENT, kfd.RESET_EVENT.new(event_id=event.event_id))

    def wait(self, events: Sequence[KfdEvent], timeout_seconds: float, *, every: bool = False) -> list[FiredEvent]:
        """Wait for any of `events`, or with `every` for all. Return the fired events, empty on timeout.

        Raise DriverError if KFD fails the wait because an event was destroyed or the device is lost.
        """
        array = make_record_array(
            kfd.EVENT_DATA.new(
                event_id=event.event_id, last_event_age=event.age if event.kind is EventKind.SIGNAL else 0
            )
            for event in events
        )
        milliseconds = min(max(0, math.ceil(timeout_seconds * 1000)), _LONGEST_MS)
        request = kfd.WAIT_EVENTS.new(
            events_ptr=array.address, num_events=len(events), wait_for_all=int(every), timeout=milliseconds
        )
        self._file.ioctl(kfd.IOC_WAIT_EVENTS, request, f"{len(events)} events")
        if request["wait_result"] == kfd.KFD_IOC_WAIT_RESULT_TIMEOUT:
            return []
        if request["wait_result"] != kfd.KFD_IOC_WAIT_RESULT_COMPLETE:
            raise DriverError(kfd.IOC_WAIT_EVENTS.name, 5, f"wait_result {request['wait_result']}")
        return _list_fired(events, array, alone=every or len(events) == 1)


def _list_fired(events: Sequence[KfdEvent], array: HostArray, *, alone: bool) -> list[FiredEvent]:
    """Return the events whose entries KFD filled in: with a GPU id, or for a signal with its new age."""
    fired = []
    for index, event in enumerate(events):
        data = array.record(kfd.EVENT_DATA, index)
        if event.kind is EventKind.MEMORY:
            if data["memory_gpu_id"]:
                fired.append(FiredEvent(event, _make_fault(data["va"], data)))
        elif event.kind is EventKind.HW_EXCEPTION:
            if data["reset_gpu_id"]:
                fired.append(FiredEvent(event, _make_reset(data)))
        elif alone or data["last_event_age"] != event.age:
            event.age = data["last_event_age"] or event.age
            fired.append(FiredEvent(event, None))
    return fired


def _make_fault(va: int, data: StructBytes) -> MemoryFault:
    return MemoryFault(
        va,
        not_present=bool(data["not_present"]),
        read_only=bool(data["read_only"]),
        no_execute=bool(data["no_execute"]),
        imprecise=bool(data["imprecise"]),
        gpu_id=data["memory_gpu_id"],
        error_type=data["memory_error_type"],
    )


def _make_reset(data: StructBytes) -> GpuReset:
    return GpuReset(
        gpu_id=data["reset_gpu_id"],
        whole_gpu=data["reset_type"] == kfd.KFD_HW_EXCEPTION_WHOLE_GPU_RESET,
        ecc=data["reset_cause"] == kfd.KFD_HW_EXCEPTION_ECC,
        memory_lost=bool(data["memory_lost"]),
    )
