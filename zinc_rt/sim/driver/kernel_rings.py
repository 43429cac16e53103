"""The kernel's rings as one render file uses them: jobs of AMDGPU_CS, in order for each context and ring.

A job waits for its fences, then its indirect buffers are called from a ring that only the kernel can write. Its
last packet raises an interrupt, which completes the job's fence. Sources: amdgpu_job.c, amdgpu_ib.c,
gpu_scheduler's sched_main.c; packets: gfx_v12_0.c, sdma_v7_0.c.
"""

from __future__ import annotations

import errno
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from zinc_rt.sim.chips import PAGE_BYTES
from zinc_rt.sim.driver.fences import DmaFence
from zinc_rt.sim.gpu import SimGpu
from zinc_rt.sim.interfaces import Fault, HardwareQueue, QueueKind
from zinc_rt.sim.memory.buffers import Bo, Heap, SharedStore
from zinc_rt.sim.memory.vm import VA_TOP_RESERVED, GpuVm
from zinc_rt.sim.tables import amdgpu, caches, sdma_packets

KINDS = {
    amdgpu.AMDGPU_HW_IP_GFX: QueueKind.KERNEL_GFX,
    amdgpu.AMDGPU_HW_IP_COMPUTE: QueueKind.KERNEL_COMPUTE,
    amdgpu.AMDGPU_HW_IP_DMA: QueueKind.KERNEL_SDMA,
}
RINGS = {QueueKind.KERNEL_GFX: 1, QueueKind.KERNEL_COMPUTE: 4, QueueKind.KERNEL_SDMA: 2}  # amdgpu_ctx_num_entities
MAX_IBS = {QueueKind.KERNEL_GFX: 192, QueueKind.KERNEL_COMPUTE: 125, QueueKind.KERNEL_SDMA: 64}  # of a job
JOBS_ON_HARDWARE = 2  # amdgpu_sched_hw_submission
JOBS_KEPT = 32  # amdgpu_sched_jobs: fences that a context remembers for each ring
RING_BYTES = 1 << 14
FIRST_RING_VA = VA_TOP_RESERVED + PAGE_BYTES  # after the fences of user queues
RINGS_OF_FILE = (0x200000 - PAGE_BYTES) // RING_BYTES
_EVERYTHING = (caches.ACQUIRE_GLI & 1) | caches.ACQUIRE_GLK_INV | caches.ACQUIRE_GLV_INV
_EVERYTHING |= caches.ACQUIRE_GL2_INV | caches.ACQUIRE_GL2_WB
_CACHE_FLUSH_AND_INV_TS, _END_OF_PIPE, _INTERRUPT = 0x14, 5, 2
INTERRUPT_ID = 0x0FFFFFFF  # the part of a job's number in its interrupt
OTHER_TIMEOUT_MS = 10000  # of rings other than compute, at most (amdgpu_device_get_job_timeout_settings)
SLOWER = 30  # the simulated device runs a job more slowly than a card, so its time-outs are longer by this factor


@dataclass(frozen=True, slots=True)
class JobBuffer:
    """An indirect buffer of a job. `sync`: first invalidate all caches (AMDGPU_IB_FLAG_EMIT_MEM_SYNC)."""

    va: int
    size_dw: int
    sync: bool


@dataclass(slots=True, eq=False)
class RingJob:
    """A submission to one ring. `user_fence`: the buffer and the offset where its number is stored at its end."""

    number: int
    buffers: Sequence[JobBuffer]
    fence: DmaFence
    waits: Sequence[DmaFence] = ()
    user_fence: tuple[Bo, int] | None = None

    def is_ready(self) -> bool:
        return all(wait.done for wait in self.waits)


@dataclass(eq=False)
class DrmContext:
    """AMDGPU_CTX: the rings of a client, and its view of resets. `guilty`: one of its jobs caused a reset."""

    resets_seen: int
    vram_lost_seen: int
    guilty: bool = False
    pstate: int = 0
    rings: dict[tuple[QueueKind, int], ContextRing] = field(default_factory=dict)


