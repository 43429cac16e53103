"""The command processor: takes queues, runs their packets, in a thread of its own or step by step.

    processor = CommandProcessor(kmd, generation=Generation.GFX12)
    processor.start()
    processor.attach(queue)
    processor.ring(queue, wptr)             # from any thread, never blocks for long
    processor.detach(queue, 2.0)            # False: it hangs and cannot be taken off

The driver side is called without any lock of the CP held, so it may call back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

from zinc_rt.pm4.generation import Generation
from zinc_rt.sim.consulted import Coverage
from zinc_rt.sim.cp.aql import AqlChannel
from zinc_rt.sim.cp.channel import Channel
from zinc_rt.sim.cp.compute import ComputeChannel
from zinc_rt.sim.cp.device_state import DeviceState
from zinc_rt.sim.cp.execute import EXECUTE
from zinc_rt.sim.cp.graphics import GraphicsChannel
from zinc_rt.sim.cp.scheduler import QueueScheduler
from zinc_rt.sim.cp.sdma import SdmaChannel
from zinc_rt.sim.facts import DEFAULT, Behaviour
from zinc_rt.sim.interfaces import Fault, HardwareQueue, Kmd, QueueKind, QueueState
from zinc_rt.sim.shader_engine import NoShaderEngine, ShaderEngine

SPIN_SECONDS = 200e-6  # looking for doorbells after the last activity, before sleeping (design §5)
SLEEP_SECONDS = 1e-3
WAIT_SLEEP_SECONDS = 50e-6  # between looks at memory that a queue waits for, growing to SLEEP_SECONDS
SETTLE_SECONDS = 1.0  # at most, for messages to be delivered
HARDWARE_QUEUES = 8  # compute slots MES schedules on with amdgpu.user_queue=2 on gfx12 (userq.md §3)

CHANNELS: dict[QueueKind, Callable[[HardwareQueue, DeviceState, int], Channel]] = {
    QueueKind.KFD_COMPUTE: partial(ComputeChannel, EXECUTE),
    QueueKind.USERQ_COMPUTE: partial(ComputeChannel, EXECUTE),
    QueueKind.KFD_AQL: partial(AqlChannel, EXECUTE),
    QueueKind.KFD_SDMA: SdmaChannel,
    QueueKind.KERNEL_COMPUTE: partial(ComputeChannel, EXECUTE),
    QueueKind.KERNEL_GFX: GraphicsChannel,
    QueueKind.KERNEL_SDMA: SdmaChannel,
}


class CommandProcessor:
    """The command processor of one device. `poll`, if given, is called from the CP's thread between turns,
    at least every millisecond, to check doorbells in shared memory and ring."""

    def __init__(
        self,
        kmd: Kmd,
        *,
        generation: Generation = Generation.GFX12,
        engine: ShaderEngine | None = None,
        reorder_seed: int | None = None,
        hardware_queues: int = HARDWARE_QUEUES,
        behaviour: Behaviour = DEFAULT,
        consulted: Coverage | None = None,
        poll: Callable[[], object] | None = None,
    ) -> None:
        self.device = DeviceState(
            kmd,
            generation=generation,
            engine=engine or NoShaderEngine(),
            reorder_seed=reorder_seed,
            behaviour=behaviour,
            consulted=consulted,
        )
        self._scheduler = QueueScheduler(hardware_queues)
        self._channels: dict[int, Channel] = {}  # by id(queue): queue ids repeat between processes
        self._off: dict[int, Channel] = {}  # preempted, with their state
        self._lock = threading.RLock()
        self._rung = threading.Event()
        self._poll = poll
        self._thread: threading.Thread | None = None
        self._closing = False
        self._numbers = 0

    @property
    def engine(self) -> ShaderEngine:
        return self.device.engine

    # --- queues -----------------------------------------------------------------------------------------------

    def attach(self, queue: HardwareQueue) -> None:
        """Put a queue on the hardware: a new one, or a detached one, which resumes at its position."""
        with self._lock:
            if id(queue) in self._channels:
                return
            for gone in [item.queue for item in self._off.values() if item.queue.state is QueueState.DESTROYED]:
                self.forget(gone)
            channel = self._off.pop(id(queue), None)
            if channel is None or channel.queue is not queue:
                self._numbers += 1
                channel = CHANNELS[queue.kind](queue, self.device, self._numbers)
            queue.state = QueueState.ACTIVE if queue.state is QueueState.EVICTED else queue.state
            self._channels[id(queue)] = channel
            self._scheduler.add(channel)
            if len(self._channels) > self._scheduler.slots:
                self.device.consulted.add_mark("more queues than slots")
            channel.catch_up(queue.doorbell)
        self._rung.set()

    def detach(self, queue: HardwareQueue, timeout_seconds: float) -> bool:
        """Take a queue off at a packet boundary. Return False if it hangs or does not reach a boundary in
        time.

        The queue stops in either case. Its state is kept for a later attach until `forget`.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            with self._lock:
                channel = self._channels.get(id(queue))
                if channel is None:
                    return queue.state is not QueueState.HUNG
                stopped = queue.state is QueueState.HUNG
                if stopped or channel.is_preemptible() or time.monotonic() >= deadline:
                    clean = not stopped and channel.is_preemptible()
                    self._unmap_channel(channel)
                    return clean
                self._run_round()  # the CP's thread may be waiting for the caller
            time.sleep(WAIT_SLEEP_SECONDS)

    def forget(self, queue: HardwareQueue) -> None:
        """Drop the state of a destroyed queue."""
        with self._lock:
            channel = self._channels.get(id(queue))
            if channel is not None:
                self._unmap_channel(channel)
            channel = self._off.pop(id(queue), None)
            if channel is None:
                return
            channel.mark_detached()
            others = (*self._channels.values(), *self._off.values())
            if all(other.space is not channel.space for other in others):
                gone = self.device.forget(channel.space)
                for other in others:
                    other.forget_queues(gone)

    def ring(self, queue: HardwareQueue, value: int | None = None) -> None:
        """Handle a doorbell: the new write pointer, in the queue's unit; without `value` it is in
        `queue.doorbell`.

        Has no effect on a queue that is not attached.
        """
        with self._lock:
            if value is None:
                value = queue.doorbell
            queue.doorbell = value
            channel = self._channels.get(id(queue))
            if channel is None:
                return
            self._check_published(channel, value)
            channel.rung(value)
        self._rung.set()

    # --- running ----------------------------------------------------------------------------------------------

    def step(self, budget: int) -> int:
        """Execute about `budget` packets, round robin, in the caller's thread. Return the number
        executed; 0: no queue can make progress."""
        total = 0
        while total < budget:
            with self._lock:
                used = self._run_round(budget - total)
            self.device.messages.deliver()
            if not used:
                break
            total += used
        return total

    def start(self) -> None:
        """Run in a thread until `close`."""
        if self._thread is None:
            self._closing = False
            thread = threading.Thread(target=self._run, name="command processor", daemon=True)
            thread.start()  # Ctrl-C may arrive here: close() joins only started threads
            self._thread = thread

    def close(self) -> None:
        """Stop the thread; queues stay attached but do not run."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._closing = True
        self._rung.set()
        if thread is not threading.current_thread():
            thread.join()

    def settle(self) -> None:
        """Wait until all messages queued at the time of the call are delivered: a fence becomes visible in memory
        before the findings of preceding work. Waits only for the thread of `start`, with a time limit."""
        if self._thread in (None, threading.current_thread()):
            return
        messages, deadline = self.device.messages, time.monotonic() + SETTLE_SECONDS
        posted = messages.posted
        if messages.delivered < posted:
            self._rung.set()  # without a queue the thread sleeps until a doorbell
        while messages.delivered < posted and not self._closing and time.monotonic() < deadline:
            time.sleep(WAIT_SLEEP_SECONDS)

    def _run_round(self, budget: int = 1 << 30) -> int:
        total = 0
        for channel, fuel, fresh in self._scheduler.run_turn():
            if fresh:
                self._handle_mapped(channel)
            try:
                total += channel.run(min(fuel, budget - total))
            except Exception as error:
                if self._thread is None:
                    raise  # stepped by a test: it is to see it
                channel.handle_error(error)
                total += 1
            self._scheduler.used(channel)
            if total >= budget:
                break
        return total

    def _run(self) -> None:
        quiet_since = time.monotonic()
        sleep = WAIT_SLEEP_SECONDS
        while True:
            self._rung.clear()
            if self._closing:  # read after the clear: `close` sets it before it rings
                return
            if self._poll is not None:
                self._poll()
            with self._lock:
                used = self._run_round()
                attached = bool(self._channels)
                unfinished = any(channel.pending.busy() for channel in self._channels.values())
                waiting = any(channel.has_work() for channel in self._channels.values())
            self.device.messages.deliver()
            if used:
                quiet_since, sleep = time.monotonic(), WAIT_SLEEP_SECONDS
                if unfinished:
                    time.sleep(WAIT_SLEEP_SECONDS)  # let waiters have the lock: a long dispatch never releases it
                continue
            if time.monotonic() - quiet_since < SPIN_SECONDS:
                time.sleep(0)
                continue
            if self._sleep(sleep, waiting=waiting, attached=attached):
                quiet_since, sleep = time.monotonic(), WAIT_SLEEP_SECONDS
            sleep = min(2 * sleep, SLEEP_SECONDS)

    def _sleep(self, seconds: float, *, waiting: bool, attached: bool) -> bool:
        """Sleep until a doorbell is rung (then return True), or for about that time, at minimal cost."""
        if self._poll is None or not attached:
            return self._rung.wait(seconds if waiting else None)
        time.sleep(seconds)  # an Event's wait costs a third more, and doorbells come through `poll` anyway
        while not (waiting or self._rung.is_set() or self._closing):
            self._poll()
            if seconds < SLEEP_SECONDS:
                break
            time.sleep(seconds)
        return self._rung.is_set()

    # --- details ----------------------------------------------------------------------------------------------

    def _unmap_channel(self, channel: Channel) -> None:
        self._scheduler.remove(channel)
        del self._channels[id(channel.queue)]
        self._off[id(channel.queue)] = channel

    def _handle_mapped(self, channel: Channel) -> None:
        """Handle a queue that is assigned a slot again: the firmware reads the write pointer from memory (kfd.md
        §3).
        """
        value = self._read_wptr(channel)
        if value is not None:
            channel.mapped(value)

    def _check_published(self, channel: Channel, value: int) -> None:
        """Check the order packets, write pointer, doorbell: the write pointer in memory must be at least
        the doorbell value."""
        held = self._read_wptr(channel)
        if held is not None and held < value:
            channel.finding(
                "wptr-not-published",
                f"doorbell {value} of queue {channel.queue.queue_id}, but its write pointer in memory is {held}: "
                "write it before the doorbell",
                once="wptr",
            )

    @staticmethod
    def _read_wptr(channel: Channel) -> int | None:
        if not channel.queue.wptr_va:
            return None
        try:
            return int.from_bytes(channel.space.read(channel.queue.wptr_va, 8), "little")
        except Fault:
            return None  # detected when the queue's buffers are checked
