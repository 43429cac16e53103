"""GPU virtual memory of one client: 4 KiB pages, permissions, faults, and the instruction cache."""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from zinc_rt.sim.chips import PAGE_BYTES
from zinc_rt.sim.interfaces import AccessKind, Fault
from zinc_rt.sim.memory.buffers import Bo, BoRange
from zinc_rt.sim.memory.initialised_bytes import InitialisedBytes

VA_FIRST = 0x10000  # amdgpu_vm.h: the first 64 KiB stay free
VA_HOLE_START = 1 << 47  # canonical addresses, as amdgpu divides them
VA_HOLE_END = (1 << 64) - (1 << 47)
VA_TOP_RESERVED = (1 << 64) - (1 << 21)  # csa, seq64 and trap buffers are at the top
# GCVM_L2_PROTECTION_FAULT_FAULT_STATUS: permission faults in bits 7:4, write in bit 18 (gc_12_0_0_sh_mask.h)
_FAULT_STATUS = {AccessKind.READ: 1 << 4, AccessKind.WRITE: 1 << 5 | 1 << 18, AccessKind.EXECUTE: 1 << 6}
FREED_KEPT = 1024  # names of unmapped or freed buffers, for fault reports


@dataclass(frozen=True, slots=True)
class VmSpan:
    """One mapping: [start, start + size_bytes) shows `bo` from `offset`."""

    start: int
    size_bytes: int
    bo: Bo
    offset: int
    write: bool
    execute: bool
    read: bool = True

    @property
    def end(self) -> int:
        return self.start + self.size_bytes

    def is_allowed(self, access: AccessKind) -> str:
        """Return the reason why the access is not allowed, or ""."""
        if access is AccessKind.WRITE:
            return "" if self.write else "read only"
        if access is AccessKind.EXECUTE:
            return "" if self.execute else "no execute"
        return "" if self.read else "not present"


