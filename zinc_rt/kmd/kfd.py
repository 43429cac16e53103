"""Tier T1's way to the GPU: /dev/kfd. One KfdProcess per process and driver, one KfdGpu for each GPU it opens.

The kernel ties KFD state to the process, not to the fd: the GPU address space bound by ACQUIRE_VM and the event
page stay until the process ends, so a second KfdProcess on a real kernel is refused (EBUSY). A child after fork
needs its own.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from zinc_rt.errors import UnsupportedError
from zinc_rt.kmd import kfd_memory
from zinc_rt.kmd.driver import PROT_READ, PROT_WRITE, Driver, Mapping
from zinc_rt.kmd.errors import DriverError
from zinc_rt.kmd.events import PAGE_SIZE_BYTES, KfdEvents
from zinc_rt.kmd.kfd_queue import create_queue
from zinc_rt.kmd.resources import Held, Ledger
from zinc_rt.kmd.syscalls import KFD_PATH, open_node, send_ioctl
from zinc_rt.kmd.topology import Topology, TopologyNode, read_topology
from zinc_rt.kmd.transport import DeviceBuffer, Placement, Queue
from zinc_rt.kmd.uapi import kfd
from zinc_rt.kmd.uapi.host_memory import HostArray, store_u32, u32_array
from zinc_rt.kmd.uapi.structs import Ioctl, StructBytes

NEEDED = (1, 14)  # event ages and RUNTIME_ENABLE
DOORBELL_BYTES = 8192  # one process's slice: 1024 doorbells of 8 bytes, amdkfd/kfd_doorbell.c, gfx9 and later


@dataclass(frozen=True, slots=True)
class Apertures:
    """First and last address of each window. LDS and scratch matter only to flat addressing."""

    lds: tuple[int, int]
    scratch: tuple[int, int]
    gpuvm: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Clocks:
    gpu: int  # 100 MHz ticks
    cpu: int  # ns
    system: int  # ticks of `system_hz`
    system_hz: int


class KfdProcess:
    """The open /dev/kfd, its topology and its events. A context manager; closing gives back its GPUs too."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.ledger = Ledger("KFD")
        self.topology: Topology = read_topology(driver)
        self.gpus: dict[int, KfdGpu] = {}
        self.event_page: DeviceBuffer | None = None
        self.event_page_given = False  # to the kernel, which takes one page once and never lets go of it
        with self.ledger.all_or_nothing():
            self.fd = open_node(driver, self.ledger, KFD_PATH)
            version = self.ioctl(kfd.IOC_GET_VERSION, kfd.GET_VERSION.new())
            self.version = version["major_version"], version["minor_version"]
            check_interface(self.version)
        self.events = KfdEvents(self)

    def open_gpu(self, node: TopologyNode) -> KfdGpu:
        """The GPU of this topology node, once per process."""
        if node.gpu_id in self.gpus:
            raise ValueError(f"GPU {node.gpu_id:#x} is open already")
        with self.ledger.all_or_nothing():
            gpu = KfdGpu(self, node)
            gpu.held = self.ledger.hold("gpu", node.arch, gpu.give_back)
        self.gpus[node.gpu_id] = gpu
        return gpu

    def apertures(self) -> dict[int, Apertures]:
        """By gpu_id."""
        request = kfd.GET_PROCESS_APERTURES_NEW.new()
        count = self.ioctl(kfd.IOC_GET_PROCESS_APERTURES_NEW, request)["num_of_nodes"]
        array = HostArray(bytes(count * kfd.PROCESS_DEVICE_APERTURES.size_bytes))
        request = kfd.GET_PROCESS_APERTURES_NEW.new(
            kfd_process_device_apertures_ptr=array.address, num_of_nodes=count
        )
        filled = min(count, self.ioctl(kfd.IOC_GET_PROCESS_APERTURES_NEW, request)["num_of_nodes"])
        windows = (array.record(kfd.PROCESS_DEVICE_APERTURES, index) for index in range(filled))
        return {
            each["gpu_id"]: Apertures(
                (each["lds_base"], each["lds_limit"]),
                (each["scratch_base"], each["scratch_limit"]),
                (each["gpuvm_base"], each["gpuvm_limit"]),
            )
            for each in windows
        }

    def ioctl(self, command: Ioctl, record: StructBytes, about: str = "") -> StructBytes:
        return send_ioctl(self.driver, self.fd, command, record, about)

    def resources(self) -> dict[str, int]:
        """What is held now, by kind, GPUs included; empty after `close`."""
        counts = self.ledger.counts()
        for gpu in self.gpus.values():
            for kind, count in gpu.ledger.counts().items():
                counts[kind] = counts.get(kind, 0) + count
        return counts

    def close(self) -> None:
        self.ledger.close()
        self.gpus.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class KfdGpu:
    """One GPU's memory and queues (kmd.transport.Transport). Made by KfdProcess.open_gpu, closed with it."""

    kind = "kfd"

    def __init__(self, process: KfdProcess, node: TopologyNode) -> None:
        self.process = process
        self.driver = process.driver
        self.node = node
        self.generation = node.generation
        self.fallbacks: list[str] = []
        self.incidents: list[str] = []  # what the kernel complained of while giving back
        self.ledger = Ledger(f"GPU {node.gpu_id:#x} ({node.arch})")
        self.held: Held | None = None
        self.about = f"gpu {node.gpu_id:#x}"
        self._doorbells: Mapping | None = None
        self._hdp: DeviceBuffer | None = None
        with self.ledger.all_or_nothing():
            self.render_fd = open_node(self.driver, self.ledger, node.render_path)
            request = kfd.ACQUIRE_VM.new(drm_fd=self.render_fd, gpu_id=node.gpu_id)
            process.ioctl(kfd.IOC_ACQUIRE_VM, request, f"{self.about}, {node.render_path}")
            windows = process.apertures()
            if node.gpu_id not in windows:
                raise DriverError(kfd.IOC_GET_PROCESS_APERTURES_NEW.name, errno.ENODEV, self.about)
            self.apertures = windows[node.gpu_id]
            if process.event_page is None:
                process.event_page = self._event_page()

    def alloc(
        self,
        size_bytes: int,
        placement: Placement,
        name: str,
        *,
        fallback: Placement | None = None,
        writable: bool = True,
        executable: bool = True,
        contiguous: bool = False,
    ) -> DeviceBuffer:
        """Zeroed where it lies in host memory. `writable`, `executable`: for the GPU.

        With `fallback` a refusal (EINVAL: small BAR; ENOMEM) takes that placement and adds a line to `fallbacks`.
        """
        options = kfd_memory.KfdAllocOptions(writable, executable, contiguous)
        try:
            return kfd_memory.allocate(self, size_bytes, placement, name, options)
        except DriverError as error:
            refused = error.call == kfd.IOC_ALLOC_MEMORY_OF_GPU.name and error.errno in (
                errno.EINVAL,
                errno.ENOMEM,
            )
            if fallback is None or not refused:
                raise
            self.fallbacks.append(f"{name}: {placement.value} refused ({error.why}), {fallback.value} instead")
            return kfd_memory.allocate(self, size_bytes, fallback, name, options)

    def create_queue(
        self, *, ring_bytes: int, priority: int = 7, placement: Placement = Placement.GTT, percentage: int = 100
    ) -> Queue:
        """`priority` 0 to 15, 7 is normal. The ring is host memory, or VRAM_BAR."""
        return create_queue(
            self, ring_bytes=ring_bytes, priority=priority, placement=placement, percentage=percentage
        )

    def doorbells(self) -> Mapping:
        """This process's doorbells on this GPU, for all its queues. Call after the first CREATE_QUEUE said
        where."""
        if self._doorbells is None:
            raise ValueError("no queue was created yet")
        return self._doorbells

    def map_doorbells(self, offset: int) -> Mapping:
        if self._doorbells is None:
            fd = self.process.fd
            try:
                doorbells = self.driver.mmap(fd, DOORBELL_BYTES, offset, PROT_READ | PROT_WRITE)
            except OSError as error:
                raise DriverError("mmap doorbell", error.errno or 0, self.about) from error
            self.ledger.hold("mapping", "doorbells", lambda: self.driver.munmap(doorbells))
            self._doorbells = doorbells
        return self._doorbells

    def flush_hdp(self) -> None:
        """What the CPU wrote through the BAR reaches VRAM. Any value into the register does it."""
        if self._hdp is None:
            self._hdp = kfd_memory.mmio_page(self)
        store_u32(self._hdp.host.address + kfd.KFD_MMIO_REMAP_HDP_MEM_FLUSH_CNTL, 1)

    def set_cu_mask(self, queue: Queue, words: tuple[int, ...]) -> None:
        """32 CUs a word. gfx10 and later switch CUs in pairs: bits 2n and 2n+1 alike."""
        mask = u32_array(words)
        request = kfd.SET_CU_MASK.new(
            queue_id=queue.queue_id, num_cu_mask=32 * len(words), cu_mask_ptr=mask.address
        )
        self.process.ioctl(kfd.IOC_SET_CU_MASK, request, f"queue {queue.queue_id}")

    def update_queue(self, queue: Queue, *, priority: int = 7, percentage: int = 100) -> None:
        """`percentage` 0 takes the queue off the hardware until it is raised again."""
        request = kfd.UPDATE_QUEUE.new(
            ring_base_address=queue.ring.gpu_va,
            queue_id=queue.queue_id,
            ring_size=queue.ring.size_bytes,
            queue_percentage=percentage,
            queue_priority=priority,
        )
        self.process.ioctl(kfd.IOC_UPDATE_QUEUE, request, f"queue {queue.queue_id}")

    def clocks(self) -> Clocks:
        read = self.process.ioctl(
            kfd.IOC_GET_CLOCK_COUNTERS, kfd.GET_CLOCK_COUNTERS.new(gpu_id=self.node.gpu_id), self.about
        )
        return Clocks(
            read["gpu_clock_counter"],
            read["cpu_clock_counter"],
            read["system_clock_counter"],
            read["system_clock_freq"],
        )

    def available_memory(self) -> int:
        """Bytes of VRAM this process may still take."""
        request = kfd.GET_AVAILABLE_MEMORY.new(gpu_id=self.node.gpu_id)
        return self.process.ioctl(kfd.IOC_AVAILABLE_MEMORY, request, self.about)["available"]

    def resources(self) -> dict[str, int]:
        return self.ledger.counts()

    def close(self) -> None:
        """Queues, buffers, doorbells and the render node, latest first. On a real kernel the GPU cannot be opened
        again in this process."""
        if self.held is not None:
            self.held.release()

    def give_back(self) -> None:
        self.ledger.close()
        if self.process.gpus.get(self.node.gpu_id) is self:
            del self.process.gpus[self.node.gpu_id]

    def _event_page(self) -> DeviceBuffer:
        options = kfd_memory.KfdAllocOptions()
        page = kfd_memory.allocate(
            self, PAGE_SIZE_BYTES, Placement.GTT, "event page", options, ledger=self.process.ledger
        )
        page.host.view[:] = b"\xff" * page.size_bytes
        return page


def check_interface(version: tuple[int, int]) -> None:
    """Raises UnsupportedError for a KFD too old, or of a major version nobody has seen."""
    if version[0] != NEEDED[0] or version < NEEDED:
        raise UnsupportedError(
            f"KFD interface {_dotted(version)}: wanted {_dotted(NEEDED)} or later of {NEEDED[0]}.x",
            next="use Linux 6.6 or newer",
        )


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
