"""GPU access to memory: reads and writes by the command processor, through a window in host memory.

This is the only access to VRAM that no CPU can map, and it detects a mapping that only the CPU has. The
fence after each submission writes back and invalidates GL2, so earlier host writes are visible to the next
copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from zinc_rt.pm4.packets import DmaData, WriteData
from zinc_rt.probes.kit.context import ProbeContext
from zinc_rt.probes.kit.mapped_buffer import find_first_lost
from zinc_rt.probes.outcome import ProbeFailed

WINDOW_BYTES = 1 << 20
COPIES_AT_ONCE = 64  # packets in a submission


class GpuAccess:
    """A queue and a window. Addresses are GPU addresses, sizes in bytes."""

    def __init__(self, c: ProbeContext) -> None:
        self.context = c
        self.queue = c.queue("access")
        self.window = c.memory(WINDOW_BYTES, "window")
        c.side.flush_hdp()  # what it needs is made once: now, so that nobody counts it later

    def write(self, va: int, data: bytes) -> None:
        for start in range(0, len(data), WINDOW_BYTES):
            piece = data[start : start + WINDOW_BYTES]
            self.window.put(0, piece)
            self.queue.finish([_copy(self.window.gpu_va, va + start, len(piece))], "DMA_DATA to memory")

    def read(self, va: int, size_bytes: int) -> bytes:
        pieces = [
            (va + start, min(WINDOW_BYTES, size_bytes - start)) for start in range(0, size_bytes, WINDOW_BYTES)
        ]
        return b"".join(self.gather(pieces))

    def gather(self, pieces: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the contents at each (address, size); earlier host writes through the BAR are flushed."""
        contents: list[bytes] = []
        while len(contents) < len(pieces):
            packets = list(self.context.side.flush_hdp())
            fits: list[tuple[int, int]] = []
            end = 0
            for va, size_bytes in pieces[len(contents) : len(contents) + COPIES_AT_ONCE]:
                if end + size_bytes > WINDOW_BYTES:
                    break
                packets.append(_copy(va, self.window.gpu_va + end, size_bytes))
                fits.append((end, size_bytes))
                end += size_bytes
            self.window.poison()
            self.queue.finish(packets, "DMA_DATA from memory")
            contents += [self.window.read(index, size_bytes) for index, size_bytes in fits]
        return contents

    def write_marks(self, marks: Mapping[int, int]) -> None:
        """Write a dword to each address."""
        packets = [WriteData(va, (value,), wr_confirm=1) for va, value in marks.items()]
        for start in range(0, len(packets), COPIES_AT_ONCE):
            self.queue.finish(packets[start : start + COPIES_AT_ONCE], "marks")

    def find_wrong_marks(self, marks: Mapping[int, int]) -> dict[int, int]:
        """Return the contents of the addresses that differ from the mark."""
        seen = self.gather([(va, 4) for va in marks])
        values = {va: int.from_bytes(item, "little") for va, item in zip(marks, seen, strict=True)}
        return {va: value for va, value in values.items() if value != marks[va]}

    def check_all(self, va: int, size_bytes: int, what: str) -> None:
        """Check that the GPU reads back what it writes over the whole range."""
        lost = find_first_lost(partial(self.write, va), partial(self.read, va, size_bytes), size_bytes, (3, 4))
        if lost is not None:
            raise ProbeFailed(
                "gpu-wrong-data", f"{what}: the bytes written by the GPU differ from byte {lost[1]} on"
            )


def _copy(source: int, target: int, size_bytes: int) -> DmaData:
    return DmaData(source, target, size_bytes, raw_wait=0)
