"""GPU access of tier T1: /dev/kfd. One KfdProcess per process and driver, one KfdGpu for each opened GPU.

Linux ties KFD state to the process, not to the fd: the GPU address space bound by ACQUIRE_VM and the event page
persist until the process exits, so a second KfdProcess on a real device fails (EBUSY). A child needs a new one
after fork.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Self

from zinc_rt.kmd.driver import Driver
from zinc_rt.kmd.errors import DriverError
from zinc_rt.kmd.events import KfdEvents
from zinc_rt.kmd.kfd_memory import KfdMemory
from zinc_rt.kmd.kfd_queue import KfdQueues
from zinc_rt.kmd.open_kfd import OpenKfd
from zinc_rt.kmd.resources import AllocatedResource, Ledger
from zinc_rt.kmd.syscalls import open_node
from zinc_rt.kmd.topology import Topology, TopologyNode, read_topology
from zinc_rt.kmd.transport import DeviceBuffer, Placement, Queue, allocate_or_fall_back
from zinc_rt.kmd.uapi import kfd
from zinc_rt.kmd.uapi.host_memory import store_u32


@dataclass(frozen=True, slots=True)
class KfdClocks:
    gpu: int  # 100 MHz ticks
    cpu: int  # ns
    system: int  # ticks of `system_hz`
    system_hz: int


class KfdProcess:
    """The open /dev/kfd, its topology and its events. A context manager; closing it also closes its GPUs."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.ledger = Ledger("KFD")
        self.topology: Topology = read_topology(driver)
        self.gpus: dict[int, KfdGpu] = {}
        with self.ledger.release_on_failure():
            self.file = OpenKfd(driver, self.ledger)
        self.events = KfdEvents(self.file)

    def open_gpu(self, node: TopologyNode) -> KfdGpu:
        """Open the GPU of this topology node, once per process."""
        if node.gpu_id in self.gpus:
            raise ValueError(f"GPU {node.gpu_id:#x} is already open")
        with self.ledger.release_on_failure():
            gpu = KfdGpu(self.file, self.events, node)

            def give_back() -> None:
                gpu.ledger.close()
                self.gpus.pop(node.gpu_id, None)

            gpu.held = self.ledger.hold("gpu", node.arch, give_back)
        self.gpus[node.gpu_id] = gpu
        return gpu

    def resources(self) -> dict[str, int]:
        """Return the resources held now, by kind, including GPUs; empty after `close`."""
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

    def __exit__(self, *error: object) -> None:
        self.close()


class KfdGpu:
    """One GPU's memory and queues (kmd.transport.Transport). Created and closed by its KfdProcess."""

    kind = "kfd"

    def __init__(self, file: OpenKfd, events: KfdEvents, node: TopologyNode) -> None:
        self.file = file
        self.events = events  # of the process: all its GPUs share them
        self.driver = file.driver
        self.node = node
        self.generation = node.generation
        self.fallbacks: list[str] = []
        self.ledger = Ledger(f"GPU {node.gpu_id:#x} ({node.arch})")
        self.held: AllocatedResource | None = None
        self._about = f"gpu {node.gpu_id:#x}"
        self._hdp: DeviceBuffer | None = None
        with self.ledger.release_on_failure():
            self.render_fd = open_node(self.driver, self.ledger, node.render_path)
            request = kfd.ACQUIRE_VM.new(drm_fd=self.render_fd, gpu_id=node.gpu_id)
            file.ioctl(kfd.IOC_ACQUIRE_VM, request, f"{self._about}, {node.render_path}")
            windows = file.query_apertures()
            if node.gpu_id not in windows:
                raise DriverError(kfd.IOC_GET_PROCESS_APERTURES_NEW.name, errno.ENODEV, self._about)
            self.apertures = windows[node.gpu_id]
            self.memory = KfdMemory(file, node.gpu_id, self.render_fd, self.apertures.gpuvm, self.ledger)
            if events.page is None:
                events.take_page(self.memory)
        self.queues = KfdQueues(self.memory, node, self._about, self.fallbacks)

    def alloc(
        self,
        size_bytes: int,
        placement: Placement,
        name: str,
        *,
        fallback: Placement | None = None,
        writable: bool = True,
    ) -> DeviceBuffer:
        """Allocate a buffer, zeroed if it is in host memory. `writable`: by the GPU.

        With `fallback`, an error (EINVAL: small BAR; ENOMEM) selects that placement and adds a line to
        `fallbacks`.
        """
        return allocate_or_fall_back(
            lambda where: self.memory.allocate(size_bytes, where, name, writable=writable),
            name,
            placement,
            fallback,
            refused_by=(kfd.IOC_ALLOC_MEMORY_OF_GPU.name,),
            fallbacks=self.fallbacks,
        )

    def create_queue(self, *, ring_bytes: int, priority: int = 7, aql: bool = False) -> Queue:
        """Create a queue with its ring in host memory. `priority` is 0 to 15, 7 is normal.

        `aql`: for AQL packets, with amd_queue_t in the page of `rptr`.
        """
        return self.queues.create(ring_bytes=ring_bytes, priority=priority, aql=aql)

    def flush_hdp(self) -> None:
        """Flush CPU writes through the BAR to VRAM by writing any value to the register."""
        if self._hdp is None:
            self._hdp = self.memory.map_mmio_page()
        store_u32(self._hdp.host.address + kfd.KFD_MMIO_REMAP_HDP_MEM_FLUSH_CNTL, 1)

    def read_clocks(self) -> KfdClocks:
        request = kfd.GET_CLOCK_COUNTERS.new(gpu_id=self.node.gpu_id)
        read = self.file.ioctl(kfd.IOC_GET_CLOCK_COUNTERS, request, self._about)
        return KfdClocks(
            read["gpu_clock_counter"],
            read["cpu_clock_counter"],
            read["system_clock_counter"],
            read["system_clock_freq"],
        )

    def query_available_memory(self) -> int:
        """Return the bytes of VRAM that this process can still allocate."""
        request = kfd.GET_AVAILABLE_MEMORY.new(gpu_id=self.node.gpu_id)
        return self.file.ioctl(kfd.IOC_AVAILABLE_MEMORY, request, self._about)["available"]

    def resources(self) -> dict[str, int]:
        return self.ledger.counts()

    def close(self) -> None:
        """Release queues, buffers, doorbells and the render node, latest first.

        On a real device the GPU cannot be opened again in this process.
        """
        if self.held is not None:
            self.held.release()
