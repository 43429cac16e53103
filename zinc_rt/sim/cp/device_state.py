"""State that the queues of one device share: messages to the driver side, the shader engine, the clocks of
finished work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from zinc_rt.host.sanitizer_rules import RULES
from zinc_rt.pm4.generation import Generation
from zinc_rt.sim.consulted import Coverage
from zinc_rt.sim.cp.clocks import Clock, Flags, drop_queues, join
from zinc_rt.sim.cp.hazards import AccessRecord, HazardTracker
from zinc_rt.sim.facts import DEFAULT, Behaviour
from zinc_rt.sim.interfaces import AddressSpace, DeviceFinding, Fault, HardwareQueue, Kmd
from zinc_rt.sim.shader_engine import ShaderEngine

UNSEEN_KEPT = 256


class KmdMessages:
    """Messages to the driver side, in order. They are added under the CP's lock and delivered without it
    by one thread at a time, because a driver may call back into the CP at once."""

    def __init__(self, kmd: Kmd) -> None:
        self.kmd = kmd
        self._messages: deque[Callable[[], None]] = deque()
        self.posted = self.delivered = 0

    def interrupt(self, queue: HardwareQueue, context_id: int) -> None:
        self._post(lambda: self.kmd.interrupt(queue, context_id))

    def vm_fault(self, queue: HardwareQueue, fault: Fault) -> None:
        self._post(lambda: self.kmd.vm_fault(queue, fault))

    def hung(self, queue: HardwareQueue) -> None:
        self._post(lambda: self.kmd.hung(queue))

    def queue_exception(self, queue: HardwareQueue, code: int) -> None:
        self._post(lambda: self.kmd.queue_exception(queue, code))

    def finding(self, finding: DeviceFinding) -> None:
        self._post(lambda: self.kmd.finding(finding))

    def fence_signal(self, queue: HardwareQueue, position_dw: int) -> None:
        self._post(lambda: self.kmd.fence_signal(queue, position_dw))

    def __len__(self) -> int:
        return len(self._messages)

    def _post(self, message: Callable[[], None]) -> None:
        self._messages.append(message)
        self.posted += 1

    def deliver(self) -> None:
        while self._messages:
            try:
                message = self._messages.popleft()
            except IndexError:  # another thread took the last one
                return
            try:
                message()
            finally:
                self.delivered += 1


class DeviceState:
    """State shared by the queues. `published` is what a host that rings a doorbell knows: the clocks of every
    value that a queue stored and the host can see, of interrupts, and of destroyed queues.
    """

    def __init__(
        self,
        kmd: Kmd,
        *,
        generation: Generation,
        engine: ShaderEngine,
        reorder_seed: int | None,
        behaviour: Behaviour = DEFAULT,
        consulted: Coverage | None = None,
    ) -> None:
        self.kmd = kmd
        self.messages = KmdMessages(kmd)
        self.generation = generation
        self.engine = engine
        self.reorder_seed = reorder_seed
        self.behaviour = behaviour
        self.consulted = consulted or Coverage()
        self.flags = Flags()
        self.published: Clock = {}
        self._unseen: dict[tuple[int, int], tuple[AddressSpace, Clock]] = {}  # by space and VA: not written back
        self._hazards: dict[int, HazardTracker] = {}
        self._spaces: dict[int, AddressSpace] = {}  # keeps ids from being used again
        self._numbers: dict[int, set[int]] = {}  # of the queues that an address space has had
        self._issues = 0

    def number_packet(self) -> int:
        """Number the packets of all queues in the order in which the CP executes them."""
        self._issues += 1
        return self._issues

    def publish(self, clock: Clock) -> None:
        """Record that the host was notified by an interrupt or by the end of a queue."""
        self.published = join(self.published, clock)

    def record_store(self, space: AddressSpace, va: int, clock: Clock) -> None:
        """Record a stored value that the host may poll: the host acquires the clock once it can see the
        value."""
        key = (id(space), va)
        self._unseen.pop(key, None)
        if space.host_sees(va):
            self.publish(clock)
            return
        self._unseen[key] = (space, clock)
        if len(self._unseen) > UNSEEN_KEPT:
            del self._unseen[next(iter(self._unseen))]

    def find_host_clock(self) -> Clock:
        """Return the clock of a host that rings a doorbell now."""
        for key, (space, clock) in list(self._unseen.items()):
            if space.host_sees(key[1]):
                del self._unseen[key]
                self.publish(clock)
        return self.published

    def add_queue(self, space: AddressSpace, number: int) -> HazardTracker:
        """Add a queue with this number to its address space. Return the tracker of the space's accesses."""
        self._numbers.setdefault(id(space), set()).add(number)
        hazard = self._hazards.get(id(space))
        if hazard is None:
            hazard = self._hazards[id(space)] = HazardTracker(self.generation, self._report)
            self._spaces[id(space)] = space
        return hazard

    def forget(self, space: AddressSpace) -> set[int]:
        """Drop the state of an address space that has no more queues. Return the numbers of the queues that it
        had: their work never conflicts with that of other spaces, so no clock needs them."""
        self._hazards.pop(id(space), None)
        self._spaces.pop(id(space), None)
        numbers = self._numbers.pop(id(space), set())
        self.flags.forget(space)
        self.published = drop_queues(self.published, numbers)
        self._unseen = {
            key: (other, drop_queues(clock, numbers))
            for key, (other, clock) in self._unseen.items()
            if other is not space
        }
        return numbers

    def _report(self, later: AccessRecord, rule: str, sentence: str) -> None:
        self.messages.finding(
            DeviceFinding(RULES[rule].severity, rule, later.queue_id, later.position, sentence, later.packet_va)
        )
