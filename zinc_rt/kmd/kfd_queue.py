"""KFD compute queues: allocate buffers of the exact sizes that KFD checks, call CREATE_QUEUE, map the doorbell."""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass, field

from zinc_rt.kmd.cwsr import CwsrSizes, list_cwsr_sizes
from zinc_rt.kmd.driver import PROT_READ, PROT_WRITE, Mapping
from zinc_rt.kmd.errors import DriverError
from zinc_rt.kmd.kfd_memory import KfdMemory
from zinc_rt.kmd.syscalls import PAGE_BYTES, map_memory
from zinc_rt.kmd.topology import TopologyNode
from zinc_rt.kmd.transport import DeviceBuffer, Placement, Queue, check_ring
from zinc_rt.kmd.uapi import kfd
from zinc_rt.kmd.uapi.host_memory import make_u32_array
from zinc_rt.kmd.uapi.structs import StructBytes

EOP_BYTES = 4096  # exactly: eop_buffer_size in amdkfd/kfd_queue.c
AQL_PACKET_BYTES, AQL_INVALID = 64, 1
AQL_WRITE_INDEX, AQL_READ_INDEX = 0x38, 0x80  # in amd_queue_t, ROCr's amd_hsa_queue.h; its own offset is at 0x88
DOORBELL_BYTES = 8192  # one process's slice: 1024 doorbells of 8 bytes, amdkfd/kfd_doorbell.c, gfx9 and later
_GONE = (errno.ETIME, errno.EIO)  # DESTROY_QUEUE says so after it has torn the queue down


@dataclass(slots=True)
class KfdQueues:
    """The queues of one GPU, and the doorbells that they share."""

    memory: KfdMemory
    node: TopologyNode
    about: str
    fallbacks: list[str]
    incidents: list[str] = field(default_factory=list)  # what KFD complained of while giving back
    _doorbells: Mapping | None = None

    def create(self, *, ring_bytes: int, priority: int, aql: bool = False) -> Queue:
        check_ring(ring_bytes)
        buffers: list[DeviceBuffer] = []

        def alloc(size_bytes: int, where: Placement, name: str) -> DeviceBuffer:
            buffers.append(self.memory.allocate(size_bytes, where, name))
            return buffers[-1]

        with self.memory.ledger.release_on_failure():
            queue = Queue(
                kind="kfd",
                queue_id=-1,
                generation=self.node.generation,
                ring=alloc(ring_bytes, Placement.GTT, "ring"),
                # pages of their own, as KFD wants them; GTT so that MES can read wptr
                rptr=alloc(PAGE_BYTES, Placement.GTT, "rptr"),
                wptr=alloc(PAGE_BYTES, Placement.GTT, "wptr"),
                eop=alloc(EOP_BYTES, Placement.VRAM, "eop"),
                doorbell_address=0,
                inherits_vmid=False,
                kmd_fence=False,
            )
            if aql:
                _begin_aql(queue)
            doorbell_offset = self._create(queue, priority, aql)
            slice_offset = doorbell_offset & -DOORBELL_BYTES
            doorbells = self._map_doorbells(slice_offset)
            queue.doorbell_address = doorbells.address + doorbell_offset - slice_offset
        assert queue.save_area is not None
        parts = [*buffers, queue.save_area]
        queue.held = [held for part in parts for held in part.held] + queue.held
        return queue

    def doorbells(self) -> Mapping:
        """Map this process's doorbells on this GPU. Requires the offset returned by the first CREATE_QUEUE."""
        if self._doorbells is None:
            raise ValueError("no queue was created yet")
        return self._doorbells

    def set_cu_mask(self, queue: Queue, words: tuple[int, ...]) -> None:
        """Restrict a queue to the CUs whose bits are set, 32 per word.

        gfx10 and later enable CUs in pairs: bits 2n and 2n+1 must be equal.
        """
        mask = make_u32_array(words)
        request = kfd.SET_CU_MASK.new(
            queue_id=queue.queue_id, num_cu_mask=32 * len(words), cu_mask_ptr=mask.address
        )
        self.memory.file.ioctl(kfd.IOC_SET_CU_MASK, request, f"queue {queue.queue_id}")

    def _create(self, queue: Queue, priority: int, aql: bool) -> int:
        """Try CREATE_QUEUE with each save area size in turn. Return the doorbell's offset on /dev/kfd."""
        candidates = list_cwsr_sizes(self.node)
        for number, sizes in enumerate(candidates):
            # host memory comes zeroed, which the header of the save area wants
            area = self.memory.allocate(sizes.buffer_bytes, Placement.GTT, "save area")
            try:
                ioctl = self.memory.file.ioctl(
                    kfd.IOC_CREATE_QUEUE,
                    _make_request(self.node.gpu_id, queue, area, sizes, priority, aql),
                    f"{self.about}, context save area {sizes.buffer_bytes} bytes ({sizes.source})",
                )
            except DriverError as error:
                if error.errno != errno.EINVAL or number == len(candidates) - 1:
                    raise
                area.free()
                self.fallbacks.append(f"context save area of {sizes.buffer_bytes} bytes ({sizes.source}) refused")
                continue
            queue.save_area, queue.queue_id = area, ioctl["queue_id"]
            name = f"queue {queue.queue_id}"
            queue.held = [self.memory.ledger.hold("queue", name, lambda: self._destroy(queue))]
            return ioctl["doorbell_offset"]
        raise AssertionError("no size to try")

    def _map_doorbells(self, offset: int) -> Mapping:
        if self._doorbells is None:
            file, access = self.memory.file, PROT_READ | PROT_WRITE
            doorbells = map_memory(file.driver, "doorbell", self.about, file.fd, DOORBELL_BYTES, offset, access)
            self.memory.ledger.hold("mapping", "doorbells", lambda: file.driver.munmap(doorbells))
            self._doorbells = doorbells
        return self._doorbells

    def _destroy(self, queue: Queue) -> None:
        request = kfd.DESTROY_QUEUE.new(queue_id=queue.queue_id)
        try:
            self.memory.file.ioctl(kfd.IOC_DESTROY_QUEUE, request, f"queue {queue.queue_id}")
        except DriverError as error:
            if error.errno not in _GONE:
                raise
            queue.lost = error
            self.incidents.append(str(error))


