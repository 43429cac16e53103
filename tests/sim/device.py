"""What the driver-side tests share: a machine whose command processor runs nothing, and calls on it by name."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

from zinc_rt.kmd.uapi import kfd
from zinc_rt.kmd.uapi.host_memory import HostArray, make_u32_array
from zinc_rt.kmd.uapi.structs import Ioctl, StructBytes
from zinc_rt.sim.chips import Chip
from zinc_rt.sim.driver.files import DrmFile
from zinc_rt.sim.in_process import SimDriver
from zinc_rt.sim.interfaces import HardwareQueue, Kmd
from zinc_rt.sim.machine import SimMachine
from zinc_rt.sim.machine_options import MachineOptions
from zinc_rt.sim.memory.vm import GpuVm

PAGE = 4096
RING = 0x10000
WRITABLE = kfd.KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE | kfd.KFD_IOC_ALLOC_MEM_FLAGS_EXECUTABLE
GTT_CACHED = kfd.KFD_IOC_ALLOC_MEM_FLAGS_GTT | WRITABLE
GTT = GTT_CACHED | kfd.KFD_IOC_ALLOC_MEM_FLAGS_COHERENT | kfd.KFD_IOC_ALLOC_MEM_FLAGS_UNCACHED
VRAM = kfd.KFD_IOC_ALLOC_MEM_FLAGS_VRAM | WRITABLE
VRAM_PUBLIC = VRAM | kfd.KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC


class IdleCp:
    """Runs nothing. `stuck`: queues cannot be removed."""

    def __init__(self, kmd: Kmd, chip: Chip, look: Callable[[], object]) -> None:
        self.kmd, self.look, self.stuck = kmd, look, False
        self.attached: list[HardwareQueue] = []
        self.rung: list[tuple[int, int]] = []

    def attach(self, queue: HardwareQueue) -> None:
        self.attached.append(queue)

    def settle(self) -> None:
        pass

    def detach(self, queue: HardwareQueue, timeout_seconds: float) -> bool:
        self.attached = [item for item in self.attached if item is not queue]
        return not self.stuck

    def forget(self, queue: HardwareQueue) -> None:
        pass

    def ring(self, queue: HardwareQueue, value: int) -> None:
        self.rung.append((queue.queue_id, value))

    def close(self) -> None:
        pass


def idle_machine(*inject: str, **options: Any) -> SimMachine:
    options.setdefault("time_scale", 0.01)
    return SimMachine(MachineOptions(inject=inject, **options), command_processor=IdleCp)


@contextlib.contextmanager
def open_machine(*inject: str, **options: Any) -> Iterator[SimMachine]:
    result = idle_machine(*inject, **options)
    try:
        yield result
    finally:
        result.close()


class Client:
    """One process with /dev/kfd and the render node open."""

    def __init__(self, owner: SimMachine, *, acquire: bool = True) -> None:
        self.machine = owner
        self.driver = SimDriver(owner)
        self.gpu = owner.gpus[0]
        self.gpu_id = self.gpu.gpu_id
        self.kfd = self.driver.open("/dev/kfd", os.O_RDWR)
        self.drm = self.driver.open(f"/dev/dri/renderD{self.gpu.render_minor}", os.O_RDWR)
        self._va = 0x1_0000_0000
        self.keep: Any = None  # arrays that a call's arguments point to
        if acquire:
            self.call(kfd.IOC_ACQUIRE_VM, drm_fd=self.drm, gpu_id=self.gpu_id)

    def call(self, command: Ioctl, record: StructBytes | None = None, **values: Any) -> StructBytes:
        record = record or command.struct.new(**values)
        fd = self.kfd if command.type_ == "K" else self.drm
        self.driver.ioctl(fd, command.request, record.raw)
        return record

    def errno(self, command: Ioctl, **values: Any) -> int:
        """0 where it worked."""
        try:
            self.call(command, **values)
        except OSError as error:
            return error.errno or -1
        return 0

    @property
    def gpu_vm(self) -> GpuVm:
        file = self.driver.process.files[self.drm]
        assert isinstance(file, DrmFile)
        return file.vm

    def va(self, size_bytes: int) -> int:
        va, self._va = self._va, self._va + size_bytes + (-size_bytes % 0x200000) + 0x200000
        return va

    def alloc(self, size_bytes: int, flags: int = GTT, *, mapped: bool = True) -> StructBytes:
        record = self.call(
            kfd.IOC_ALLOC_MEMORY_OF_GPU,
            va_addr=self.va(size_bytes),
            size=size_bytes,
            gpu_id=self.gpu_id,
            flags=flags,
        )
        if mapped:
            self.map(record["handle"])
        return record

    def map(self, handle: int) -> None:
        ids = make_u32_array([self.gpu_id])
        self.call(kfd.IOC_MAP_MEMORY_TO_GPU, handle=handle, device_ids_array_ptr=ids.address, n_devices=1)

    def unmap(self, handle: int) -> None:
        ids = make_u32_array([self.gpu_id])
        self.call(kfd.IOC_UNMAP_MEMORY_FROM_GPU, handle=handle, device_ids_array_ptr=ids.address, n_devices=1)

    def host(self, buffer: StructBytes, size_bytes: int | None = None) -> Any:
        return self.driver.mmap(self.drm, size_bytes or buffer["size"], buffer["mmap_offset"], 3)

    def queue_arguments(self, **changes: Any) -> dict[str, Any]:
        """Create and map buffers as the kernel requires, then apply `changes`."""
        sizes = self.gpu.chip.compute_cwsr(old_table=not self.gpu.linux.gfx1151_new_table)
        save = sizes.save_restore_bytes
        arguments = {
            "ring_base_address": self.alloc(RING)["va_addr"],
            "ring_size": RING,
            "write_pointer_address": self.alloc(PAGE)["va_addr"],
            "read_pointer_address": self.alloc(PAGE)["va_addr"],
            "gpu_id": self.gpu_id,
            "queue_percentage": 100,
            "queue_priority": 7,
            "eop_buffer_address": self.alloc(PAGE, VRAM)["va_addr"],
            "eop_buffer_size": PAGE,
            "ctx_save_restore_address": self.alloc(sizes.compute_buffer_bytes(save))["va_addr"],
            "ctx_save_restore_size": save,
            "ctl_stack_size": sizes.control_stack_bytes,
        }
        return arguments | changes

    def queue(self, **changes: Any) -> StructBytes:
        return self.call(kfd.IOC_CREATE_QUEUE, **self.queue_arguments(**changes))

    def event(
        self, kind: int = kfd.KFD_IOC_EVENT_SIGNAL, *, auto_reset: bool = True, page: int = 0
    ) -> StructBytes:
        return self.call(kfd.IOC_CREATE_EVENT, event_type=kind, auto_reset=int(auto_reset), event_page_offset=page)

    def wait(self, *event_ids: int, timeout_ms: int = 0, wait_all: bool = False) -> tuple[int, HostArray]:
        records = b"".join(bytes(kfd.EVENT_DATA.new(event_id=event_id).raw) for event_id in event_ids)
        array = HostArray(records)
        record = self.call(
            kfd.IOC_WAIT_EVENTS,
            events_ptr=array.address,
            num_events=len(event_ids),
            wait_for_all=int(wait_all),
            timeout=timeout_ms,
        )
        return record["wait_result"], array


@contextlib.contextmanager
def open_client(*inject: str, acquire: bool = True, **options: Any) -> Iterator[Client]:
    with open_machine(*inject, **options) as owner:
        client = Client(owner, acquire=acquire)
        yield client
        client.driver.exit()
        used = {heap.value: size for heap, size in client.gpu.memory.used.items() if size}
        assert not used and not client.gpu.memory.bos, f"left over: {used}"
