"""Prefetch weights of a mapped file with madvise(2). Best effort: failures are ignored.

A model that fits in memory is prefetched completely when its first graph is built. Otherwise weights are
prefetched one layer at a time: while a replay executes one layer, the next ones are read, up to BUDGET_BYTES and a
quarter of the memory. At the last layer, prefetching wraps around to the first layers, for the next token. Weights
that a token reads only in part (a row of the embedding, a few experts) are left to page faults, because most of a
prefetch would be unused.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from zinc_rt.exec import Buffer
from zinc_rt.ir.graph import ABSENT, Node
from zinc_rt.ir.op import OPS
from zinc_rt.kernels.weight import Weight
from zinc_rt.lower import LoweredGraph
from zinc_rt.mem.traffic import PARTLY_READ

BUDGET_BYTES = 1 << 30
LEAST_BYTES = 64 << 20  # a smaller graph is read faster than it is asked for
LOOK_SECONDS = 0.002  # between looks at where a replay is
PIECE_BYTES = 4 << 20  # asked for at a time: between two it is seen where the replay is, and whether it ended
MADV_POPULATE_READ = 22  # include/uapi/asm-generic/mman-common.h
FITS = 0.9  # of the memory that is free or can be freed
ROOM = 0.25  # of memory, at most, that is read ahead
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True, slots=True)
class PageRange:
    """A range of whole pages in this process's memory."""

    address: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class WeightGroup:
    """The weights that neighbouring nodes of one layer read completely, in order of first use."""

    layer: int | None
    ranges: tuple[PageRange, ...]

    @property
    def size_bytes(self) -> int:
        return sum(item.size_bytes for item in self.ranges)


def group_weights(
    lowered: LoweredGraph, buffers: Mapping[str, Buffer]
) -> tuple[tuple[WeightGroup, ...], dict[int, int]]:
    """Return the groups of a lowered graph, and the group of each node by id(node). A weight belongs to the first
    group that reads it."""
    groups: list[tuple[int | None, list[PageRange]]] = []
    where: dict[int, int] = {}
    seen: set[str] = set()
    for call in lowered.calls:
        node = call.node
        weights = list(_list_fully_read_weights(node, lowered))
        of_none = node.layer is None and not weights  # an index table, say: it belongs where it stands
        if not groups or (groups[-1][0] != node.layer and not of_none):
            groups.append((node.layer, []))
        where[id(node)] = len(groups) - 1
        for name in weights:
            if name not in seen:
                seen.add(name)
                groups[-1][1].extend(_list_page_ranges(buffers[name].storage))
    return tuple(WeightGroup(layer, tuple(ranges)) for layer, ranges in groups), where


def _list_fully_read_weights(node: Node, lowered: LoweredGraph) -> Iterator[str]:
    for port, name in zip(OPS[node.op].inputs, node.inputs, strict=False):
        if name == ABSENT or lowered.graph.buffers[name].role != "weight":
            continue
        if (node.op, port.name) not in PARTLY_READ:
            yield name


