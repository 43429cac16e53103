"""Copy bytes to and from memory that the host cannot map, with a staging block and vkCmdCopyBuffer."""

from __future__ import annotations

import numpy as np

from zinc_rt.backends.vulkan.blocks import VulkanBlock, VulkanStorage
from zinc_rt.backends.vulkan.commands import CmdCopyBuffer, CmdFillBuffer, VulkanCommand
from zinc_rt.backends.vulkan.fence import SemaphoreFence
from zinc_rt.backends.vulkan.memory import VulkanMemory
from zinc_rt.backends.vulkan.streams import VulkanStreams
from zinc_rt.exec import Stream
from zinc_rt.mem.heaps import BufferHeap

STAGING_BYTES = 64 << 20
DWORD = 4  # granularity of vkCmdFillBuffer


class StagedTransfer:
    """Staged transfers. The two halves of the staging block alternate, so the host fills one while the device
    reads the other."""

    def __init__(
        self,
        memory: VulkanMemory,
        streams: VulkanStreams,
        stream: Stream,
        timeout_seconds: float,
        size_bytes: int = STAGING_BYTES,
    ) -> None:
        block = memory.block(size_bytes, BufferHeap.HOST_VISIBLE, "staging")
        self._half_bytes = size_bytes // 2
        self._halves = [VulkanStorage(block, half * self._half_bytes, self._half_bytes) for half in (0, 1)]
        self._busy: list[SemaphoreFence | None] = [None, None]
        self._next = 0
        self._memory, self._streams = memory, streams
        self._stream = stream
        self._timeout_seconds = timeout_seconds

    def write(self, target: VulkanStorage, offset_bytes: int, content: np.ndarray) -> None:
        """Copy `content`, uint8, 1-D. It returns before the copy is complete; `finish` waits."""
        for start in range(0, content.nbytes, self._half_bytes):
            piece = content[start : start + self._half_bytes]
            half, staging = self._take_half()
            staging.view()[: piece.nbytes] = piece.data
            self._memory.flush(staging.block, staging.offset_bytes, piece.nbytes)
            copy = make_copy_command(staging, 0, target, offset_bytes + start, piece.nbytes)
            self._busy[half] = self._streams.run_once("upload", [copy], self._stream)

    def read(self, source: VulkanStorage, offset_bytes: int, size_bytes: int) -> bytes:
        """Return a copy of those bytes."""
        content = bytearray()
        for start in range(0, size_bytes, self._half_bytes):
            piece = min(self._half_bytes, size_bytes - start)
            _, staging = self._take_half()
            copy = make_copy_command(source, offset_bytes + start, staging, 0, piece)
            self._streams.run_once("download", [copy], self._stream).wait(self._timeout_seconds)
            self._memory.invalidate(staging.block, staging.offset_bytes, piece)
            content += staging.view()[:piece]
        return bytes(content)

    def fill(self, block: VulkanBlock) -> None:
        """Zero a block. Return when it is complete."""
        fill = CmdFillBuffer(block.handle, block.guard_bytes, block.size_bytes)
        self._streams.run_once(f"zeros for {block.name}", [fill], self._stream).wait(self._timeout_seconds)

    def finish(self) -> None:
        """Wait for all writes."""
        for fence in self._busy:
            if fence is not None:
                fence.wait(self._timeout_seconds)
        self._busy = [None, None]

    def _take_half(self) -> tuple[int, VulkanStorage]:
        """Return the least recently used half, once the device has read it."""
        half = self._next
        self._next = 1 - half
        fence = self._busy[half]
        if fence is not None:
            fence.wait(self._timeout_seconds)
        return half, self._halves[half]


def make_copy_command(
    source: VulkanStorage, source_offset: int, target: VulkanStorage, target_offset: int, size_bytes: int
) -> CmdCopyBuffer:
    """Return the command that copies between two buffers."""
    return CmdCopyBuffer(
        source.block.handle,
        source.handle_offset + source_offset,
        target.block.handle,
        target.handle_offset + target_offset,
        size_bytes,
    )


def make_zero_commands(target: VulkanStorage, offset_bytes: int, size_bytes: int) -> list[VulkanCommand]:
    """Return the command that writes zeros. Raise ValueError for a range of partial dwords, which Vulkan cannot
    fill."""
    if offset_bytes % DWORD or size_bytes % DWORD:
        raise ValueError(f"{size_bytes} bytes at offset {offset_bytes}: Vulkan fills whole dwords")
    return (
        [CmdFillBuffer(target.block.handle, target.handle_offset + offset_bytes, size_bytes)] if size_bytes else []
    )
