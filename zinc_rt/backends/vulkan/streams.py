"""One timeline per stream, on a queue that streams may share, and its submissions: replays, copies, waits.

A replay is one vkQueueSubmit of prepared structs: only the value to signal changes. Streams that share a queue are
ordered more strictly than necessary; each still has its own timeline.
"""

from __future__ import annotations

import ctypes
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from ctypes import byref

from zinc_rt.backends.base import Submissions
from zinc_rt.backends.vulkan import api
from zinc_rt.backends.vulkan.commands import BEGIN, END, CommandPool, VulkanCommand
from zinc_rt.backends.vulkan.device import VulkanDevice
from zinc_rt.backends.vulkan.errors import VulkanError
from zinc_rt.backends.vulkan.executable import VulkanExecutable
from zinc_rt.backends.vulkan.fence import SemaphoreFence, SemaphoreTimeline
from zinc_rt.exec import DeadlineMissed, Stream
from zinc_rt.exec.fence import split_fences

MakeHang = Callable[[SemaphoreTimeline, int, str, VulkanExecutable | None], DeadlineMissed]
"""(timeline, value that was not reached, why, what was to reach it) -> the error to raise."""

LOST = "was lost with the device"
KEPT_NAMES = 256  # submissions of a stream kept for reports


class PreparedSubmit:
    """A VkSubmitInfo and all structs that it points to."""

    __slots__ = ("info", "reference")

    def __init__(
        self, timeline: SemaphoreTimeline, command_buffer: int, waits: Sequence[SemaphoreFence] = ()
    ) -> None:
        count = len(waits)
        values = api.make_struct(
            "VkTimelineSemaphoreSubmitInfo",
            signalSemaphoreValueCount=1,
            pSignalSemaphoreValues=timeline.next_value,
            waitSemaphoreValueCount=count,
            pWaitSemaphoreValues=(ctypes.c_uint64 * count)(*(item.value for item in waits)),
        )
        info = api.make_struct(
            "VkSubmitInfo",
            commandBufferCount=1,
            pCommandBuffers=ctypes.c_void_p(command_buffer),
            signalSemaphoreCount=1,
            pSignalSemaphores=timeline.semaphore,
            waitSemaphoreCount=count,
            pWaitSemaphores=(ctypes.c_uint64 * count)(*(item.timeline.semaphore.value for item in waits)),
            pWaitDstStageMask=(ctypes.c_uint32 * count)(*[api.VK_PIPELINE_STAGE_ALL_COMMANDS_BIT] * count),
        )
        self.info = api.link_structs(info, values)
        self.reference = byref(info)


class _StreamState:
    """A stream's timeline and queue, and its prepared submissions by executable."""

    __slots__ = ("names", "once", "prepared", "queue", "timeline")

    def __init__(self, timeline: SemaphoreTimeline, queue: int) -> None:
        self.timeline = timeline
        self.queue = queue
        self.prepared: dict[VulkanExecutable, PreparedSubmit] = {}
        self.once: deque[tuple[int, int]] = deque()  # (value, command buffer) of copies, freed when it is reached
        self.names: deque[tuple[int, VulkanExecutable | str]] = deque(maxlen=KEPT_NAMES)


