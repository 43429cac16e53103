"""User queues of one render file: queues, their fences, the effect of a reset on them. Source:
amdgpu_userq.c."""

from __future__ import annotations

import errno
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from zinc_rt.sim.chips import PAGE_BYTES
from zinc_rt.sim.driver.fences import DmaFence
from zinc_rt.sim.driver.kernel_rings import DrmContext
from zinc_rt.sim.gpu import SimGpu
from zinc_rt.sim.interfaces import Fault, HardwareQueue, QueueState
from zinc_rt.sim.memory.buffers import Bo, Heap
from zinc_rt.sim.memory.vm import VA_TOP_RESERVED, GpuVm

MAX_QUEUES = 512


@dataclass(slots=True, eq=False)
class UserQueue:
    """A queue created by USERQ CREATE."""

    queue_id: int
    hardware: HardwareQueue
    held: list[Bo]
    fence_va: int  # its slot of fence memory, read-only in the client's address space
    pending: list[DmaFence] = field(default_factory=list)
    wptr_rung: int = 0  # the doorbell at the last USERQ_SIGNAL
    watched: bool = False  # the kernel's hang detection is armed


class UserQueues:
    """The user queues of one render file, by id. Implements sim.gpu.QueueOwner."""

    def __init__(
        self, gpu: SimGpu, vm: GpuVm, contexts: Mapping[int, DrmContext], changed: threading.Condition
    ) -> None:
        self.gpu, self.vm = gpu, vm
        self.queues: dict[int, UserQueue] = {}
        self._contexts, self._changed = contexts, changed
        self._fences: Bo | None = None
        self.gpu.owners.add(self)

    def allocate_fence_memory(self) -> Bo:
        if self._fences is None:
            self._fences = self.gpu.memory.allocate(Heap.GTT, PAGE_BYTES, "kernel fences")
            self.vm.map(VA_TOP_RESERVED, PAGE_BYTES, self._fences, write=False, execute=False, kernels=True)
        return self._fences

    def find_fence_slot(self, queue_id: int) -> int:
        return (queue_id - 1) % (PAGE_BYTES // 8)

    def position(self, queue: UserQueue) -> int:
        return self.allocate_fence_memory().store.u64[self.find_fence_slot(queue.queue_id)]

    def holds(self, bo: Bo) -> bool:
        """Return whether a live queue uses that buffer."""
        return any(bo in queue.held for queue in self.queues.values())

    def start(self, queue: UserQueue) -> None:
        self.allocate_fence_memory().store.u64[self.find_fence_slot(queue.queue_id)] = 0
        self.queues[queue.queue_id] = queue

    def free(self, queue: UserQueue) -> None:
        self.gpu.unmap_queue(queue.hardware)
        self.cancel(queue)
        self.queues.pop(queue.queue_id, None)
        for bo in queue.held:
            self.gpu.release(bo)

    def cancel(self, queue: UserQueue) -> None:
        with self._changed:
            for fence in queue.pending:
                fence.complete(errno.ECANCELED)
            queue.pending.clear()
            self._changed.notify_all()

    def close(self) -> None:
        for queue in list(self.queues.values()):
            self.free(queue)
        self.gpu.owners.discard(self)
        if self._fences is not None:
            self.gpu.release(self._fences)
            self._fences = None

    def watch(self, queue: UserQueue) -> None:
        """Arm the kernel's hang detection, if it has one: a fence that is still pending after the compute
        time-out resets its queue (amdgpu_userq_start_hang_detect_work)."""
        if not self.gpu.linux.userq_hang_timer or queue.watched:
            return
        queue.watched = True
        seconds = self.gpu.linux.compute_timeout_ms / 1000 * self.gpu.time_scale
        timer = threading.Timer(seconds, self._detect_hang, [queue])
        timer.daemon = True
        timer.start()

    def _detect_hang(self, queue: UserQueue) -> None:
        queue.watched = False
        if queue.pending and queue.hardware.state is not QueueState.DESTROYED and not self.gpu.gone:
            self.gpu.reset_queue(queue.hardware)

    def _find_queue(self, hardware: HardwareQueue) -> UserQueue | None:
        return next((queue for queue in self.queues.values() if queue.hardware is hardware), None)

    # --- sim.gpu.QueueOwner ---

    def interrupt(self, queue: HardwareQueue, context_id: int) -> None:
        """Ignore RELEASE_MEM interrupts of user queues: their fences are polled."""

    def queue_exception(self, queue: HardwareQueue, code: int) -> None:
        """Ignore the exception: user queues accept no AQL packets."""

    def stopped(self, queue: HardwareQueue) -> None:
        """Ignore a queue that stopped: the kernel notices when it takes the queue off the hardware."""

    def fence_signal(self, queue: HardwareQueue, position_dw: int) -> None:
        result = self._find_queue(queue)
        if result is None:
            return
        with self._changed:
            self.allocate_fence_memory().store.u64[self.find_fence_slot(result.queue_id)] = position_dw
            for fence in result.pending:
                if fence.value <= position_dw:
                    fence.complete()
            result.pending = [fence for fence in result.pending if not fence.done]
            self._changed.notify_all()

    def vm_fault(self, queue: HardwareQueue, fault: Fault) -> None:
        self.vm.record_fault(fault)

    def was_reset(self, queue: HardwareQueue | None, *, whole_gpu: bool, guilty: bool) -> None:
        for item in list(self.queues.values()):
            if whole_gpu or item.hardware is queue:
                item.hardware.state = QueueState.DESTROYED
                self.cancel(item)
        for context in self._contexts.values():
            context.guilty |= guilty
