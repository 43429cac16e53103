"""Buffer objects of the simulated machine: bytes in memfds, shared with clients, and the two copies of
VRAM.

Uncached host memory has one copy. VRAM that the host has mapped has two, BAR and VRAM: host stores reach
the GPU at an HDP flush, GPU stores reach the host at a system-scope write-back. `coherence="direct"`
merges them. Host memory that the GPU caches also has two: sim.memory.gl2.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import threading
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from zinc_rt.sim.chips import PAGE_BYTES, round_up
from zinc_rt.sim.memory.gl2 import Gl2Lines
from zinc_rt.sim.memory.initialised_bytes import InitialisedBytes

if TYPE_CHECKING:
    from zinc_rt.sim.driver.fences import DmaFence

# sealed, so that no client can shrink this process's mappings, which would cause SIGBUS
FIXED_SIZE = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_CHUNK_BYTES = 1 << 20  # of one comparison: stays in the processor's cache


class Heap(Enum):
    """The memory in which a buffer is allocated."""

    VRAM = "vram"
    GTT = "gtt"
    USERPTR = "userptr"
    DOORBELL = "doorbell"
    MMIO = "mmio"


class SharedStore:
    """Bytes of a memfd created by this process or received from another, mapped once."""

    __slots__ = ("_map", "fd", "size_bytes", "u32", "u64", "view")

    def __init__(self, name: str, size_bytes: int, fd: int | None = None) -> None:
        self.size_bytes = size_bytes
        if fd is None:
            fd = os.memfd_create(f"zinc-rt {name}"[:200], os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(fd, size_bytes)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, FIXED_SIZE)
        self.fd = fd
        try:
            self._map = mmap.mmap(fd, size_bytes, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        except (OSError, ValueError, OverflowError) as error:
            os.close(fd)
            raise OSError(errno.ENOMEM, f"{size_bytes} bytes could not be mapped") from error
        self._make_word_views(memoryview(self._map))

    def _make_word_views(self, view: memoryview) -> None:
        self.view = view
        self.u32 = view[: len(view) & ~3].cast("I")
        self.u64 = view[: len(view) & ~7].cast("Q")

    def list_extents(self) -> list[tuple[int, int]]:
        """Return the (start, end) ranges that have been touched."""
        result, offset = [], 0
        while offset < self.size_bytes:
            try:
                start = os.lseek(self.fd, offset, os.SEEK_DATA)
            except OSError:  # ENXIO: nothing more
                break
            offset = os.lseek(self.fd, start, os.SEEK_HOLE)
            result.append((start, min(offset, self.size_bytes)))
        return result

    def close(self) -> None:
        """Close the fd; the mapping is released with its last view."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class BorrowedStore:
    """Pages that belong to the client (USERPTR); same interface as Shared."""

    __slots__ = ("fd", "size_bytes", "u32", "u64", "view")

    def __init__(self, view: memoryview) -> None:
        self.fd = -1
        self.size_bytes = len(view)
        self.view = view
        self.u32 = view.cast("I")
        self.u64 = view.cast("Q")

    def list_extents(self) -> list[tuple[int, int]]:
        return [(0, self.size_bytes)]

    def close(self) -> None:
        """Do nothing: the client owns the pages."""