class ContextRing:
    """The jobs of a context on one ring, in order. Guarded by the machine's `changed`."""

    def __init__(self, context: DrmContext, hardware: HardwareQueue, memory: Bo, slot: int) -> None:
        self.context, self.hardware, self.memory, self.slot = context, hardware, memory, slot
        self.is_freed = self.is_watched = False
        self.started = 0.0  # when the oldest job on the hardware became that
        self.count = 0  # jobs so far; a job's number is the count with it
        self.fences: deque[DmaFence] = deque(maxlen=JOBS_KEPT)
        self.waiting: deque[RingJob] = deque()
        self.running: deque[RingJob] = deque()
        self.wptr_dw = 0

    def find_fence(self, number: int) -> DmaFence | None:
        """Return the fence of a job; None if it ended long ago. Raises OSError(EINVAL) for a job of the future."""
        if number == (1 << 64) - 1:
            number = self.count
        if number > self.count:
            raise OSError(errno.EINVAL, f"no submission {number} yet")
        index = number - 1 - (self.count - len(self.fences))
        return self.fences[index] if index >= 0 else None

    def is_idle(self) -> bool:
        return not self.waiting and not self.running


def encode_job(kind: QueueKind, job: RingJob) -> list[int]:
    """Return the dwords that the kernel writes into its ring for a job."""
    if kind is QueueKind.KERNEL_SDMA:
        words = list(sdma_packets.ROCR_HDP_FLUSH)
        for item in job.buffers:
            words += [sdma_packets.INDIRECT, item.va & 0xFFFFFFFF, item.va >> 32, item.size_dw, 0, 0]
        return [*words, sdma_packets.TRAP, job.number & INTERRUPT_ID]
    words = [_header(0x95, 2), 0]  # HDP_FLUSH
    for item in job.buffers:
        if item.sync:
            words += [_header(0x58, 8), 0, 0xFFFFFFFF, 0xFF, 0, 0, 0xA, _EVERYTHING]  # ACQUIRE_MEM
        words += [_header(0x3F, 4), item.va & 0xFFFFFFFC, item.va >> 32, item.size_dw | 1 << 23]  # INDIRECT_BUFFER
    event = _CACHE_FLUSH_AND_INV_TS | _END_OF_PIPE << 8 | caches.RELEASE_GL2_WB << 12
    return [
        *words,
        _header(0x49, 8),
        event,
        _INTERRUPT << 24,
        0,
        0,
        0,
        0,
        job.number & INTERRUPT_ID,
    ]  # RELEASE_MEM


def _header(opcode: int, dwords: int) -> int:
    return 3 << 30 | (dwords - 2) << 16 | opcode << 8


