"""Copy bytes to and from VRAM that the CPU does not map, with a staging buffer and the command processor.

DMA_DATA needs no shader. The two halves of the staging buffer alternate, so the host fills one while the GPU reads
the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from zinc_rt.backends.amd.fence import TimelineFence
from zinc_rt.backends.amd.ring import AmdRing
from zinc_rt.kmd.transport import DeviceBuffer
from zinc_rt.pm4.packet import Packet
from zinc_rt.pm4.packets import DmaData

PACKET_BYTES = 32 << 20  # byte_count has 26 bits
FROM_ADDRESS, FROM_PACKET = 3, 2  # src_sel


def zero_packets(gpu_va: int, size_bytes: int) -> Iterator[Packet]:
    """Return packets that zero those bytes."""
    for start in range(0, size_bytes, PACKET_BYTES):
        yield DmaData(0, gpu_va + start, min(PACKET_BYTES, size_bytes - start), src_sel=FROM_PACKET)


def copy_packets(source_va: int, target_va: int, size_bytes: int) -> list[Packet]:
    """Return packets that copy through L2, without bypassing any of its lines."""
    return [
        DmaData(source_va + start, target_va + start, min(PACKET_BYTES, size_bytes - start), src_sel=FROM_ADDRESS)
        for start in range(0, size_bytes, PACKET_BYTES)
    ]


class Transfer:
    STAGING_BYTES: ClassVar[int] = 8 << 20

    def __init__(self, ring: AmdRing, staging: DeviceBuffer, timeout_seconds: float) -> None:
        self._ring = ring
        self._staging = staging
        self._timeout_seconds = timeout_seconds
        self._half_bytes = staging.size_bytes // 2
        self._half = 0
        self._busy: list[TimelineFence | None] = [None, None]

    def write(self, gpu_va: int, array: np.ndarray) -> None:
        """Copy an array's bytes to `gpu_va`. It returns before the copy is complete; `finish` waits."""
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        for start in range(0, content.nbytes, self._half_bytes):
            piece = content[start : start + self._half_bytes]
            offset = self._take_half()
            self._staging.host.view[offset : offset + piece.nbytes] = piece.data
            copy = DmaData(self._staging.gpu_va + offset, gpu_va + start, piece.nbytes, src_sel=FROM_ADDRESS)
            self._busy[self._half] = self._ring.submit(self._ring.encode((copy,), "upload", dma=True))

    def fill(self, gpu_va: int, size_bytes: int) -> None:
        """Zero memory. Return when it is complete."""
        for packet in zero_packets(gpu_va, size_bytes):
            self._ring.submit(self._ring.encode((packet,), "fill", dma=True))
        self.finish()

    def read(self, gpu_va: int, size_bytes: int) -> bytes:
        """Return a copy of those bytes. Wait for all earlier work."""
        content = bytearray()
        for start in range(0, size_bytes, self._half_bytes):
            piece = min(self._half_bytes, size_bytes - start)
            offset = self._take_half()
            copy = DmaData(gpu_va + start, self._staging.gpu_va + offset, piece, src_sel=FROM_ADDRESS)
            self._ring.submit(self._ring.encode((copy,), "download", dma=True)).wait(self._timeout_seconds)
            content += self._staging.host.view[offset : offset + piece]
        return bytes(content)

    def finish(self) -> None:
        self._ring.wait_until_idle(self._timeout_seconds)

    def _take_half(self) -> int:
        """Return the offset of the least recently used half, once the GPU has read it."""
        self._half = 1 - self._half
        fence = self._busy[self._half]
        if fence is not None:
            fence.wait(self._timeout_seconds)
        return self._half * self._half_bytes
