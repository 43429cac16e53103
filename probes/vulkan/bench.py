"""Memory, kernels and one stream of a device, for probes: the backend's components without a graph."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from statistics import median
from typing import Any, Self

import numpy as np

from zinc_rt.backends.vulkan.commands import (
    BEGIN,
    BETWEEN,
    END,
    CmdBindPipeline,
    CmdDispatch,
    CmdDispatchIndirect,
    CmdPushConstants,
    CommandPool,
    VulkanCommand,
)
from zinc_rt.backends.vulkan.device import VulkanDevice
from zinc_rt.backends.vulkan.hang import make_hang
from zinc_rt.backends.vulkan.memory import VulkanBlock, VulkanMemory
from zinc_rt.backends.vulkan.pipelines import Pipelines
from zinc_rt.backends.vulkan.streams import LOST, VulkanStreams
from zinc_rt.exec import DeadlineMissed, Stream
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.kernels.sets import SpirvKernels
from zinc_rt.mem.heaps import BufferHeap
from zinc_rt.probes.vulkan.timeline import ProbeTimeline

SECONDS = 20.0  # that a submission may take
_BUILT = files("zinc_rt.kernels.spirv") / "probes" / "built"


@cache
def load_module(name: str) -> bytes:
    return _BUILT.joinpath(f"{name}.spv").read_bytes()


def _reject_weights(weight: Any) -> Any:
    raise UnsupportedError("a probe has no weights")


KERNELS = SpirvKernels("spirv", (), _reject_weights, _reject_weights, tuple, load_module)


@dataclass(frozen=True, slots=True)
class ProbeMemory:
    """Memory accessible to host and device: `words` is the host's view, uint32."""

    block: VulkanBlock
    words: np.ndarray

    @property
    def gpu_va(self) -> int:
        return self.block.gpu_va

    @property
    def floats(self) -> np.ndarray:
        return self.words.view(np.float32)


@dataclass(frozen=True, slots=True)
class Address:
    """A plain address, as an argument."""

    gpu_va: int


@dataclass(frozen=True, slots=True)
class Indirect:
    """A grid in memory, at a byte offset."""

    memory: ProbeMemory
    offset_bytes: int = 0


class VulkanBench:
    """Memory, pipelines and a stream of a device. A context manager; the device is closed after it."""

    def __init__(self, device: VulkanDevice) -> None:
        self.device = device
        self._stack = ExitStack()
        self.memory = VulkanMemory(device)
        self._stack.callback(self.memory.close)
        self.pipelines = Pipelines(device, KERNELS, None)
        self._stack.callback(self.pipelines.close, keep=False)
        self.pool = CommandPool(device)
        self._stack.callback(self.pool.close)
        self.streams = VulkanStreams(device, self.pool, self._make_hang, SECONDS)
        self._stack.callback(self.streams.close)
        self._stream = Stream("probe")

    def words(self, count: int, name: str = "words", *, fill: int = 0) -> ProbeMemory:
        """Allocate memory with that number of dwords, each initialised to `fill`."""
        block = self.memory.block(4 * count, BufferHeap.HOST_VISIBLE, name)
        assert block.host is not None, "host_visible memory is mapped"
        words = np.frombuffer(block.host, np.uint32)[:count]
        words.fill(fill)
        self.memory.flush(block, 0, 4 * count)
        return ProbeMemory(block, words)

    def of(self, content: np.ndarray, name: str = "content") -> ProbeMemory:
        """Allocate memory with the array's bits, 4 bytes per element."""
        memory = self.words(content.size, name)
        memory.words[:] = content.reshape(-1).view(np.uint32)
        self.memory.flush(memory.block, 0, memory.words.nbytes)
        return memory

    def dispatch(
        self, kernel: str, arguments: Sequence[ProbeMemory | Address | int], grid: tuple[int, int, int] | Indirect
    ) -> list[VulkanCommand]:
        """Record one dispatch of a probe's kernel. Arguments in the order of KERNARG: memory, then numbers."""
        pipelines, _ = self.pipelines.get([kernel])
        packed = b"".join(
            struct.pack("<I", argument) if isinstance(argument, int) else struct.pack("<Q", argument.gpu_va)
            for argument in arguments
        )
        kernarg = self.of(np.frombuffer(packed, np.uint32), f"arguments of {kernel}")
        run: VulkanCommand
        if isinstance(grid, Indirect):
            run = CmdDispatchIndirect(grid.memory.block.handle, grid.offset_bytes)
        else:
            run = CmdDispatch(grid)
        bind = CmdBindPipeline(pipelines[kernel].handle)
        return [bind, CmdPushConstants(self.pipelines.layout, kernarg.gpu_va), run]

    def run(self, commands: Iterable[VulkanCommand], seconds: float = SECONDS) -> float:
        """Return the seconds from submission to end. Raises DeadlineMissed."""
        start = time.perf_counter()
        self.streams.run_once("probe", commands, self._stream).wait(seconds)
        took = time.perf_counter() - start
        for block in self.memory.blocks:
            self.memory.invalidate(block, 0, block.size_bytes)
        return took

    def seconds(self, commands: Iterable[VulkanCommand], runs: int) -> float:
        """Return the median time from submission to end of commands that are recorded once; the first run is
        excluded.
        """
        buffer = self.pool.record((BEGIN, *commands, END), replayed=True)
        timeline = ProbeTimeline(self.device)
        took = []
        for value in range(1, runs + 2):
            start = time.perf_counter()
            timeline.submit(value, commands=buffer)
            if not timeline.wait(value, SECONDS):
                self.abandon()
                raise DeadlineMissed(
                    f"{self.device.physical.name}: a submission did not finish within {SECONDS:g} s"
                )
            took.append(time.perf_counter() - start)
        timeline.close()
        self.pool.free(buffer)
        return median(took[1:])

    def _make_hang(self, timeline: Any, value: int, reason: str, executable: Any) -> DeadlineMissed:
        return make_hang(self.device, timeline, value, reason, executable, lost=reason == LOST)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def abandon(self) -> None:
        """Keep all resources until the process ends, because a submission does not end."""
        self._stack.pop_all()
        self.device.abandon()


def chain_commands(parts: Iterable[Iterable[VulkanCommand]]) -> Iterator[VulkanCommand]:
    """Return the parts with barriers between them."""
    for i, part in enumerate(parts):
        if i:
            yield BETWEEN
        yield from part
