"""Tiers T1 and T2: a lowered graph as an indirect buffer in GPU memory, replayed by a few dwords in a ring.

Both tiers share this code; the differences between KFD and user queues are in `KmdSide`. This module has the
memory functions, executable_builder.py builds programs, stream_queues.py submits them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

import numpy as np

from zinc_rt.backends.amd.device_memory import PLACEMENTS, DeviceMemory, Storage, pack_buffers
from zinc_rt.backends.amd.executable_builder import ExecutableBuilder
from zinc_rt.backends.amd.fence import TimelineFence
from zinc_rt.backends.amd.hang_reporter import HangReporter
from zinc_rt.backends.amd.instrument import AmdInstrument, StoppedWaves
from zinc_rt.backends.amd.kmd_side import KmdSide
from zinc_rt.backends.amd.loaded_kernels import LoadedKernels
from zinc_rt.backends.amd.options import AmdOptions
from zinc_rt.backends.amd.packet_list import AmdExecutable, PacketList
from zinc_rt.backends.amd.page_fault import FaultFinder
from zinc_rt.backends.amd.ring import AmdRing, ReadyDwords
from zinc_rt.backends.amd.stream_queues import StreamQueues
from zinc_rt.backends.amd.transfer import Transfer, copy_packets, zero_packets
from zinc_rt.backends.base import Device, Submissions
from zinc_rt.backends.closing import ClosedAtExit
from zinc_rt.backends.spec import BackendSpec
from zinc_rt.exec import Buffer, Fence, Stream
from zinc_rt.ir.graph import Node
from zinc_rt.kernels.sets import make_empty_set
from zinc_rt.kernels.weight import Weight
from zinc_rt.kmd.driver import SideChannel
from zinc_rt.kmd.topology import format_arch_name
from zinc_rt.kmd.transport import DeviceBuffer, Placement
from zinc_rt.lower import LoweredGraph, PlannedGraph
from zinc_rt.mem.heaps import BufferHeap
from zinc_rt.pm4.generation import generation_of


class AmdBackend(ClosedAtExit):
    """A Backend on one transport. Owns every queue and buffer; a context manager.

    It runs graphs that its options' kernels support, and PacketLists. One host thread drives a backend.
    """

    builds_planned = True

    def __init__(
        self,
        side: KmdSide,
        spec: BackendSpec,
        device: Device,
        options: AmdOptions = AmdOptions(),  # noqa: B008 - frozen
        *,
        channel: SideChannel | None = None,
    ) -> None:
        """Take ownership of `side`. `owner` closes the underlying driver last. `channel` belongs to a simulated
        device."""
        debug = device.simulated if options.debug is None else options.debug
        self.side = side
        self.spec = spec
        self.device = device
        self.ordering = options.ordering
        self.generation = generation_of(format_arch_name(side.transport.generation))
        self.memory = DeviceMemory(side.transport, channel.announce_all if channel is not None else None)
        self.kernels = options.kernels if options.kernels is not None else make_empty_set(device.arch)
        self.owner: Callable[[], None] = lambda: None
        self.instrument: AmdInstrument | None = None
        if channel is not None:
            self.instrument = AmdInstrument(channel, self.kernels.load, self._find_node, self.memory.name_parts)
        self._builder = ExecutableBuilder(
            self.memory,
            LoadedKernels(self.kernels.load, self.memory, self._write_content) if self.kernels.entries else None,
            self._write_content,
            self.instrument.precompile if self.instrument is not None else lambda kernels: None,
            self.generation,
            spec.tier,
            device,
            debug,
        )
        finder = None
        if self.instrument is not None:
            finder = FaultFinder(
                self.instrument, self.memory.addresses, self._builder.at, self._queue_ids, self.generation
            )
        self.reporter = HangReporter(
            side,
            self.memory.addresses,
            spec.tier,
            device,
            folder=options.hang_folder,
            log=options.log,
            find_fault=finder,
            find_waves=self.instrument.describe_unfinished_waves if self.instrument is not None else None,
        )
        self._queues = StreamQueues(
            side,
            self.memory,
            self.generation,
            spec.tier,
            options,
            debug=debug,
            make_hang=self.reporter.hang,
            watch=StoppedWaves(self.instrument, side.incidents) if self.instrument is not None else lambda: None,
        )
        self._transfer: Transfer | None = None
        self._closed = False

    @property
    def submissions(self) -> Submissions:
        return self._queues.submissions

    # Memory

    def alloc(self, size_bytes: int, heap: str, name: str, *, zeroed: bool = True) -> Buffer:
        """Allocate memory. VRAM is zeroed by the GPU."""
        buffer = self._alloc(size_bytes, heap, name)
        device = buffer.storage.device
        if not zeroed:
            return buffer
        if device.placement is Placement.VRAM:
            self._open_transfer().fill(device.gpu_va, device.size_bytes)
        elif device.placement is Placement.VRAM_BAR:
            device.host.view[:] = bytes(device.size_bytes)
            self._queues.note_bar_write()
        return buffer

    def free(self, buffer: Buffer) -> None:
        """Free a buffer. The caller must first wait for every replay that uses it."""
        buffer.check_owned()
        self.memory.free(buffer)

    def read(self, buffer: Buffer, offset_bytes: int, size_bytes: int) -> memoryview:
        """Read memory. Raise ValueError for memory that the CPU cannot map (heap device_local)."""
        storage: Storage = buffer.storage
        return storage.view()[offset_bytes : offset_bytes + size_bytes].toreadonly()

    def write(self, buffer: Buffer, offset_bytes: int, data: memoryview) -> None:
        storage: Storage = buffer.storage
        if storage.device.mapping is not None:
            storage.view()[offset_bytes : offset_bytes + data.nbytes] = data
            if storage.device.placement is Placement.VRAM_BAR:
                self._queues.note_bar_write()
            return
        self._open_transfer().write(storage.gpu_va + offset_bytes, np.frombuffer(data, np.uint8))
        self._open_transfer().finish()

    def fill(self, buffer: Buffer, offset_bytes: int, size_bytes: int, stream: Stream) -> TimelineFence:
        """Zero memory with the command processor, without a kernel."""
        storage: Storage = buffer.storage
        return self._queues.copy_by_dma(
            f"fill {buffer.name}", zero_packets(storage.gpu_va + offset_bytes, size_bytes), stream
        )

    def upload(
        self,
        weights: Mapping[str, Weight],
        constants: Mapping[str, np.ndarray],
        *,
        host: Container[str] = (),
    ) -> dict[str, Buffer]:
        """Upload weights in each kernel's type, in as few allocations as POOL_BYTES allows. `host`: names of
        weights placed in host memory, which the GPU reads over PCIe."""
        arrays: dict[str, Weight | np.ndarray] = {**weights, **constants}
        sizes = {name: self._compute_packed_bytes(array) for name, array in arrays.items()}
        buffers: dict[str, Buffer] = {}
        for placement, heap, what in (
            (Placement.VRAM, BufferHeap.DEVICE_LOCAL, "weights"),
            (Placement.GTT_CACHED, BufferHeap.HOST_VISIBLE, "weights on the host"),
        ):
            on_host = heap is BufferHeap.HOST_VISIBLE
            pools = pack_buffers({name: size for name, size in sizes.items() if (name in host) == on_host})
            for number, pool in enumerate(pools):
                last, offset = pool[-1]
                block = self.memory.block(offset + max(1, sizes[last]), placement, f"{what} {number}")
                self._queues.note_allocation()
                for name, offset in pool:
                    buffers[name] = self.memory.buffer(block, offset, sizes[name], heap, name)
        try:
            for name, buffer in buffers.items():
                content = self._pack(arrays[name])  # one at a time: a model may be most of the host's memory
                if name in host:  # no GPU has a line of it in a cache: each replay begins by dropping them
                    buffer.storage.view()[:] = np.ascontiguousarray(content).reshape(-1).view(np.uint8).data
                else:
                    self._open_transfer().write(buffer.storage.gpu_va, content)
            self._open_transfer().finish()
        except BaseException:
            self._open_transfer().finish()  # what is on its way must not land in somebody else's memory
            for buffer in buffers.values():
                self.memory.free(buffer)
            raise
        return buffers

    def _pack(self, array: Weight | np.ndarray) -> np.ndarray:
        if isinstance(array, np.ndarray):
            return array
        return self.kernels.pack(array)

    def _compute_packed_bytes(self, array: Weight | np.ndarray) -> int:
        return array.nbytes if isinstance(array, np.ndarray) else self.kernels.packed_bytes(array)

    # Executables

    def build(
        self, lowered: LoweredGraph | PlannedGraph | PacketList, buffers: Mapping[str, Buffer]
    ) -> AmdExecutable:
        """Build an indirect buffer in GPU memory."""
        self._queues.note_bar_write()
        return self._builder.build(lowered, buffers)

    def unload(self, executable: AmdExecutable) -> None:
        """Free an indirect buffer. The caller must first wait for its replays."""
        self._queues.forget(executable)
        self._builder.free(executable)

    def _write_content(self, gpu_va: int, content: np.ndarray) -> None:
        self._open_transfer().write(gpu_va, content)
        self._open_transfer().finish()

    def _queue_ids(self) -> set[int]:
        return self._queues.ids

    def _find_node(self, queue_id: int, packet_va: int) -> tuple[Node, AmdExecutable] | None:
        """Return the node whose dispatch packet is at that address, and its executable. Only built executables are
        searched; queues of other backends have other ids."""
        if queue_id not in self._queues.ids:
            return None
        executable, offset_dw = self._builder.at(packet_va)
        node = dict(executable.dispatched).get(offset_dw) if executable is not None else None
        return (node, executable) if node is not None and executable is not None else None

    # Submission

    def submit(self, executable: AmdExecutable, stream: Stream) -> TimelineFence:
        """Submit INDIRECT_BUFFER, fence, doorbell. Raise Hang if the ring stays full."""
        return self._queues.submit(executable, stream)

    def copy(
        self,
        source: Buffer,
        source_offset_bytes: int,
        target: Buffer,
        target_offset_bytes: int,
        size_bytes: int,
        stream: Stream,
    ) -> TimelineFence:
        packets = copy_packets(
            source.storage.gpu_va + source_offset_bytes, target.storage.gpu_va + target_offset_bytes, size_bytes
        )
        return self._queues.copy_by_dma(f"copy {source.name} to {target.name}", packets, stream)

    def wait(self, fence: Fence, timeout_seconds: float) -> None:
        fence.wait(timeout_seconds)

    def ring(self, stream: Stream) -> AmdRing:
        """Return the stream's ring, for custom packets. It is created on first use."""
        return self._queues.ring(stream)

    # What a submission is made of, for a program of its own (replay/capture.py)

    def prepare_submission(self, executable: AmdExecutable, stream: Stream) -> tuple[AmdRing, ReadyDwords]:
        """Return the dwords and the ring of the next `submit`, without submitting."""
        return self._queues.prepare_submission(executable, stream)

    def content(self, buffer: DeviceBuffer) -> bytes:
        """Return the content of an allocation as the next submission sees it. The device must be idle."""
        if buffer.mapping is not None:
            return bytes(buffer.mapping.view)
        return self._open_transfer().read(buffer.gpu_va, buffer.size_bytes)

    def read_back(self, buffer: Buffer, offset_bytes: int, size_bytes: int) -> bytes:
        """Read any memory through a copy on the device. The device must be idle."""
        return self._open_transfer().read(buffer.storage.gpu_va + offset_bytes, size_bytes)

    def spoilt(self, buffer: Buffer, array: Weight | np.ndarray) -> int:
        """Return the first byte of a weight or constant that differs from its upload; -1 if all match. The device
        must be idle."""
        want = np.ascontiguousarray(self._pack(array)).reshape(-1).view(np.uint8)
        got = np.frombuffer(self._open_transfer().read(buffer.storage.gpu_va, want.nbytes), np.uint8)
        wrong = np.flatnonzero(got != want)
        return int(wrong[0]) if wrong.size else -1

    # Inside

    def _alloc(self, size_bytes: int, heap: str, name: str) -> Buffer:
        if heap not in PLACEMENTS:
            raise ValueError(f"{name}: unknown heap {heap!r}")
        placement, fallback = PLACEMENTS[heap]
        block = self.memory.block(size_bytes, placement, name, fallback)
        self._queues.note_allocation()
        return self.memory.buffer(block, 0, size_bytes, heap, name)

    def _open_transfer(self) -> Transfer:
        if self._transfer is None:
            staging = self.memory.block(Transfer.STAGING_BYTES, Placement.GTT, "staging").device
            self._transfer = Transfer(self.ring(Stream("copies")), staging, self._queues.timeout_seconds)
        self._queues.settle()
        return self._transfer

    # End

    def close(self, *, drain_seconds: float | None = None) -> None:
        """Wait for running work (`drain_seconds`, by default the backend's timeout), then release queues,
        buffers and events, even after failures. The first failure is raised, the others are attached as
        notes. May be called twice."""
        if self._closed:
            return
        self._closed = True
        drain_seconds = self._queues.timeout_seconds if drain_seconds is None else drain_seconds
        failures = self._queues.close(drain_seconds)
        failures += self.memory.close()
        for close in (self.side.close, self.reporter.close, self.owner):
            try:
                close()
            except BaseException as error:
                failures.append(error)
        if failures:
            first, *others = failures
            for other in others:
                first.add_note(f"and then: {other}")
            raise first
