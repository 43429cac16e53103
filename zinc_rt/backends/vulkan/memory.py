"""Memory of a Vulkan device: allocations with one buffer and one address each, shared by small buffers.

Kernels use addresses only. A VkBuffer is needed for its address, for indirect grids and for copies.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Mapping
from ctypes import byref
from typing import Any

import numpy as np

from zinc_rt.backends.vulkan import api, blocks
from zinc_rt.backends.vulkan.blocks import GUARD_BYTES, VulkanBlock, VulkanStorage
from zinc_rt.backends.vulkan.device import VulkanDevice
from zinc_rt.backends.vulkan.errors import VulkanError
from zinc_rt.backends.vulkan.memory_heaps import COHERENT, VISIBLE, WANTED, choose_memory_type, count_free_bytes
from zinc_rt.exec import Buffer
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.mem.arena import align_up
from zinc_rt.mem.heaps import BufferHeap

ALIGNMENT = 256  # of suballocations, as on T1
ADDRESS_ALIGNMENT = 16  # the widest load of a kernel
POOL_BYTES = 1 << 30  # a larger weight has a separate allocation
IMPORT_BYTES = 1 << 20  # a smaller weight is copied: a separate allocation costs more than its bytes
SMALLER = "use a smaller context, a smaller model, or --tier t_cpu"
SHARES_HOST_MEMORY = ("cpu", "integrated")  # kinds of devices whose memory is the host's
OUT_OF_MEMORY = ("VK_ERROR_OUT_OF_DEVICE_MEMORY", "VK_ERROR_OUT_OF_HOST_MEMORY")

USAGE = (
    api.VK_BUFFER_USAGE_STORAGE_BUFFER_BIT
    | api.VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT
    | api.VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT
    | api.VK_BUFFER_USAGE_TRANSFER_SRC_BIT
    | api.VK_BUFFER_USAGE_TRANSFER_DST_BIT
)


class VulkanMemory:
    """The allocations of one backend. `staged`: treat device memory as if the host could not map it. `guarded`:
    place every allocation between pages of poison, which `check_poison` checks.
    """

    def __init__(self, device: VulkanDevice, *, staged: bool = False, guarded: bool = False) -> None:
        self._device = device
        self._vk = device.vk
        self._staged = staged
        self._guard_bytes = GUARD_BYTES if guarded else 0
        shares = device.physical.kind in SHARES_HOST_MEMORY and not staged and not guarded
        self._imports = shares and device.external_memory_host
        self._blocks: list[VulkanBlock] = []

    @property
    def blocks(self) -> tuple[VulkanBlock, ...]:
        """Return every live allocation, oldest first."""
        return tuple(self._blocks)

    def block(self, size_bytes: int, heap: str, name: str) -> VulkanBlock:
        """Allocate a separate block with undefined bytes. Raise UnsupportedError with the sizes if there is not
        enough memory."""
        if heap not in WANTED:
            raise ValueError(f"{name}: unknown heap {heap!r}")
        used_bytes = max(ADDRESS_ALIGNMENT, align_up(size_bytes, ADDRESS_ALIGNMENT))
        guard_bytes = self._guard_bytes if not (self._staged and heap == BufferHeap.DEVICE_LOCAL) else 0
        block = VulkanBlock(name, used_bytes, 0, guard_bytes=guard_bytes)
        whole = used_bytes + 2 * block.guard_bytes
        self._check_size(name, whole)
        try:
            block.handle = self._create_buffer(whole, name)
            needs = api.make_struct("VkMemoryRequirements")
            self._vk.vkGetBufferMemoryRequirements(self._device.handle, block.handle, byref(needs))
            number = choose_memory_type(self._device, heap, needs.memoryTypeBits, name)
            self._allocate(block, needs.size, number)
            self._bind(block)
            flags = self._device.memory_types[number].flags
            block.coherent = bool(flags & COHERENT)
            if flags & VISIBLE and not (self._staged and heap == BufferHeap.DEVICE_LOCAL):
                block.host = self._map(block, whole)
        except BaseException:
            self._destroy(block)
            raise
        self._blocks.append(block)
        blocks.poison(block)
        return block

    def import_host_memory(self, array: np.ndarray, name: str) -> tuple[VulkanBlock, int] | None:
        """Import the host's own pages as device memory, without a copy. Return the block and the array's offset in
        it; None if the device cannot import these pages. The array stays alive as long as the block."""
        page = self._device.limits.import_alignment_bytes
        if not self._imports or page > mmap.PAGESIZE or array.nbytes < IMPORT_BYTES:
            return None
        start = array.ctypes.data // page * page
        size_bytes = align_up(array.ctypes.data + array.nbytes, page) - start
        if (array.ctypes.data - start) % ADDRESS_ALIGNMENT:
            return None
        block = VulkanBlock(name, size_bytes, 0, keeps=array)
        kind = api.VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT
        try:
            takes = api.make_struct("VkMemoryHostPointerPropertiesEXT")
            self._vk.vkGetMemoryHostPointerPropertiesEXT(self._device.handle, kind, start, byref(takes))
            block.handle = self._create_buffer(
                size_bytes, name, api.make_struct("VkExternalMemoryBufferCreateInfo", handleTypes=kind)
            )
            needs = api.make_struct("VkMemoryRequirements")
            self._vk.vkGetBufferMemoryRequirements(self._device.handle, block.handle, byref(needs))
            bits = needs.memoryTypeBits & takes.memoryTypeBits
            if not bits:
                raise UnsupportedError(f"{name}: no memory type can import the host's pages")
            number = (bits & -bits).bit_length() - 1
            source = api.make_struct("VkImportMemoryHostPointerInfoEXT", handleType=kind, pHostPointer=start)
            self._allocate(block, size_bytes, number, source)
            self._bind(block)
        except (VulkanError, UnsupportedError):
            self._destroy(block)
            return None
        self._blocks.append(block)
        return block, array.ctypes.data - start

    def buffer(self, block: VulkanBlock, offset_bytes: int, size_bytes: int, heap: str, name: str) -> Buffer:
        storage = VulkanStorage(block, offset_bytes, size_bytes)
        block.users += 1
        return Buffer(name, size_bytes, heap, storage=storage, gpu_va=storage.gpu_va)

    def free(self, buffer: Buffer) -> None:
        """Free a buffer. Raise ValueError if it is not allocated here or was already freed."""
        storage = buffer.storage
        if not isinstance(storage, VulkanStorage) or storage.block not in self._blocks:
            raise ValueError(f"{buffer.name} is not allocated on this device or was freed")
        buffer.storage = buffer.gpu_va = None
        storage.block.users -= 1
        if storage.block.users == 0:
            self.give_back(storage.block)

    def give_back(self, block: VulkanBlock) -> None:
        self._blocks.remove(block)
        self._destroy(block)

    def close(self) -> None:
        for block in reversed(self.blocks):
            self.give_back(block)

    def pack_pools(self, sizes: Mapping[str, int]) -> list[list[tuple[str, int]]]:
        """Return names with their offsets, one list per allocation."""
        maximum = 0 if self._guard_bytes else min(POOL_BYTES, self._device.limits.allocation_bytes)
        pools: list[list[tuple[str, int]]] = []
        end = 0
        for name, size_bytes in sizes.items():
            if not pools or end + size_bytes > maximum:
                pools.append([])
                end = 0
            pools[-1].append((name, end))
            end = align_up(end + size_bytes, ALIGNMENT)
        return pools

    # Writes of the host and of the device in non-coherent memory

    def flush(self, block: VulkanBlock, offset_bytes: int, size_bytes: int) -> None:
        """Make the host's writes there visible to the device."""
        if not block.coherent:
            self._vk.vkFlushMappedMemoryRanges(
                self._device.handle, 1, byref(self._round_range(block, offset_bytes, size_bytes))
            )

    def invalidate(self, block: VulkanBlock, offset_bytes: int, size_bytes: int) -> None:
        """Make the device's writes there visible to the host."""
        if not block.coherent:
            self._vk.vkInvalidateMappedMemoryRanges(
                self._device.handle, 1, byref(self._round_range(block, offset_bytes, size_bytes))
            )

    def spoilt(self) -> list[str]:
        """Return a sentence for each allocation with damaged poison, and restore the poison."""
        problems = [sentence for block in self._blocks for sentence in blocks.check_poison(block)]
        for block in self._blocks:
            blocks.poison(block)
        return problems

    # Inside

    def _create_buffer(self, size_bytes: int, name: str, external: Any = None) -> int:
        info = api.make_struct(
            "VkBufferCreateInfo", size=size_bytes, usage=USAGE, sharingMode=api.VK_SHARING_MODE_EXCLUSIVE
        )
        if external is not None:
            api.link_structs(info, external)
        handle = ctypes.c_uint64()
        self._vk.vkCreateBuffer(self._device.handle, byref(info), None, byref(handle))
        return handle.value

    def _allocate(self, block: VulkanBlock, size_bytes: int, type_number: int, source: Any = None) -> None:
        block.heap_index = self._device.memory_types[type_number].heap
        if source is None:
            self._check_room(block, size_bytes)
        flags = api.make_struct("VkMemoryAllocateFlagsInfo", flags=api.VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT)
        info = api.make_struct("VkMemoryAllocateInfo", allocationSize=size_bytes, memoryTypeIndex=type_number)
        api.link_structs(info, flags, *([source] if source is not None else []))
        handle = ctypes.c_uint64()
        try:
            self._vk.vkAllocateMemory(self._device.handle, byref(info), None, byref(handle))
        except VulkanError as error:
            if error.result not in OUT_OF_MEMORY:
                raise
            raise self._make_memory_error(
                block, size_bytes, self._device.heaps[block.heap_index].size_bytes
            ) from error
        block.memory = handle.value

    def _check_size(self, name: str, size_bytes: int) -> None:
        maximum = min(self._device.limits.allocation_bytes, self._device.limits.buffer_bytes)
        if size_bytes > maximum:
            raise UnsupportedError(
                f"{name} needs an allocation of {_format_mib(size_bytes)}, but "
                f"{self._device.physical.name} allows "
                f"{_format_mib(maximum)}",
                next=SMALLER,
            )

    def _check_room(self, block: VulkanBlock, size_bytes: int) -> None:
        room = count_free_bytes(self._device, block.heap_index, self._count_allocated_bytes(block.heap_index))
        if size_bytes > room:
            raise self._make_memory_error(block, size_bytes, room)

    def _count_allocated_bytes(self, heap_index: int) -> int:
        return sum(
            block.size_bytes for block in self._blocks if block.heap_index == heap_index and block.keeps is None
        )

    def _make_memory_error(self, block: VulkanBlock, size_bytes: int, room: int) -> UnsupportedError:
        largest = sorted(self._blocks, key=lambda block: -block.size_bytes)[:3]
        resident = ", ".join(f"{item.name} {_format_mib(item.size_bytes)}" for item in largest) or "nothing"
        return UnsupportedError(
            f"{block.name} takes {_format_mib(size_bytes)}, {self._device.physical.name} has "
            f"{_format_mib(max(0, room))} left; "
            f"resident: {_format_mib(self._count_allocated_bytes(block.heap_index))}, the largest {resident}",
            next=SMALLER,
        )

    def _bind(self, block: VulkanBlock) -> None:
        self._vk.vkBindBufferMemory(self._device.handle, block.handle, block.memory, 0)
        info = api.make_struct("VkBufferDeviceAddressInfo", buffer=block.handle)
        block.base_va = self._vk.vkGetBufferDeviceAddress(self._device.handle, byref(info))
        if block.base_va % ADDRESS_ALIGNMENT:
            raise UnsupportedError(
                f"{block.name} is at {block.base_va:#x}, expected a multiple of {ADDRESS_ALIGNMENT}"
            )

    def _map(self, block: VulkanBlock, size_bytes: int) -> memoryview:
        address = ctypes.c_void_p()
        self._vk.vkMapMemory(self._device.handle, block.memory, 0, api.VK_WHOLE_SIZE, 0, byref(address))
        assert address.value
        return memoryview((ctypes.c_uint8 * size_bytes).from_address(address.value)).cast("B")

    def _round_range(self, block: VulkanBlock, offset_bytes: int, size_bytes: int) -> Any:
        """Return a range rounded to whole atoms, or up to the end of the allocation if the last atom exceeds
        it.
        """
        atom = self._device.limits.non_coherent_atom_bytes
        start = (block.guard_bytes + offset_bytes) // atom * atom
        end = align_up(block.guard_bytes + offset_bytes + size_bytes, atom)
        whole = block.size_bytes + 2 * block.guard_bytes
        return api.make_struct(
            "VkMappedMemoryRange",
            memory=block.memory,
            offset=start,
            size=end - start if end <= whole else api.VK_WHOLE_SIZE,
        )

    def _destroy(self, block: VulkanBlock) -> None:
        """Destroy a block, even a partially created one."""
        block.host = None
        if block.handle:
            self._vk.vkDestroyBuffer(self._device.handle, block.handle, None)
        if block.memory:
            self._vk.vkFreeMemory(self._device.handle, block.memory, None)
        block.handle = block.memory = 0
        block.keeps = None


def _format_mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.1f} MiB"
