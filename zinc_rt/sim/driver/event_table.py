"""KFD events of one process: slots in the event page, signalling, waiting. Source: kfd_events.c."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from zinc_rt.sim.memory.buffers import SharedStore
from zinc_rt.sim.tables import kfd

UNSIGNALED = (1 << 64) - 1
SLOT_IDS = range(1, kfd.KFD_SIGNAL_EVENT_LIMIT)  # 0 is for interrupts without a context id
OTHER_ID_FIRST = 0x40000000
PAGE_BYTES_FULL = kfd.KFD_SIGNAL_EVENT_LIMIT * 8
LEGACY_SLOTS = 256  # of the kernel's own page until it is mapped
FOREVER_MS = 0xFFFFFFFF
_SLOTTED = (kfd.KFD_IOC_EVENT_SIGNAL, kfd.KFD_IOC_EVENT_DEBUG_EVENT)


@dataclass(slots=True, eq=False)
class EventState:
    """One event of a process."""

    event_id: int
    kind: int
    auto_reset: bool
    signaled: bool = False
    age: int = 1
    destroyed: bool = False
    data: dict[str, int] = field(default_factory=dict)  # EVENT_DATA fields of the last exception
    waiters: list[EventWaiter] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class EventWaiter:
    """One entry of a WAIT_EVENTS call."""

    event: EventState
    activated: bool = False
    age_asked: int = 0


class EventTable:
    """A table of events. Guarded by `changed`, which every signal notifies. The machine shares one
    condition among processes, since the command processor signals from its own thread and must not wait
    for an ioctl."""

    def __init__(self, changed: threading.Condition, clock: Callable[[], float] = time.monotonic) -> None:
        self.changed = changed
        self._clock = clock
        self._by_id: dict[int, EventState] = {}
        self.page: SharedStore | None = None
        self.page_handle = 0
        self._slots_limit = LEGACY_SLOTS
        self._next_other = OTHER_ID_FIRST
        self.closed = False

    def __len__(self) -> int:
        return len(self._by_id)

    def use_page(self, page: SharedStore, handle: int) -> None:
        if page.size_bytes < PAGE_BYTES_FULL or self.page is not None:
            raise OSError(errno.EINVAL, "event page too small, or already set")
        self.page, self.page_handle = page, handle
        self._slots_limit = kfd.KFD_SIGNAL_EVENT_LIMIT
        page.view[:PAGE_BYTES_FULL] = b"\xff" * PAGE_BYTES_FULL

    def allocate_page(self) -> SharedStore:
        """Allocate the kernel's page, for clients that do not pass one."""
        if self.page is None:
            self.page = SharedStore("kfd events", PAGE_BYTES_FULL)
            self.page.view[:] = b"\xff" * PAGE_BYTES_FULL
        return self.page

    def create(self, kind: int, auto_reset: bool) -> EventState:
        with self.changed:
            if kind in _SLOTTED:
                self.allocate_page()
                free = (i for i in SLOT_IDS if i < self._slots_limit and i not in self._by_id)
                event_id = next(free, 0)
                if not event_id:
                    raise OSError(errno.ENOSPC, "no free event slot")
            else:
                event_id = self._next_other
                self._next_other += 1
            event = self._by_id[event_id] = EventState(event_id, kind, auto_reset)
            return event

    def destroy(self, event_id: int) -> None:
        with self.changed:
            event = self._by_id.pop(event_id, None)
            if event is None:
                raise OSError(errno.EINVAL, f"no event {event_id}")
            event.destroyed = True
            if event.kind in _SLOTTED and self.page is not None:
                self.page.u64[event_id] = UNSIGNALED
            self.changed.notify_all()

    def set(self, event_id: int) -> None:
        with self.changed:
            self._signal(self._signal_event(event_id))

    def reset(self, event_id: int) -> None:
        with self.changed:
            self._signal_event(event_id).signaled = False

    def _signal_event(self, event_id: int) -> EventState:
        event = self._by_id.get(event_id)
        if event is None or event.kind != kfd.KFD_IOC_EVENT_SIGNAL:
            raise OSError(errno.EINVAL, f"{event_id} is not a signal event")
        return event

    def _signal(self, event: EventState) -> None:
        event.age += 1
        if event.age >= 1 << 64:
            event.age = 2
        # an auto-reset event that wakes a waiter stays clear
        event.signaled = not (event.auto_reset and event.waiters)
        for waiter in event.waiters:
            waiter.activated = True
        if event.auto_reset:
            event.waiters.clear()
        self.changed.notify_all()

    def interrupt(self, context_id: int) -> bool:
        """Handle an end-of-pipe interrupt: signal the event with that id if its slot was written, else all
        events with written slots. Return whether any event was signalled."""
        with self.changed:
            if self.page is None:
                return False
            # a queue may send any 32 bits: only a slot's number is looked up (kfd_events.c, partial ids)
            candidates = [context_id] if context_id in self._by_id and context_id in SLOT_IDS else []
            if not candidates or self.page.u64[context_id] == UNSIGNALED:
                candidates = [i for i in self._by_id if i < OTHER_ID_FIRST]
            fired = False
            for event_id in candidates:
                if event_id < kfd.KFD_SIGNAL_EVENT_LIMIT and self.page.u64[event_id] != UNSIGNALED:
                    self.page.u64[event_id] = UNSIGNALED
                    self._signal(self._by_id[event_id])
                    fired = True
            return fired

    def signal_exception(self, kind: int, data: dict[str, int]) -> None:
        """Signal every MEMORY or HW_EXCEPTION event."""
        with self.changed:
            for event in self._by_id.values():
                if event.kind == kind:
                    event.data = dict(data)
                    self._signal(event)

    def close(self) -> None:
        with self.changed:
            self.closed = True
            for event in self._by_id.values():
                event.destroyed = True
            self._by_id.clear()
            if self.page is not None and not self.page_handle:
                self.page.close()  # the kernel's own; a buffer goes with its owner
            self.changed.notify_all()

    def wait(
        self,
        events: list[tuple[int, int]],
        wait_all: bool,
        timeout_ms: int,
        check_uninterrupted: Callable[[], None] = lambda: None,
    ) -> tuple[int, list[EventWaiter]]:
        """Return (wait_result, entries) for [(event id, last seen age)]. EINVAL for an unknown id, EIO for an
        event destroyed in the meantime; what `check_uninterrupted` raises, which is called at each change.
        """
        deadline = None if timeout_ms == FOREVER_MS else self._clock() + min(timeout_ms, 0x7FFFFFFF) / 1000
        with self.changed:
            entries = []
            for event_id, age in events:
                event = self._by_id.get(event_id)
                if event is None:
                    raise OSError(errno.EINVAL, f"no event {event_id}")
                entries.append(EventWaiter(event, age_asked=age))
            for entry in entries:
                event = entry.event
                entry.activated = event.signaled
                if entry.age_asked and event.age != entry.age_asked:
                    entry.activated = True
                if event.signaled and event.auto_reset:
                    event.signaled = False
                if not entry.activated:
                    event.waiters.append(entry)
            try:
                while True:
                    result = [entry.activated for entry in entries]
                    if (all(result) if wait_all else any(result)) or not entries:
                        return kfd.KFD_IOC_WAIT_RESULT_COMPLETE, entries
                    if any(entry.event.destroyed for entry in entries):
                        raise OSError(errno.EIO, "an event was destroyed during the wait")
                    check_uninterrupted()
                    left = None if deadline is None else deadline - self._clock()
                    if left is not None and left <= 0:
                        return kfd.KFD_IOC_WAIT_RESULT_TIMEOUT, entries
                    self.changed.wait(left if left is None else min(left, 3600))
            finally:
                for entry in entries:
                    if entry in entry.event.waiters:
                        entry.event.waiters.remove(entry)