def _begin_aql(queue: Queue) -> None:
    """Mark every slot of the ring INVALID, and initialise the read index field with the offset of amd_queue_t."""
    for slot in range(0, queue.ring.size_bytes, AQL_PACKET_BYTES):
        struct.pack_into("<H", queue.ring.host.view, slot, AQL_INVALID)
    struct.pack_into("<I", queue.rptr.host.view, AQL_READ_INDEX + 8, AQL_READ_INDEX)


def _make_request(
    gpu_id: int, queue: Queue, area: DeviceBuffer, sizes: CwsrSizes, priority: int, aql: bool
) -> StructBytes:
    return kfd.CREATE_QUEUE.new(
        ring_base_address=queue.ring.gpu_va,
        write_pointer_address=queue.rptr.gpu_va + AQL_WRITE_INDEX if aql else queue.wptr.gpu_va,
        read_pointer_address=queue.rptr.gpu_va + AQL_READ_INDEX * aql,
        ring_size=queue.ring.size_bytes,
        gpu_id=gpu_id,
        queue_type=kfd.KFD_IOC_QUEUE_TYPE_COMPUTE_AQL if aql else kfd.KFD_IOC_QUEUE_TYPE_COMPUTE,
        queue_percentage=100,
        queue_priority=priority,
        eop_buffer_address=queue.eop.gpu_va,
        eop_buffer_size=EOP_BYTES,
        ctx_save_restore_address=area.gpu_va,
        ctx_save_restore_size=sizes.save_bytes,
        ctl_stack_size=sizes.control_stack_bytes,
    )
