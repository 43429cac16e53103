"""Buffers of a GPU tier: heaps map to placements, small buffers share allocations, every address has a name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from zinc_rt.backends.amd.addresses import AddressMap, Region
from zinc_rt.exec import Buffer
from zinc_rt.kmd.transport import DeviceBuffer, Placement, Transport
from zinc_rt.mem.arena import align_up
from zinc_rt.mem.heaps import BufferHeap

ALIGNMENT = 256  # of suballocations: code needs it, and no two buffers share a cache line
POOL_BYTES = 1 << 30  # larger allocations are one buffer's own

PLACEMENTS: Mapping[str, tuple[Placement, Placement | None]] = {  # and where else, if refused
    BufferHeap.DEVICE_LOCAL: (Placement.VRAM, None),
    BufferHeap.BAR: (Placement.VRAM_BAR, Placement.GTT),  # a small BAR refuses
    BufferHeap.HOST_VISIBLE: (Placement.GTT, None),
}


Announce = Callable[[Sequence[tuple[int, int, str]]], None]
"""(VA, size in bytes, name) each; size 0 takes it back. Hardware has no such channel (design §5)."""


NamedRange = tuple[int, int, str]
"""(VA, size in bytes, name) of an executable's buffer inside one of the backend's."""


@dataclass(eq=False, slots=True)
class MemoryBlock:
    """One allocation of the transport. It is freed with its last buffer."""

    device: DeviceBuffer
    region: Region
    users: int = 0


@dataclass(eq=False, slots=True)
class Storage:
    """The location of a Buffer of this backend."""

    block: MemoryBlock
    offset_bytes: int
    size_bytes: int
    region: Region | None = field(default=None, repr=False)  # its own name inside the block
    parts: set[NamedRange] = field(default_factory=set, repr=False)  # what executables call their places in it

    @property
    def device(self) -> DeviceBuffer:
        return self.block.device

    @property
    def gpu_va(self) -> int:
        return self.device.gpu_va + self.offset_bytes

    def view(self) -> memoryview:
        """Return the host mapping. Raise ValueError if the CPU cannot map it."""
        return self.device.host.view[self.offset_bytes : self.offset_bytes + self.size_bytes]


class DeviceMemory:
    """All memory that one backend allocated from its transport, except the queues."""

    def __init__(self, transport: Transport, announce: Announce | None = None) -> None:
        """Create an empty memory manager. `announce` receives every suballocation if the device can use it for
        bounds checks."""
        self.addresses = AddressMap()
        self._announce = announce
        self._transport = transport
        self._blocks: list[MemoryBlock] = []

    @property
    def blocks(self) -> tuple[MemoryBlock, ...]:
        """Return every live allocation, oldest first."""
        return tuple(self._blocks)

    def block(
        self, size_bytes: int, placement: Placement, name: str, fallback: Placement | None = None
    ) -> MemoryBlock:
        device = self._transport.alloc(size_bytes, placement, name, fallback=fallback)
        block = MemoryBlock(device, self.addresses.add(device.gpu_va, device.size_bytes, name))
        self._blocks.append(block)
        return block

    def buffer(self, block: MemoryBlock, offset_bytes: int, size_bytes: int, heap: str, name: str) -> Buffer:
        storage = Storage(block, offset_bytes, size_bytes)
        if name != block.region.name:
            storage.region = self.addresses.add(storage.gpu_va, size_bytes, name)
            self.announce([(storage.gpu_va, size_bytes, name)])
        block.users += 1
        return Buffer(name, size_bytes, heap, storage=storage, gpu_va=storage.gpu_va)

    def announce(self, rows: Sequence[tuple[int, int, str]]) -> None:
        """Report named parts of allocations to the device, if it supports that."""
        if self._announce is not None:
            self._announce(rows)

    def name_parts(self, buffer: Buffer, parts: Iterable[NamedRange], *, alone: bool = False) -> None:
        """Name the parts of a buffer that an executable uses. `alone`: replace all other names there."""
        storage: Storage = buffer.storage
        before = storage.parts if alone else set()
        storage.parts = {*storage.parts.difference(before), *parts}
        self.announce([*((va, 0, name) for va, _, name in sorted(before)), *sorted(storage.parts)])

    def free(self, buffer: Buffer) -> None:
        """Free a buffer. Raise ValueError if it is not allocated here or was already freed."""
        storage = buffer.storage
        if not isinstance(storage, Storage) or storage.block not in self._blocks:
            raise ValueError(f"{buffer.name} is not allocated on this device or was already freed")
        buffer.storage = buffer.gpu_va = None
        if storage.region is not None:
            self.addresses.remove(storage.region)
            self.announce([(storage.region.va, 0, storage.region.name)])
        storage.block.users -= 1
        if storage.block.users == 0:
            self.give_back(storage.block)

    def give_back(self, block: MemoryBlock) -> None:
        block.device.free()
        self.addresses.remove(block.region)
        self._blocks.remove(block)

    def close(self) -> list[Exception]:
        """Free everything, latest first; return errors instead of raising them."""
        failures: list[Exception] = []
        for block in reversed(self._blocks.copy()):
            try:
                self.give_back(block)
            except Exception as error:
                failures.append(error)
        return failures


def pack_buffers(sizes: Mapping[str, int]) -> list[list[tuple[str, int]]]:
    """Pack named sizes into allocations. Return names with offsets, one list per allocation of at most
    POOL_BYTES.
    """
    pools: list[list[tuple[str, int]]] = []
    end = POOL_BYTES
    for name, size_bytes in sizes.items():
        if end + size_bytes > POOL_BYTES:
            pools.append([])
            end = 0
        pools[-1].append((name, end))
        end = align_up(end + size_bytes, ALIGNMENT)
    return pools
