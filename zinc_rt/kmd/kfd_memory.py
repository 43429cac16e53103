"""KFD memory: an address set aside, a buffer made, mapped for the CPU, mapped for the GPU; undone in reverse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zinc_rt.kmd.driver import ANONYMOUS, PROT_NONE, PROT_READ, PROT_WRITE, Mapping
from zinc_rt.kmd.errors import DriverError
from zinc_rt.kmd.resources import Ledger
from zinc_rt.kmd.syscalls import PAGE_BYTES, whole_pages_bytes
from zinc_rt.kmd.transport import HOST_VISIBLE, DeviceBuffer, Placement
from zinc_rt.kmd.uapi import kfd
from zinc_rt.kmd.uapi.host_memory import u32_array

if TYPE_CHECKING:
    from zinc_rt.kmd.kfd import KfdGpu

LARGE_BYTES = 2 << 20  # a page-table fragment: larger buffers start on one
_RW = PROT_READ | PROT_WRITE

FLAGS = {
    Placement.VRAM: kfd.KFD_IOC_ALLOC_MEM_FLAGS_VRAM,
    Placement.VRAM_BAR: kfd.KFD_IOC_ALLOC_MEM_FLAGS_VRAM | kfd.KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC,
    Placement.GTT: kfd.KFD_IOC_ALLOC_MEM_FLAGS_GTT
    | kfd.KFD_IOC_ALLOC_MEM_FLAGS_COHERENT
    | kfd.KFD_IOC_ALLOC_MEM_FLAGS_UNCACHED,
    Placement.GTT_CACHED: kfd.KFD_IOC_ALLOC_MEM_FLAGS_GTT | kfd.KFD_IOC_ALLOC_MEM_FLAGS_COHERENT,
    Placement.USERPTR: kfd.KFD_IOC_ALLOC_MEM_FLAGS_USERPTR
    | kfd.KFD_IOC_ALLOC_MEM_FLAGS_COHERENT
    | kfd.KFD_IOC_ALLOC_MEM_FLAGS_UNCACHED,
}


@dataclass(frozen=True, slots=True)
class KfdAllocOptions:
    """What the GPU may do with the buffer."""

    writable: bool = True
    executable: bool = True
    contiguous: bool = False

    @property
    def flags(self) -> int:
        return (
            kfd.KFD_IOC_ALLOC_MEM_FLAGS_NO_SUBSTITUTE
            | (kfd.KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE if self.writable else 0)
            | (kfd.KFD_IOC_ALLOC_MEM_FLAGS_EXECUTABLE if self.executable else 0)
            | (kfd.KFD_IOC_ALLOC_MEM_FLAGS_CONTIGUOUS if self.contiguous else 0)
        )


def allocate(
    gpu: KfdGpu,
    size_bytes: int,
    placement: Placement,
    name: str,
    options: KfdAllocOptions,
    *,
    ledger: Ledger | None = None,
) -> DeviceBuffer:
    """Counted in `ledger`, which is the GPU's own unless the buffer outlives it."""
    ledger = ledger or gpu.ledger
    if size_bytes <= 0:
        raise ValueError(f"{name}: {size_bytes} bytes")
    buffer = DeviceBuffer(name, 0, whole_pages_bytes(size_bytes), placement, 0, None)
    with ledger.all_or_nothing():
        buffer.gpu_va = _set_aside(gpu, ledger, buffer)
        if placement is Placement.USERPTR:
            buffer.mapping = _cpu_map(gpu, ledger, buffer, ANONYMOUS, 0)
        offset = _make(gpu, ledger, buffer, FLAGS[placement] | options.flags)
        if placement in HOST_VISIBLE and placement is not Placement.USERPTR:
            buffer.mapping = _cpu_map(gpu, ledger, buffer, gpu.render_fd, offset)
        _gpu_map(gpu, ledger, buffer)
    return buffer


def mmio_page(gpu: KfdGpu) -> DeviceBuffer:
    """The page with the HDP flush registers. Mapped through /dev/kfd, unlike memory, and for the CPU only."""
    buffer = DeviceBuffer("mmio remap", 0, PAGE_BYTES, Placement.VRAM_BAR, 0, None)
    flags = kfd.KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP | kfd.KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE
    flags |= kfd.KFD_IOC_ALLOC_MEM_FLAGS_NO_SUBSTITUTE
    with gpu.ledger.all_or_nothing():
        buffer.gpu_va = _set_aside(gpu, gpu.ledger, buffer)
        offset = _make(gpu, gpu.ledger, buffer, flags)
        buffer.mapping = _cpu_map(gpu, gpu.ledger, buffer, gpu.process.fd, offset)
    return buffer


