"""The common interface of both transports, so that T1 and T2 share one ring implementation.

A transport owns one GPU's memory and queues through a Driver. The ring module

    with transport.create_queue(ring_bytes=1 << 20) as queue:
        queue.ring.host.view          # write packets here, at wptr modulo the ring
        queue.wptr.host.address       # then store the new wptr, 64 bits, in dwords, never wrapped
        queue.doorbell_address        # then one aligned 64-bit store of the same value
        queue.rptr.host.address       # what the command processor has fetched

and uses two properties that differ between the tiers: `inherits_vmid` (indirect buffers carry the bit) and
`kmd_fence` (a submission that amdgpu must wait for ends with PROTECTED_FENCE_SIGNAL, then `userq_signal`). Closing
releases everything: buffers, queues and fds are counted in `resources()`, which is empty afterwards.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, Self

from zinc_rt.kmd.driver import Driver, Mapping
from zinc_rt.kmd.errors import DriverError
from zinc_rt.kmd.resources import AllocatedResource, Ledger
from zinc_rt.kmd.syscalls import PAGE_BYTES, round_up_to_pages


class Placement(Enum):
    """The location of a buffer and its caching."""

    VRAM = "vram"  # no CPU access
    VRAM_BAR = "vram_bar"  # the CPU writes through the BAR: `flush_hdp` before the GPU reads
    GTT = "gtt"  # host memory the GPU does not cache: coherent
    GTT_CACHED = "gtt_cached"  # host memory the GPU caches: needs cache packets
    USERPTR = "userptr"  # this process's own pages, T1 only


HOST_VISIBLE = frozenset(Placement) - {Placement.VRAM}


LARGE_BYTES = 2 << 20  # a page-table fragment: larger buffers start on one


def choose_alignment(size_bytes: int) -> int:
    """Return the alignment of the GPU address of a buffer of this size."""
    return LARGE_BYTES if size_bytes >= LARGE_BYTES else PAGE_BYTES


@dataclass(eq=False, slots=True)
class DeviceBuffer:
    """GPU memory at `gpu_va`. Owned by the transport that created it; `free` releases it early."""

    name: str
    gpu_va: int
    size_bytes: int  # whole pages
    placement: Placement  # where it lies, which after a fallback is not where it was asked for
    handle: int
    mapping: Mapping | None
    held: list[AllocatedResource] = field(default_factory=list, repr=False)

    @classmethod
    def empty(cls, name: str, size_bytes: int, placement: Placement) -> Self:
        """Return a buffer of whole pages without an address, a handle or a mapping, which the transport fills
        in.
        """
        if size_bytes <= 0:
            raise ValueError(f"{name}: invalid size of {size_bytes} bytes")
        return cls(name, 0, round_up_to_pages(size_bytes), placement, 0, None)

    def hold(self, ledger: Ledger, kind: str, give_back: Callable[[], None]) -> None:
        """Track one more part of this buffer, which `free` releases."""
        self.held.append(ledger.hold(kind, self.name, give_back))

    @property
    def host(self) -> Mapping:
        """Return the CPU's mapping, whose address may differ from `gpu_va`."""
        if self.mapping is None:
            raise ValueError(f"{self.name} is in {self.placement.value}, which the CPU cannot access")
        return self.mapping

    def free(self) -> None:
        """Release its parts, latest first. Can be repeated after a failure."""
        for held in reversed(self.held):
            held.release()


@dataclass(eq=False)
class Queue:
    """A live PM4 compute queue. `destroy` releases the queue, then its buffers."""

    kind: str  # "kfd" or "userq"
    queue_id: int
    generation: tuple[int, int, int]  # of the chip: (12, 0, 1) is gfx1201
    ring: DeviceBuffer
    rptr: DeviceBuffer  # u64 at 0, dwords; KFD writes it modulo the ring
    wptr: DeviceBuffer  # u64 at 0, dwords
    eop: DeviceBuffer
    doorbell_address: int  # of this queue's 8 bytes, in this process
    inherits_vmid: bool
    kmd_fence: bool
    save_area: DeviceBuffer | None = None
    held: list[AllocatedResource] = field(default_factory=list, repr=False)
    lost: DriverError | None = None  # KFD tore the queue down but said so with an error

    @property
    def ring_dw(self) -> int:
        return self.ring.size_bytes // 4

    def destroy(self) -> None:
        """Release everything, then raise `lost` if it is set."""
        for held in reversed(self.held):
            held.release()
        lost, self.lost = self.lost, None
        if lost is not None:
            raise lost

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.destroy()


@dataclass(frozen=True, slots=True)
class MemoryFault:
    """A fault on a GPU address. `status` is the raw register value if its bits are not decoded."""

    va: int  # of the page
    not_present: bool = False
    read_only: bool = False
    no_execute: bool = False
    imprecise: bool = False
    status: int = 0
    gpu_id: int = 0
    error_type: int = 0  # KFD_MEM_ERR_*


class Transport(Protocol):
    """One GPU through one driver. A context manager."""

    kind: str
    driver: Driver
    generation: tuple[int, int, int]
    fallbacks: list[str]  # each allocation that did not get the placement it asked for, and why

    def alloc(
        self, size_bytes: int, placement: Placement, name: str, *, fallback: Placement | None = None
    ) -> DeviceBuffer:
        """Allocate a buffer for the GPU and, if possible, the CPU. Without `fallback`, a failed placement is an
        error."""

    def create_queue(self, *, ring_bytes: int) -> Queue: ...

    def flush_hdp(self) -> None:
        """Make CPU writes through the BAR visible to the GPU. Raise an error if the transport does not support
        it.
        """

    def resources(self) -> dict[str, int]: ...

    def close(self) -> None: ...


def check_ring(ring_bytes: int) -> None:
    """Raise an error unless the ring is a power of two of whole pages, as KFD and amdgpu require."""
    if ring_bytes < 4096 or ring_bytes & (ring_bytes - 1):
        raise ValueError(f"ring_bytes {ring_bytes}: expected a power of two of at least 4096")


def allocate_or_fall_back(
    allocate: Callable[[Placement], DeviceBuffer],
    name: str,
    placement: Placement,
    fallback: Placement | None,
    *,
    refused_by: Sequence[str],
    fallbacks: list[str],
) -> DeviceBuffer:
    """Allocate in `placement`, or in `fallback` if one of the calls fails (EINVAL, ENOMEM), with a line in
    `fallbacks`.
    """
    try:
        return allocate(placement)
    except DriverError as error:
        refused = error.call in refused_by and error.errno in (errno.EINVAL, errno.ENOMEM)
        if fallback is None or not refused:
            raise
        fallbacks.append(f"{name}: {placement.value} refused ({error.why}), {fallback.value} instead")
        return allocate(fallback)
