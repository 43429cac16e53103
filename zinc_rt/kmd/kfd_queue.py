"""A KFD compute queue: buffers of exactly the sizes the kernel checks, then CREATE_QUEUE, then the doorbell."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from zinc_rt.kmd.cwsr import CwsrSizes, cwsr_sizes
from zinc_rt.kmd.errors import DriverError
from zinc_rt.kmd.syscalls import PAGE_BYTES
from zinc_rt.kmd.transport import DeviceBuffer, Placement, Queue, check_ring
from zinc_rt.kmd.uapi import kfd
from zinc_rt.kmd.uapi.structs import StructBytes

if TYPE_CHECKING:
    from zinc_rt.kmd.kfd import KfdGpu

EOP_BYTES = 4096  # exactly: eop_buffer_size in amdkfd/kfd_queue.c
_GONE = (errno.ETIME, errno.EIO)  # DESTROY_QUEUE says so after it has torn the queue down


def create_queue(gpu: KfdGpu, *, ring_bytes: int, priority: int, placement: Placement, percentage: int) -> Queue:
    check_ring(ring_bytes)
    buffers: list[DeviceBuffer] = []

    def alloc(size_bytes: int, where: Placement, name: str) -> DeviceBuffer:
        buffers.append(gpu.alloc(size_bytes, where, name))
        return buffers[-1]

    with gpu.ledger.all_or_nothing():
        queue = Queue(
            kind="kfd",
            queue_id=-1,
            generation=gpu.generation,
            ring=alloc(ring_bytes, placement, "ring"),
            # pages of their own, as the kernel wants them; GTT so that MES can read wptr
            rptr=alloc(PAGE_BYTES, Placement.GTT, "rptr"),
            wptr=alloc(PAGE_BYTES, Placement.GTT, "wptr"),
            eop=alloc(EOP_BYTES, Placement.VRAM, "eop"),
            doorbell_address=0,
            inherits_vmid=False,
            kmd_fence=False,
        )
        doorbell_offset = _create(gpu, queue, priority=priority, percentage=percentage)
        slice_offset = doorbell_offset & -8192
        doorbells = gpu.map_doorbells(slice_offset)
        queue.doorbell_address = doorbells.address + doorbell_offset - slice_offset
    assert queue.save_area is not None
    parts = [*buffers, queue.save_area]
    queue.held = [held for part in parts for held in part.held] + queue.held
    return queue


def _create(gpu: KfdGpu, queue: Queue, *, priority: int, percentage: int) -> int:
    """CREATE_QUEUE with each size of save area in turn; the doorbell's offset on /dev/kfd."""
    candidates = cwsr_sizes(gpu.node)
    for number, sizes in enumerate(candidates):
        # host memory comes zeroed, which the header of the save area wants
        area = gpu.alloc(sizes.buffer_bytes, Placement.GTT, "save area")
        try:
            made = gpu.process.ioctl(
                kfd.IOC_CREATE_QUEUE,
                _request(gpu, queue, area, sizes, priority=priority, percentage=percentage),
                f"{gpu.about}, context save area {sizes.buffer_bytes} bytes ({sizes.source})",
            )
        except DriverError as error:
            if error.errno != errno.EINVAL or number == len(candidates) - 1:
                raise
            area.free()
            gpu.fallbacks.append(f"context save area of {sizes.buffer_bytes} bytes ({sizes.source}) refused")
            continue
        queue.save_area, queue.queue_id = area, made["queue_id"]
        queue.held = [gpu.ledger.hold("queue", f"queue {queue.queue_id}", lambda: _destroy(gpu, queue))]
        return made["doorbell_offset"]
    raise AssertionError("no size to try")


def _request(
    gpu: KfdGpu, queue: Queue, area: DeviceBuffer, sizes: CwsrSizes, *, priority: int, percentage: int
) -> StructBytes:
    return kfd.CREATE_QUEUE.new(
        ring_base_address=queue.ring.gpu_va,
        write_pointer_address=queue.wptr.gpu_va,
        read_pointer_address=queue.rptr.gpu_va,
        ring_size=queue.ring.size_bytes,
        gpu_id=gpu.node.gpu_id,
        queue_type=kfd.KFD_IOC_QUEUE_TYPE_COMPUTE,
        queue_percentage=percentage,
        queue_priority=priority,
        eop_buffer_address=queue.eop.gpu_va,
        eop_buffer_size=EOP_BYTES,
        ctx_save_restore_address=area.gpu_va,
        ctx_save_restore_size=sizes.save_bytes,
        ctl_stack_size=sizes.control_stack_bytes,
    )


def _destroy(gpu: KfdGpu, queue: Queue) -> None:
    request = kfd.DESTROY_QUEUE.new(queue_id=queue.queue_id)
    try:
        gpu.process.ioctl(kfd.IOC_DESTROY_QUEUE, request, f"queue {queue.queue_id}")
    except DriverError as error:
        if error.errno not in _GONE:
            raise
        queue.lost = error
        gpu.incidents.append(str(error))
