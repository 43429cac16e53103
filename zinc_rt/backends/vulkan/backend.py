"""Vulkan backend: a lowered graph as a command buffer, recorded once and replayed with timeline semaphores.

Memory is in memory.py, recording in executable.py, submission in streams.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import numpy as np

from zinc_rt.backends.base import Device, Submissions
from zinc_rt.backends.closing import ClosedAtExit
from zinc_rt.backends.spec import BackendSpec
from zinc_rt.backends.vulkan.blocks import VulkanStorage
from zinc_rt.backends.vulkan.commands import CmdResetQueryPool, CommandPool, VulkanCommand
from zinc_rt.backends.vulkan.device import VulkanDevice
from zinc_rt.backends.vulkan.executable import (
    VulkanBuilder,
    VulkanExecutable,
    record_empty_runs,
    record_single_run,
)
from zinc_rt.backends.vulkan.fence import SemaphoreFence, SemaphoreTimeline
from zinc_rt.backends.vulkan.hang import VulkanHang, make_hang
from zinc_rt.backends.vulkan.memory import VulkanMemory
from zinc_rt.backends.vulkan.pipelines import Pipeline, Pipelines
from zinc_rt.backends.vulkan.streams import LOST, VulkanStreams
from zinc_rt.backends.vulkan.transfer import StagedTransfer, make_copy_command, make_zero_commands
from zinc_rt.backends.vulkan.upload import upload
from zinc_rt.exec import Buffer, DeadlineMissed, Fence, Stream
from zinc_rt.host.errors import CheckFailed, UnsupportedError
from zinc_rt.host.object_cache import ObjectCache
from zinc_rt.kernels.launch import Launch, Operand, Ref
from zinc_rt.kernels.sets import SpirvKernelSet
from zinc_rt.kernels.weight import Weight
from zinc_rt.lower import LoweredGraph, PlannedGraph
from zinc_rt.mem.heaps import BufferHeap

FIRST_RUN_SECONDS = 10.0  # the longest compilation of a kernel by a software driver on a busy machine


@dataclass(frozen=True, slots=True)
class VulkanOptions:
    """Options of a VulkanBackend that do not depend on the device.

    `timeout_seconds`: for waits of the backend itself. `cache`: stores the driver's compiled kernels; None: they
    are not stored. `debug`: barriers write their numbers, which locates a stalled replay. `guarded`: place poison
    around every allocation and compare it after every wait. `staged`: treat device memory as if the host could not
    map it.
    """

    timeout_seconds: float = 60.0
    cache: ObjectCache | None = None
    debug: bool = False
    guarded: bool = False
    staged: bool = False


class VulkanBackend(ClosedAtExit):
    """A Backend on one Vulkan device. It owns all objects that it creates there. A context manager. One host
    thread drives it, in the process that opened it."""

    instrument: None = None
    builds_planned = True

    def __init__(
        self,
        spec: BackendSpec,
        ordering: str,
        device: VulkanDevice,
        kernels: SpirvKernelSet,
        options: VulkanOptions = VulkanOptions(),
        *,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        """Create a backend. `after` is called when the backend was closed or could not be opened; the opener of
        the device closes the device there."""
        self.spec = spec
        self.ordering = ordering
        self.kernels = kernels
        self.device = Device(name=device.physical.name, arch="vulkan", profile=device.physical.driver)
        self.options = options
        self.vulkan = device
        self.memory = VulkanMemory(device, staged=options.staged, guarded=options.guarded)
        self._process = os.getpid()
        self._closed = False
        self._after = after
        self._own_stream = Stream("own")
        self._staging: StagedTransfer | None = None
        with ExitStack() as undo:
            undo.callback(after)
            self._pipelines = Pipelines(device, kernels, options.cache)
            undo.callback(partial(self._pipelines.close, keep=False))
            self._pool = CommandPool(device)
            undo.pop_all()
        self._streams = VulkanStreams(device, self._pool, self._make_hang, options.timeout_seconds)
        self.builder = VulkanBuilder(
            device,
            self.memory,
            self._pipelines,
            self._pool,
            self._write_content,
            self._compile_kernels if device.is_cpu else lambda new: None,
            kernels.module,
            options.debug,
        )

    @property
    def submissions(self) -> Submissions:
        return self._streams.submissions

    # Memory

    def alloc(self, size_bytes: int, heap: str, name: str, *, zeroed: bool = True) -> Buffer:
        """Allocate memory. Raise UnsupportedError with the sizes if the device has too little."""
        self._check_process()
        block = self.memory.block(size_bytes, heap, name)
        buffer = self.memory.buffer(block, 0, size_bytes, heap, name)
        if zeroed and block.host is not None:
            np.frombuffer(buffer.storage.view(), np.uint8).fill(0)
            self.memory.flush(block, 0, size_bytes)
        elif zeroed:
            self._open_staging().fill(block)
        return buffer

    def free(self, buffer: Buffer) -> None:
        """Free a buffer. The caller must first wait for every replay that uses it."""
        buffer.check_owned()
        self.memory.free(buffer)

    def read(self, buffer: Buffer, offset_bytes: int, size_bytes: int) -> memoryview:
        """Read memory. Raise ValueError if the host cannot map it."""
        storage: VulkanStorage = buffer.storage
        view = storage.view()[offset_bytes : offset_bytes + size_bytes]
        self.memory.invalidate(storage.block, storage.offset_bytes + offset_bytes, size_bytes)
        return view.toreadonly()

    def write(self, buffer: Buffer, offset_bytes: int, data: memoryview) -> None:
        storage: VulkanStorage = buffer.storage
        if storage.block.host is not None:
            storage.view()[offset_bytes : offset_bytes + data.nbytes] = data
            self.memory.flush(storage.block, storage.offset_bytes + offset_bytes, data.nbytes)
        else:
            self._write_content(storage, offset_bytes, np.frombuffer(data, np.uint8))

    def fill(self, buffer: Buffer, offset_bytes: int, size_bytes: int, stream: Stream) -> SemaphoreFence:
        """Fill memory with vkCmdFillBuffer, in whole dwords."""
        self._check_process()
        commands = make_zero_commands(buffer.storage, offset_bytes, size_bytes)
        return self._streams.run_once(f"fill {buffer.name}", commands, stream)

    def copy(
        self,
        source: Buffer,
        source_offset_bytes: int,
        target: Buffer,
        target_offset_bytes: int,
        size_bytes: int,
        stream: Stream,
    ) -> SemaphoreFence:
        self._check_process()
        command = make_copy_command(
            source.storage, source_offset_bytes, target.storage, target_offset_bytes, size_bytes
        )
        what = f"copy {source.name} to {target.name}"
        return self._streams.run_once(what, [command] if size_bytes else [], stream)

    def upload(self, weights: Mapping[str, Weight], constants: Mapping[str, np.ndarray]) -> dict[str, Buffer]:
        """Upload weights in each kernel's type. Weights stay in place if the device reads the host's pages and the
        file's type is used; others are copied into as few allocations as the device allows."""
        self._check_process()
        return upload(self.memory, self.kernels, self._queue_write, self._finish, weights, constants)

    # Executables

    def build(self, lowered: LoweredGraph | PlannedGraph, buffers: Mapping[str, Buffer]) -> VulkanExecutable:
        """Record a command buffer once. Missing pipelines are compiled together."""
        self._check_process()
        executable = self.builder.build(lowered, buffers)
        if executable.timestamps is not None:
            reset = CmdResetQueryPool(executable.timestamps.pool, executable.timestamps.count)
            self.run_now("reset of timestamps", [reset])
        return executable

    def unload(self, executable: VulkanExecutable) -> None:
        """Free an executable. The caller must first wait for its replays."""
        self._streams.forget(executable)
        self.builder.free(executable)

    # Submission

    def submit(self, executable: VulkanExecutable, stream: Stream) -> SemaphoreFence:
        self._check_process()
        return self._streams.submit(executable, stream)

    def wait(self, fence: Fence, timeout_seconds: float) -> None:
        fence.wait(timeout_seconds)
        if self.options.guarded and (spoilt := self.memory.spoilt()):
            raise CheckFailed("; ".join(spoilt), next="find the kernel with zinc-rt kernel-test")

    def dispatch(self, launch: Launch, buffers: Mapping[str, Buffer]) -> None:
        """Run one launch outside a graph and wait for it. Its grid is constant. `buffers` are named as in its
        Refs."""
        self._check_process()
        pipelines, new = self._pipelines.get([launch.kernel])
        self._compile_kernels(new)

        def operand_address(operand: Operand) -> int:
            assert isinstance(operand, Ref), operand
            return operand.offset_bytes + (buffers[operand.name].gpu_va or 0)

        kernarg = np.frombuffer(launch.pack_kernarg(operand_address), np.uint8)
        location = self.alloc(
            kernarg.nbytes, BufferHeap.DEVICE_LOCAL, f"arguments of {launch.kernel}", zeroed=False
        )
        try:
            self._write_content(location.storage, 0, kernarg)
            assert location.gpu_va is not None
            commands = record_single_run(
                pipelines[launch.kernel], self._pipelines.layout, location.gpu_va, launch.grid
            )
            self.wait(
                self._streams.run_once(launch.kernel, commands, Stream("dispatch")), self.options.timeout_seconds
            )
        finally:
            self.free(location)

    def run_now(self, name: str, commands: Iterable[VulkanCommand], timeout_seconds: float | None = None) -> None:
        """Run custom commands after earlier submissions of their stream, and wait for them."""
        fence = self._streams.run_once(name, commands, self._own_stream)
        fence.wait(self.options.timeout_seconds if timeout_seconds is None else timeout_seconds)

    # Inside

    def _queue_write(self, storage: VulkanStorage, offset_bytes: int, content: np.ndarray) -> None:
        """Queue a write of `content`, uint8, 1-D. It is complete after `_finish`."""
        if storage.block.host is None:
            self._open_staging().write(storage, offset_bytes, content)
            return
        target = np.frombuffer(storage.view(), np.uint8)
        target[offset_bytes : offset_bytes + content.nbytes] = content
        self.memory.flush(storage.block, storage.offset_bytes + offset_bytes, content.nbytes)

    def _write_content(self, storage: VulkanStorage, offset_bytes: int, content: np.ndarray) -> None:
        self._queue_write(storage, offset_bytes, content)
        self._finish()

    def _finish(self) -> None:
        if self._staging is not None:
            self._staging.finish()

    def _open_staging(self) -> StagedTransfer:
        if self._staging is None:
            self._staging = StagedTransfer(
                self.memory, self._streams, self._own_stream, self.options.timeout_seconds
            )
        return self._staging

    def _compile_kernels(self, new: list[Pipeline]) -> None:
        """Run new pipelines once, so that no step includes a software driver's compile time."""
        if new:
            seconds = max(self.options.timeout_seconds, FIRST_RUN_SECONDS * len(new))
            self.run_now("first runs of kernels", record_empty_runs(new, self._pipelines.layout), seconds)

    def _make_hang(
        self, timeline: SemaphoreTimeline, value: int, reason: str, executable: VulkanExecutable | None
    ) -> VulkanHang:
        return make_hang(self.vulkan, timeline, value, reason, executable, lost=reason == LOST)

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise UnsupportedError(
                f"{self.spec.tier} was opened in process {self._process}: it cannot be used in a forked process, "
                "which lacks the driver's threads",
                next="open a backend in the child, or start the child with spawn",
            )

    # End

    def close(self, *, drain_seconds: float | None = None) -> None:
        """Wait for running work (`drain_seconds`, by default the backend's timeout), then destroy all objects
        created here. Raise VulkanHang if work does not finish; then nothing is destroyed, not even the device. May
        be called twice, and has no effect in a fork of the process that opened it."""
        if self._closed or os.getpid() != self._process:
            return
        self._closed = True
        try:
            self._drain(self.options.timeout_seconds if drain_seconds is None else drain_seconds)
            self._streams.close()
            self._pool.close()
            self._pipelines.close(keep=self._streams.lost is None)
            self.memory.close()
        finally:
            self._after()

    def _drain(self, seconds: float) -> None:
        try:
            self._streams.drain(seconds)
        except DeadlineMissed:
            self.vulkan.abandon()
            raise