@dataclass(slots=True, eq=False)
class Bo:
    """A buffer object. `store` is the GPU's view; `bar` the host's copy of mapped VRAM, or of host memory
    that the GPU caches (`gl2` records the cached lines)."""

    heap: Heap
    size_bytes: int
    store: SharedStore | BorrowedStore
    name: str
    host_visible: bool = True
    public: bool = False  # KFD: requested in CPU-visible memory
    visible: bool = False  # in the part of VRAM that the CPU can access
    domains: int = 0  # AMDGPU_GEM_DOMAIN_*, of GEM_CREATE
    create_flags: int = 0  # AMDGPU_GEM_CREATE_*
    metadata: bytes = b""  # of GEM_METADATA
    kfd: bool = False  # VRAM that counts against the limit of KFD's clients
    owner: int = 0  # pid of the client; 0: the kernel's, which is never evicted
    bar: SharedStore | BorrowedStore | None = None
    gl2: Gl2Lines | None = None
    coherent: bool = False  # AMDGPU_GEM_CREATE_COHERENT, EXT_COHERENT or KFD's flags of these names
    references: int = 1  # handles, imports, mappings of live queues
    host_mappings: int = 0
    flushed_unmapped: bool = False  # flushed since the host last had it mapped
    before: dict[int, bytes] = field(default_factory=dict)  # page: as both copies were, before the GPU wrote it
    fences: list[DmaFence] = field(default_factory=list)  # of jobs and user queues that declared its use
    lock: threading.Lock = field(default_factory=threading.Lock)
    written: InitialisedBytes | None = (
        None  # None: the host could write it at any time, so it counts as initialised
    )
    saved: np.ndarray | None = None  # uint8 per page: 1 where `before` has it; waves look here first
    host_changes: int = 0  # incremented when `bar`, `written` or `saved` change

    def prepare_gpu_write(self, start: int, size_bytes: int) -> None:
        """Prepare a GPU store to these bytes."""
        self.prepare_gpu_read(start, size_bytes)
        if self.written is not None:
            self.written.mark(start, size_bytes)
        self.save(start, size_bytes)

    def prepare_gpu_read(self, start: int, size_bytes: int) -> None:
        """Prepare a GPU access to these bytes."""
        if self.gl2 is not None:
            with self.lock:
                self.gl2.read(start, size_bytes)

    def save(self, start: int, size_bytes: int) -> None:
        """Save both copies of VRAM, for the merge at a flush or a write-back."""
        if self.bar is None or self.saved is None:
            return
        first, last = start // PAGE_BYTES, (start + size_bytes - 1) // PAGE_BYTES
        with self.lock:
            for page in range(first, last + 1):
                if page not in self.before:
                    self.before[page] = bytes(self.store.view[page * PAGE_BYTES : (page + 1) * PAGE_BYTES])
            self.saved[first : last + 1] = 1

    def flush_hdp(self, first: int, last: int) -> None:
        """Copy host stores to the pages of bytes [first, last) to the GPU's copy, byte by byte; later GPU stores
        are kept."""
        if self.bar is None or self.gl2 is not None or (self.host_mappings == 0 and self.flushed_unmapped):
            return
        first, last = first // PAGE_BYTES * PAGE_BYTES, round_up(last, PAGE_BYTES)
        with self.lock:
            for start, end in self.bar.list_extents():
                for index in range(max(start, first), min(end, last), _CHUNK_BYTES):
                    self._take_host_writes(index, min(index + _CHUNK_BYTES, end, last))
            self.flushed_unmapped = self.host_mappings == 0 and first == 0 and last == self.size_bytes

    def find_unflushed(self, start: int, end: int) -> int | None:
        """Return the first byte in [start, end) that the host stored to since the last HDP flush."""
        if self.bar is None or self.gl2 is not None or (self.host_mappings == 0 and self.flushed_unmapped):
            return None
        with self.lock:
            host = np.frombuffer(self.bar.view[start:end], np.uint8)
            gpu = np.frombuffer(self.store.view[start:end], np.uint8)
            if np.array_equal(host, gpu):
                return None
            for page in range(start // PAGE_BYTES, (end - 1) // PAGE_BYTES + 1):
                first, last = max(start, page * PAGE_BYTES), min(end, (page + 1) * PAGE_BYTES)
                hosts, before = bytes(self.bar.view[first:last]), self.before.get(page)
                if before is not None:
                    before = before[first - page * PAGE_BYTES : last - page * PAGE_BYTES]
                    if hosts == before:  # only the GPU stored here
                        continue
                stored = host[first - start : last - start] != gpu[first - start : last - start]
                if before is not None:
                    stored &= np.frombuffer(hosts, np.uint8) != np.frombuffer(before, np.uint8)
                if stored.any():
                    return first + int(stored.argmax())
        return None

    def _take_host_writes(self, start: int, end: int) -> None:
        assert self.bar is not None
        host = np.frombuffer(self.bar.view[start:end], np.uint64)
        gpu = np.frombuffer(self.store.view[start:end], np.uint64)
        if np.array_equal(host, gpu):
            return
        differ = np.flatnonzero((host != gpu).reshape(-1, PAGE_BYTES // 8).any(axis=1))
        pages = differ + start // PAGE_BYTES
        if not self.before:  # the usual case, an upload: whole runs of pages
            for run in np.split(pages, np.flatnonzero(np.diff(pages) != 1) + 1):
                where = slice(int(run[0]) * PAGE_BYTES, int(run[-1] + 1) * PAGE_BYTES)
                self.store.view[where] = self.bar.view[where]
            return
        for page in pages:
            where = slice(int(page) * PAGE_BYTES, int(page + 1) * PAGE_BYTES)
            before = self.before.get(int(page))
            if before is None:
                self.store.view[where] = self.bar.view[where]
                continue
            hosts = np.frombuffer(self.bar.view[where], np.uint8)
            written = hosts != np.frombuffer(before, np.uint8)
            np.frombuffer(self.store.view[where], np.uint8)[written] = hosts[written]
            merged = np.frombuffer(before, np.uint8).copy()
            merged[written] = hosts[written]
            self.before[int(page)] = merged.tobytes()

    def write_back(self) -> None:
        """Copy GPU stores to the host's copy; host stores that were not flushed are kept."""
        if self.bar is None or not self.before:
            return
        with self.lock:
            self._copy_gpu_stores()

    def _copy_gpu_stores(self) -> None:
        assert self.bar is not None
        for page, before in self.before.items():
            where = slice(page * PAGE_BYTES, (page + 1) * PAGE_BYTES)
            gpu = np.frombuffer(self.store.view[where], np.uint8)
            written = gpu != np.frombuffer(before, np.uint8)
            np.frombuffer(self.bar.view[where], np.uint8)[written] = gpu[written]
        self._forget_saved()

    def is_unwritten(self, offset: int) -> bool:
        """Return whether the GPU's value at this byte differs from the host's."""
        if self.bar is None or offset // PAGE_BYTES not in self.before:
            return False
        return bytes(self.bar.view[offset : offset + 4]) != bytes(self.store.view[offset : offset + 4])

    def _forget_saved(self) -> None:
        self.before.clear()
        if self.saved is not None:
            self.saved[:] = 0

    def add_host_mapping(self, coherence: str) -> SharedStore:
        """Return the memory of a host mapping; the first one creates the second copy of VRAM."""
        assert isinstance(self.store, SharedStore)
        self.host_mappings += 1
        self.flushed_unmapped = False
        self.written = None
        self.host_changes += 1
        if self.gl2 is not None:
            assert isinstance(self.bar, SharedStore)
            return self.bar
        if self.heap is not Heap.VRAM or coherence == "direct":
            return self.store
        if self.bar is None:
            bar = SharedStore(f"bar {self.name}", self.size_bytes)
            for start, end in self.store.list_extents():
                bar.view[start:end] = self.store.view[start:end]
            self.saved = np.zeros(self.size_bytes // PAGE_BYTES, np.uint8)
            self.bar = bar
        assert isinstance(self.bar, SharedStore)
        return self.bar

    @property
    def host_view(self) -> SharedStore | BorrowedStore:
        """Return the bytes as the kernel sees them, bypassing the GPU's caches."""
        return self.store if self.gl2 is None or self.bar is None else self.bar

    def cache(self, host: SharedStore | BorrowedStore) -> None:
        """Start caching this host memory: `host` is the memory, `store` the GPU's view of it."""
        assert isinstance(self.store, SharedStore)
        self.bar = host
        self.saved = np.zeros(self.size_bytes // PAGE_BYTES, np.uint8)
        self.gl2 = Gl2Lines(self.store, host, self.before)
        self.host_changes += 1

    def stop_caching(self) -> None:
        """Stop caching: mapped as uncached, so both sides share one memory."""
        if self.gl2 is None or self.bar is None:
            return
        with self.lock:
            self._copy_gpu_stores()
            old, self.store = self.store, self.bar
            self.bar = self.gl2 = self.saved = None
            self.host_changes += 1
        old.close()

    def remove_host_mapping(self) -> None:
        self.host_mappings -= 1

    def close(self) -> None:
        self.store.close()
        if self.bar is not None:
            self.bar.close()


BoRange = tuple[Bo, int, int]  # first byte, byte after the last


class GpuMemory:
    """Heaps of one machine: byte accounting, limits, every live buffer."""

    def __init__(self, vram_bytes: int, gtt_bytes: int, bar_bytes: int) -> None:
        self.limit = {Heap.VRAM: vram_bytes, Heap.GTT: gtt_bytes, Heap.USERPTR: gtt_bytes}
        self.used = dict.fromkeys(Heap, 0)
        self.bar_bytes = bar_bytes
        self.bos: dict[Bo, None] = {}  # oldest first
        self.evictions = 0  # AMDGPU_INFO_NUM_EVICTIONS
        self.lock = threading.Lock()

    @property
    def large_bar(self) -> bool:
        return self.bar_bytes >= self.limit[Heap.VRAM]

    def count_available_bytes(self, heap: Heap) -> int:
        used = self.used[heap]
        if heap is not Heap.VRAM:  # system memory is one pool
            used = self.used[Heap.GTT] + self.used[Heap.USERPTR]
        return max(0, self.limit[heap] - used)

    @property
    def count_visible_used(self) -> int:
        """Return how much of the VRAM that the CPU can access is used; with a large BAR that is all of it."""
        if self.large_bar:
            return self.used[Heap.VRAM]
        return sum(bo.size_bytes for bo in self.snapshot() if bo.heap is Heap.VRAM and bo.visible)

    @property
    def count_visible_bytes(self) -> int:
        """Return the free part of the VRAM that the CPU can access."""
        return min(max(0, self.bar_bytes - self.count_visible_used), self.count_available_bytes(Heap.VRAM))

    def show(self, bo: Bo) -> None:
        """Move a buffer to memory that the CPU can access: visible VRAM if it has room, otherwise host memory
        (amdgpu_bo_fault_reserve_notify). ENOMEM without room in either."""
        if bo.heap is not Heap.VRAM or bo.visible or self.large_bar:
            return
        if bo.size_bytes <= self.bar_bytes - self.count_visible_used:
            bo.visible = True
            return
        if not self.move_to_host(bo):
            raise OSError(errno.ENOMEM, "no memory that the CPU can access")

    def move_to_host(self, bo: Bo) -> bool:
        """Move a buffer from VRAM to host memory. Return False if that has no room."""
        with self.lock:
            if bo.size_bytes > self.count_available_bytes(Heap.GTT):
                return False
            self.used[Heap.VRAM] -= bo.size_bytes
            self.used[Heap.GTT] += bo.size_bytes
            bo.heap = Heap.GTT
        return True

    def allocate(
        self,
        heap: Heap,
        size_bytes: int,
        name: str,
        *,
        host_visible: bool = True,
        public: bool = False,
        pages: memoryview | None = None,
        cached: bool = False,
    ) -> Bo:
        """Allocate zeroed memory. ENOMEM beyond the heap's limit. `pages`: the client's own, for USERPTR.
        `cached`: the GPU caches this host memory."""
        size_bytes = round_up(size_bytes, PAGE_BYTES)
        with self.lock:
            if heap in self.limit and size_bytes > self.count_available_bytes(heap):
                raise OSError(errno.ENOMEM, f"{heap.value}: {size_bytes} bytes requested")
            self.used[heap] += size_bytes
        try:
            store = SharedStore(name, size_bytes) if pages is None or cached else BorrowedStore(pages)
            host = None
            if cached:
                host = SharedStore(f"host {name}", size_bytes) if pages is None else BorrowedStore(pages)
        except OSError:
            with self.lock:
                self.used[heap] -= size_bytes
            raise
        bo = Bo(heap, size_bytes, store, name, host_visible, public)
        if host is not None:
            bo.cache(host)
        if heap in (Heap.VRAM, Heap.GTT):
            bo.written = InitialisedBytes(size_bytes)
        with self.lock:
            self.bos[bo] = None
        return bo

    def release(self, bo: Bo) -> None:
        """Drop one reference; the last one frees the buffer."""
        with self.lock:
            bo.references -= 1
            if bo.references > 0:
                return
            self.bos.pop(bo, None)
            self.used[bo.heap] -= bo.size_bytes
        bo.close()

    def snapshot(self) -> list[Bo]:
        with self.lock:
            return list(self.bos)

    def lose_vram(self) -> None:
        """Clear VRAM after a reset that lost its content."""
        for bo in self.snapshot():
            if bo.heap is Heap.VRAM:
                for copy in (bo.store, bo.bar) if bo.bar is not None else (bo.store,):
                    for start, end in copy.list_extents():
                        copy.view[start:end] = b"\xef" * (end - start)
                bo._forget_saved()
