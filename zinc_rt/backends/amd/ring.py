"""A PM4 ring with its fence timeline: space accounting, preencoded submissions, and waits with timeouts.

wptr counts dwords and never wraps; the ring index is wptr modulo the size, and packets may straddle the end
(pm4.md §1.3). At least one dword stays free. A dword may be overwritten after the command processor has read
it, as shown by rptr or by a later fence, whichever is further.
"""

from __future__ import annotations

import ctypes
import errno
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from zinc_rt.backends.amd.debug_lint import refuse_fence_without_write_back, refuse_illegal
from zinc_rt.backends.amd.fence import Timeline, TimelineFence
from zinc_rt.backends.amd.kmd_side import KmdSide, wait_until_or_incident
from zinc_rt.backends.amd.publish import Publish, PublishTarget
from zinc_rt.exec import DeadlineMissed
from zinc_rt.host.errors import InputError
from zinc_rt.kmd.errors import DriverError
from zinc_rt.kmd.transport import Queue
from zinc_rt.pm4 import gcr
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.lint import Mapped
from zinc_rt.pm4.lint import QueueInterface as LintQueue
from zinc_rt.pm4.packet import EncodeError, Packet
from zinc_rt.pm4.packets import ReleaseMem

GONE = (errno.ETIME, errno.EIO)  # DESTROY_QUEUE of a queue that hangs, which is gone all the same
KEPT = 8  # finished submissions remembered for a hang report


class ReadyDwords:
    """Dwords encoded for one ring; only the fence value changes between submissions.

    `fence_end_dw`: how many dwords have been read for certain when the fence is reached. `ib`: the called
    indirect buffer, for reports.
    """

    __slots__ = ("address", "count_dw", "fence_end_dw", "fence_value", "ib", "name", "words")

    def __init__(
        self, words: Sequence[int], name: str, *, fence_at: int | None, fence_end_dw: int, ib: Any
    ) -> None:
        """Encode dwords. `fence_at`: the dword of the fence's 64-bit value; None without a fence."""
        self.words = (ctypes.c_uint32 * len(words))(*words)
        self.address = ctypes.addressof(self.words)
        self.count_dw = len(words)
        self.name = name
        self.fence_end_dw = fence_end_dw
        self.fence_value = None if fence_at is None else ctypes.c_uint64.from_buffer(self.words, 4 * fence_at)
        self.ib = ib


@dataclass(frozen=True, slots=True)
class Submission:
    """A submission in the ring: dwords [start_dw, end_dw), fence value 0 if it has none."""

    start_dw: int
    end_dw: int
    fence_value: int
    ready: ReadyDwords

    @property
    def fence_end_dw(self) -> int:
        return self.start_dw + self.ready.fence_end_dw


MakeHang = Callable[["AmdRing", str], DeadlineMissed]