def _hold(ledger: Ledger, buffer: DeviceBuffer, kind: str, give_back: Callable[[], None]) -> None:
    buffer.held.append(ledger.hold(kind, buffer.name, give_back))


def _set_aside(gpu: KfdGpu, ledger: Ledger, buffer: DeviceBuffer) -> int:
    """An address nothing else in this process can take."""
    align = LARGE_BYTES if buffer.size_bytes >= LARGE_BYTES else PAGE_BYTES
    room = buffer.size_bytes + align - PAGE_BYTES
    try:
        aside = gpu.driver.mmap(ANONYMOUS, room, 0, PROT_NONE)
    except OSError as error:
        raise DriverError("mmap address range", error.errno or 0, f"{buffer.name}, {room} bytes") from error
    _hold(ledger, buffer, "address range", lambda: gpu.driver.munmap(aside))
    va = aside.address + -aside.address % align
    first, last = gpu.apertures.gpuvm
    if not first <= va <= va + buffer.size_bytes - 1 <= last:
        raise DriverError("mmap address range", 0, f"{va:#x} lies outside the GPU's {first:#x} to {last:#x}")
    return va


def _make(gpu: KfdGpu, ledger: Ledger, buffer: DeviceBuffer, flags: int) -> int:
    """ALLOC_MEMORY_OF_GPU; the offset to map it at."""
    request = kfd.ALLOC_MEMORY_OF_GPU.new(
        va_addr=buffer.gpu_va, size=buffer.size_bytes, gpu_id=gpu.node.gpu_id, flags=flags
    )
    if buffer.placement is Placement.USERPTR:
        request["mmap_offset"] = buffer.host.address
    made = gpu.process.ioctl(
        kfd.IOC_ALLOC_MEMORY_OF_GPU,
        request,
        f"{buffer.name}, {buffer.size_bytes} bytes of {buffer.placement.value}",
    )
    buffer.handle = made["handle"]

    def give_back() -> None:
        process = gpu.process
        if process.event_page is buffer and process.event_page_given:
            return  # refused with EPERM: it stays with the kernel until the process ends
        process.ioctl(kfd.IOC_FREE_MEMORY_OF_GPU, kfd.FREE_MEMORY_OF_GPU.new(handle=buffer.handle), buffer.name)

    _hold(ledger, buffer, "buffer", give_back)
    return made["mmap_offset"]


def _cpu_map(gpu: KfdGpu, ledger: Ledger, buffer: DeviceBuffer, fd: int, offset: int) -> Mapping:
    try:
        mapping = gpu.driver.mmap(fd, buffer.size_bytes, offset, _RW, fixed_va=buffer.gpu_va)
    except OSError as error:
        raise DriverError("mmap buffer", error.errno or 0, buffer.name) from error
    _hold(ledger, buffer, "mapping", lambda: gpu.driver.munmap(mapping))
    return mapping


def _gpu_map(gpu: KfdGpu, ledger: Ledger, buffer: DeviceBuffer) -> None:
    ids = u32_array([gpu.node.gpu_id])
    arguments = {"handle": buffer.handle, "device_ids_array_ptr": ids.address, "n_devices": 1}
    request = kfd.MAP_MEMORY_TO_GPU.new(**arguments)
    gpu.process.ioctl(kfd.IOC_MAP_MEMORY_TO_GPU, request, buffer.name)
    if request["n_success"] != 1:
        raise DriverError(kfd.IOC_MAP_MEMORY_TO_GPU.name, 0, f"{buffer.name}: mapped on no GPU")

    def give_back() -> None:
        array = u32_array([gpu.node.gpu_id])
        again = kfd.UNMAP_MEMORY_FROM_GPU.new(
            handle=buffer.handle, device_ids_array_ptr=array.address, n_devices=1
        )
        gpu.process.ioctl(kfd.IOC_UNMAP_MEMORY_FROM_GPU, again, buffer.name)

    _hold(ledger, buffer, "gpu mapping", give_back)
