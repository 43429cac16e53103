"""mmap of the simulated nodes: the memory at each offset of a file. Source: kfd_mmap, amdgpu_gem.c."""

from __future__ import annotations

import errno
from dataclasses import dataclass

from zinc_rt.sim.chips import PAGE_BYTES
from zinc_rt.sim.driver.files import DmaBufFile, DrmFile, KfdFile
from zinc_rt.sim.driver.ioctl_call import MachineState
from zinc_rt.sim.driver.kfd_memory import (
    MMAP_GPU_SHIFT,
    MMAP_TYPE_DOORBELL,
    MMAP_TYPE_EVENTS,
    MMAP_TYPE_MMIO,
    MMAP_TYPE_RESERVED,
)
from zinc_rt.sim.driver.process import Process
from zinc_rt.sim.gpu import DOORBELL_SLICE_BYTES, SimGpu
from zinc_rt.sim.memory.buffers import Bo, Heap, SharedStore

TYPE_MASK = 3 << 62


@dataclass(frozen=True, slots=True)
class HostMapping:
    """Bytes of a memfd from `offset`; `bo` if a buffer object counts its host mappings."""

    memory: SharedStore
    offset: int = 0
    bo: Bo | None = None


def map_host(machine: MachineState, process: Process, fd: int, size_bytes: int, offset: int) -> HostMapping:
    """Map the file. Raises the OSError of mmap(2)."""
    file = process.file(fd)
    if size_bytes <= 0 or offset % PAGE_BYTES or not 0 <= offset < 1 << 64:
        raise OSError(errno.EINVAL, "size 0, or the offset is not page-aligned")
    if isinstance(file, KfdFile):
        return _map_kfd(machine, process, size_bytes, offset)
    if isinstance(file, DrmFile):
        return _map_drm(machine, file, size_bytes, offset)
    if isinstance(file, DmaBufFile) and file.bo.host_visible and file.bo.heap in (Heap.GTT, Heap.VRAM):
        if offset + size_bytes > file.bo.size_bytes:
            _refuse()
        file.gpu.memory.show(file.bo)
        return HostMapping(file.bo.add_host_mapping(file.gpu.coherence), offset, file.bo)
    raise OSError(errno.ENODEV, "this file cannot be mapped")


def _find_gpu(machine: MachineState, offset: int) -> SimGpu:
    wanted = offset >> MMAP_GPU_SHIFT & 0xFFFF
    for gpu in machine.gpus:
        if gpu.gpu_id & 0xFFFF == wanted:
            return gpu
    raise OSError(errno.ENODEV, "the offset names no GPU")


def _map_kfd(machine: MachineState, process: Process, size_bytes: int, offset: int) -> HostMapping:
    kfd = process.kfd
    assert kfd is not None
    kind = offset & TYPE_MASK
    if kind == MMAP_TYPE_DOORBELL:
        gpu = _find_gpu(machine, offset)
        if gpu.injector.is_due("doorbell-offset"):
            raise OSError(errno.EFAULT, "injected")
        if size_bytes != DOORBELL_SLICE_BYTES:
            raise OSError(errno.EINVAL, f"doorbells: {DOORBELL_SLICE_BYTES} bytes, exactly")
        return HostMapping(kfd.bound(gpu, errno.EFAULT).doorbells)
    if kind == MMAP_TYPE_EVENTS:
        if kfd.events.page is None:
            raise OSError(errno.EINVAL, "no event page yet")
        if size_bytes > kfd.events.page.size_bytes:
            raise OSError(errno.EINVAL, "larger than the event page")
        return HostMapping(kfd.events.page)
    if kind == MMAP_TYPE_RESERVED:
        raise OSError(errno.EINVAL, "the CWSR page is mapped by the kernel on these chips")
    assert kind == MMAP_TYPE_MMIO
    if not offset >> MMAP_GPU_SHIFT:
        raise OSError(errno.EFAULT, "unknown offset")
    if size_bytes != PAGE_BYTES:
        raise OSError(errno.EINVAL, "one page, exactly")
    return HostMapping(_find_gpu(machine, offset).remap_page)


def _map_drm(machine: MachineState, file: DrmFile, size_bytes: int, offset: int) -> HostMapping:
    if offset >> MMAP_GPU_SHIFT and not offset & TYPE_MASK:
        return HostMapping(_find_gpu(machine, offset).remap_page) if size_bytes == PAGE_BYTES else _refuse()
    bo = file.gpu.find_bo(offset)
    if bo is None:
        raise OSError(errno.EINVAL, "no buffer at this offset")
    if bo not in file.allowed:
        raise OSError(errno.EACCES, "the buffer belongs to another client")
    if not bo.host_visible or bo.heap is Heap.USERPTR:
        raise OSError(errno.EPERM, "created without CPU access")
    if size_bytes > bo.size_bytes:
        return _refuse()
    file.gpu.memory.show(bo)
    if bo.heap is Heap.VRAM:
        file.gpu.consulted.add_mark("host maps VRAM")
    return HostMapping(bo.add_host_mapping(file.gpu.coherence), 0, bo)


def _refuse() -> HostMapping:
    raise OSError(errno.EINVAL, "larger than the object at this offset")
