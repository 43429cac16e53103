"""One simulated GPU: its memory, hardware queues, doorbells and resets."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from zinc_rt.kmd.driver import KernelToCompile
from zinc_rt.sim.chips import PAGE_BYTES, Chip
from zinc_rt.sim.consulted import Coverage
from zinc_rt.sim.defects import VramDefects
from zinc_rt.sim.driver.doorbells import Doorbells
from zinc_rt.sim.executions import KernelExecution
from zinc_rt.sim.inject import Injector
from zinc_rt.sim.interfaces import DeviceFinding, Fault, HardwareQueue, Kmd, QueueKind, QueueState
from zinc_rt.sim.machine_options import MachineModel
from zinc_rt.sim.memory.buffers import Bo, BoRange, GpuMemory, Heap, SharedStore
from zinc_rt.sim.memory.vm import GpuVm
from zinc_rt.sim.stores import ObservedStore

GPU_COUNTER_HZ = 100_000_000
PREEMPT_SECONDS = 9.0  # amdkfd's default for taking a queue off the hardware
RESET_SECONDS = 1.0
RESET_AT_DOORBELL = 20  # of the injection spontaneous-reset
TELL_SECONDS = 5.0  # the longest wait for requested findings
SMALL_BAR_BYTES = 256 << 20
GTT_BYTES = 64 << 30
DOORBELL_SLICE_BYTES = 8192  # of one process, gfx9 and later: 1024 doorbells
NO_INDEX = (1 << 64) - 1
NOT_STORED = 0xFFFFFFFF  # dword 0 of the remap page: HIP expects to read this; kernel and tinygrad store 0, HIP 1
MMAP_OFFSET_FIRST = 1 << 32  # fake offsets of the DRM core start beyond any file


class CommandProcessor(Protocol):
    """The interface of zinc_rt.sim.cp.command_processor."""

    def attach(self, queue: HardwareQueue) -> None: ...

    def detach(self, queue: HardwareQueue, timeout_seconds: float) -> bool: ...

    def forget(self, queue: HardwareQueue) -> None: ...

    def ring(self, queue: HardwareQueue, value: int) -> None: ...

    def settle(self) -> None:
        """Wait until the findings so far are delivered to the driver side; at most one second."""

    def close(self) -> None: ...


CommandProcessorMaker = Callable[[Kmd, Chip, Callable[[], object]], CommandProcessor]


class QueueOwner(Protocol):
    """The owner of a queue, notified of its state changes. Called without the machine's lock."""

    def interrupt(self, queue: HardwareQueue, context_id: int) -> None: ...

    def vm_fault(self, queue: HardwareQueue, fault: Fault) -> None: ...

    def fence_signal(self, queue: HardwareQueue, position_dw: int) -> None: ...

    def queue_exception(self, queue: HardwareQueue, code: int) -> None: ...

    def stopped(self, queue: HardwareQueue) -> None:
        """Report that a packet stopped the queue, without a page fault."""

    def was_reset(self, queue: HardwareQueue | None, *, whole_gpu: bool, guilty: bool) -> None:
        """Report that `queue` (None: an idle client) was lost, alone or in a reset of the whole GPU."""


@dataclass(slots=True, eq=False)
class QueueOnHardware:
    """A queue in a hardware slot, and its owner."""

    queue: HardwareQueue
    owner: QueueOwner
    evicted: bool = False  # off the hardware after a fault: nothing is left to preempt


