"""KFD memory: reserve an address, allocate a buffer, map it for the CPU and for the GPU; released in reverse
order."""

from __future__ import annotations

from collections.abc import Callable

from zinc_rt.kmd.driver import ANONYMOUS, PROT_NONE, PROT_READ, PROT_WRITE, Mapping
from zinc_rt.kmd.errors import DriverError
from zinc_rt.kmd.open_kfd import OpenKfd
from zinc_rt.kmd.resources import Ledger
from zinc_rt.kmd.syscalls import PAGE_BYTES, map_memory
from zinc_rt.kmd.transport import HOST_VISIBLE, DeviceBuffer, Placement, choose_alignment
from zinc_rt.kmd.uapi import kfd
from zinc_rt.kmd.uapi.host_memory import make_u32_array

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
USABLE = kfd.KFD_IOC_ALLOC_MEM_FLAGS_NO_SUBSTITUTE | kfd.KFD_IOC_ALLOC_MEM_FLAGS_EXECUTABLE


class KfdMemory:
    """The memory of one GPU. `window` holds the first and the last address available for buffers."""

    def __init__(
        self, file: OpenKfd, gpu_id: int, render_fd: int, window: tuple[int, int], ledger: Ledger
    ) -> None:
        self.file = file
        self.gpu_id = gpu_id
        self.render_fd = render_fd
        self.window = window
        self.ledger = ledger

    def allocate(
        self,
        size_bytes: int,
        placement: Placement,
        name: str,
        *,
        writable: bool = True,
        ledger: Ledger | None = None,
        kept_by_kfd: Callable[[], bool] = lambda: False,
    ) -> DeviceBuffer:
        """Allocate a buffer, tracked in `ledger`: the GPU's by default, another if the buffer must outlive the
        GPU.

        `kept_by_kfd` returns, at release, whether KFD refuses to free it, as for the event page.
        """
        ledger = ledger or self.ledger
        buffer = DeviceBuffer.empty(name, size_bytes, placement)
        with ledger.release_on_failure():
            self._reserve_range(buffer, ledger)
            if placement is Placement.USERPTR:
                self._map_for_cpu(buffer, ledger, ANONYMOUS, 0)
            flags = FLAGS[placement] | USABLE | (kfd.KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE if writable else 0)
            offset = self._allocate(buffer, ledger, flags, kept_by_kfd)
            if placement in HOST_VISIBLE and placement is not Placement.USERPTR:
                self._map_for_cpu(buffer, ledger, self.render_fd, offset)
            self._map_for_gpu(buffer, ledger)
        return buffer

    def map_mmio_page(self) -> DeviceBuffer:
        """Map the page with the HDP flush registers. Unlike memory, it is mapped through /dev/kfd and for the CPU
        only."""
        buffer = DeviceBuffer.empty("mmio remap", PAGE_BYTES, Placement.VRAM_BAR)
        flags = kfd.KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP | kfd.KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE
        flags |= kfd.KFD_IOC_ALLOC_MEM_FLAGS_NO_SUBSTITUTE
        with self.ledger.release_on_failure():
            self._reserve_range(buffer, self.ledger)
            offset = self._allocate(buffer, self.ledger, flags, lambda: False)
            self._map_for_cpu(buffer, self.ledger, self.file.fd, offset)
        return buffer

    def _reserve_range(self, buffer: DeviceBuffer, ledger: Ledger) -> None:
        """Reserve an address range for the buffer in this process."""
        align = choose_alignment(buffer.size_bytes)
        room = buffer.size_bytes + align - PAGE_BYTES
        driver = self.file.driver
        about = f"{buffer.name}, {room} bytes"
        aside = map_memory(driver, "address range", about, ANONYMOUS, room, 0, PROT_NONE)
        buffer.hold(ledger, "address range", lambda: driver.munmap(aside))
        va = aside.address + -aside.address % align
        first, last = self.window
        if not first <= va <= va + buffer.size_bytes - 1 <= last:
            raise DriverError("mmap address range", 0, f"{va:#x} lies outside the GPU's {first:#x} to {last:#x}")
        buffer.gpu_va = va

    def _allocate(self, buffer: DeviceBuffer, ledger: Ledger, flags: int, kept_by_kfd: Callable[[], bool]) -> int:
        """Allocate with ALLOC_MEMORY_OF_GPU. Return the mmap offset of the buffer."""
        request = kfd.ALLOC_MEMORY_OF_GPU.new(
            va_addr=buffer.gpu_va, size=buffer.size_bytes, gpu_id=self.gpu_id, flags=flags
        )
        if buffer.placement is Placement.USERPTR:
            request["mmap_offset"] = buffer.host.address
        about = f"{buffer.name}, {buffer.size_bytes} bytes of {buffer.placement.value}"
        ioctl = self.file.ioctl(kfd.IOC_ALLOC_MEMORY_OF_GPU, request, about)
        buffer.handle = ioctl["handle"]

        def give_back() -> None:
            if not kept_by_kfd():
                free = kfd.FREE_MEMORY_OF_GPU.new(handle=buffer.handle)
                self.file.ioctl(kfd.IOC_FREE_MEMORY_OF_GPU, free, buffer.name)

        buffer.hold(ledger, "buffer", give_back)
        return ioctl["mmap_offset"]

    def _map_for_cpu(self, buffer: DeviceBuffer, ledger: Ledger, fd: int, offset: int) -> None:
        driver, access = self.file.driver, PROT_READ | PROT_WRITE
        mapping: Mapping = map_memory(
            driver, "buffer", buffer.name, fd, buffer.size_bytes, offset, access, fixed_va=buffer.gpu_va
        )
        buffer.hold(ledger, "mapping", lambda: driver.munmap(mapping))
        buffer.mapping = mapping

    def _map_for_gpu(self, buffer: DeviceBuffer, ledger: Ledger) -> None:
        ids = make_u32_array([self.gpu_id])
        arguments = {"handle": buffer.handle, "device_ids_array_ptr": ids.address, "n_devices": 1}
        request = kfd.MAP_MEMORY_TO_GPU.new(**arguments)
        self.file.ioctl(kfd.IOC_MAP_MEMORY_TO_GPU, request, buffer.name)
        if request["n_success"] != 1:
            raise DriverError(kfd.IOC_MAP_MEMORY_TO_GPU.name, 0, f"{buffer.name}: mapped on no GPU")

        def give_back() -> None:
            array = make_u32_array([self.gpu_id])
            second = kfd.UNMAP_MEMORY_FROM_GPU.new(
                handle=buffer.handle, device_ids_array_ptr=array.address, n_devices=1
            )
            self.file.ioctl(kfd.IOC_UNMAP_MEMORY_FROM_GPU, second, buffer.name)

        buffer.hold(ledger, "gpu mapping", give_back)
