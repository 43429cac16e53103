"""GPU access of tier T2: user queues of the render node. Buffers are GEM objects at addresses chosen by the
client."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from functools import partial
from typing import Self

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.kmd.cwsr import compute_sizes
from zinc_rt.kmd.driver import PROT_READ, PROT_WRITE, Driver, Mapping
from zinc_rt.kmd.errors import DriverError
from zinc_rt.kmd.gpu_addresses import GpuAddresses
from zinc_rt.kmd.render_node import RenderNode
from zinc_rt.kmd.syncobj import Syncobj
from zinc_rt.kmd.syscalls import PAGE_BYTES, map_memory
from zinc_rt.kmd.transport import (
    HOST_VISIBLE,
    DeviceBuffer,
    MemoryFault,
    Placement,
    Queue,
    allocate_or_fall_back,
    check_ring,
    choose_alignment,
)
from zinc_rt.kmd.uapi import amdgpu, drm
from zinc_rt.kmd.uapi.host_memory import HostArray, make_u32_array
from zinc_rt.kmd.uapi.structs import StructBytes
from zinc_rt.kmd.userq_availability import UserqAvailability, check_userq_availability

LOWEST_VA = 1 << 32  # nothing below 4 GiB: a truncated pointer then faults instead of hitting a buffer
DOORBELL_INDEX = 4  # 8-byte units in the doorbell page; any will do, Mesa and IGT use this one
PAGE_TABLES_SECONDS = 10.0
SUSPEND_SECONDS = 2.1  # amdgpu waits so long for MES to take a queue off the hardware (mes_userq_preempt)
VRAM_FULL = "GEM_CREATE in VRAM"  # calls of DriverErrors that this module raises: Linux reports success
SMALL_BAR = "GEM_CREATE in CPU-visible VRAM"

# Placement → domain, creation flags, memory type of the mapping. The memory type alone makes host memory uncached
# on the GPU (gmc_v12_0_get_vm_pte). Linux before 6.18 refuses the flags UNCACHED and COHERENT
# (amdgpu_gem_create_ioctl).
RECIPES = {
    Placement.VRAM: (
        amdgpu.AMDGPU_GEM_DOMAIN_VRAM,
        amdgpu.AMDGPU_GEM_CREATE_NO_CPU_ACCESS | amdgpu.AMDGPU_GEM_CREATE_VRAM_CLEARED,
        amdgpu.AMDGPU_VM_MTYPE_DEFAULT,
    ),
    Placement.VRAM_BAR: (
        amdgpu.AMDGPU_GEM_DOMAIN_VRAM,
        amdgpu.AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED | amdgpu.AMDGPU_GEM_CREATE_VRAM_CLEARED,
        amdgpu.AMDGPU_VM_MTYPE_DEFAULT,
    ),
    Placement.GTT: (
        amdgpu.AMDGPU_GEM_DOMAIN_GTT,
        amdgpu.AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED,
        amdgpu.AMDGPU_VM_MTYPE_UC,
    ),
    Placement.GTT_CACHED: (
        amdgpu.AMDGPU_GEM_DOMAIN_GTT,
        amdgpu.AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED,
        amdgpu.AMDGPU_VM_MTYPE_DEFAULT,
    ),
}


class UserqGpu:
    """One GPU through its render node (kmd.transport.Transport). A context manager."""

    kind = "userq"

    def __init__(self, driver: Driver, render_path: str) -> None:
        """Open the GPU. Raise UnsupportedError with the reason if amdgpu offers no compute user queues."""
        self.driver = driver
        self.fallbacks: list[str] = []
        self.node = RenderNode(driver, render_path)
        self.ledger = self.node.ledger
        with self.ledger.close_on_error():
            self.availability: UserqAvailability = check_userq_availability(driver, self.node)
            if not self.availability.usable:
                raise UnsupportedError(
                    f"{render_path}: user queues are not available: {self.availability.why}",
                    next=self.availability.next,
                )
            self.generation = self.availability.facts.generation
            device = self.node.device()
            heaps = self.node.memory()
            self.vram_bytes = heaps["vram.total_heap_size"]
            self.visible_bytes = heaps["cpu_accessible_vram.total_heap_size"]
            first = max(device["virtual_address_offset"], LOWEST_VA)
            self.addresses = GpuAddresses(first, device["virtual_address_max"] - 1)
            self._timeline = Syncobj(self.node, "page tables")
            self._point = 0
            self._stuck = False

    def alloc(
        self,
        size_bytes: int,
        placement: Placement,
        name: str,
        *,
        fallback: Placement | None = None,
        writable: bool = True,
    ) -> DeviceBuffer:
        """Allocate a zeroed buffer. `settle`, called for every new queue, waits for its page-table update.

        With `fallback`, an error (ENOMEM, EINVAL) selects that placement and adds a line to `fallbacks`. VRAM that
        Linux placed in host memory is ENOMEM, and VRAM_BAR with a small BAR is EINVAL, as through KFD: GEM_CREATE
        itself succeeds in both cases.
        """
        return allocate_or_fall_back(
            lambda where: self._alloc(size_bytes, where, name, writable=writable),
            name,
            placement,
            fallback,
            refused_by=(amdgpu.IOCTL_GEM_CREATE.name, VRAM_FULL, SMALL_BAR),
            fallbacks=self.fallbacks,
        )

    def settle(self, timeout_seconds: float = PAGE_TABLES_SECONDS) -> None:
        """Wait until all map and unmap operations so far have taken effect on the GPU."""
        if not self._point:
            return
        if self._stuck or not self._timeline.wait_point(self._point, timeout_seconds):
            self._stuck = True  # one wait is enough: closing would repeat it for every buffer
            about = f"page tables, {timeout_seconds:g} s"
            raise DriverError(drm.IOCTL_SYNCOBJ_TIMELINE_WAIT.name, errno.ETIME, about)

    def create_queue(
        self,
        *,
        ring_bytes: int,
        priority: int = amdgpu.AMDGPU_USERQ_CREATE_FLAGS_QUEUE_PRIORITY_NORMAL_LOW,
    ) -> Queue:
        """Create a compute queue. `priority` is AMDGPU_USERQ_CREATE_FLAGS_QUEUE_PRIORITY_*; HIGH needs
        CAP_SYS_NICE."""
        check_ring(ring_bytes)
        with self.ledger.release_on_failure():
            parts = [
                self.alloc(ring_bytes, Placement.GTT, "ring"),
                self.alloc(PAGE_BYTES, Placement.GTT, "rptr"),
                self.alloc(PAGE_BYTES, Placement.GTT, "wptr"),  # a buffer of its own, one page, in GTT
                self.alloc(self.node.query_eop_bytes(), Placement.VRAM, "eop"),
            ]
            doorbell = self._allocate_doorbell()
            self.settle()
            ring, rptr, wptr, eop = parts
            fields = {
                "op": amdgpu.AMDGPU_USERQ_OP_CREATE,
                "ip_type": amdgpu.AMDGPU_HW_IP_COMPUTE,
                "doorbell_handle": doorbell.handle,
                "doorbell_offset": DOORBELL_INDEX,
                "flags": priority,
                "queue_va": ring.gpu_va,
                "queue_size": ring.size_bytes,
                "rptr_va": rptr.gpu_va,
                "wptr_va": wptr.gpu_va,
            }
            queue_id, save_area = self._create_queue(fields, eop)
            if save_area is not None:
                parts.append(save_area)
            held = self.ledger.hold("queue", f"queue {queue_id}", lambda: self._free_queue(queue_id))
        return Queue(
            kind="userq",
            queue_id=queue_id,
            generation=self.generation,
            ring=ring,
            rptr=rptr,
            wptr=wptr,
            eop=eop,
            doorbell_address=doorbell.host.address + DOORBELL_INDEX * 8,
            inherits_vmid=True,
            kmd_fence=True,
            save_area=save_area,
            held=[item for part in (*parts, doorbell) for item in part.held] + [held],
        )

    def _create_queue(self, fields: dict[str, int], eop: DeviceBuffer) -> tuple[int, DeviceBuffer | None]:
        """Create a queue with the MQD that this Linux accepts: the EOP buffer alone, or also a context save area,
        as proposed for later versions. Return its id and the save area."""
        try:
            return self._try_queue(fields, amdgpu.USERQ_MQD_COMPUTE.new(eop_va=eop.gpu_va)), None
        except DriverError as error:
            if error.errno != errno.EINVAL:
                raise
            refused = error
        for sizes in compute_sizes(self.generation, self.node.device()["cu_active_number"]):
            area = self.alloc(sizes.buffer_bytes, Placement.GTT_CACHED, "context save area")
            self.settle()
            mqd = amdgpu.USERQ_MQD_COMPUTE_CWSR.new(
                eop_va=eop.gpu_va,
                ctx_save_area_va=area.gpu_va,
                ctx_save_area_size=sizes.save_bytes,
                ctl_stack_size=sizes.control_stack_bytes,
            )
            try:
                return self._try_queue(fields, mqd), area
            except DriverError as error:
                area.free()
                if error.errno != errno.EINVAL:
                    raise
        about = "create; tried an MQD of 8 bytes, and of 24 with a context save area"
        raise DriverError(refused.call, refused.errno, about) from refused

    def _try_queue(self, fields: dict[str, int], mqd: StructBytes) -> int:
        array = HostArray(bytes(mqd.raw))
        request = amdgpu.USERQ.new(**fields, mqd=array.address, mqd_size=array.size_bytes)
        return self.node.ioctl(amdgpu.IOCTL_USERQ, request, "create")["new_queue_id"]

    def create_syncobj(self, name: str) -> Syncobj:
        return Syncobj(self.node, name)

    def signal(
        self,
        queue: Queue,
        syncobjs: Sequence[Syncobj],
        *,
        reads: Sequence[DeviceBuffer] = (),
        writes: Sequence[DeviceBuffer] = (),
    ) -> None:
        """Signal `syncobjs` when the queue's fence reaches the wptr that is in memory now.

        Call it after the wptr store, with PROTECTED_FENCE_SIGNAL as the last packet before that wptr.
        """
        arrays = _IoctlArrays(syncobjs, reads, writes)
        request = amdgpu.USERQ_SIGNAL.new(queue_id=queue.queue_id, **arrays.members)
        self.node.ioctl(amdgpu.IOCTL_USERQ_SIGNAL, request, f"queue {queue.queue_id}")

    def query_fences(
        self,
        queue: Queue,
        syncobjs: Sequence[Syncobj],
        *,
        reads: Sequence[DeviceBuffer] = (),
        writes: Sequence[DeviceBuffer] = (),
    ) -> tuple[tuple[int, int], ...]:
        """Return the (va, value) pairs that `queue` must wait for, until the 64 bits at each va reach the value.

        Fences of other drivers are waited for in this call. Blocks on a syncobj without a submission.
        """
        arrays = _IoctlArrays(syncobjs, reads, writes)
        arguments = {"waitq_id": queue.queue_id, **arrays.members}
        about = f"queue {queue.queue_id}"
        counted = self.node.ioctl(amdgpu.IOCTL_USERQ_WAIT, amdgpu.USERQ_WAIT.new(**arguments), about)["num_fences"]
        if not counted:
            return ()
        array = HostArray(bytes(counted * amdgpu.USERQ_FENCE_INFO.size_bytes))
        request = amdgpu.USERQ_WAIT.new(**arguments, num_fences=counted, out_fences=array.address)
        filled = self.node.ioctl(amdgpu.IOCTL_USERQ_WAIT, request, about)["num_fences"]
        records = [array.record(amdgpu.USERQ_FENCE_INFO, index) for index in range(min(counted, filled))]
        return tuple((record["va"], record["value"]) for record in records)

    def fault(self) -> MemoryFault | None:
        return self.node.fault()

    def flush_hdp(self) -> None:
        raise UnsupportedError(
            "user queues do not provide an HDP flush register to the CPU",
            next="flush by a packet in the ring, or place what the CPU writes in GTT",
        )

    def resources(self) -> dict[str, int]:
        return self.ledger.counts()

    def close(self) -> None:
        self.ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- buffers ---

    def _alloc(self, size_bytes: int, placement: Placement, name: str, *, writable: bool) -> DeviceBuffer:
        if placement not in RECIPES:
            raise UnsupportedError(f"{name}: user queues do not support {placement.value} memory", next="use gtt")
        domain, flags, memory_type = RECIPES[placement]
        buffer = DeviceBuffer.empty(name, size_bytes, placement)
        if placement is Placement.VRAM_BAR and self.visible_bytes < self.vram_bytes:
            about = f"{name}: the CPU can access {self.visible_bytes >> 20} of {self.vram_bytes >> 20} MiB of VRAM"
            raise DriverError(SMALL_BAR, errno.EINVAL, about)
        access = amdgpu.AMDGPU_VM_PAGE_READABLE | amdgpu.AMDGPU_VM_PAGE_EXECUTABLE | memory_type
        access |= amdgpu.AMDGPU_VM_PAGE_WRITEABLE if writable else 0
        with self.ledger.release_on_failure():
            self._create(buffer, domain, flags)
            if domain == amdgpu.AMDGPU_GEM_DOMAIN_VRAM and self.node.query_placement(buffer.handle) != domain:
                raise DriverError(VRAM_FULL, errno.ENOMEM, f"{buffer.name}, {buffer.size_bytes} bytes")
            buffer.gpu_va = self.addresses.take(buffer.size_bytes, choose_alignment(buffer.size_bytes))
            release_va = partial(self.addresses.give_back, buffer.gpu_va, buffer.size_bytes)
            buffer.hold(self.ledger, "address range", release_va)
            self._update_va(buffer, amdgpu.AMDGPU_VA_OP_MAP, access)
            buffer.hold(self.ledger, "gpu mapping", lambda: self._unmap(buffer))
            if placement in HOST_VISIBLE:
                buffer.mapping = self._map_for_cpu(buffer)
        return buffer

    def _allocate_doorbell(self) -> DeviceBuffer:
        """Allocate a page of doorbells. The GPU does not map it."""
        buffer = DeviceBuffer.empty("doorbell", PAGE_BYTES, Placement.VRAM_BAR)
        with self.ledger.release_on_failure():
            self._create(buffer, amdgpu.AMDGPU_GEM_DOMAIN_DOORBELL, 0)
            buffer.mapping = self._map_for_cpu(buffer)
        return buffer

    def _create(self, buffer: DeviceBuffer, domain: int, flags: int) -> None:
        request = amdgpu.GEM_CREATE.new(
            bo_size=buffer.size_bytes, alignment=PAGE_BYTES, domains=domain, domain_flags=flags
        )
        about = f"{buffer.name}, {buffer.size_bytes} bytes"
        buffer.handle = handle = self.node.ioctl(amdgpu.IOCTL_GEM_CREATE, request, about)["handle"]

        def give_back() -> None:
            self.node.ioctl(drm.IOCTL_GEM_CLOSE, drm.GEM_CLOSE.new(handle=handle), buffer.name)

        buffer.hold(self.ledger, "buffer", give_back)

    def _update_va(self, buffer: DeviceBuffer, operation: int, access: int) -> None:
        request = amdgpu.GEM_VA.new(
            handle=buffer.handle,
            operation=operation,
            flags=access,
            va_address=buffer.gpu_va,
            map_size=buffer.size_bytes,
            vm_timeline_point=self._point + 1,
            vm_timeline_syncobj_out=self._timeline.handle,
        )
        self.node.ioctl(amdgpu.IOCTL_GEM_VA, request, f"{buffer.name} at {buffer.gpu_va:#x}")
        self._point += 1

    def _unmap(self, buffer: DeviceBuffer) -> None:
        """Unmap and wait: the address must not be reused before the GPU has dropped the mapping."""
        self._update_va(buffer, amdgpu.AMDGPU_VA_OP_UNMAP, 0)
        self.settle()

    def _map_for_cpu(self, buffer: DeviceBuffer) -> Mapping:
        request = amdgpu.GEM_MMAP.new(handle=buffer.handle)
        offset = self.node.ioctl(amdgpu.IOCTL_GEM_MMAP, request, buffer.name)["addr_ptr"]
        access = PROT_READ | PROT_WRITE
        mapping = map_memory(self.driver, "buffer", buffer.name, self.node.fd, buffer.size_bytes, offset, access)
        buffer.hold(self.ledger, "mapping", lambda: self.driver.munmap(mapping))
        return mapping

    def _free_queue(self, queue_id: int) -> None:
        request = amdgpu.USERQ.new(op=amdgpu.AMDGPU_USERQ_OP_FREE, queue_id=queue_id)
        self.node.ioctl(amdgpu.IOCTL_USERQ, request, f"free queue {queue_id}")


class _IoctlArrays:
    """The arrays of USERQ_SIGNAL and USERQ_WAIT: keep this alive across the call that uses `members`."""

    def __init__(
        self, syncobjs: Sequence[Syncobj], reads: Sequence[DeviceBuffer], writes: Sequence[DeviceBuffer]
    ) -> None:
        self._kept = {
            name: make_u32_array([item.handle for item in objects])
            for name, objects in (("syncobj", syncobjs), ("bo_read", reads), ("bo_write", writes))
        }
        self.members = {f"{name}_handles": array.address for name, array in self._kept.items()}
        self.members |= {f"num_{name}_handles": array.size_bytes // 4 for name, array in self._kept.items()}
