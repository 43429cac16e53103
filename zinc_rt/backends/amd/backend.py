"""T1 and T2: a lowered graph as an indirect buffer in GPU memory, replayed by a few dwords in a ring.

Both tiers run this code; what differs between KFD and user queues is `KmdSide`. Every stream has a queue of its
own, so streams run independently, and one waits for another's fence on the GPU.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from zinc_rt.backends.amd.device_memory import PLACEMENTS, DeviceMemory, Storage, packed
from zinc_rt.backends.amd.executable_builder import ExecutableBuilder
from zinc_rt.backends.amd.fence import SLOT_BYTES, TimelineFence
from zinc_rt.backends.amd.hang_reporter import HangReporter
from zinc_rt.backends.amd.instrument import AmdInstrument, QueueFinding
from zinc_rt.backends.amd.kmd_log import KmdLog
from zinc_rt.backends.amd.kmd_side import Incident, KmdSide
from zinc_rt.backends.amd.loaded_kernels import LoadedKernels
from zinc_rt.backends.amd.packet_list import AmdExecutable, PacketList
from zinc_rt.backends.amd.page_fault import SimulatedFault, simulated_fault
from zinc_rt.backends.amd.publish import Publish, publisher
from zinc_rt.backends.amd.ring import AmdRing, ReadyDwords
from zinc_rt.backends.amd.transfer import Transfer, copies, zeros
from zinc_rt.backends.base import Device, Submissions
from zinc_rt.backends.spec import BackendSpec
from zinc_rt.exec import Buffer, Fence, JoinedFence, Stream
from zinc_rt.ir.graph import Node
from zinc_rt.kernels.sets import BinaryKernelSet, no_kernels
from zinc_rt.kernels.weight import Weight
from zinc_rt.kernels.zrt import patched
from zinc_rt.kmd.driver import SideChannel
from zinc_rt.kmd.syscalls import PAGE_BYTES
from zinc_rt.kmd.topology import arch_name
from zinc_rt.kmd.transport import DeviceBuffer, Placement
from zinc_rt.lower import LoweredGraph, dispatch_plan
from zinc_rt.mem.heaps import BufferHeap
from zinc_rt.pm4.decode import decode_stream
from zinc_rt.pm4.generation import generation_of
from zinc_rt.pm4.packet import Packet
from zinc_rt.pm4.packets import DispatchDirect, DispatchIndirect, EventWrite, IndirectBuffer, WaitRegMem64

RING_BYTES = 64 << 10  # 16384 dwords: some 1,300 replays in flight
SLOTS_BYTES = 4096
DISPATCHES = (DispatchDirect, DispatchIndirect)
WATCH_SECONDS = 0.25  # between two looks at what a simulated device found
FAULTED = ("page-fault",)
STOPPED = ("illegal", "halt")  # its rules after which a wave never ends
TIMEOUT_SECONDS = 10.0  # for what the backend itself waits for: copies, a full ring


class _StreamQueue:
    """A stream's queue, and its ready dwords by executable."""

    __slots__ = ("flushed", "flushing", "ready", "ring")

    def __init__(self, ring: AmdRing) -> None:
        self.ring = ring
        self.flushed = 0  # the host's BAR writes that this queue sees
        self.ready: dict[AmdExecutable, ReadyDwords] = {}
        self.flushing: dict[AmdExecutable, ReadyDwords] = {}  # with an HDP flush in front


