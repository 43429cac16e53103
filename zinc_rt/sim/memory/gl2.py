"""The GL2 cache for memory shared with the host that the GPU may cache: type NC, the default without UNCACHED.

A buffer of this type has two copies, the host's memory and the GPU's view. A line that is not in GL2 is read from
the host's memory at the next access. A cached line does not change until an invalidation, even if the host stores
to the memory. GPU stores reach the host at a write-back. Sources: Linux
gmc_v12_0_get_vm_pte and gmc_v11_0_get_vm_pte (which flags make a page UC); LLVM's AMDGPUUsage, memory model gfx12
(NC lines in L2 go stale, UC ones never do).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from zinc_rt.sim.chips import PAGE_BYTES

LINE_BYTES = 128  # of GL2 on RDNA
CHUNK_BYTES = 1 << 20  # of one comparison: stays in the processor's cache


class TouchedBytes(Protocol):
    """Bytes, and the (start, end) ranges that may be other than 0. The stores of buffers implement it."""

    @property
    def view(self) -> memoryview: ...

    def list_extents(self) -> list[tuple[int, int]]: ...


class Gl2Lines:
    """The lines of one buffer in GL2. `store` is the GPU's copy, `host` is the host's memory, and `before`
    contains the pages that the GPU has stored to, as of the last write-back. The caller holds the buffer's lock.
    """

    def __init__(self, store: TouchedBytes, host: TouchedBytes, before: dict[int, bytes]) -> None:
        self._stores = store, host
        self._gpu = np.frombuffer(store.view, np.uint8)
        self._host = np.frombuffer(host.view, np.uint8)
        self._before = before
        self._held = np.zeros(-(-len(self._gpu) // LINE_BYTES), bool)

    def read(self, start: int, size_bytes: int) -> None:
        """Prepare a GPU access to these bytes: lines not in GL2 are read from the host's memory and are
        then cached."""
        self._renew(start, size_bytes)
        self.hold(start, size_bytes)

    def renew(self) -> None:
        """Prepare for waves, which may access anything: refresh all lines that are not in GL2 from the host's
        memory.
        """
        touched = sorted(extent for store in self._stores for extent in store.list_extents())
        done = 0
        for start, end in touched:  # of one copy: bytes that neither has touched are equal
            for first in range(max(start, done), end, CHUNK_BYTES):
                self._renew(first, min(CHUNK_BYTES, end - first))
            done = max(done, end)

    def hold(self, start: int, size_bytes: int) -> None:
        """Record that the GPU has accessed these bytes."""
        self._held[start // LINE_BYTES : -(-(start + size_bytes) // LINE_BYTES)] = True

    def invalidate(self, start: int, size_bytes: int) -> None:
        """Invalidate lines: they are re-read at the next use; GPU stores that were not written back are
        kept."""
        self._held[start // LINE_BYTES : -(-(start + size_bytes) // LINE_BYTES)] = False

    def _renew(self, start: int, size_bytes: int) -> None:
        first, end = start // LINE_BYTES, min(-(-(start + size_bytes) // LINE_BYTES), len(self._held))
        where = slice(first * LINE_BYTES, end * LINE_BYTES)
        host, gpu = self._host[where], self._gpu[where]
        if np.array_equal(host.view(np.uint64), gpu.view(np.uint64)):
            return
        differ = (host != gpu) & np.repeat(~self._held[first:end], LINE_BYTES)
        for page in np.unique((np.flatnonzero(differ) + where.start) // PAGE_BYTES):
            self._renew_page(int(page), where, differ)

    def _renew_page(self, page: int, where: slice, differ: np.ndarray) -> None:
        low, high = max(page * PAGE_BYTES, where.start), min((page + 1) * PAGE_BYTES, where.stop)
        changed = differ[low - where.start : high - where.start]
        saved = self._before.get(page)
        if saved is not None:  # only the host's stores since then; the rest belongs to the GPU
            was = np.frombuffer(saved, np.uint8).copy()
            part = was[low - page * PAGE_BYTES : high - page * PAGE_BYTES]
            changed = changed & (self._host[low:high] != part)
            part[changed] = self._host[low:high][changed]
            self._before[page] = was.tobytes()
        self._gpu[low:high][changed] = self._host[low:high][changed]
