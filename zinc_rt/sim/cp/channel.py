"""A queue on the device: its ring, its waits, its launched work, and how it stops.

Subclasses define the packets: `compute.py` for PM4, `sdma.py` for SDMA.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection

from zinc_rt.host.sanitizer_rules import RULES, Severity
from zinc_rt.pm4.generation import Generation
from zinc_rt.sim.cp.clocks import Clock, WorkKind, drop_queues, join
from zinc_rt.sim.cp.device_state import DeviceState
from zinc_rt.sim.cp.fetch import WINDOW_DW, FetchFrame, Ring
from zinc_rt.sim.cp.hazards import AccessRecord
from zinc_rt.sim.cp.interruptions import IllegalPacket, MemoryFaultStop, QueueWait
from zinc_rt.sim.cp.stop_report import QueueStop, report
from zinc_rt.sim.cp.work import LaunchedWork, PendingWork
from zinc_rt.sim.interfaces import (
    CodePlace,
    DeviceFinding,
    DevicePageFault,
    Fault,
    HardwareQueue,
    QueueKind,
    QueueState,
)
from zinc_rt.sim.shader_engine import NOTHING, Accesses, Ranges

HISTORY = 6
FINDINGS_KEPT = 2000  # different ones a queue reports; the rest are more of the same


class Channel:
    """A queue on the device. `number` is unique in this device and never reused. Positions are dwords, for
    SDMA too."""

    UNIT = 1  # unit of the queue's pointers, per dword

    def __init__(self, queue: HardwareQueue, device: DeviceState, number: int) -> None:
        self.queue = queue
        self.device = device
        self.number = number
        self.space = queue.space
        self.messages = device.messages
        self.generation = device.generation
        self.hazards = device.add_queue(queue.space, number)
        self.is_user = queue.kind is QueueKind.USERQ_COMPUTE
        self.is_kernel = queue.kind in (QueueKind.KERNEL_COMPUTE, QueueKind.KERNEL_GFX, QueueKind.KERNEL_SDMA)
        start = queue.rptr // self.UNIT
        self.ring = Ring(queue.space, queue.ring_va, max(queue.ring_size_bytes // 4, 1), start, start)
        self.frames: list[FetchFrame] = [self.ring]
        self.at: tuple[FetchFrame, int] = (self.ring, start)  # the packet being executed
        self.ring_start = start  # the ring's packet being executed, or last executed
        self.wait: QueueWait | None = None
        self.pending = PendingWork(None if device.reorder_seed is None else device.reorder_seed + number)
        self.seen: Clock = {}
        self.released: Clock = {}  # work ordered before the RELEASE_MEMs that have run
        self.issue = 0
        self.history: deque[tuple[FetchFrame, int, str]] = deque(maxlen=HISTORY)
        self._counts = dict.fromkeys(WorkKind, 0)
        self._doorbells: deque[tuple[int, Clock]] = deque()  # (ring position, what the host knew when it rang)
        self._reported_rptr = -1
        self._last_rung = 0
        self._reported_once: set[object] = set()

    # --- doorbell ---------------------------------------------------------------------------------------------

    def rung(self, value: int) -> None:
        """Handle a doorbell: a write pointer in the queue's unit. Packets before it may be read from now
        on.

        It may be older than the value that was read from memory when the queue was assigned its slot (`mapped`).
        """
        if self.queue.state is not QueueState.ACTIVE:
            return
        if value % self.UNIT:
            self.finding("doorbell-alignment", f"doorbell {value} is not a multiple of {self.UNIT} bytes")
        wptr = value // self.UNIT
        ring = self.ring
        if wptr < self._last_rung:
            self.finding(
                "doorbell-backwards",
                (
                    f"doorbell {value} after {self._last_rung * self.UNIT}: write pointers must only "
                    "grow, unwrapped"
                ),
            )
            return
        self._last_rung = wptr
        if wptr - ring.position >= ring.size_dw and wptr != ring.position:
            self.at, self.ring_start = (ring, ring.position), ring.position
            self._stop(
                f"doorbell {value} is {wptr - ring.position} dwords ahead of the read pointer in a "
                f"ring of {ring.size_dw}: at least one dword must stay free, packets were overwritten"
            )
            return
        self._advance(wptr)

    def catch_up(self, doorbell: int) -> None:
        """Resume on the hardware with doorbells rung in the meantime."""
        if doorbell > self.ring.wptr * self.UNIT:
            self.rung(doorbell)

    def mapped(self, value: int) -> None:
        """Record that the queue was assigned a slot and that the firmware read this write pointer from memory."""
        wptr = value // self.UNIT
        if wptr - self.ring.position < self.ring.size_dw:
            self._advance(wptr)

    def _advance(self, wptr: int) -> None:
        if wptr > self.ring.wptr:
            self._doorbells.append((self.ring.wptr, self.device.find_host_clock()))
            self.ring.wptr = wptr

    # --- running ----------------------------------------------------------------------------------------------

    def has_work(self) -> bool:
        if self.queue.state is not QueueState.ACTIVE:
            return False
        return (
            self.wait is not None
            or self.ring.wptr > self.ring.position
            or len(self.frames) > 1
            or len(self.pending) > 0
        )

    def is_preemptible(self) -> bool:
        """Return whether the driver can preempt the queue here. User queues have no area to save waves to."""
        if self.queue.state is QueueState.HUNG:
            return False
        if not self.is_user:
            return True
        return not self.pending.busy() and (self.wait is None or self.wait.preemptible)

    def run(self, fuel: int) -> int:
        """Execute up to `fuel` packets, and stop early if a packet has to wait. Return the number of steps; 0
        means no progress.
        """
        if self.queue.state is not QueueState.ACTIVE:
            return 0
        used = 0
        try:
            used = self._run(fuel)
            self._report_rptr()
            return used
        except IllegalPacket as stop:
            self._stop(str(stop))
        except MemoryFaultStop as stop:
            self._report_fault(stop)
        except Fault as fault:
            self._report_fault(MemoryFaultStop(fault, self.label()))
        return used + 1

    def _run(self, fuel: int) -> int:
        used = 0
        if len(self.pending) and self.device.reorder_seed is None:
            used += self.pending.run(fuel)
        while used < fuel:
            if self.wait is not None:
                if not self.wait.ready():
                    ran = self.pending.run(fuel - used)
                    used += ran
                    if not ran or not self.wait.ready():
                        break
                then = self.wait.then
                self.wait = None
                if then is not None:
                    then()
            if not self._step():
                used += self.pending.run(fuel - used)
                break
            used += 1
        return used

    def _step(self) -> bool:
        """Execute one packet. Return False if none can be read yet."""
        frame = self.frames[-1]
        while frame.available() <= 0:
            if frame is self.ring:
                return False
            self.frames.pop()
            frame = self.frames[-1]
        position = frame.position
        self.at = (frame, position)
        if frame is self.ring:
            self.ring_start = position
            while self._doorbells and self._doorbells[0][0] <= position:
                self.seen = join(self.seen, self._doorbells.popleft()[1])
        index = position - frame.base
        if not 0 <= index < len(frame.words):
            self._load(frame, WINDOW_DW)
            index = 0
        return self._execute(frame, index)

    def _load(self, frame: FetchFrame, count: int) -> None:
        """Fetch packets. A fault belongs to no packet, so its message names the buffer and the position."""
        try:
            frame.load(count)
        except Fault as fault:
            what = f"queue {self.queue.queue_id} fetching packets at {frame.place(frame.position)}"
            raise MemoryFaultStop(fault, what, self.at, "packet fetch") from fault

    def _execute(self, frame: FetchFrame, index: int) -> bool:
        """Execute the packet at frame.words[index]. Return False if it is not complete yet."""
        raise NotImplementedError

    def refill(self, frame: FetchFrame, needed: int) -> bool:
        """Fetch a whole packet of `needed` dwords. In the ring, return False if it is not complete yet; in
        an IB, raise Illegal."""
        if frame.available() < needed:
            if frame is self.ring:
                return False
            raise IllegalPacket(f"the packet has {needed} dwords, but the IB ends after {frame.available()}")
        self._load(frame, max(needed, WINDOW_DW))
        return True

    def skip(self, count: int) -> None:
        """Skip the next dwords of the buffer that contains the packet."""
        frame = self.at[0]
        if frame is not self.ring and count > frame.available():
            self.finding(
                "skip-past-end", f"{self.label()}: skips {count} dwords, but the IB ends after {frame.available()}"
            )
            count = frame.available()
        frame.position += count

    # --- ordering ---------------------------------------------------------------------------------------------

    def clock(self) -> Clock:
        """Return the work that this queue knows to have finished, including that of its own CP."""
        return {**self.seen, (self.number, WorkKind.CP): self._counts[WorkKind.CP]}

    def find_launched_clock(self) -> Clock:
        """Return the work that will be finished once everything launched until now has finished."""
        own = {(self.number, kind): self._counts[kind] for kind in WorkKind}
        return {**self.seen, **own}

    def mark_coverage(self, *kinds: WorkKind) -> None:
        """Record that all launched work of those kinds has finished."""
        self.seen = {**self.seen, **{(self.number, kind): self._counts[kind] for kind in kinds}}

    def launch(
        self,
        kind: WorkKind,
        advance: Callable[[], Accesses | None],
        *,
        after_dma: bool = False,
        past_l2: bool = False,
        code: Ranges = (),
        abandon: Callable[[], None] | None = None,
    ) -> None:
        """Launch work of the current packet. `advance` returns its accesses once it has finished."""
        record = self._record(kind, NOTHING, past_l2, code)
        at = self.at
        self._report_unflushed(record.label, code, at)

        def step() -> bool:
            accesses = advance()
            if accesses is None:
                return False
            record.accesses = accesses
            self._add_record(record, at)
            return True

        self.pending.launch(LaunchedWork(kind, record.label, step, after_dma, abandon, self.at))

    def record_accesses(
        self, *, reads: Ranges = (), writes: Ranges = (), atomics: Ranges = (), past_l2: bool = False
    ) -> None:
        """Record memory accesses of the CP itself for the current packet."""
        self._add_record(self._record(WorkKind.CP, Accesses(reads, (), writes, atomics), past_l2), self.at)
        for va, size in (*writes, *atomics):
            if size <= 8:
                self.device.flags.record_write(self.space, va, self.clock())
                self.device.record_store(self.space, va, self.clock())

    def _add_record(self, record: AccessRecord, at: tuple[FetchFrame, int]) -> None:
        self.hazards.add(record)
        accesses = record.accesses
        read = (*accesses.reads, *accesses.scalar_reads, *accesses.atomics)
        self._report_unflushed(record.label, read, at)

    def _report_unflushed(self, label: str, read: Ranges, at: tuple[FetchFrame, int]) -> None:
        if (va := self.space.find_unflushed(read)) is not None:
            self.finding(
                "stale-hdp",
                f"{label} may read stale data at 0x{va:x} ({self.space.describe(va)}): the host stored there "
                "through the BAR, and HDP has not been flushed since",
                at=at,
            )

    def _record(self, kind: WorkKind, accesses: Accesses, past_l2: bool, code: Ranges = ()) -> AccessRecord:
        """Record the next work of that kind, for the current packet."""
        self._counts[kind] += 1
        return AccessRecord(
            (self.number, kind),
            self._counts[kind],
            self.device.number_packet(),
            self.seen,
            accesses,
            self.label(),
            self.queue.queue_id,
            self.at[1] * self.UNIT,
            self.at[0].va(self.at[1]),
            past_l2,
            code,
        )

    def wait_for(self, wait: QueueWait) -> None:
        """Wait: check the condition once now; the queue checks again later and continues when it is met."""
        if not wait.ready():
            self.wait = wait
        elif wait.then is not None:
            wait.then()

    def forget_queues(self, numbers: Collection[int]) -> None:
        """Forget queues of an address space that is gone."""
        self.seen, self.released = drop_queues(self.seen, numbers), drop_queues(self.released, numbers)
        rung = [(position, drop_queues(clock, numbers)) for position, clock in self._doorbells]
        self._doorbells = deque(rung)

    def acquire_from(self, va: int) -> None:
        """Finish a wait on that location: the work in the writer's clock has finished."""
        clock = self.device.flags.read(self.space, va)
        self.seen = join(self.seen, self.device.published if clock is None else clock)

    # --- telling ----------------------------------------------------------------------------------------------

    def label(self) -> str:
        frame, position = self.at
        name = self.history[-1][2] if self.history else "packet"
        return f"queue {self.queue.queue_id} {name} at {frame.place(position)}"

    def finding(
        self,
        rule: str,
        sentence: str,
        severity: Severity | None = None,
        *,
        once: object = None,
        at: tuple[FetchFrame, int] | None = None,
        place: CodePlace | None = None,
        fault: DevicePageFault | None = None,
    ) -> None:
        """Report a finding; only the first one of a rule for each value of `once`. `severity`: defaults to
        the rule's. `at`: the packet, if it is not the current one."""
        if rule in self.device.behaviour.stops_at:
            raise IllegalPacket(f"{sentence} (flipped: {rule})")
        key = (rule, sentence if once is None else once)
        if fault is None and (key in self._reported_once or len(self._reported_once) >= FINDINGS_KEPT):
            return
        self._reported_once.add(key)
        frame, position = at or self.at
        self.messages.finding(
            DeviceFinding(
                severity or RULES[rule].severity,
                rule,
                self.queue.queue_id,
                position * self.UNIT,
                sentence,
                frame.va(position),
                place,
                fault,
            )
        )

    def handle_error(self, error: Exception) -> None:
        """Handle an unexpected exception in a packet: this queue ends, the device continues."""
        self._stop(f"an internal error of the simulator, {type(error).__name__}: {error}")

    def _report_fault(self, stop: MemoryFaultStop) -> None:
        """Report a fault of a packet or of its launched work. For a wave, the shader engine has already reported
        details.
        """
        fault = stop.fault
        near = self.space.nearby(fault.va)
        if fault.reported:
            self._halt(f"{stop.label}: {fault}")
        else:
            access = stop.doing or fault.access.value
            self._halt(f"{stop.label}: {access} at 0x{fault.va:x}: {fault.why} ({near})")
            self.finding(
                "page-fault",
                f"{stop.label}: {access} at 0x{fault.va:x}: {fault.why}, {near}",
                at=stop.at,
                fault=DevicePageFault(fault.va, access, fault.why, near, stop.label),
            )
        self.messages.vm_fault(self.queue, fault)

    def _stop(self, sentence: str) -> None:
        self._halt(sentence)
        self.messages.hung(self.queue)

    def _halt(self, sentence: str) -> None:
        frame, position = self.at
        index = position - frame.base
        words = (
            frame.words[index : index + self.packet_dwords(frame.words[index])]
            if self._should_wait(frame, index)
            else []
        )
        before = [
            f"{name} at {where.place(location)}"
            for where, location, name in self.history
            if (where, location) != self.at
        ]
        self.queue.report = report(
            self.queue,
            QueueStop(frame.place(position), tuple(words), position, sentence),
            self._disassembled_as(),
            before=before,
        )
        self.pending.drop()
        self.wait = None
        self.queue.state = QueueState.HUNG
        self.queue.rptr = self.ring_start * self.UNIT
        try:
            self._write_rptr(self.ring_start)
        except Fault:
            return  # the report is in queue.report; the client's page is gone

    @staticmethod
    def _should_wait(frame: FetchFrame, index: int) -> bool:
        return 0 <= index < len(frame.words)

    def packet_dwords(self, header: int) -> int:
        """Return the dwords that the header claims, for a report."""
        raise NotImplementedError

    def _disassembled_as(self) -> Generation | None:
        raise NotImplementedError

    # --- read pointer -----------------------------------------------------------------------------------------

    def _report_rptr(self) -> None:
        inside = self.wait is not None or any(frame.available() > 0 for frame in self.frames[1:])
        position = self.ring_start if inside else min(self.ring.position, self.ring.wptr)
        if position != self._reported_rptr:
            self._reported_rptr = position
            self.queue.rptr = position * self.UNIT
            self._write_rptr(position)

    def _write_rptr(self, position: int) -> None:
        raise NotImplementedError

    def mark_detached(self) -> None:
        """Mark the queue as destroyed: later doorbells of its client are ordered after all its work."""
        self.device.publish(self.find_launched_clock())
        self.pending.drop()
        self.wait = None
