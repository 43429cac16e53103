"""What the kernel is to hear, kept until the CP holds no lock: a driver may call back into the CP at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from zinc_rt.sim.interfaces import Fault, Finding, HardwareQueue, Kernel


class Outbox:
    """Messages in order. Filled under the CP's lock, delivered without it by one thread at a time."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self._messages: deque[Callable[[], None]] = deque()

    def interrupt(self, queue: HardwareQueue, context_id: int) -> None:
        self._messages.append(lambda: self.kernel.interrupt(queue, context_id))

    def vm_fault(self, queue: HardwareQueue, fault: Fault) -> None:
        self._messages.append(lambda: self.kernel.vm_fault(queue, fault))

    def hung(self, queue: HardwareQueue) -> None:
        self._messages.append(lambda: self.kernel.hung(queue))

    def finding(self, finding: Finding) -> None:
        self._messages.append(lambda: self.kernel.finding(finding))

    def fence_signal(self, queue: HardwareQueue, position_dw: int) -> None:
        self._messages.append(lambda: self.kernel.fence_signal(queue, position_dw))

    def __len__(self) -> int:
        return len(self._messages)

    def deliver(self) -> None:
        while self._messages:
            try:
                message = self._messages.popleft()
            except IndexError:  # another thread took the last one
                return
            message()
