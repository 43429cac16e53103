"""Messages to the driver side, kept until the CP holds no lock: a driver may call back into the CP at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from zinc_rt.sim.interfaces import DeviceFinding, Fault, HardwareQueue, Kmd


class KmdMessages:
    """Messages in order. Filled under the CP's lock, delivered without it by one thread at a time."""

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