class SimGpu:
    """Implements sim.interfaces.Kmd for the command processor."""

    def __init__(
        self,
        model: MachineModel,
        index: int,
        *,
        injector: Injector,
        consulted: Coverage,
        log: Callable[[str], None],
        make_cp: CommandProcessorMaker,
    ) -> None:
        self.index, self.linux = index, model.linux
        chip = self.chip = model.chips[index]
        if injector.on("missing-cus"):
            self.chip = replace(chip, cus=chip.cus - chip.arrays)
        self.coherence, self.time_scale = model.coherence, model.options.time_scale
        self._keeps_code = model.behaviour.code_without_invalidate == "stale"
        self.injector, self.consulted, self.log = injector, consulted, log
        self.gpu_id = self.chip.gpu_id + index
        self.render_minor = 128 + index
        vram_bytes = self.chip.vram_bytes // (2 if injector.on("short-vram") else 1)
        self.memory = GpuMemory(vram_bytes, GTT_BYTES, SMALL_BAR_BYTES if injector.on("small-bar") else vram_bytes)
        prefers_gtt = chip.integrated and vram_bytes < GTT_BYTES and self.linux.kfd_apu_prefers_gtt
        self.kfd_vram_heap = Heap.GTT if prefers_gtt else Heap.VRAM  # where KFD allocates VRAM
        self._vram_defects = VramDefects(injector)
        self.doorbell_count = 0
        self.remap_page = SharedStore("mmio remap", PAGE_BYTES)  # dword 0: any store flushes HDP
        self.remap_page.u32[0] = NOT_STORED
        self.on_hardware: list[QueueOnHardware] = []
        self.owners: set[QueueOwner] = set()  # every client, with or without queues
        self.findings: list[DeviceFinding] = []
        self.resets = 0
        self.vram_lost = 0
        self.gone = False
        self.on_crash: Callable[[], None] | None = None
        self._resetting_until = 0.0
        self._offsets: dict[int, Bo] = {}
        self._offset_of: dict[Bo, int] = {}
        self._next_offset = MMAP_OFFSET_FIRST
        self._started = time.monotonic()
        self._stuck_counter = 0
        self.doorbells = Doorbells(self._rung, self._take_hdp_flush)
        self._make_cp = make_cp
        self._cp: CommandProcessor | None = None

    # --- memory ---

    def create_vm(self) -> GpuVm:
        return GpuVm(
            flush_hdp=self.flush_hdp,
            write_back=self.write_back,
            invalidates=lambda: not self.injector.is_due("stale-icache"),
            keeps_code=self._keeps_code,
        )

    def flush_hdp(self, ranges: Iterable[BoRange] | None = None) -> None:
        """Make host stores to these ranges, rounded to pages, visible to the GPU; None: all host stores."""
        if self.injector.is_due("stale-hdp"):
            return
        if ranges is None:
            ranges = [(bo, 0, bo.size_bytes) for bo in self.memory.snapshot()]
        for bo, start, end in ranges:
            bo.flush_hdp(start, end)

    def write_back(self) -> None:
        if self.injector.is_due("no-write-back"):
            return
        for bo in self.memory.snapshot():
            bo.write_back()

    def _take_hdp_flush(self) -> None:
        if self.remap_page.u32[0] != NOT_STORED:
            self.remap_page.u32[0] = NOT_STORED
            self.flush_hdp()

    def allocate(self, heap: Heap, size_bytes: int, name: str, **more: Any) -> Bo:
        if self.injector.is_due("out-of-memory"):
            raise OSError(errno.ENOMEM, "injected")
        if more.get("cached"):
            self.consulted.add_mark("host memory that GL2 caches")
        return self.memory.allocate(heap, size_bytes, name, **more)

    def find_offset(self, bo: Bo) -> int:
        """Return the buffer's offset for mmap of the render node."""
        if bo not in self._offset_of:
            self._offset_of[bo] = self._next_offset
            self._offsets[self._next_offset] = bo
            self._next_offset += bo.size_bytes + PAGE_BYTES
        return self._offset_of[bo]

    def find_bo(self, offset: int) -> Bo | None:
        return self._offsets.get(offset)

    def release(self, bo: Bo) -> None:
        self.memory.release(bo)
        if bo.references <= 0 and bo in self._offset_of:
            del self._offsets[self._offset_of.pop(bo)]

    # --- queues ---

    @property
    def cp(self) -> CommandProcessor:
        if self._cp is None:
            self._cp = self._make_cp(self, self.chip, self.doorbells.look)
        return self._cp

    def precompile(self, vm: GpuVm, kernels: Sequence[KernelToCompile]) -> None:
        """Pass kernels that will be dispatched soon to the shader engine, if there is one."""
        engine = getattr(self.cp, "engine", None)
        if engine is not None:
            engine.precompile(vm, kernels)

    def set_watchpoint(self, vm: GpuVm, va: int, size_bytes: int) -> None:
        """Select bytes whose stores the shader engine records, if there is one."""
        engine = getattr(self.cp, "engine", None)
        if engine is not None and hasattr(engine, "set_watchpoint"):
            engine.set_watchpoint(vm, va, size_bytes)

    def watchpoint_hits(self, vm: GpuVm) -> list[ObservedStore]:
        engine = getattr(self._cp, "engine", None)
        return (
            list(engine.watchpoint_hits(vm)) if engine is not None and hasattr(engine, "watchpoint_hits") else []
        )

    def settle(self) -> None:
        """Wait until `findings` contains the findings about work whose completion the host can observe."""
        if self._cp is not None:
            self._cp.settle()

    def tell_again(self) -> None:
        """Report findings about kernels again if they occur again."""
        engine = getattr(self._cp, "engine", None)
        if engine is not None and hasattr(engine, "tell_again"):
            engine.tell_again()

    def tell_unfinished(self) -> None:
        """Add a finding `still-running` for every dispatch in progress; return when they are recorded."""
        engine = getattr(self._cp, "engine", None)
        before, deadline = len(self.findings), time.monotonic() + TELL_SECONDS
        if engine is not None and hasattr(engine, "tell_unfinished") and engine.tell_unfinished():
            while len(self.findings) == before and time.monotonic() < deadline:
                time.sleep(0.005)  # the command processor delivers them at the end of its round

    def profile(self) -> list[Any]:
        """Return the counters of every kernel that ran here (sim.shader.run.profile.KernelCounters),
        longest first."""
        engine = getattr(self._cp, "engine", None)
        return list(engine.profile()) if engine is not None and hasattr(engine, "profile") else []

    def executions(self) -> list[KernelExecution]:
        """Return the executions that completed here since the last call, by kernel, if the machine counts them."""
        engine = getattr(self._cp, "engine", None)
        return list(engine.executions()) if engine is not None and hasattr(engine, "executions") else []

    def map_queue(
        self, queue: HardwareQueue, owner: QueueOwner, doorbells: SharedStore, index: int, held: Sequence[Bo]
    ) -> None:
        """Attach a queue to the hardware. `held`: buffers that the queue references for its lifetime; no
        reference is taken if this raises."""
        if self.injector.is_due("mes-add-failure"):
            self.log("amdgpu: MES failed to respond to msg=ADD_QUEUE")
            raise OSError(errno.EIO, "MES refused the queue")
        if self.injector.is_due("ring-size-off-by-one"):
            queue.ring_size_bytes //= 2
        if self.injector.is_due("no-eop"):
            queue.eop_va = 0
        for bo in held:
            bo.references += 1
        self.on_hardware.append(QueueOnHardware(queue, owner))
        self.cp.attach(queue)
        # an AQL queue's first packet has index 0: a doorbell that was never rung has none
        unrung = NO_INDEX if queue.kind is QueueKind.KFD_AQL else 0
        self.doorbells.watch(queue, doorbells, index, unrung)

    def unmap_queue(self, queue: HardwareQueue, timeout_seconds: float = PREEMPT_SECONDS) -> bool:
        """Detach a queue. Return False if it could not be preempted and was reset, alone or with the whole
        GPU. The queue is detached in either case."""
        entry = next((item for item in self.on_hardware if item.queue is queue), None)
        if entry is None:
            return True
        self.doorbells.unwatch(queue)
        refuses = self.injector.is_due("mes-remove-failure")
        if not refuses and (entry.evicted or self.cp.detach(queue, timeout_seconds * self.time_scale)):
            self.on_hardware.remove(entry)
            queue.state = QueueState.DESTROYED
            self.cp.forget(queue)
            return True
        self.log("amdgpu: MES failed to respond to msg=REMOVE_QUEUE")
        if self.linux.queue_reset and not refuses and not self.injector.on("no-reset"):
            self.reset_queue(queue)
        else:
            self.reset(guilty=entry.owner)
        return False

    def reset_queue(self, queue: HardwareQueue) -> None:
        """Reset one queue: its work is lost, other queues continue."""
        entry = next((item for item in self.on_hardware if item.queue is queue), None)
        if entry is None:
            return
        self.on_hardware.remove(entry)
        self._kill(queue, "queue reset")
        self.resets += 1
        entry.owner.was_reset(queue, whole_gpu=False, guilty=True)

    def _kill(self, queue: HardwareQueue, reason: str) -> None:
        queue.report = queue.report or reason
        self.doorbells.unwatch(queue)
        self.cp.detach(queue, 0)
        queue.state = QueueState.DESTROYED
        self.cp.forget(queue)

    def pause(self, queue: HardwareQueue) -> None:
        """Take a queue off the hardware temporarily: its client disabled it."""
        if queue.state is QueueState.ACTIVE:
            self.cp.detach(queue, PREEMPT_SECONDS * self.time_scale)
            if queue.state is QueueState.ACTIVE:
                queue.state = QueueState.EVICTED

    def make_room(self, size_bytes: int, pid: int) -> None:
        """Move VRAM buffers of other clients to host memory, oldest first, until `size_bytes` are free, as TTM
        does. Their clients are not notified. Buffers are not moved back later, which Linux attempts when VRAM is
        free.
        """
        missing = size_bytes - self.memory.count_available_bytes(Heap.VRAM)
        for bo in self.memory.snapshot() if missing > 0 else ():
            if missing > 0 and bo.heap is Heap.VRAM and bo.owner not in (0, pid) and self._move_out(bo):
                missing -= bo.size_bytes

    def _move_out(self, bo: Bo) -> bool:
        """Move a buffer to host memory while the queues of its client are off the hardware (amdgpu_userq_evict,
        kgd2kfd_quiesce_mm). A queue that does not stop is reset."""
        entries = [item for item in self.on_hardware if item.queue.process_id == bo.owner and not item.evicted]
        stopped = []
        for entry in entries:
            queue = entry.queue
            if queue.state is not QueueState.ACTIVE:
                continue
            if self.cp.detach(queue, PREEMPT_SECONDS * self.time_scale):
                queue.state = QueueState.EVICTED
                stopped.append(queue)
                continue
            self.log("amdgpu: MES failed to respond to msg=SUSPEND")
            if not self.linux.queue_reset:
                self.reset(guilty=entry.owner)
                return True  # VRAM is lost, and room is made by clients that end
            self.reset_queue(queue)
        moved = self.memory.move_to_host(bo)
        self.memory.evictions += moved
        for queue in stopped:
            self.resume(queue)
        return moved

    def evict(self, queue: HardwareQueue) -> None:
        """Take a queue off the hardware permanently after a fault of its process: such a queue is never
        restored."""
        for entry in self.on_hardware:
            if entry.queue is queue:
                entry.evicted = True
        self.cp.detach(queue, 0)
        if queue.state is QueueState.ACTIVE:
            queue.state = QueueState.EVICTED

    def resume(self, queue: HardwareQueue) -> None:
        if queue.state is QueueState.EVICTED:
            queue.state = QueueState.ACTIVE
            self.cp.attach(queue)

    def reset(self, guilty: QueueOwner | None = None, *, fails: bool = False) -> None:
        """Reset the whole GPU: every queue is dead, VRAM is lost, every client is notified. `fails`: the GPU does
        not come back."""
        self.log("amdgpu: GPU reset begin!")
        self.consulted.add_mark("device was reset")
        self._resetting_until = time.monotonic() + RESET_SECONDS * self.time_scale
        for entry in self.on_hardware:
            self._kill(entry.queue, "GPU reset")
        self.on_hardware.clear()
        self.memory.lose_vram()
        self.resets += 1
        self.vram_lost += 1
        for owner in list(self.owners):
            owner.was_reset(None, whole_gpu=True, guilty=owner is guilty)
        if fails or self.injector.is_due("no-reset"):
            self.gone = True
            self.log("amdgpu: GPU reset end with ret = -110")
        else:
            self.log("amdgpu: GPU reset succeeded")

    @property
    def resetting(self) -> bool:
        return time.monotonic() < self._resetting_until

    def check_alive(self) -> None:
        if self.gone or self.injector.on("gpu-gone"):
            raise OSError(errno.ENODEV, "the GPU is gone")

    def _find_owner(self, queue: HardwareQueue) -> QueueOwner | None:
        return next((item.owner for item in self.on_hardware if item.queue is queue), None)

    def _rung(self, queue: HardwareQueue, value: int) -> None:
        self.injector.aftermath.record_doorbell()
        if self.injector.is_due("lost-doorbell"):
            return
        if self.injector.is_due("device-lost"):
            self.log("amdgpu: device lost from bus!")
            self.reset(fails=True)
            return
        if self.injector.is_due("hung-queue"):
            queue.state, queue.report = QueueState.HUNG, "injected: hung-queue"
            self.hung(queue)
            return
        if self.injector.is_due("device-crash"):
            self.crash()
            return
        self.doorbell_count += 1
        if self._vram_defects:
            self._vram_defects.apply([bo for bo in self.memory.snapshot() if bo.heap is Heap.VRAM])
        if self.doorbell_count == RESET_AT_DOORBELL and self.injector.on("spontaneous-reset"):
            self.log("amdgpu: GPU reset begin!")
            self.log("amdgpu: GPU reset(1) succeeded!")
            self.resets += 1
        queue.doorbell = value
        if queue.state is QueueState.ACTIVE:
            self.cp.ring(queue, value)

    def crash(self) -> None:
        """End the device: its process, if it runs in a separate one; otherwise the GPU is lost."""
        if self.on_crash is not None:
            self.on_crash()
        self.gone = True
        self.log("amdgpu: device lost from bus!")

    # --- sim.interfaces.Kmd ---

    def interrupt(self, queue: HardwareQueue, context_id: int) -> None:
        owner = self._find_owner(queue)
        if owner is not None and not self.injector.is_due("no-interrupt"):
            owner.interrupt(queue, context_id)

    def vm_fault(self, queue: HardwareQueue, fault: Fault) -> None:
        self.log(
            f"amdgpu: [gfxhub] page fault (src_id:0 ring:24 vmid:8 pasid:{queue.process_id & 0xFFFF}): "
            f"{fault.access.value} at page 0x{fault.va & ~0xFFF:016x}: {fault.why}"
        )
        owner = self._find_owner(queue)
        if owner is not None:
            owner.vm_fault(queue, fault)

    def hung(self, queue: HardwareQueue) -> None:
        self.log(f"zinc-rt sim: queue {queue.queue_id} of process {queue.process_id} hung: {queue.report}")
        owner = self._find_owner(queue)
        if owner is not None:
            owner.stopped(queue)

    def finding(self, finding: DeviceFinding) -> None:
        self.consulted.add_mark(f"finding {finding.rule}")
        self.findings.append(finding)

    def fence_signal(self, queue: HardwareQueue, position_dw: int) -> None:
        owner = self._find_owner(queue)
        if owner is not None and not self.injector.is_due("fence-interrupt-lost"):
            owner.fence_signal(queue, position_dw)

    def queue_exception(self, queue: HardwareQueue, code: int) -> None:
        owner = self._find_owner(queue)
        if owner is not None:
            owner.queue_exception(queue, code)

    def injected(self, point: str) -> bool:
        return self.injector.is_due(point)

    def gpu_counter(self) -> int:
        if self.injector.on("counter-stuck"):
            return self._stuck_counter
        return int((time.monotonic() - self._started) * GPU_COUNTER_HZ)

    def close(self) -> None:
        if self._cp is not None:
            self._cp.close()
        for bo in self.memory.snapshot():
            bo.close()
        self.remap_page.close()
