"""One queue per stream, and its submissions: replays, copies by the command processor, waits.

Streams run independently; the GPU waits when a stream depends on another's fence. Between two replays of one
stream nothing is encoded: a few ready dwords are copied into its ring.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from zinc_rt.backends.amd.device_memory import DeviceMemory
from zinc_rt.backends.amd.fence import SLOT_BYTES, TimelineFence
from zinc_rt.backends.amd.kmd_side import KmdSide
from zinc_rt.backends.amd.options import AmdOptions
from zinc_rt.backends.amd.packet_list import AmdExecutable
from zinc_rt.backends.amd.publish import load_publisher
from zinc_rt.backends.amd.ring import AmdRing, MakeHang, ReadyDwords
from zinc_rt.backends.base import Submissions
from zinc_rt.exec import Stream
from zinc_rt.exec.fence import split_fences
from zinc_rt.kmd.transport import Placement
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.packet import Packet
from zinc_rt.pm4.packets import EventWrite, IndirectBuffer, WaitRegMem64

SLOTS_BYTES = 4096


class _StreamQueue:
    """A stream's ring, and ready dwords by executable."""

    __slots__ = ("flushed", "flushing", "ready", "ring")

    def __init__(self, ring: AmdRing) -> None:
        self.ring = ring
        self.flushed = 0  # the host's BAR writes that this queue sees
        self.ready: dict[AmdExecutable, ReadyDwords] = {}
        self.flushing: dict[AmdExecutable, ReadyDwords] = {}  # with an HDP flush in front