class VulkanStreams:
    """The streams of one backend. Each is created on first use and destroyed by `close`."""

    def __init__(
        self, device: VulkanDevice, pool: CommandPool, make_hang: MakeHang, timeout_seconds: float
    ) -> None:
        self.submissions = Submissions()
        self.lost: BaseException | None = None
        self.timeout_seconds = timeout_seconds  # of waits for other backends' fences
        self._device, self._vk = device, device.vk
        self._pool = pool
        self._make_hang = make_hang
        self._streams: dict[Stream, _StreamState] = {}

    def submit(self, executable: VulkanExecutable, stream: Stream) -> SemaphoreFence:
        state = self._streams.get(stream)
        if state is None or stream.waits:
            return self._submit_checked(executable, stream)
        ready = state.prepared.get(executable)
        if ready is None:
            ready = state.prepared[executable] = PreparedSubmit(state.timeline, executable.command_buffer)
        self.submissions.fast += 1
        return self._queue_submit(state, ready, executable)

    def run_once(self, name: str, commands: Iterable[VulkanCommand], stream: Stream) -> SemaphoreFence:
        """Submit commands once, ordered after earlier and before later commands of the stream. They are recorded
        for this call."""
        state = self._find_state(stream)
        self._free_finished(state)
        buffer = self._pool.record((BEGIN, *commands, END), replayed=False)
        ready = PreparedSubmit(state.timeline, buffer, self._list_waits(stream, state))
        fence = self._queue_submit(state, ready, name)
        state.once.append((fence.value, buffer))
        return fence

    def forget(self, executable: VulkanExecutable) -> None:
        """Drop an executable that is no longer submitted."""
        for state in self._streams.values():
            state.prepared.pop(executable, None)

    def drain(self, seconds: float) -> None:
        """Wait for all running work, at most `seconds`. Raise DeadlineMissed if some does not finish. On a lost
        device it returns at once."""
        deadline = time.monotonic() + seconds
        for state in self._streams.values():
            try:
                self._wait(state.timeline, state.timeline.submitted, max(0.0, deadline - time.monotonic()))
            except DeadlineMissed:
                if self.lost is None:
                    raise
                return

    def close(self) -> None:
        """Destroy the streams. No work may be running."""
        for state in self._streams.values():
            for _, buffer in state.once:
                self._pool.free(buffer)
            state.timeline.close()
        self._streams.clear()

    # Inside

    def _submit_checked(self, executable: VulkanExecutable, stream: Stream) -> SemaphoreFence:
        """Submit on the checked path: first on a stream, or with waits for other streams."""
        state = self._find_state(stream)
        waits = self._list_waits(stream, state)
        ready = PreparedSubmit(state.timeline, executable.command_buffer, waits)
        if not waits:
            state.prepared[executable] = ready
        self.submissions.careful += 1
        return self._queue_submit(state, ready, executable)

    def _queue_submit(
        self, state: _StreamState, ready: PreparedSubmit, what: VulkanExecutable | str
    ) -> SemaphoreFence:
        if self.lost is not None:
            raise self.lost
        try:
            self._vk.vkQueueSubmit(state.queue, 1, ready.reference, 0)
        except VulkanError as error:
            raise self._lose_device(error) from error
        self.submissions.doorbells += 1
        value = state.timeline.record_submission()
        state.names.append((value, what))
        return SemaphoreFence(state.timeline, value)

    def _wait(self, timeline: SemaphoreTimeline, value: int, timeout_seconds: float) -> None:
        try:
            if timeline.reached(value, timeout_seconds):
                return
        except VulkanError as error:
            raise self._lose_device(error) from error
        timeline.poll()
        raise self._make_hang(
            timeline, value, f"not reached after {timeout_seconds:g} s", self._find_blocking_executable(timeline)
        )

    def _find_blocking_executable(self, timeline: SemaphoreTimeline) -> VulkanExecutable | None:
        """Return the executable after the last finished one."""
        for state in self._streams.values():
            if state.timeline is timeline:
                for value, what in state.names:
                    if value == timeline.seen + 1 and isinstance(what, VulkanExecutable):
                        return what
        return None

    def _lose_device(self, error: VulkanError) -> BaseException:
        """Mark every stream as lost if the device is lost."""
        if not error.lost:
            return error
        if self.lost is None:
            timelines = [state.timeline for state in self._streams.values()]
            first = next((timeline for timeline in timelines if timeline.seen < timeline.submitted), timelines[0])
            self.lost = self._make_hang(first, first.seen + 1, LOST, self._find_blocking_executable(first))
            for timeline in timelines:
                timeline.lose(self.lost)
        return self.lost

    def _list_waits(self, stream: Stream, state: _StreamState) -> list[SemaphoreFence]:
        """Return fences of this backend's other streams. Fences of other backends are waited for on the host."""
        ours = {stream.timeline for stream in self._streams.values()}
        result = []
        for fence in split_fences(stream.waits):
            if isinstance(fence, SemaphoreFence) and fence.timeline in ours:
                if fence.done():
                    fence.wait(0.0)  # raises the error that lost the device
                elif fence.timeline is not state.timeline:
                    result.append(fence)
            else:
                fence.wait(self.timeout_seconds)
        return result

    def _free_finished(self, state: _StreamState) -> None:
        if not state.once:
            return
        reached = state.timeline.poll()
        while state.once and state.once[0][0] <= reached:
            self._pool.free(state.once.popleft()[1])

    def _find_state(self, stream: Stream) -> _StreamState:
        state = self._streams.get(stream)
        if state is None:
            queues = self._device.queues
            queue = queues[len(self._streams) % len(queues)].handle
            state = self._streams[stream] = _StreamState(
                SemaphoreTimeline(stream.name, self._device, self._wait), queue
            )
        return state