class AmdBackend:
    """A Backend over one transport. Owns every queue and buffer; a context manager.

    Runs what `kernels` has kernels for, and PacketLists. One host thread drives a backend.
    """

    def __init__(
        self,
        side: KmdSide,
        *,
        spec: BackendSpec,
        device: Device,
        ordering: str = "",
        kernels: BinaryKernelSet | None = None,
        hang_folder: Path | None = Path("zinc-rt-hangs"),
        ring_bytes: int = RING_BYTES,
        timeout_seconds: float = TIMEOUT_SECONDS,
        log: KmdLog | None = None,
        publish: Publish | None = None,
        debug: bool | None = None,
        channel: SideChannel | None = None,
    ) -> None:
        """Takes `side` over; `owner` closes what lies behind it, last of all.

        `hang_folder`: where bundles go; None saves none. `debug`: lint everything before it is submitted, and
        hold dispatches against their kernels; unless said, on a simulated device. `log`: the kernel's, where it is
        not this machine's. `channel`: a simulated device's.
        """
        debug = device.simulated if debug is None else debug
        self.side = side
        self.spec = spec
        self.device = device
        self.ordering = ordering
        self.generation = generation_of(arch_name(side.transport.generation))
        self.memory = DeviceMemory(side.transport, channel.announce_all if channel is not None else None)
        self.kernels = kernels if kernels is not None else no_kernels(device.arch)
        self.instrument: AmdInstrument | None = None
        if channel is not None:
            self.instrument = AmdInstrument(channel, self.kernels.load, self._node_at, self.memory.name_parts)
        self._graphs: set[AmdExecutable] = set()
        self._programs = ExecutableBuilder(
            self.memory,
            LoadedKernels(self.kernels.load, self.memory, self._put) if self.kernels.entries else None,
            self._put,
            self.instrument.precompile if self.instrument is not None else lambda kernels: None,
            self.generation,
            spec.tier,
            device,
            debug,
        )
        self._ring_bytes = ring_bytes
        self._timeout_seconds = timeout_seconds
        self._debug = debug
        self._publish = publish or publisher()
        self._queues: dict[Stream, _StreamQueue] = {}
        self._slots: list[tuple[int, int]] = []  # free fence slots: host address, VA
        self._transfer: Transfer | None = None
        self._before_submit = False  # an allocation to settle
        self._bar_writes = 0  # by the host; a queue that knows of fewer flushes HDP before it goes on
        self._closed = False
        self.submissions = Submissions()
        self.owner: Callable[[], None] = lambda: None
        self._watch_at = 0.0
        self._stopped_before = len(self._queue_findings(STOPPED))  # other backends share the device
        self._faults_before = len(self._queue_findings(FAULTED))
        self.reporter = HangReporter(
            side,
            self.memory.addresses,
            spec.tier,
            device,
            folder=hang_folder,
            log=log,
            seen=self._fault_seen if self.instrument is not None else None,
        )
        for buffer in side.buffers():
            self.memory.addresses.add(buffer.gpu_va, buffer.size_bytes, buffer.name)

    # Memory

    def alloc(self, size_bytes: int, heap: str, name: str, *, zeroed: bool = True) -> Buffer:
        """VRAM is zeroed by the GPU."""
        buffer = self._alloc(size_bytes, heap, name)
        device = buffer.storage.device
        if not zeroed:
            return buffer
        if device.placement is Placement.VRAM:
            self._transfers().fill(device.gpu_va, device.size_bytes)
        elif device.placement is Placement.VRAM_BAR:
            device.host.view[:] = bytes(device.size_bytes)
            self._touched_bar()
        return buffer

    def free(self, buffer: Buffer) -> None:
        """The caller has waited for every replay that uses it."""
        buffer.check_owned()
        self.memory.free(buffer)

    def read(self, buffer: Buffer, offset_bytes: int, size_bytes: int) -> memoryview:
        """ValueError for memory the CPU cannot reach (heap device_local)."""
        storage: Storage = buffer.storage
        return storage.view()[offset_bytes : offset_bytes + size_bytes].toreadonly()

    def write(self, buffer: Buffer, offset_bytes: int, data: memoryview) -> None:
        storage: Storage = buffer.storage
        if storage.device.mapping is not None:
            storage.view()[offset_bytes : offset_bytes + data.nbytes] = data
            if storage.device.placement is Placement.VRAM_BAR:
                self._touched_bar()
            return
        self._transfers().write(storage.gpu_va + offset_bytes, np.frombuffer(data, np.uint8))
        self._transfers().finish()

    def fill(self, buffer: Buffer, offset_bytes: int, size_bytes: int, stream: Stream) -> TimelineFence:
        """By the command processor: no kernel is needed."""
        storage: Storage = buffer.storage
        return self._dma(f"fill {buffer.name}", zeros(storage.gpu_va + offset_bytes, size_bytes), stream)

    def upload(self, weights: Mapping[str, Weight], constants: Mapping[str, np.ndarray]) -> dict[str, Buffer]:
        """Copies, as the kernels want each type, into as few allocations as POOL_BYTES allows."""
        arrays: dict[str, Weight | np.ndarray] = {**weights, **constants}
        buffers: dict[str, Buffer] = {}
        for number, pool in enumerate(packed({name: self._packed_bytes(a) for name, a in arrays.items()})):
            last, offset = pool[-1]
            size_bytes = offset + max(1, self._packed_bytes(arrays[last]))
            block = self.memory.block(size_bytes, Placement.VRAM, f"weights {number}")
            self._before_submit = True
            for name, offset in pool:
                size_bytes = self._packed_bytes(arrays[name])
                buffers[name] = self.memory.buffer(block, offset, size_bytes, BufferHeap.DEVICE_LOCAL, name)
        try:
            for name, buffer in buffers.items():
                content = self._packed(arrays[name])  # one at a time: a model may be most of the host's memory
                self._transfers().write(buffer.storage.gpu_va, content)
            self._transfers().finish()
        except BaseException:
            self._transfers().finish()  # what is on its way must not land in somebody else's memory
            for buffer in buffers.values():
                self.memory.free(buffer)
            raise
        return buffers

    def _packed(self, array: Weight | np.ndarray) -> np.ndarray:
        if isinstance(array, np.ndarray):
            return array
        return self.kernels.pack(array)

    def _packed_bytes(self, array: Weight | np.ndarray) -> int:
        return array.nbytes if isinstance(array, np.ndarray) else self.kernels.packed_bytes(array)

    # Programs

    def build(self, program: LoweredGraph | PacketList, buffers: Mapping[str, Buffer]) -> AmdExecutable:
        """An indirect buffer in GPU memory."""
        self._touched_bar()
        executable = self._programs.build(program, buffers)
        self._graphs.add(executable)
        if isinstance(program, LoweredGraph):
            executable.code = partial(self._code_of, program)
        return executable

    def _put(self, gpu_va: int, content: np.ndarray) -> None:
        self._transfers().write(gpu_va, content)
        self._transfers().finish()

    def unload(self, executable: AmdExecutable) -> None:
        """Give a executable's indirect buffer back. The caller has waited for its replays."""
        for queue in self._queues.values():
            queue.ready.pop(executable, None)
            queue.flushing.pop(executable, None)
        self._graphs.discard(executable)
        self._programs.free(executable)

    def _node_at(self, queue_id: int, packet_va: int) -> Node | None:
        """Whose dispatch lies at that address, of the programs that are built."""
        if queue_id not in {queue.ring.queue.queue_id for queue in self._queues.values()}:
            return None
        executable, offset_dw = self._variant_at(packet_va)
        return dict(executable.dispatched).get(offset_dw) if executable is not None else None

    def _variant_at(self, packet_va: int) -> tuple[AmdExecutable | None, int]:
        """The program whose indirect buffer holds that address, and the dword."""
        for executable in self._graphs:
            offset_dw = (packet_va - executable.ib.gpu_va) // 4
            if 0 <= offset_dw < len(executable.ib.words):
                return executable, offset_dw
        return None, 0

    def _fault_seen(self, queue_id: int, page_va: int) -> tuple[SimulatedFault, Node | None] | None:
        """What the simulated device knows of this backend's fault in that page; other queues, with ids of their
        own, may share the device."""
        new = self._queue_findings(FAULTED, self._faults_before)
        ours = {queue.ring.queue.queue_id for queue in self._queues.values()}
        here = [
            each
            for each in new
            if each.finding.fault is not None and each.finding.fault.va // PAGE_BYTES == page_va // PAGE_BYTES
        ]
        here = [each for each in here if each.queue_id == queue_id] or [
            each for each in here if each.queue_id in ours
        ]
        if not here:
            return None
        found = here[-1]
        executable, offset_dw = self._variant_at(found.packet_va)
        if executable is None:
            return simulated_fault(found.finding, self.memory.addresses), found.finding.node
        stream = decode_stream(executable.ib.words, self.generation)
        dispatches = [each.offset for each in stream if isinstance(each.packet, DISPATCHES)]
        code = executable.kernels().get(found.finding.kernel, b"")
        told = simulated_fault(
            found.finding,
            self.memory.addresses,
            program=executable.name,
            dispatch=dispatches.index(offset_dw) if offset_dw in dispatches else None,
            dispatches=len(dispatches),
            kernel_sha256=hashlib.sha256(code).hexdigest() if code else "",
        )
        return told, found.finding.node

    def _code_of(self, program: LoweredGraph) -> dict[str, bytes]:
        load = self.kernels.load
        used = sorted({step.code for step in dispatch_plan(program).dispatches})
        return {name: patched(load(name), dict(patches)) for name, patches in used}

    # Submission

    def submit(self, executable: AmdExecutable, stream: Stream) -> TimelineFence:
        """INDIRECT_BUFFER, fence, doorbell. Raises Hang where the ring stays full."""
        queue = self._queues.get(stream)
        if queue is None or stream.waits or self._before_submit or queue.flushed != self._bar_writes:
            return self._submit_with_care(executable, stream)
        ready = queue.ready.get(executable)
        if ready is None:
            ready = queue.ready[executable] = self._ready(queue, executable)
        fence = queue.ring.submit(ready)
        self.submissions.fast += 1
        self.submissions.doorbells += 1
        return fence

    def copy(
        self,
        source: Buffer,
        source_offset_bytes: int,
        target: Buffer,
        target_offset_bytes: int,
        size_bytes: int,
        stream: Stream,
    ) -> TimelineFence:
        packets = copies(
            source.storage.gpu_va + source_offset_bytes, target.storage.gpu_va + target_offset_bytes, size_bytes
        )
        return self._dma(f"copy {source.name} to {target.name}", packets, stream)

    def wait(self, fence: Fence, timeout_seconds: float) -> None:
        fence.wait(timeout_seconds)

    def ring(self, stream: Stream) -> AmdRing:
        """The stream's ring, for packets of one's own. Made on first use."""
        queue = self._queues.get(stream)
        if queue is None:
            queue = self._queues[stream] = self._new_queue(stream.name, stream.priority)
        self._settle()
        return queue.ring

    # What a submission is made of, for a program of its own (replay/capture.py)

    def prepared(self, executable: AmdExecutable, stream: Stream) -> tuple[AmdRing, ReadyDwords]:
        """What `submit` would put into which ring next. Nothing is submitted."""
        ring = self.ring(stream)
        queue = self._queues[stream]
        return ring, self._ready(queue, executable, (*self._waits(stream, ring), *self._flush(queue)))

    def content(self, buffer: DeviceBuffer) -> bytes:
        """What an allocation holds now, as the GPU's next submission finds it. Nothing may be in flight."""
        if buffer.mapping is not None:
            return bytes(buffer.mapping.view)
        return self._transfers().read(buffer.gpu_va, buffer.size_bytes)

    def spoilt(self, buffer: Buffer, array: Weight | np.ndarray) -> int:
        """The first byte of a weight or constant that is not what `upload` was to put there; -1 where all are.
        Nothing may be in flight."""
        want = np.ascontiguousarray(self._packed(array)).reshape(-1).view(np.uint8)
        got = np.frombuffer(self._transfers().read(buffer.storage.gpu_va, want.nbytes), np.uint8)
        wrong = np.flatnonzero(got != want)
        return int(wrong[0]) if wrong.size else -1

    def _submit_with_care(self, executable: AmdExecutable, stream: Stream) -> TimelineFence:
        """The first on a stream, one that waits for other streams, or one with host writes to be seen."""
        ring = self.ring(stream)
        queue = self._queues[stream]
        flush = self._flush(queue)
        waits = self._waits(stream, ring)
        if waits:
            ready = self._ready(queue, executable, (*waits, *flush))
        else:
            kept = queue.flushing if flush else queue.ready
            ready = kept.get(executable) or kept.setdefault(executable, self._ready(queue, executable, flush))
        fence = ring.submit(ready)
        queue.flushed = self._bar_writes
        self.submissions.careful += 1
        self.submissions.doorbells += 1
        return fence

    def _dma(self, name: str, packets: Iterable[Packet], stream: Stream) -> TimelineFence:
        """By the command processor, behind the stream's waves; its queue goes on when that has ended."""
        ring = self.ring(stream)
        queue = self._queues[stream]
        flush = self._flush(queue)
        before = (*self._waits(stream, ring), *flush, EventWrite.cs_partial_flush())
        ready = ring.encode((*before, *packets), name, dma=True)
        # DMA runs beside the stream: a wait on its own fence is what holds back who touches the bytes next
        hold = WaitRegMem64(ring.timeline.gpu_va, ring.timeline.submitted + 1)
        ring.reserve(ready.count_dw + len(hold.words(self.generation)), self._timeout_seconds)
        fence = ring.submit(ready)
        queue.flushed = self._bar_writes
        ring.run((hold,), f"the end of {name}")
        return fence

    def _flush(self, queue: _StreamQueue) -> tuple[Packet, ...]:
        """What makes the host's BAR writes seen by this queue. A packet in another queue orders nothing here."""
        return self.side.flush_hdp() if queue.flushed != self._bar_writes else ()

    def _ready(self, queue: _StreamQueue, executable: AmdExecutable, before: Iterable[Packet] = ()) -> ReadyDwords:
        call = IndirectBuffer(
            executable.ib.gpu_va, len(executable.ib.words), inherit_vmid=int(queue.ring.queue.inherits_vmid)
        )
        return queue.ring.encode((*before, call), executable.name, ib=executable.ib)

    def _waits(self, stream: Stream, ring: AmdRing) -> list[Packet]:
        """Packets that hold this queue until other streams' fences; another backend's are waited for here."""
        ours = {queue.ring.timeline for queue in self._queues.values()}
        packets: list[Packet] = []
        for fence in _single(stream.waits):
            if isinstance(fence, TimelineFence) and fence.timeline in ours:
                if fence.done():
                    fence.wait(0.0)  # raises what its queue was lost by
                elif fence.timeline is not ring.timeline:
                    packets.append(WaitRegMem64(fence.timeline.gpu_va, fence.value))
            else:
                fence.wait(self._timeout_seconds)
        return packets

    def _new_queue(self, name: str, priority: int) -> _StreamQueue:
        slot = self._slot()
        try:
            queue = self.side.create_queue(ring_bytes=self._ring_bytes, priority=priority)
        except BaseException:
            self._slots.append(slot)
            raise
        for part in (queue.ring, queue.rptr, queue.wptr, queue.eop):
            self.memory.addresses.add(part.gpu_va, part.size_bytes, f"{part.name} of {name}")
        ring = AmdRing(
            queue,
            self.side,
            name=f"{self.spec.tier}, stream {name}",
            generation=self.generation,
            slot=slot,
            publish=self._publish,
            make_hang=self.reporter.hang,
            full_seconds=self._timeout_seconds,
            mapped=self.memory.addresses.refusal,
            watch=self._watch,
            debug=self._debug,
        )
        return _StreamQueue(ring)

    def _watch(self) -> None:
        """A simulated device knows at once that a wave stopped for good; hardware leaves it to the deadline."""
        now = time.monotonic()
        if self.instrument is None or now < self._watch_at:
            return
        self._watch_at = now + WATCH_SECONDS
        for each in self._queue_findings(STOPPED, self._stopped_before)[:1]:
            text = f"a wave stopped for good: {each.finding.sentence}"
            self.side.incidents.append(Incident("lost", text, node=each.finding.node))

    def _queue_findings(self, rules: Collection[str], since: int = 0) -> list[QueueFinding]:
        return self.instrument.queue_findings(rules, since) if self.instrument is not None else []

    def _slot(self) -> tuple[int, int]:
        if self._closed:
            raise ValueError(f"{self.spec.tier} is closed")
        if not self._slots:
            page = self.memory.block(SLOTS_BYTES, Placement.GTT, f"fences {len(self._queues)}").device
            self.side.settle()
            starts = range(0, SLOTS_BYTES, SLOT_BYTES)
            self._slots = [(page.host.address + start, page.gpu_va + start) for start in reversed(starts)]
        return self._slots.pop()

    # Inside

    def _alloc(self, size_bytes: int, heap: str, name: str) -> Buffer:
        if heap not in PLACEMENTS:
            raise ValueError(f"{name}: no heap is called {heap!r}")
        placement, fallback = PLACEMENTS[heap]
        block = self.memory.block(size_bytes, placement, name, fallback)
        self._before_submit = True
        return self.memory.buffer(block, 0, size_bytes, heap, name)

    def _transfers(self) -> Transfer:
        if self._transfer is None:
            staging = self.memory.block(Transfer.STAGING_BYTES, Placement.GTT, "staging").device
            self._transfer = Transfer(self.ring(Stream("copies")), staging, self._timeout_seconds)
        self._settle()
        return self._transfer

    def _touched_bar(self) -> None:
        self._bar_writes += 1

    def _settle(self) -> None:
        if self._before_submit:
            self.side.settle()
            self._before_submit = False

    # End

    def close(self, *, drain_seconds: float | None = None) -> None:
        """Wait for what runs (`drain_seconds`, else the backend's time-out), then give queues, buffers and events
        back, whatever fails; the first failure is raised then, the others noted on it. Harmless twice."""
        if self._closed:
            return
        self._closed = True
        deadline = time.monotonic() + (self._timeout_seconds if drain_seconds is None else drain_seconds)
        failures: list[BaseException] = []
        for queue in self._queues.values():
            try:
                queue.ring.close(drain_seconds=max(0.0, deadline - time.monotonic()))
            except BaseException as error:
                failures.append(error)
        self._queues.clear()
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close(drain_seconds=0.0)
        except Exception as failure:  # the block's own error goes first
            error.add_note(f"and while closing {self.spec.tier}: {failure}")


def _single(fences: Iterable[Fence]) -> Iterable[Fence]:
    for fence in fences:
        if isinstance(fence, JoinedFence):
            yield from _single(fence.fences)
        else:
            yield fence