class StreamQueues:
    """The queues of one backend. Each is created on the first use of its stream and destroyed by `close`."""

    def __init__(
        self,
        side: KmdSide,
        memory: DeviceMemory,
        generation: Generation,
        tier: str,
        options: AmdOptions,
        *,
        debug: bool,
        make_hang: MakeHang,
        watch: Callable[[], None],
    ) -> None:
        """Create without queues. `watch` is called while a fence is waited for; `make_hang` creates the report of
        a stalled queue."""
        self.timeout_seconds = options.timeout_seconds
        self.submissions = Submissions()
        self._side = side
        self._memory = memory
        self._generation = generation
        self._tier = tier
        self._ring_bytes = options.ring_bytes
        self._publish = options.publish or load_publisher()
        self._debug = debug
        self._make_hang = make_hang
        self._watch = watch
        self._queues: dict[Stream, _StreamQueue] = {}
        self._slots: list[tuple[int, int]] = []  # free fence slots: host address, VA
        self._unsettled = False  # an allocation that the GPU may not reach yet
        self._bar_writes = 0  # by the host; a queue that knows of fewer flushes HDP before it goes on
        self._closed = False

    @property
    def ids(self) -> set[int]:
        return {queue.ring.queue.queue_id for queue in self._queues.values()}

    def note_bar_write(self) -> None:
        """Note that the host wrote through the BAR: flush before the next submission."""
        self._bar_writes += 1

    def note_allocation(self) -> None:
        """Note an allocation that the GPU must be able to reach before the next submission."""
        self._unsettled = True

    def settle(self) -> None:
        if self._unsettled:
            self._side.settle()
            self._unsettled = False

    def ring(self, stream: Stream) -> AmdRing:
        """Return the stream's ring, for custom packets."""
        queue = self._queues.get(stream)
        if queue is None:
            queue = self._queues[stream] = self._create_queue(stream.name, stream.priority)
        self.settle()
        return queue.ring

    def forget(self, executable: AmdExecutable) -> None:
        """Drop the ready dwords of an executable that is no longer submitted."""
        for queue in self._queues.values():
            queue.ready.pop(executable, None)
            queue.flushing.pop(executable, None)

    def submit(self, executable: AmdExecutable, stream: Stream) -> TimelineFence:
        """Submit INDIRECT_BUFFER, fence, doorbell. Raise Hang if the ring stays full."""
        queue = self._queues.get(stream)
        if queue is None or stream.waits or self._unsettled or queue.flushed != self._bar_writes:
            return self._submit_checked(executable, stream)
        ready = queue.ready.get(executable)
        if ready is None:
            ready = queue.ready[executable] = self._encode_submission(queue, executable)
        fence = queue.ring.submit(ready)
        self.submissions.fast += 1
        self.submissions.doorbells += 1
        return fence

    def prepare_submission(self, executable: AmdExecutable, stream: Stream) -> tuple[AmdRing, ReadyDwords]:
        """Return the dwords and the ring of the next `submit`, without submitting."""
        ring = self.ring(stream)
        queue = self._queues[stream]
        return ring, self._encode_submission(
            queue, executable, (*self._wait_packets(stream, ring), *self._flush(queue))
        )

    def copy_by_dma(self, name: str, packets: Iterable[Packet], stream: Stream) -> TimelineFence:
        """Copy with the command processor, after the stream's waves. The queue continues when the copy has
        finished."""
        ring = self.ring(stream)
        queue = self._queues[stream]
        flush = self._flush(queue)
        before = (*self._wait_packets(stream, ring), *flush, EventWrite.cs_partial_flush())
        ready = ring.encode((*before, *packets), name, dma=True)
        # DMA runs beside the stream: a wait on its own fence is what holds back who touches the bytes next
        hold = WaitRegMem64(ring.timeline.gpu_va, ring.timeline.submitted + 1)
        ring.reserve(ready.count_dw + len(hold.words(self._generation)), self.timeout_seconds)
        fence = ring.submit(ready)
        queue.flushed = self._bar_writes
        ring.run((hold,), f"the end of {name}")
        return fence

    def close(self, drain_seconds: float) -> list[BaseException]:
        """Wait at most `drain_seconds` for running work, then destroy the queues. Return the errors."""
        self._closed = True
        deadline = time.monotonic() + drain_seconds
        failures: list[BaseException] = []
        for queue in self._queues.values():
            try:
                queue.ring.close(drain_seconds=max(0.0, deadline - time.monotonic()))
            except BaseException as error:
                failures.append(error)
        self._queues.clear()
        return failures

    def _submit_checked(self, executable: AmdExecutable, stream: Stream) -> TimelineFence:
        """Submit on the checked path: first on a stream, with waits for other streams, or after host writes."""
        ring = self.ring(stream)
        queue = self._queues[stream]
        flush = self._flush(queue)
        waits = self._wait_packets(stream, ring)
        if waits:
            ready = self._encode_submission(queue, executable, (*waits, *flush))
        else:
            kept = queue.flushing if flush else queue.ready
            ready = kept.get(executable) or kept.setdefault(
                executable, self._encode_submission(queue, executable, flush)
            )
        fence = ring.submit(ready)
        queue.flushed = self._bar_writes
        self.submissions.careful += 1
        self.submissions.doorbells += 1
        return fence

    def _flush(self, queue: _StreamQueue) -> tuple[Packet, ...]:
        """Return packets that make BAR writes of the host visible to this queue. A packet in another queue does
        not establish an order for them.
        """
        return self._side.flush_hdp() if queue.flushed != self._bar_writes else ()

    def _encode_submission(
        self, queue: _StreamQueue, executable: AmdExecutable, before: Iterable[Packet] = ()
    ) -> ReadyDwords:
        call = IndirectBuffer(
            executable.ib.gpu_va, len(executable.ib.words), inherit_vmid=int(queue.ring.queue.inherits_vmid)
        )
        return queue.ring.encode((*before, call), executable.name, ib=executable.ib)

    def _wait_packets(self, stream: Stream, ring: AmdRing) -> list[Packet]:
        """Return packets that make this queue wait for fences of other streams. Fences of other backends are
        waited for on the host."""
        ours = {queue.ring.timeline for queue in self._queues.values()}
        packets: list[Packet] = []
        for fence in split_fences(stream.waits):
            if isinstance(fence, TimelineFence) and fence.timeline in ours:
                if fence.done():
                    fence.wait(0.0)  # raises what its queue was lost by
                elif fence.timeline is not ring.timeline:
                    packets.append(WaitRegMem64(fence.timeline.gpu_va, fence.value))
            else:
                fence.wait(self.timeout_seconds)
        return packets

    def _create_queue(self, name: str, priority: int) -> _StreamQueue:
        slot = self._take_slot()
        try:
            queue = self._side.create_queue(ring_bytes=self._ring_bytes, priority=priority)
        except BaseException:
            self._slots.append(slot)
            raise
        for part in (queue.ring, queue.rptr, queue.wptr, queue.eop):
            self._memory.addresses.add(part.gpu_va, part.size_bytes, f"{part.name} of {name}")
        ring = AmdRing(
            queue,
            self._side,
            name=f"{self._tier}, stream {name}",
            generation=self._generation,
            slot=slot,
            publish=self._publish,
            make_hang=self._make_hang,
            full_seconds=self.timeout_seconds,
            mapped=self._memory.addresses.check_range,
            watch=self._watch,
            debug=self._debug,
        )
        return _StreamQueue(ring)

    def _take_slot(self) -> tuple[int, int]:
        if self._closed:
            raise ValueError(f"{self._tier} is closed")
        if not self._slots:
            page = self._memory.block(SLOTS_BYTES, Placement.GTT, f"fences {len(self._queues)}").device
            self._side.settle()
            starts = range(0, SLOTS_BYTES, SLOT_BYTES)
            self._slots = [(page.host.address + start, page.gpu_va + start) for start in reversed(starts)]
        return self._slots.pop()