def _list_page_ranges(weight: Weight) -> Iterator[PageRange]:
    """Return one page range, or one for each non-adjacent part of a weight (a slice of a merged tensor)."""
    raw = weight.raw
    if raw.ndim > 2 and not raw.flags.c_contiguous:
        for part in range(raw.shape[0]):
            yield from _list_page_ranges(weight[part])
        return
    low, high = np.lib.array_utils.byte_bounds(raw)
    start = low // mmap.PAGESIZE * mmap.PAGESIZE
    yield PageRange(start, -(-(high - start) // mmap.PAGESIZE) * mmap.PAGESIZE)


def choose_next_groups(
    groups: Sequence[WeightGroup], position: int, budget_bytes: int = BUDGET_BYTES
) -> list[int]:
    """Return the groups to prefetch while group `position` runs.

    The following groups are selected, wrapping around, up to the budget; at least one.
    """
    following: list[int] = []
    left = budget_bytes
    for step in range(1, len(groups)):
        index = (position + step) % len(groups)
        left -= groups[index].size_bytes
        if left < 0 and any(groups[item].ranges for item in following):
            break
        following.append(index)
    return following


def read_available_memory() -> int:
    """Return the memory available without swapping: free memory and page cache, limited by the container."""
    available = psutil.virtual_memory().available
    for path in CGROUP_LIMITS:
        try:
            text = Path(path).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdigit():
            available = min(available, int(text))
    return available


def advise(pages: PageRange) -> None:
    """Read a range and return when it is resident. MADV_POPULATE_READ reads like a page fault, in large folios and
    long requests. Kernels before 5.14 have only MADV_WILLNEED, which starts an asynchronous read with small pages:
    if memory was short, a token took four times as long (Linux 6.18, virtio disk).
    """
    libc = _load_libc()
    if libc is None:
        return
    where = ctypes.c_void_p(pages.address), ctypes.c_size_t(pages.size_bytes)
    if sys.platform != "linux" or libc.madvise(*where, MADV_POPULATE_READ) != 0:
        libc.madvise(*where, mmap.MADV_WILLNEED)


def _load_libc() -> ctypes.CDLL | None:
    if not hasattr(mmap, "MADV_WILLNEED"):  # Windows
        return None
    return ctypes.CDLL(None)


@dataclass(eq=False, slots=True)
class FollowedGraph:
    """One lowered graph: its groups, and the group of each task (-1 for none). `room_bytes`: limit of the
    prefetched bytes; prefetching more would evict earlier prefetches."""

    groups: tuple[WeightGroup, ...]
    task_group: np.ndarray
    room_bytes: int = BUDGET_BYTES

    @property
    def size_bytes(self) -> int:
        return sum(group.size_bytes for group in self.groups)


class ReadAhead:
    """The prefetcher of one backend. Call `add` when a graph is built; `follow` prefetches while it runs."""

    def __init__(
        self,
        *,
        memory: Callable[[], int] = read_available_memory,
        advise: Callable[[PageRange], None] = advise,
        budget_bytes: int = BUDGET_BYTES,
        least_bytes: int = LEAST_BYTES,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._memory = memory
        self._advise = advise
        self._budget_bytes = budget_bytes
        self._least_bytes = least_bytes
        self._look_seconds = look_seconds
        self._asked: set[PageRange] = set()
        self._whole: threading.Thread | None = None

    def add(
        self, lowered: LoweredGraph, buffers: Mapping[str, Buffer], nodes: Sequence[Node | None]
    ) -> FollowedGraph | None:
        """Prepare a graph. `nodes`: the node of each task. Return None if all its weights fit in memory; then they
        are prefetched here, once."""
        groups, where = group_weights(lowered, buffers)
        of_tasks = [where.get(id(node), -1) for node in nodes]
        followed = FollowedGraph(groups, np.array(of_tasks, np.int32))
        if followed.size_bytes < self._least_bytes:
            return None
        memory = self._memory()
        if followed.size_bytes > FITS * memory:
            followed.room_bytes = int(memory * ROOM)
            return followed
        fresh = [item for group in groups for item in group.ranges if item not in self._asked]
        self._asked.update(fresh)
        if fresh:
            self._whole = threading.Thread(
                target=self._request_pages, args=(WeightGroup(None, tuple(fresh)),), daemon=True
            )
            self._whole.start()
        return None

    def _request_pages(self, group: WeightGroup) -> None:
        for piece in _split_group(group):
            self._advise(piece)

    @contextmanager
    def follow(self, followed: FollowedGraph | None, running: Callable[[], int]) -> Iterator[None]:
        """Prefetch while the body runs a graph. `running` returns the current task."""
        if followed is None or not followed.groups:
            yield
            return
        ended = threading.Event()
        thread = threading.Thread(target=self._follow, args=(followed, running, ended), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _follow(self, followed: FollowedGraph, running: Callable[[], int], ended: threading.Event) -> None:
        last, requested, pieces = -1, list[int](), list[PageRange]()
        while not ended.wait(0 if pieces else self._look_seconds):
            group = int(followed.task_group[min(running(), len(followed.task_group) - 1)])
            if group >= 0 and group != last:
                last, before = group, requested
                budget_bytes = min(self._budget_bytes, followed.room_bytes)
                requested = choose_next_groups(followed.groups, group, budget_bytes)
                fresh = [index for index in requested if index not in before]
                pieces += [piece for index in fresh for piece in _split_group(followed.groups[index])]
            if pieces:
                self._advise(pieces.pop(0))


def _split_group(group: WeightGroup) -> Iterator[PageRange]:
    for item in group.ranges:
        for index in range(0, item.size_bytes, PIECE_BYTES):
            yield PageRange(item.address + index, min(PIECE_BYTES, item.size_bytes - index))