class KernelRings:
    """The rings of all contexts of one render file. Implements sim.gpu.QueueOwner."""

    def __init__(self, gpu: SimGpu, vm: GpuVm, changed: threading.Condition) -> None:
        self.gpu, self.vm = gpu, vm
        self._changed = changed
        self._rings: dict[int, ContextRing] = {}  # by slot
        self._doorbells: SharedStore | None = None
        self._hung: ContextRing | None = None

    # --- for the ioctls ---

    def find_ring(self, context: DrmContext, kind: QueueKind, index: int, pid: int) -> ContextRing:
        """Return a ring of the context; create it at its first use. Raises OSError(ENOMEM)."""
        ring = context.rings.get((kind, index))
        if ring is None:
            ring = context.rings[kind, index] = self._create(context, kind, pid)
        return ring

    def _create(self, context: DrmContext, kind: QueueKind, pid: int) -> ContextRing:
        self._remove_freed()
        slot = next((slot for slot in range(RINGS_OF_FILE) if slot not in self._rings), None)
        if slot is None:
            raise OSError(errno.ENOMEM, "too many contexts with rings")
        if self._doorbells is None:
            self._doorbells = SharedStore("kernel doorbells", PAGE_BYTES)
            self.gpu.owners.add(self)
        memory = self.gpu.memory.allocate(Heap.GTT, RING_BYTES, kind.value)
        va = FIRST_RING_VA + slot * RING_BYTES
        self.vm.map(va, RING_BYTES, memory, write=False, execute=False, kernels=True)
        hardware = HardwareQueue(
            queue_id=slot,
            process_id=pid,
            kind=kind,
            space=self.vm,
            ring_va=va,
            ring_size_bytes=RING_BYTES,
            rptr_va=0,
            wptr_va=0,
            eop_va=va,
        )
        ring = self._rings[slot] = ContextRing(context, hardware, memory, slot)
        self.gpu.map_queue(hardware, self, self._doorbells, slot, [memory])
        return ring

    def submit(
        self,
        ring: ContextRing,
        buffers: Sequence[JobBuffer],
        waits: Iterable[DmaFence],
        user_fence: tuple[Bo, int] | None,
    ) -> RingJob:
        """Add a job to a ring; it runs once its fences are done. Called with the machine's `changed` held."""
        ring.count += 1
        pending = [wait for wait in waits if not wait.done]
        job = RingJob(ring.count, buffers, DmaFence(owner=self), pending, user_fence)
        ring.fences.append(job.fence)
        ring.waiting.append(job)
        for wait in pending:
            wait.call_when_done(lambda: self._run_ready(ring))
        self._run_ready(ring)
        return job

    def _run_ready(self, ring: ContextRing) -> None:
        while ring.waiting and ring.waiting[0].is_ready() and len(ring.running) < JOBS_ON_HARDWARE:
            job = ring.waiting.popleft()
            ring.running.append(job)
            if self.gpu.injector.is_due("guilty-context"):
                reason = f"ring {ring.hardware.kind.value} timeout, job {job.number}"
                threading.Thread(target=self._reset, args=[ring, reason], daemon=True).start()
                return
            self._write(ring, encode_job(ring.hardware.kind, job))
            if len(ring.running) == 1:
                self._watch(ring)

    def _write(self, ring: ContextRing, words: Sequence[int]) -> None:
        assert self._doorbells is not None
        memory = ring.memory.store.u32
        for word in words:
            memory[ring.wptr_dw % (RING_BYTES // 4)] = word
            ring.wptr_dw += 1
        unit = 4 if ring.hardware.kind is QueueKind.KERNEL_SDMA else 1
        self._doorbells.u64[ring.slot] = ring.wptr_dw * unit

    def free(self, context: DrmContext) -> None:
        """Free a context. Its jobs still run to their end."""
        for ring in context.rings.values():
            ring.is_freed = True
        context.rings.clear()
        self._remove_freed()

    def _remove_freed(self) -> None:
        with self._changed:
            gone = [ring for ring in self._rings.values() if ring.is_freed and ring.is_idle()]
        for ring in gone:
            self._remove(ring)

    def _remove(self, ring: ContextRing) -> None:
        del self._rings[ring.slot]
        self.gpu.unmap_queue(ring.hardware)
        for span in [span for span in self.vm.spans if span.bo is ring.memory]:
            self.vm.unmap(span)
        self.gpu.release(ring.memory)  # the reference of map_queue
        self.gpu.release(ring.memory)

    def close(self) -> None:
        """End every ring of a file that was closed."""
        for ring in list(self._rings.values()):
            with self._changed:
                self._cancel(ring)
            self._remove(ring)
        self.gpu.owners.discard(self)
        if self._doorbells is not None:
            self._doorbells.close()
            self._doorbells = None

    # --- time-outs and resets ---

    def _watch(self, ring: ContextRing) -> None:
        """Record that another job is the oldest on the hardware, and arm the scheduler's time-out."""
        ring.started = time.monotonic()
        if not ring.is_watched:
            ring.is_watched = True
            self._arm(ring, self._find_timeout(ring))

    def _find_timeout(self, ring: ContextRing) -> float:
        milliseconds = self.gpu.linux.compute_timeout_ms
        if ring.hardware.kind is not QueueKind.KERNEL_COMPUTE:
            milliseconds = min(milliseconds, OTHER_TIMEOUT_MS)
        return SLOWER * milliseconds / 1000 * self.gpu.time_scale

    def _arm(self, ring: ContextRing, seconds: float) -> None:
        timer = threading.Timer(seconds, self._check_progress, [ring])
        timer.daemon = True
        timer.start()

    def _check_progress(self, ring: ContextRing) -> None:
        with self._changed:
            left = ring.started + self._find_timeout(ring) - time.monotonic()
            ring.is_watched = bool(ring.running) and not self.gpu.gone
            if not ring.is_watched:
                return
            if left > 0:
                self._arm(ring, left)
                return
            number = ring.running[0].number
        self._reset(ring, f"ring {ring.hardware.kind.value} timeout, job {number}")

    def _reset(self, ring: ContextRing, reason: str) -> None:
        self.gpu.consulted.add_mark("ring of the kernel was reset")
        self.gpu.log(f"amdgpu: {reason}, process {ring.hardware.process_id}")
        if self.gpu.linux.queue_reset and not self.gpu.injector.on("no-reset"):
            self.gpu.reset_queue(ring.hardware)
        else:
            self._hung = ring
            self.gpu.reset(guilty=self)

    def _cancel(self, ring: ContextRing, error: int = errno.ECANCELED) -> None:
        """End the jobs of a ring that lost its queue. `error`: that of the oldest one on the hardware."""
        jobs = [*ring.running, *ring.waiting]
        ring.running.clear()
        ring.waiting.clear()
        for job in jobs:
            job.fence.complete(error)
            error = errno.ECANCELED
        self._changed.notify_all()

    def _find(self, hardware: HardwareQueue) -> ContextRing | None:
        return next((ring for ring in self._rings.values() if ring.hardware is hardware), None)

    # --- sim.gpu.QueueOwner ---

    def interrupt(self, queue: HardwareQueue, context_id: int) -> None:
        """Complete the job with this number, and earlier ones whose interrupts were lost."""
        ring = self._find(queue)
        if ring is None:
            return
        with self._changed:
            if all(job.number & INTERRUPT_ID != context_id for job in ring.running):
                return  # of a client's own packet
            ended = False
            while not ended:
                job = ring.running.popleft()
                ended = job.number & INTERRUPT_ID == context_id
                _store_user_fence(job)
                job.fence.complete()
            if ring.running:
                self._watch(ring)
            self._run_ready(ring)
            self._changed.notify_all()

    def queue_exception(self, queue: HardwareQueue, code: int) -> None:
        """Ignore the exception: the kernel's rings accept no AQL packets."""

    def fence_signal(self, queue: HardwareQueue, position_dw: int) -> None:
        """Ignore the signal: only user queues have a protected fence."""

    def vm_fault(self, queue: HardwareQueue, fault: Fault) -> None:
        self.vm.record_fault(fault)
        self.stopped(queue)

    def stopped(self, queue: HardwareQueue) -> None:
        """Reset a ring whose job cannot end; the interrupt starts this at once (drm_sched_fault)."""
        ring = self._find(queue)
        if ring is not None:
            self._reset(ring, f"ring {queue.kind.value} stopped")

    def was_reset(self, queue: HardwareQueue | None, *, whole_gpu: bool, guilty: bool) -> None:
        hung, self._hung = self._hung, None
        for ring in list(self._rings.values()):
            if whole_gpu or ring.hardware is queue:
                caused = ring.hardware is queue or ring is hung
                with self._changed:
                    ring.context.guilty |= caused
                    self._cancel(ring, errno.ETIME if caused else errno.ECANCELED)


def _store_user_fence(job: RingJob) -> None:
    if job.user_fence is None:
        return
    bo, offset = job.user_fence
    bo.prepare_gpu_write(offset, 8)
    bo.store.view[offset : offset + 8] = job.number.to_bytes(8, "little")
    bo.write_back()