class WaveCaches(Protocol):
    """Caches of wave loads, which may contain stale lines. Implemented in sim.shader.memory.line_caches."""

    def invalidate(
        self, *, vector: bool, scalar: bool, array: bool, inside: tuple[int, int] | None = None
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class _Table:
    starts: tuple[int, ...] = ()
    spans: tuple[VmSpan, ...] = ()


@dataclass(frozen=True, slots=True)
class AnnouncedRange:
    """A suballocation named by the client."""

    va: int
    size_bytes: int
    name: str


class GpuVm:
    """Implements sim.interfaces.AddressSpace. The table is replaced as a whole, so readers need no lock; the
    owner serialises map and unmap."""

    def __init__(
        self,
        *,
        flush_hdp: Callable[[Iterable[BoRange] | None], None] = lambda ranges: None,
        write_back: Callable[[], None] = lambda: None,
        invalidates: Callable[[], bool] = lambda: True,
        keeps_code: bool = True,
    ) -> None:
        """Create an empty address space. `keeps_code`: fetched code stays cached until it is invalidated."""
        self._table = _Table()
        self._uncached_at = -1  # the version whose coherent buffers are not cached
        self._cached = False  # whether host memory that GL2 caches has ever been mapped
        self._flush_hdp, self._write_back, self._invalidates = flush_hdp, write_back, invalidates
        self._keeps_code = keeps_code
        self._icache: dict[int, bytes] = {}  # page number: as first fetched
        self._announced: dict[tuple[int, str], AnnouncedRange] = {}  # by address and name, the latest last
        self._allocations: dict[int, AnnouncedRange] = {}  # by address: of clients that do not know this device
        self._rooms: dict[int, int] = {}  # of these: the bytes that belong to no other
        self._all_announced: tuple[AnnouncedRange, ...] = ()
        self._all_announced_at = -1
        self._described: dict[int, str] = {}
        self._described_at = 0
        self._freed: deque[NamedRange] = deque(maxlen=FREED_KEPT)
        self.version = 0  # counts changes of the mappings and the announcements
        self.wave_caches: WaveCaches | None = None  # with --coherence caches, once waves have run
        self.last_fault: tuple[int, int] = (0, 0)  # address, status: INFO GPUVM_FAULT

    # --- the driver's side ---

    def map(
        self,
        va: int,
        size_bytes: int,
        bo: Bo,
        *,
        offset: int = 0,
        write: bool = True,
        execute: bool = True,
        read: bool = True,
        kernels: bool = False,
    ) -> VmSpan:
        """Map a buffer. EINVAL for a range that is unaligned, invalid, outside the buffer, or already
        mapped. `kernels`: in the range reserved at the top."""
        if not kernels:
            self.check_range(va, size_bytes)
        if offset % PAGE_BYTES or offset + size_bytes > bo.size_bytes:
            raise OSError(errno.EINVAL, "outside the buffer")
        if next(self.iterate_overlapping(va, size_bytes), None) is not None:
            raise OSError(errno.EINVAL, f"0x{va:x} is taken")
        span = VmSpan(va, size_bytes, bo, offset, write, execute, read)
        self._cached = self._cached or bo.gl2 is not None
        table = self._table
        position = bisect_right(table.starts, va)
        self._table = _Table(
            (*table.starts[:position], va, *table.starts[position:]),
            (*table.spans[:position], span, *table.spans[position:]),
        )
        self.version += 1
        return span

    def unmap(self, span: VmSpan) -> None:
        kept = [item for item in self._table.spans if item is not span]
        if len(kept) == len(self._table.spans):
            raise OSError(errno.EINVAL, "not mapped")
        self._table = _Table(tuple(item.start for item in kept), tuple(kept))
        self._freed.append(NamedRange(span.start, span.end, span.bo.name))
        self._forget_names(span.start, span.end)
        self.version += 1
        pages = range(span.start // PAGE_BYTES, span.end // PAGE_BYTES)
        for page in [page for page in list(self._icache) if page in pages]:
            self._icache.pop(page, None)

    def _forget_names(self, start: int, end: int) -> None:
        """Drop the announced names in the range, because its next mapping has new names."""
        for va in [va for va in self._allocations if start <= va < end]:
            self.withdraw_allocation(va)
        for key in [key for key, item in self._announced.items() if start <= item.va < end]:
            gone = self._announced.pop(key)
            self._freed.append(NamedRange(gone.va, gone.va + gone.size_bytes, gone.name))

    def clear(self) -> list[VmSpan]:
        spans, self._table = list(self._table.spans), _Table()
        self._announced.clear()
        self._allocations.clear()
        self.version += 1
        self._icache.clear()
        return spans

    @staticmethod
    def check_range(va: int, size_bytes: int) -> None:
        end = va + size_bytes
        wrong = va % PAGE_BYTES or size_bytes % PAGE_BYTES or size_bytes <= 0 or va < VA_FIRST
        if wrong or end > VA_TOP_RESERVED or (end > VA_HOLE_START and va < VA_HOLE_END):
            raise OSError(errno.EINVAL, f"0x{va:x} with 0x{size_bytes:x} bytes is no valid range")

    def iterate_overlapping(self, va: int, size_bytes: int) -> Iterator[VmSpan]:
        table = self._table
        for span in table.spans[max(0, bisect_right(table.starts, va) - 1) :]:
            if span.start >= va + size_bytes:
                break
            if span.end > va:
                yield span

    def find_span(self, va: int) -> VmSpan | None:
        table = self._table
        offset = bisect_right(table.starts, va) - 1
        return table.spans[offset] if offset >= 0 and va < table.spans[offset].end else None

    @property
    def spans(self) -> tuple[VmSpan, ...]:
        return self._table.spans

    def record_fault(self, fault: Fault) -> None:
        """Record the last fault, for INFO GPUVM_FAULT."""
        self.last_fault = (fault.va & ~0xFFF, _FAULT_STATUS[fault.access])

    def announce(self, va: int, size_bytes: int, name: str) -> None:
        """Announce a suballocation, for bounds checks and messages; size 0 withdraws those that start
        there and marks their bytes as uninitialised, except where another suballocation covers them."""
        self.announce_all([(va, size_bytes, name)])

    def announce_all(self, rows: Iterable[tuple[int, int, str]]) -> None:
        """Announce each (VA, bytes, name), in order."""
        for va, size_bytes, name in rows:
            if size_bytes:
                self._announced.pop((va, name), None)
                self._announced[va, name] = AnnouncedRange(va, size_bytes, name)
            else:
                self._remove_ranges([key for key in self._announced if key[0] == va])
        self.version += 1

    def announce_allocation(self, va: int, size_bytes: int, room_bytes: int, name: str) -> bool:
        """Announce an allocation of a client that does not know this device. The bytes after it, up to the end of
        the page of the last of `room_bytes`, belong to no allocation. The rest of the buffer stays accessible: the
        client's libraries may use it. Return whether the address is mapped here."""
        if self.find_span(va) is None:
            return False
        self._allocations[va] = AnnouncedRange(va, size_bytes, name)
        self._rooms[va] = room_bytes
        self.version += 1
        return True

    def withdraw_allocation(self, va: int) -> None:
        """Withdraw an allocation that was freed. Its bytes count as uninitialised."""
        gone = self._allocations.pop(va, None)
        if gone is not None:
            self._freed.append(NamedRange(gone.va, gone.va + gone.size_bytes, gone.name))
            self._forget(gone.va, gone.va + gone.size_bytes)
            self.version += 1

    def _remove_ranges(self, keys: list[tuple[int, str]]) -> None:
        gone = [self._announced.pop(key) for key in keys]
        for item in gone:
            self._freed.append(NamedRange(item.va, item.va + item.size_bytes, item.name))
            for start, end in _subtract_ranges(item.va, item.va + item.size_bytes, self._announced.values()):
                self._forget(start, end)

    def discard(self, va: int, size_bytes: int) -> None:
        """Mark these bytes as uninitialised, like fresh memory."""
        self._forget(va, va + size_bytes)
        self.version += 1  # pages known to be fully written must be checked again

    def discard_mapped(self, va: int, size_bytes: int) -> None:
        """Mark these bytes as uninitialised although the host maps them; all other bytes that it maps remain
        initialised.
        """
        for span in self.iterate_overlapping(va, size_bytes):
            bo, start, end = span.bo, max(va, span.start), min(va + size_bytes, span.end)
            if bo.written is None:
                bo.written = InitialisedBytes(bo.size_bytes)
                bo.written.mark(0, bo.size_bytes)
                bo.host_changes += 1
            bo.written.forget_bytes(start - span.start + span.offset, end - start)
        self.version += 1

    def initialised(self, va: int, size_bytes: int) -> np.ndarray:
        """Return whether each byte is initialised, as uint8 [size_bytes] of 0 and 1; unmapped bytes are not."""
        result = np.zeros(size_bytes, np.uint8)
        for span in self.iterate_overlapping(va, size_bytes):
            start, end = max(va, span.start), min(va + size_bytes, span.end)
            written, offset = span.bo.written, start - span.start + span.offset
            result[start - va : end - va] = 1 if written is None else written.read_bytes(offset, end - start)
        return result

    def _forget(self, start: int, end: int) -> None:
        """Mark whole dwords only."""
        for span in self.iterate_overlapping(start, end - start):
            first, last = -(-max(start, span.start) // 4) * 4, min(end, span.end) // 4 * 4
            if span.bo.written is not None and first < last:
                span.bo.written.forget(first - span.start + span.offset, last - first)

    @property
    def announced(self) -> tuple[AnnouncedRange, ...]:
        """Return the ranges that accesses must stay in, in a buffer with at least one of them."""
        if not self._allocations:
            return tuple(self._announced.values())
        if self._all_announced_at != self.version:
            self._all_announced = (*self._list_named(), *self._list_rest())
            self._all_announced_at = self.version
        return self._all_announced

    def _list_named(self) -> list[AnnouncedRange]:
        return [*self._announced.values(), *self._allocations.values()]

    def _list_rest(self) -> Iterator[AnnouncedRange]:
        """Return the parts of buffers with allocations that belong to none of them."""
        rooms = [
            AnnouncedRange(va, -(-(va + self._rooms[va]) // PAGE_BYTES) * PAGE_BYTES - va, item.name)
            for va, item in self._allocations.items()
        ]
        for span in self._table.spans:
            inside = [room for room in rooms if span.start <= room.va < span.end]
            for start, end in _subtract_ranges(span.start, span.end, inside) if inside else ():
                yield AnnouncedRange(start, end - start, f"rest of {span.bo.name}")

    # --- the hardware's side: AddressSpace ---

    def _walk(self, va: int, size_bytes: int, access: AccessKind) -> list[tuple[VmSpan, int, int]]:
        """Return (span, offset in its buffer, bytes) in order; all are checked before any is accessed."""
        pieces = []
        offset, end = va, va + size_bytes
        while offset < end:
            span = self.find_span(offset)
            if span is None:
                raise Fault(offset, access, "not present")
            reason = span.is_allowed(access)
            if reason:
                raise Fault(offset, access, reason)
            size = min(end, span.end) - offset
            pieces.append((span, span.offset + offset - span.start, size))
            offset += size
        return pieces

    def read(self, va: int, size_bytes: int) -> bytes:
        pieces = self._walk(va, size_bytes, AccessKind.READ)
        if self._cached:
            for span, index, size in pieces:
                span.bo.prepare_gpu_read(index, size)
        return b"".join(bytes(span.bo.store.view[index : index + size]) for span, index, size in pieces)

    def write(self, va: int, data: bytes) -> None:
        pieces = self._walk(va, len(data), AccessKind.WRITE)
        result = 0
        for span, index, size in pieces:
            span.bo.prepare_gpu_write(index, size)
            part = data[result : result + size]
            if size == 4 and index % 4 == 0:
                span.bo.store.u32[index // 4] = int.from_bytes(part, "little")
            elif size == 8 and index % 8 == 0:
                span.bo.store.u64[index // 8] = int.from_bytes(part, "little")
            else:
                span.bo.store.view[index : index + size] = part
            result += size

    def view(self, va: int, size_bytes: int, access: AccessKind) -> memoryview:
        pieces = self._walk(va, size_bytes, access)
        if len(pieces) != 1:
            raise ValueError(f"0x{va:x}: a range of {size_bytes} bytes spans {len(pieces)} allocations")
        span, offset, size = pieces[0]
        if access is AccessKind.WRITE:
            span.bo.prepare_gpu_write(offset, size)
        elif self._cached:
            span.bo.prepare_gpu_read(offset, size)
        return span.bo.store.view[offset : offset + size]

    def fetch(self, va: int, size_bytes: int) -> bytes:
        self._walk(va, size_bytes, AccessKind.EXECUTE)
        first, last = va // PAGE_BYTES, (va + size_bytes - 1) // PAGE_BYTES
        code = b"".join(self._fetch_page(page) for page in range(first, last + 1))
        return code[va - first * PAGE_BYTES :][:size_bytes]

    def _fetch_page(self, page: int) -> bytes:
        if page not in self._icache or not self._keeps_code:
            [(span, offset, size)] = self._walk(page * PAGE_BYTES, PAGE_BYTES, AccessKind.EXECUTE)
            if self._cached:
                span.bo.prepare_gpu_read(offset, size)
            self._icache[page] = bytes(span.bo.store.view[offset : offset + size])
        return self._icache[page]

    def describe(self, va: int) -> str:
        """Describe the address, with a cache: the same kernel addresses are described repeatedly."""
        if self._described_at != self.version:
            self._described.clear()
            self._described_at = self.version
        known = self._described.get(va)
        if known is None:
            known = self._described[va] = self._describe(va)
        return known

    def _describe(self, va: int) -> str:
        inside = [item for item in self._list_named() if item.va <= va < item.va + item.size_bytes]
        if inside:
            smallest = min(inside, key=lambda item: item.size_bytes)
            return f"{smallest.name}+0x{va - smallest.va:x}"
        span = self.find_span(va)
        if span is None:
            return "unmapped"
        return f"{span.bo.name}+0x{va - span.start + span.offset:x}{self._find_nearest_range(span, va)}"

    def nearby(self, va: int) -> str:
        if self.find_span(va) is not None:
            return self.describe(va)
        live = [NamedRange(span.start, span.end, span.bo.name) for span in self._table.spans]
        live += [NamedRange(item.va, item.va + item.size_bytes, item.name) for item in self._list_named()]
        return describe_neighbours(va, live, self._freed)

    def _find_nearest_range(self, span: VmSpan, va: int) -> str:
        """Return the announced suballocation of the span nearest to an address outside all of them."""
        distances = [
            (va - item.va - item.size_bytes, item.name, "past the end of")
            if va > item.va
            else (item.va - va, item.name, "before")
            for item in self._list_named()
            if item.va < span.end and item.va + item.size_bytes > span.start
        ]
        if not distances:
            return ""
        distance, name, where = min(distances)
        return f", {distance} bytes {where} {name}"

    def flush_hdp(self, inside: tuple[int, int] | None = None) -> None:
        if inside is None:
            self._flush_hdp(None)
        else:
            self._flush_hdp(
                [(span.bo, start, end) for span, start, end in self._iterate_inside(inside[0], sum(inside))]
            )

    def find_unflushed(self, ranges: Iterable[tuple[int, int]]) -> int | None:
        for va, size_bytes in ranges:
            for span, start, end in self._iterate_inside(va, va + size_bytes):
                offset = span.bo.find_unflushed(start, end)
                if offset is not None:
                    return span.start + offset - span.offset
        return None

    def write_back(self) -> None:
        self._write_back()

    def host_sees(self, va: int) -> bool:
        """Return True for memory without a second copy and for unmapped addresses."""
        span = self.find_span(va)
        return span is None or not span.bo.is_unwritten(span.offset + va - span.start)

    def before_waves(self) -> None:
        if self._cached:
            for bo in {span.bo for span in self._table.spans if span.bo.gl2 is not None}:
                with bo.lock:
                    if bo.gl2 is not None:
                        bo.gl2.renew()

    def stop_caching_coherent(self) -> None:
        if self._cached and self._uncached_at != self.version:
            self._uncached_at = self.version
            for bo in {span.bo for span in self._table.spans if span.bo.coherent and span.bo.gl2 is not None}:
                bo.stop_caching()

    def after_waves(self, touched: Iterable[tuple[int, int]]) -> None:
        if not self._cached:
            return
        for va, size_bytes in touched:
            for span, start, end in self._iterate_inside(va, va + size_bytes):
                if span.bo.gl2 is not None:
                    span.bo.gl2.hold(start, end - start)

    def invalidate_gl2(self, inside: tuple[int, int] | None = None) -> None:
        if not self._cached:
            return
        va, size_bytes = inside or (0, 1 << 64)
        for span, start, end in self._iterate_inside(va, va + size_bytes):
            if span.bo.gl2 is not None:
                span.bo.gl2.invalidate(start, end - start)

    def invalidate_wave_caches(
        self, *, vector: bool, scalar: bool, array: bool, inside: tuple[int, int] | None = None
    ) -> None:
        if self.wave_caches is not None and (vector or scalar or array):
            self.wave_caches.invalidate(vector=vector, scalar=scalar, array=array, inside=inside)

    def _iterate_inside(self, va: int, end: int) -> Iterator[tuple[VmSpan, int, int]]:
        """Return (span, first byte in its buffer, end byte) of the mappings in [va, end)."""
        for span in self.iterate_overlapping(va, end - va):
            first, last = max(va, span.start), min(end, span.end)
            yield span, span.offset + first - span.start, span.offset + last - span.start

    def invalidate_icache(self) -> None:
        if self._invalidates():
            self._icache.clear()


def _subtract_ranges(start: int, end: int, others: Iterable[AnnouncedRange]) -> Iterator[tuple[int, int]]:
    """Return the parts of [start, end) outside all the others."""
    for item in sorted(others, key=lambda one: one.va):
        if item.va < end and item.va + item.size_bytes > start:
            if item.va > start:
                yield start, item.va
            start = max(start, item.va + item.size_bytes)
    if start < end:
        yield start, end


FAR_BYTES = 1 << 30  # buffers further away are unrelated
NULL_BYTES = 1 << 16  # amdgpu leaves the first 64 KiB of every address space free


@dataclass(frozen=True, slots=True)
class NamedRange:
    """The current or former name of [start, end)."""

    start: int
    end: int
    name: str


def describe_neighbours(va: int, live: Iterable[NamedRange], freed: Iterable[NamedRange]) -> str:
    """Describe an address outside all of `live`: the one of `freed` (oldest first) that contained it, and
    the neighbours below and above with distances."""
    output = ["a null pointer with a small offset"] if va < NULL_BYTES else []
    before: NamedRange | None = None
    behind: NamedRange | None = None
    for item in live:
        if item.end <= va and (before is None or _is_closer(item, before, before.end, item.end)):
            before = item
        elif item.start > va and (behind is None or _is_closer(item, behind, item.start, behind.start)):
            behind = item
    last = next((item for item in reversed(list(freed)) if item.start <= va < item.end), None)
    if last is not None:
        output.append(f"in {last.name}+0x{va - last.start:x}, which was freed")
    if before is not None and va - before.end < FAR_BYTES:
        output.append(f"{va - before.end} bytes past the end of {before.name}")
    if behind is not None and behind.start - va < FAR_BYTES:
        output.append(f"{behind.start - va} bytes before {behind.name}")
    return "; ".join(["unmapped", *output]) if output else "unmapped, and nothing is mapped within 1 GiB"


def _is_closer(one: NamedRange, other: NamedRange, lower: int, higher: int) -> bool:
    """Return whether `one` is nearer, or equally near and smaller, because a suballocation is more specific than
    its allocation.
    """
    return lower < higher or (lower == higher and one.end - one.start < other.end - other.start)
