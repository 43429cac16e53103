"""amdkfd's state for one process: address spaces, buffers, queues, events; and the effects of faults."""

from __future__ import annotations

import contextlib
import errno
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from zinc_rt.sim.driver.event_table import EventTable
from zinc_rt.sim.driver.files import DrmFile, SmiFile
from zinc_rt.sim.gpu import DOORBELL_SLICE_BYTES, SimGpu
from zinc_rt.sim.interfaces import Fault, HardwareQueue
from zinc_rt.sim.memory.buffers import Bo, SharedStore
from zinc_rt.sim.memory.vm import GpuVm, VmSpan
from zinc_rt.sim.tables import kfd

MAX_QUEUE_IDS = 1024  # KFD_MAX_NUM_OF_QUEUES_PER_PROCESS
MAX_QUEUES_PER_GPU = 127  # per process: a static queue uses one of 128
SAVE_HEADER_BYTES = 40  # struct kfd_context_save_area_header
ERROR_FIELDS = struct.Struct("<QI")  # err_payload_addr, err_event_id, after six sizes and offsets
DOORBELLS = DOORBELL_SLICE_BYTES // 8


@dataclass(slots=True, eq=False)
class KfdBuffer:
    """A buffer handle of ALLOC_MEMORY_OF_GPU."""

    handle: int
    va: int
    size_bytes: int
    flags: int
    gpu: SimGpu
    bo: Bo
    spans: dict[int, list[VmSpan]] = field(default_factory=dict)  # gpu_id: where it is mapped

    @property
    def writable(self) -> bool:
        return bool(self.flags & kfd.KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE)

    @property
    def executable(self) -> bool:
        return bool(self.flags & kfd.KFD_IOC_ALLOC_MEM_FLAGS_EXECUTABLE)


@dataclass(slots=True, eq=False)
class KfdQueueState:
    """A queue created by CREATE_QUEUE."""

    queue_id: int
    kind: int
    gpu: SimGpu
    hardware: HardwareQueue
    doorbell: int
    held: list[Bo]  # buffers that may not be unmapped while it lives
    active: bool = True
    sdma_slot: tuple[int, int] | None = None


@dataclass(slots=True, eq=False)
class ProcessOnGpu:
    """The process on one GPU (kfd_process_device)."""

    gpu: SimGpu
    file: DrmFile
    vm: GpuVm
    doorbells: SharedStore
    lost: bool = False  # a reset took everything; only a new process helps

    def check(self) -> None:
        self.gpu.check_alive()
        if self.lost:
            raise OSError(errno.EIO, "the GPU was reset under this process")