class AmdRing:
    """A ring that owns its queue. Not thread-safe: one host thread submits to a ring."""

    def __init__(
        self,
        queue: Queue,
        side: KmdSide,
        *,
        name: str,
        generation: Generation,
        slot: tuple[int, int],
        publish: Publish,
        make_hang: MakeHang,
        full_seconds: float = 10.0,
        mapped: Mapped | None = None,
        watch: Callable[[], None] = lambda: None,
        debug: bool = False,
    ) -> None:
        """`slot`: host address and VA of the fence's memory. `watch` is called while a fence is waited for, and
        may add to the side's incidents. `debug`: lint all dwords made for this ring."""
        self.queue = queue
        self.side = side
        self.name = name
        self.generation = generation
        self.ring_dw = queue.ring_dw
        self.full_seconds = full_seconds
        self.timeline = Timeline(name, *slot, wait=self.wait)
        self.wptr_dw = 0
        self.closed = False
        self._debug = debug
        self._mapped = mapped
        self._watch = watch
        self._publish = publish
        self._make_hang = make_hang
        self._rptr = ctypes.c_uint32.from_address(queue.rptr.host.address)
        self._target = PublishTarget(
            ring_address=queue.ring.host.address,
            ring_dw=self.ring_dw,
            wptr_address=queue.wptr.host.address,
            doorbell_address=queue.doorbell_address,
        )
        self._target_address = self._target.address
        self._reported_dw = 0  # rptr on wptr's scale; never ahead of the truth
        self._consumed_dw = 0
        self._limit_dw = self.ring_dw - 1  # wptr may advance to here without another look
        self._submitted: deque[tuple[int, int, int, ReadyDwords]] = deque()  # Submission's fields, in order
        self._finished: deque[tuple[int, int, int, ReadyDwords]] = deque(maxlen=KEPT)

    # Batches

    def encode(
        self, packets: Iterable[Packet], name: str, *, fence: bool = True, dma: bool = False, ib: Any = None
    ) -> ReadyDwords:
        """Encode packets for repeated submission. With `dma` the fence also waits for the CP's own copies.

        Raise EncodeError for packets that do not fit the ring or that the linter refuses in debug mode.
        """
        words = [word for packet in packets for word in packet.words(self.generation)]
        fence_at, fence_end = None, 0
        if fence:
            fence_at = len(words) + 5
            words += self.make_fence_packet(dma=dma).words(self.generation)
            fence_end = len(words)
            words += [word for packet in self.side.after_fence() for word in packet.words(self.generation)]
        if not words:
            raise InputError(f"{self.name}: {name} contains no packets")
        if len(words) >= self.ring_dw:
            raise EncodeError(
                f"{self.name}: {name} has {len(words)} dwords, but the ring holds at most {self.ring_dw - 1}"
            )
        if self._debug:
            where = f"{self.name}: {name}"
            refuse_illegal(words, where, self.generation, queue=self.lint_queue, mapped=self._mapped, is_ib=False)
            if fence and ib is not None:
                refuse_fence_without_write_back(self.make_fence_packet(), where, self.generation)
        return ReadyDwords(words, name, fence_at=fence_at, fence_end_dw=fence_end, ib=ib)

    def make_fence_packet(self, value: int = 0, *, dma: bool = False) -> ReleaseMem:
        """Return the fence packet: after all earlier work, write back caches, then write 64 bits of this
        timeline.
        """
        caches = RELEASE_CACHES[self.generation]
        return ReleaseMem(self.timeline.gpu_va, value, caches, data_sel=2, wait_sync=int(dma))

    # Submission

    def submit(self, ready: ReadyDwords) -> TimelineFence:
        """Publish dwords encoded for this ring. Raise Hang if the ring stays full."""
        timeline = self.timeline
        wptr = self.wptr_dw
        if wptr + ready.count_dw > self._limit_dw or timeline.error is not None or self.closed:
            self.reserve(ready.count_dw, self.full_seconds)
        value = timeline.submitted + 1
        cell = ready.fence_value
        if cell is None:
            raise ValueError(f"{self.name}: {ready.name} has no fence; use `run` instead")
        cell.value = value
        try:
            self.wptr_dw = end = self._publish(self._target_address, wptr, ready.address, ready.count_dw)
            timeline.submitted = value
            self._submitted.append((wptr, end, value, ready))
        except BaseException:
            self._recover_submission(wptr, value, ready)
            raise
        return TimelineFence(timeline, value)

    def run(self, packets: Iterable[Packet], name: str) -> None:
        """Publish packets without a fence: only rptr shows that they were read."""
        ready = self.encode(packets, name, fence=False)
        self.reserve(ready.count_dw, self.full_seconds)
        wptr = self.wptr_dw
        try:
            self.wptr_dw = end = self._publish(self._target_address, wptr, ready.address, ready.count_dw)
            self._submitted.append((wptr, end, 0, ready))
        except BaseException:
            self._recover_submission(wptr, 0, ready)
            raise

    def reserve(self, count_dw: int, timeout_seconds: float) -> None:
        """Wait until `count_dw` dwords are free. Raise Hang after the timeout, or the error that lost the
        queue."""
        if self.closed:
            raise ValueError(f"{self.name} is closed")
        if not 0 < count_dw < self.ring_dw:
            raise ValueError(f"{self.name}: {count_dw} dwords do not fit in a ring of {self.ring_dw - 1}")
        end = self.wptr_dw + count_dw
        self.look()
        if self.timeline.error is not None:
            raise self.timeline.error
        if end <= self._limit_dw:
            return

        def has_room() -> bool:
            self.look()
            return end <= self._limit_dw or self.timeline.error is not None

        wait_until_or_incident(self.side, has_room, timeout_seconds)
        if end > self._limit_dw:
            lacking = f"room for {count_dw} dwords, {self.free_dw} of {self.ring_dw} are free"
            ended = bool(self.side.incidents) or self.timeline.error is not None
            self._raise_hang(
                f"there will be no {lacking}" if ended else f"no {lacking} within {timeout_seconds:g} s"
            )

    def take_back(self, wptr_dw: int, fence_value: int, published: Sequence[ReadyDwords]) -> None:
        """Continue after the submissions of another program, up to this position and fence, each of which was
        one of `published`. Those that have not finished are in flight, for reports.
        """
        self.wptr_dw, self.timeline.submitted = wptr_dw, fence_value
        unfinished: list[tuple[int, int, int, ReadyDwords]] = []
        end = wptr_dw
        for value in range(fence_value, self.timeline.poll(), -1):
            ready = next((item for item in published if self._holds(item, end, value)), None)
            if ready is None:  # a packet that waits for another ring is in between
                break
            unfinished.append((end - ready.count_dw, end, value, ready))
            end -= ready.count_dw
        self._submitted.extend(reversed(unfinished))

    def _holds(self, ready: ReadyDwords, end_dw: int, value: int) -> bool:
        """Return whether the dwords before `end_dw` are those of a submission with this fence value."""
        start_dw = end_dw - ready.count_dw
        if ready.fence_value is None or start_dw < max(0, self.wptr_dw - self.ring_dw):
            return False
        ready.fence_value.value = value
        return self.words(start_dw, end_dw) == list(ready.words)

    # Progress

    @property
    def rptr_dw(self) -> int:
        """Return rptr as the command processor reports it: 32 bits; KFD queues wrap it at the ring size."""
        return int(self._rptr.value)

    @property
    def rptr_is_sane(self) -> bool:
        """Return whether rptr is between its previous value and wptr."""
        return (self._rptr.value - self._reported_dw) & (self.ring_dw - 1) <= self.wptr_dw - self._reported_dw

    @property
    def consumed_dw(self) -> int:
        """Return the position up to which the ring has been read, on wptr's scale, at the last update."""
        return self._consumed_dw

    @property
    def free_dw(self) -> int:
        return self._limit_dw - self.wptr_dw

    def look(self) -> None:
        """Update the read position and the finished submissions."""
        seen = self.timeline.poll()
        # from where it was last, not back from wptr: fences may have let wptr run more than a ring past it
        reported = self._reported_dw + ((self._rptr.value - self._reported_dw) & (self.ring_dw - 1))
        if reported <= self.wptr_dw:
            self._reported_dw = reported
        consumed = self._reported_dw
        if self.timeline.error is None:
            waiting = self._submitted
            while waiting and (waiting[0][2] <= seen and (waiting[0][2] or waiting[0][1] <= consumed)):
                start, _, value, ready = entry = waiting.popleft()
                self._finished.append(entry)
                if value:
                    consumed = max(consumed, start + ready.fence_end_dw)
        self._consumed_dw = max(self._consumed_dw, consumed)
        self._limit_dw = self._consumed_dw + self.ring_dw - 1

    def submissions(self) -> list[Submission]:
        """Return the submissions in flight and the last few finished ones, oldest first."""
        return [Submission(*entry) for entry in (*self._finished, *self._submitted)]

    def words(self, start_dw: int, end_dw: int) -> list[int]:
        """Return the ring's content between two positions on wptr's scale. Raise ValueError if it has been
        overwritten."""
        if not max(0, self.wptr_dw - self.ring_dw) <= start_dw <= end_dw <= self.wptr_dw:
            raise ValueError(f"{self.name}: dwords {start_dw} to {end_dw} are outside the ring")
        memory = self.queue.ring.host.view.cast("I")
        return [memory[index % self.ring_dw] for index in range(start_dw, end_dw)]

    # Waiting

    def wait(self, fence: TimelineFence, timeout_seconds: float) -> None:
        """Implement Timeline.wait. Raise Hang; a fault or reset also ends every other fence of this ring."""
        wait_until_or_incident(self.side, self.timeline.is_reached(fence.value), timeout_seconds, self._watch)
        if not fence.done():
            self._raise_hang(
                f"fence {fence.value} will not be reached"
                if self.side.incidents
                else f"fence {fence.value} not reached within {timeout_seconds:g} s"
            )

    def wait_until_idle(self, timeout_seconds: float) -> None:
        """Wait until all submissions have finished. Raise Hang."""
        TimelineFence(self.timeline, self.timeline.submitted).wait(timeout_seconds)

    def close(self, *, drain_seconds: float = 0.0) -> None:
        """Wait for running work at most `drain_seconds`, then destroy the queue in any case. The first error
        is raised afterwards. May be called twice."""
        if self.closed:
            return
        failure: BaseException | None = None
        try:
            if drain_seconds > 0 and self.timeline.error is None:
                self.wait_until_idle(drain_seconds)
        except BaseException as error:
            failure = error
        self.closed = True
        self._rptr = ctypes.c_uint32(self._rptr.value)  # the memory goes with the queue
        try:
            self.queue.destroy()
        except Exception as error:
            lost = self.timeline.error
            if lost is not None and isinstance(error, DriverError) and error.errno in GONE:
                lost.add_note(
                    f"its queue was taken down by force: {error}"
                )  # known since: no news, and it is gone
            elif failure is None:
                failure = error
            else:
                failure.add_note(f"and the queue could not be given back: {error}")
        finally:
            self.timeline.forget()
        if failure is not None:
            raise failure

    @property
    def lint_queue(self) -> LintQueue:
        return "userq" if self.queue.inherits_vmid else "kfd"

    def _recover_submission(self, wptr_dw: int, value: int, ready: ReadyDwords) -> None:
        """Recover after a KeyboardInterrupt between the stores and their bookkeeping: read memory to see whether
        the dwords were published."""
        end = wptr_dw + ready.count_dw
        if ctypes.c_uint64.from_address(self.queue.wptr.host.address).value == end:
            self.wptr_dw = end
            self.timeline.submitted = max(self.timeline.submitted, value)
            if not self._submitted or self._submitted[-1][1] != end:
                self._submitted.append((wptr_dw, end, value, ready))

    def _raise_hang(self, what: str) -> None:
        """Raise the hang; after an incident the whole timeline is lost."""
        self.side.look()
        hang = self._make_hang(self, f"{self.name}: {what}")
        if self.side.incidents:
            self.timeline.lose(hang)
        raise hang


RELEASE_CACHES = {  # write back L2, drop what the next reader must not find: tinygrad's fence
    Generation.GFX11: gcr.release(
        Generation.GFX11, GLM_WB=1, GLM_INV=1, GLV_INV=1, GL1_INV=1, GL2_INV=1, GL2_WB=1, SEQ=1
    ),
    Generation.GFX12: gcr.release(Generation.GFX12, GLV_INV=1, GL2_INV=1, GL2_WB=1, SEQ=1),
}
