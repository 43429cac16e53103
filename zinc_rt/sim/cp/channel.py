"""A queue on the device: its ring, what it waits for, what it launched, and how it stops.

What a packet is and does is the subclass's business: `compute.py` for PM4, `sdma.py` for SDMA.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from zinc_rt.host.sanitizer_rules import RULES, Severity
from zinc_rt.pm4.generation import Generation
from zinc_rt.sim.cp.clocks import Clock, WorkKind, join
from zinc_rt.sim.cp.device_state import DeviceState
from zinc_rt.sim.cp.fetch import WINDOW_DW, FetchFrame, Ring
from zinc_rt.sim.cp.hazards import AccessRecord
from zinc_rt.sim.cp.interruptions import FaultIn, Illegal, Wait
from zinc_rt.sim.cp.stop_report import QueueStop, report
from zinc_rt.sim.cp.work import Pending, Work
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
    """`number` is the queue's in this device, never used again. Positions are dwords, for SDMA too."""

    UNIT = 1  # what the queue's pointers count, in units a dword has

    def __init__(self, queue: HardwareQueue, device: DeviceState, number: int) -> None:
        self.queue = queue
        self.device = device
        self.number = number
        self.space = queue.space
        self.messages = device.messages
        self.generation = device.generation
        self.hazards = device.hazards(queue.space)
        self.is_user = queue.kind is QueueKind.USERQ_COMPUTE
        start = queue.rptr // self.UNIT
        self.ring = Ring(queue.space, queue.ring_va, max(queue.ring_size_bytes // 4, 1), start, start)
        self.frames: list[FetchFrame] = [self.ring]
        self.at: tuple[FetchFrame, int] = (self.ring, start)  # the packet being executed
        self.ring_start = start  # the ring's packet being executed, or last executed
        self.wait: Wait | None = None
        self.pending = Pending(None if device.reorder_seed is None else device.reorder_seed + number)
        self.seen: Clock = {}
        self.released: Clock = {}  # what the RELEASE_MEMs that have run stood behind
        self.issue = 0
        self.history: deque[tuple[FetchFrame, int, str]] = deque(maxlen=HISTORY)
        self._counts = dict.fromkeys(WorkKind, 0)
        self._doorbells: deque[tuple[int, Clock]] = deque()  # (ring position, what the host knew when it rang)
        self._reported_rptr = -1
        self._last_rung = 0
        self._reported_once: set[object] = set()

    # --- doorbell ---------------------------------------------------------------------------------------------

    def rung(self, value: int) -> None:
        """The doorbell's value: a write pointer in the queue's unit. Packets before it may be read from now on.

        It may lag behind what was read from memory when the queue got its slot (`mapped`).
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
                f"doorbell {value} after {self._last_rung * self.UNIT}: write pointers only grow, unwrapped",
            )
            return
        self._last_rung = wptr
        if wptr - ring.position >= ring.size_dw and wptr != ring.position:
            self.at, self.ring_start = (ring, ring.position), ring.position
            self._stop(
                f"doorbell {value} is {wptr - ring.position} dwords ahead of the read pointer in a ring of "
                f"{ring.size_dw}: one dword at least must stay free, packets were overwritten"
            )
            return
        self._advance(wptr)

    def catch_up(self, doorbell: int) -> None:
        """Back on the hardware: what was rung meanwhile."""
        if doorbell > self.ring.wptr * self.UNIT:
            self.rung(doorbell)

    def mapped(self, value: int) -> None:
        """The queue got a slot, and the firmware read this write pointer from memory."""
        wptr = value // self.UNIT
        if wptr - self.ring.position < self.ring.size_dw:
            self._advance(wptr)

    def _advance(self, wptr: int) -> None:
        if wptr > self.ring.wptr:
            self._doorbells.append((self.ring.wptr, self.device.host_rings()))
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

    def preemptible(self) -> bool:
        """Whether the driver can take it off the hardware here. User queues have no area to save waves to."""
        if self.queue.state is QueueState.HUNG:
            return False
        if not self.is_user:
            return True
        return not self.pending.busy() and (self.wait is None or self.wait.preemptible)

    def run(self, fuel: int) -> int:
        """Up to `fuel` packets, stopping early where it has to wait. How many steps were made: 0 is none."""
        if self.queue.state is not QueueState.ACTIVE:
            return 0
        used = 0
        try:
            used = self._run(fuel)
            self._report_rptr()
            return used
        except Illegal as stop:
            self._stop(str(stop))
        except FaultIn as stop:
            self._fault(stop)
        except Fault as fault:
            self._fault(FaultIn(fault, self.label()))
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
        """One packet. False where there is none to read yet."""
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
        """Fetch packets. A fault is of no packet, so its message names the buffer and the place."""
        try:
            frame.load(count)
        except Fault as fault:
            what = f"queue {self.queue.queue_id} fetching packets at {frame.place(frame.position)}"
            raise FaultIn(fault, what, self.at, "packet fetch") from fault

    def _execute(self, frame: FetchFrame, index: int) -> bool:
        """The packet at frame.words[index]. False where it is not all there yet."""
        raise NotImplementedError

    def refill(self, frame: FetchFrame, needed: int) -> bool:
        """Fetch a packet of `needed` dwords whole. False: in the ring, not yet; Illegal: in an IB, never."""
        if frame.available() < needed:
            if frame is self.ring:
                return False
            raise Illegal(f"a packet of {needed} dwords, and the IB ends after {frame.available()}")
        self._load(frame, max(needed, WINDOW_DW))
        return True

    def skip(self, count: int) -> None:
        """Leave out the next dwords of the buffer the packet stands in."""
        frame = self.at[0]
        if frame is not self.ring and count > frame.available():
            self.finding(
                "skip-past-end", f"{self.label()}: skips {count} dwords, the IB ends after {frame.available()}"
            )
            count = frame.available()
        frame.position += count

    # --- ordering ---------------------------------------------------------------------------------------------

    def clock(self) -> Clock:
        """What this queue knows to have finished, its own CP's doings included."""
        return {**self.seen, (self.number, WorkKind.CP): self._counts[WorkKind.CP]}

    def launched_clock(self) -> Clock:
        """What will have finished once everything launched so far has."""
        own = {(self.number, kind): self._counts[kind] for kind in WorkKind}
        return {**self.seen, **own}

    def saw(self, *kinds: WorkKind) -> None:
        """Everything launched of those kinds has finished."""
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
        """Work of the packet being executed. `advance` gives its accesses once it has finished."""
        record = self._record(kind, NOTHING, past_l2, code)

        def step() -> bool:
            accesses = advance()
            if accesses is None:
                return False
            record.accesses = accesses
            self.hazards.add(record)
            return True

        self.pending.launch(Work(kind, record.label, step, after_dma, abandon, self.at))

    def touched(
        self, *, reads: Ranges = (), writes: Ranges = (), atomics: Ranges = (), past_l2: bool = False
    ) -> None:
        """The CP itself accessed memory for the packet being executed."""
        self.hazards.add(self._record(WorkKind.CP, Accesses(reads, (), writes, atomics), past_l2))
        for va, size in (*writes, *atomics):
            if size <= 8:
                self.device.flags.wrote(self.space, va, self.clock())
                self.device.stored(self.space, va, self.clock())

    def _record(self, kind: WorkKind, accesses: Accesses, past_l2: bool, code: Ranges = ()) -> AccessRecord:
        """The next work of that kind, of the packet being executed."""
        self._counts[kind] += 1
        return AccessRecord(
            (self.number, kind),
            self._counts[kind],
            self.device.issue(),
            self.seen,
            accesses,
            self.label(),
            self.queue.queue_id,
            self.at[1] * self.UNIT,
            self.at[0].va(self.at[1]),
            past_l2,
            code,
        )

    def wait_for(self, wait: Wait) -> None:
        """Ask once now; the queue asks again later, and goes on then."""
        if not wait.ready():
            self.wait = wait
        elif wait.then is not None:
            wait.then()

    def learned_from(self, va: int) -> None:
        """A wait on that location is over: whoever wrote it had finished what its clock says."""
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
        """Of the findings of a rule with one value of `once` the first is reported. `severity`: by default the
        rule's. `at`: the packet it is about, where that is not the present one."""
        if rule in self.device.behaviour.stops_at:
            raise Illegal(f"{sentence} (flipped: {rule})")
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

    def broken(self, error: Exception) -> None:
        """Executing a packet raised what it never should: this queue ends, the device goes on."""
        self._stop(f"a fault of the simulator itself, {type(error).__name__}: {error}")

    def _fault(self, stop: FaultIn) -> None:
        """What a packet, or what it launched, ran into. Of a wave the shader engine has reported more already."""
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
            frame.words[index : index + self.packet_dwords(frame.words[index])] if self._held(frame, index) else []
        )
        before = [
            f"{name} at {where.place(place)}" for where, place, name in self.history if (where, place) != self.at
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
    def _held(frame: FetchFrame, index: int) -> bool:
        return 0 <= index < len(frame.words)

    def packet_dwords(self, header: int) -> int:
        """Dwords that the header claims, for a report."""
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

    def detached(self) -> None:
        """The queue is gone for good: whatever its client rings after that comes after all it did."""
        self.device.publish(self.launched_clock())
        self.pending.drop()
        self.wait = None