class KfdProcessState:
    """The state of a process that has /dev/kfd open. Implements sim.gpu.QueueOwner."""

    def __init__(self, gpus: Sequence[SimGpu], changed: threading.Condition) -> None:
        self.gpus = gpus
        self.on: dict[int, ProcessOnGpu] = {}
        self.buffers: dict[int, KfdBuffer] = {}
        self.next_index: dict[int, int] = {}
        self.queues: dict[int, KfdQueueState] = {}
        self.events = EventTable(changed)
        self.smi: list[SmiFile] = []
        self.held_files: list[DrmFile] = []  # closed by the client, still bound
        self.runtime_enabled = False
        self.xnack = False
        for gpu in gpus:
            gpu.owners.add(self)

    def gpu(self, gpu_id: int, number: int = errno.EINVAL) -> SimGpu:
        for gpu in self.gpus:
            if gpu.gpu_id == gpu_id:
                return gpu
        raise OSError(number, f"no GPU {gpu_id}")

    def bound(self, gpu: SimGpu, number: int) -> ProcessOnGpu:
        """Return the process's state on the GPU. `number`: the errno of this ioctl for a process without a
        VM there."""
        if gpu.gpu_id not in self.on:
            raise OSError(number, "ACQUIRE_VM comes first")
        on = self.on[gpu.gpu_id]
        on.check()
        return on

    def buffer(self, handle: int, number: int) -> KfdBuffer:
        if handle not in self.buffers:
            raise OSError(number, f"no buffer 0x{handle:x}")
        return self.buffers[handle]

    def add_buffer(self, gpu: SimGpu, va: int, flags: int, bo: Bo) -> int:
        """Add a buffer and return its handle. From now on, the render file that it is bound to may map it."""
        index = self.next_index.get(gpu.gpu_id, 1)
        self.next_index[gpu.gpu_id] = index + 1
        handle = gpu.gpu_id << 32 | index
        self.buffers[handle] = KfdBuffer(handle, va, bo.size_bytes, flags, gpu, bo)
        self.on[gpu.gpu_id].file.allowed.add(bo)
        return handle

    def list_queues(self, gpu: SimGpu) -> list[KfdQueueState]:
        return [queue for queue in self.queues.values() if queue.gpu is gpu]

    def destroy_queue(self, queue: KfdQueueState) -> bool:
        """Destroy the queue. Return False if it could not be preempted."""
        ok = queue.gpu.unmap_queue(queue.hardware)
        self.queues.pop(queue.queue_id, None)
        for bo in queue.held:
            queue.gpu.release(bo)
        return ok

    def unmap(self, buffer: KfdBuffer, gpu_id: int) -> None:
        for span in buffer.spans.pop(gpu_id, []):
            self.on[gpu_id].vm.unmap(span)
            buffer.gpu.release(buffer.bo)

    def close(self) -> None:
        """Release everything of an ended process."""
        for queue in list(self.queues.values()):
            self.destroy_queue(queue)
        self.events.close()
        for gpu in self.gpus:
            gpu.owners.discard(self)
        for buffer in list(self.buffers.values()):
            for gpu_id in list(buffer.spans):
                self.unmap(buffer, gpu_id)
            buffer.gpu.release(buffer.bo)
        self.buffers.clear()
        for on in self.on.values():
            on.doorbells.close()
        self.on.clear()

    # --- sim.gpu.QueueOwner ---

    def interrupt(self, queue: HardwareQueue, context_id: int) -> None:
        self.events.interrupt(context_id)

    def fence_signal(self, queue: HardwareQueue, position_dw: int) -> None:
        """Do nothing: KFD queues have no such fence, and the kernel does not observe the packet."""

    def stopped(self, queue: HardwareQueue) -> None:
        """Do nothing: amdkfd notices when it takes the queue off the hardware."""

    def queue_exception(self, queue: HardwareQueue, code: int) -> None:
        """Take the queue off (kfd_dqm_suspend_bad_queue_mes); it can still be destroyed. Then set the bit
        in the error reason and signal the event that the save area's header names
        (kfd_send_exception_to_runtime)."""
        state = next((item for item in self.queues.values() if item.hardware is queue), None)
        header_va = queue.extra.get("save_area_va", 0)
        if state is not None:
            state.gpu.evict(queue)
        if state is None or not header_va or not self.runtime_enabled:
            return
        on = self.on.get(state.gpu.gpu_id)
        if on is None:
            return  # the process ended meanwhile
        vm = on.vm
        try:
            reason_va, event_id = ERROR_FIELDS.unpack_from(vm.read(header_va, SAVE_HEADER_BYTES), 24)
            if reason_va:
                held = int.from_bytes(vm.read(reason_va, 8), "little")
                vm.write(reason_va, (held | 1 << code - 1).to_bytes(8, "little"))
                vm.write_back()
        except Fault:
            return  # the kernel ignores a header it cannot read
        with contextlib.suppress(OSError):
            self.events.set(event_id)

    def vm_fault(self, queue: HardwareQueue, fault: Fault) -> None:
        gpu = next((item.gpu for item in self.queues.values() if item.hardware is queue), None)
        if gpu is None:
            return  # the process ended meanwhile
        for item in self.list_queues(gpu):
            gpu.evict(item.hardware)
        if gpu.injector.is_due("lost-memory-event"):
            return
        data = {
            "not_present": int(fault.why == "not present"),
            "read_only": int(fault.why == "read only"),
            "no_execute": int(fault.why == "no execute"),
            "va": fault.va & ~0xFFF,
            "memory_gpu_id": gpu.gpu_id,
        }
        self.events.signal_exception(kfd.KFD_IOC_EVENT_MEMORY, data)

    def was_reset(self, queue: HardwareQueue | None, *, whole_gpu: bool, guilty: bool) -> None:
        for on in self.on.values():
            on.lost |= whole_gpu
        data = {
            "reset_type": kfd.KFD_HW_EXCEPTION_WHOLE_GPU_RESET
            if whole_gpu
            else kfd.KFD_HW_EXCEPTION_PER_ENGINE_RESET,
            "reset_cause": kfd.KFD_HW_EXCEPTION_GPU_HANG,
            "memory_lost": int(whole_gpu),
            "reset_gpu_id": self.gpus[0].gpu_id,
        }
        self.events.signal_exception(kfd.KFD_IOC_EVENT_HW_EXCEPTION, data)
        for smi in self.smi:
            smi.lines.append(f"4 {int(whole_gpu)}\n")
