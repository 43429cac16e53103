"""Host memory of torch tensors and NumPy arrays, and its copy in a simulated GPU's memory.

A kernel gets pointers into copies with guards around them, at the same offset in the page. Views of one allocation
share its copy, so aliasing works as on a card. After a launch the bytes that changed are copied back.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.kmd.driver import SideChannel
from zinc_rt.kmd.kfd import KfdGpu
from zinc_rt.kmd.transport import DeviceBuffer, Placement
from zinc_rt.launching.located import PlacedBuffer

PAGE_BYTES = 4096
GUARD_BYTES = 1 << 16  # mapped and in no range on both sides: an access there is a finding and the launch goes on
POOL_BYTES = 1 << 28  # of copies that are kept for the next launch
LEAST_ADDRESS = 1 << 32  # an integer below is never taken for the address of a tensor
_STORED_POINTERS = 1 << 20  # elements of an int64 array that are searched for addresses


@dataclass(frozen=True, slots=True, eq=False)
class HostAllocation:
    """One allocation of torch or NumPy. `owner` keeps it alive."""

    address: int
    size_bytes: int
    writable: bool
    owner: Any = field(repr=False)

    def contains(self, address: int) -> bool:
        return self.address <= address < self.address + self.size_bytes

    def bytes(self) -> np.ndarray:
        """Return a view of the content, uint8."""
        return np.ctypeslib.as_array((ctypes.c_uint8 * self.size_bytes).from_address(self.address))


@dataclass(frozen=True, slots=True, eq=False)
class HostPointer:
    """A pointer argument: an address in an allocation, and the type and shape of what the caller passed."""

    name: str
    address: int
    allocation: HostAllocation | None  # None: an empty tensor
    itemsize: int
    shape: tuple[int, ...]
    stores_pointers: bool = False

    def placed(self, va: int) -> PlacedBuffer:
        """Return the argument at its address on the GPU, for messages."""
        element = np.zeros((), np.dtype(f"V{self.itemsize}"))
        return PlacedBuffer(self.name, va, np.broadcast_to(element, self.shape))


def make_pointer(name: str, value: Any) -> HostPointer:
    """Return the pointer that a kernel receives for an argument. Raise UnsupportedError for memory of another
    device, or an object whose size is not known."""
    value = getattr(value, "array", value) if isinstance(value, ArrayArgument) else value
    if isinstance(value, np.ndarray):
        return _make_array_pointer(name, value)
    base = getattr(value, "base", value)  # triton.reinterpret: a TensorWrapper
    if hasattr(base, "untyped_storage"):
        return _make_tensor_pointer(name, base, _count_item_bytes(value, base))
    raise UnsupportedError(
        f"argument {name} is a {type(value).__module__}.{type(value).__qualname__} of unknown size",
        next="pass a torch tensor on the CPU or a NumPy array",
    )


def _count_item_bytes(value: Any, base: Any) -> int:
    if value is base:
        return int(base.element_size())
    bits = getattr(value.dtype, "primitive_bitwidth", None)
    return int(bits) // 8 if bits else int(base.element_size())


def _make_tensor_pointer(name: str, tensor: Any, itemsize: int) -> HostPointer:
    if tensor.device.type != "cpu":
        raise UnsupportedError(
            f"argument {name} is a tensor on {tensor.device}; a simulated chip only reads CPU tensors",
            next="create it with device='cpu', or triton.runtime.driver.active.get_active_torch_device()",
        )
    if tensor.layout is not _loaded_torch().strided:
        raise UnsupportedError(
            f"argument {name} has the layout {tensor.layout}; only strided tensors have a pointer"
        )
    dense = tuple(tensor.shape) if tensor.is_contiguous() else None
    storage = tensor.untyped_storage()
    size = storage.nbytes()
    if not size or not tensor.numel():
        return HostPointer(name, int(tensor.data_ptr()), None, itemsize, (0,))
    allocation = HostAllocation(storage.data_ptr(), size, True, storage)
    after = (storage.data_ptr() + size - tensor.data_ptr()) // itemsize
    wide = str(tensor.dtype) in ("torch.int64", "torch.uint64")
    return HostPointer(name, int(tensor.data_ptr()), allocation, itemsize, dense or (after,), wide)


def _make_array_pointer(name: str, array: np.ndarray) -> HostPointer:
    allocation = _make_array_allocation(array)
    address = array.__array_interface__["data"][0]
    if not array.size:
        return HostPointer(name, address, None, array.itemsize, (0,))
    after = (allocation.address + allocation.size_bytes - address) // array.itemsize
    shape = array.shape if array.flags.c_contiguous else (after,)
    wide = array.dtype in (np.dtype(np.int64), np.dtype(np.uint64))
    return HostPointer(name, address, allocation, array.itemsize, shape, wide)


def _make_array_allocation(array: np.ndarray) -> HostAllocation:
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    first, end = np.lib.array_utils.byte_bounds(owner)
    return HostAllocation(first, end - first, bool(owner.flags.writeable), owner)


class ArrayArgument:
    """A NumPy array as an argument of a Triton kernel, which requires `data_ptr` and `dtype`."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.dtype, self.shape = array, array.dtype, array.shape

    def data_ptr(self) -> int:
        return int(self.array.__array_interface__["data"][0])

    def ptr_range(self) -> int:
        return int(self.array.nbytes)


def _loaded_torch() -> Any:
    return sys.modules["torch"]


def list_live_allocations() -> list[HostAllocation]:
    """Return the allocations of all live CPU tensors, to which an address stored in memory may refer."""
    torch = sys.modules.get("torch")
    if torch is None:
        return []
    by_address = {}
    for item in gc.get_objects():
        if isinstance(item, torch.Tensor) and item.device.type == "cpu" and item.layout is torch.strided:
            storage = item.untyped_storage()
            if storage.nbytes():
                by_address[storage.data_ptr()] = HostAllocation(
                    storage.data_ptr(), storage.nbytes(), True, storage
                )
    return list(by_address.values())


def merge_allocations(allocations: Iterable[HostAllocation]) -> list[HostAllocation]:
    """Return allocations without overlap, sorted: torch.from_numpy and slices of foreign memory share bytes."""
    joined: list[HostAllocation] = []
    for allocation in sorted(allocations, key=lambda allocation: (allocation.address, -allocation.size_bytes)):
        last = joined[-1] if joined else None
        if last is None or allocation.address >= last.address + last.size_bytes:
            joined.append(allocation)
            continue
        end = max(last.address + last.size_bytes, allocation.address + allocation.size_bytes)
        writable = last.writable or allocation.writable
        joined[-1] = HostAllocation(last.address, end - last.address, writable, (last.owner, allocation.owner))
    return joined


@dataclass(slots=True, eq=False)
class DeviceCopy:
    """The copy of an allocation in GPU memory."""

    host: HostAllocation
    buffer: DeviceBuffer
    offset: int  # of the first byte in the buffer

    @property
    def va(self) -> int:
        return self.buffer.gpu_va + self.offset

    def content(self) -> np.ndarray:
        """Return a view of the copy, uint8."""
        offset = self.buffer.host.address + self.offset
        return np.ctypeslib.as_array((ctypes.c_uint8 * self.host.size_bytes).from_address(offset))


class DeviceCopies:
    """The copies of host allocations in the memory of one GPU."""

    def __init__(self, gpu: KfdGpu, side: SideChannel) -> None:
        self._gpu, self._side = gpu, side
        self._pool: dict[tuple[int, int, bool], DeviceCopy] = {}  # oldest first
        self._copies: list[DeviceCopy] = []

    def begin(self, pointers: Sequence[HostPointer], numbers: Sequence[int]) -> None:
        """Copy the allocations of a launch to the GPU. `numbers`: integer arguments, which may be addresses."""
        allocations = [pointer.allocation for pointer in pointers if pointer.allocation is not None]
        tables = [pointer for pointer in pointers if pointer.stores_pointers and self._has_addresses(pointer)]
        if tables or any(number >= LEAST_ADDRESS for number in numbers):
            allocations += self._find_meant(tables, numbers)
        self._copies = [self._copy(item, pointers) for item in merge_allocations(allocations)]
        for item in self._copies:
            item.content()[:] = item.host.bytes()
        for table in tables:
            self._translate(table, to_gpu=True)

    def end(self, pointers: Sequence[HostPointer]) -> None:
        """Copy back what the kernel changed."""
        for table in pointers:
            if table.stores_pointers and table.allocation is not None:
                self._translate(table, to_gpu=False)
        for item in self._copies:
            if not item.host.writable:
                continue
            new, old = item.content(), item.host.bytes()
            if not np.array_equal(new, old):
                old[:] = new
        self._copies = []
        kept = sum(item.buffer.size_bytes for item in self._pool.values())
        while kept > POOL_BYTES:
            oldest = self._pool.pop(next(iter(self._pool)))
            kept -= oldest.buffer.size_bytes
            self._free(oldest)

    def va(self, address: int) -> int:
        """Return the address on the GPU. An address outside all allocations is not changed, so the kernel faults
        there.
        """
        copy = next((item for item in self._copies if item.host.contains(address)), None)
        if copy is None:  # just behind an allocation, like an end pointer
            copy = next((e for e in self._copies if address == e.host.address + e.host.size_bytes), None)
        return address if copy is None else copy.va + (address - copy.host.address)

    def _copy(self, host: HostAllocation, pointers: Sequence[HostPointer]) -> DeviceCopy:
        key = (host.address, host.size_bytes, host.writable)
        copy = self._pool.pop(key, None)
        if copy is None:
            offset = GUARD_BYTES + host.address % PAGE_BYTES
            name = next(
                (pointer.name for pointer in pointers if pointer.allocation and host.contains(pointer.address)),
                "memory",
            )
            size = offset + host.size_bytes + GUARD_BYTES
            buffer = self._gpu.alloc(size, Placement.GTT, name, writable=host.writable)
            copy = DeviceCopy(host, buffer, offset)
            self._side.announce(copy.va, host.size_bytes, name)
        copy.host = host
        self._pool[key] = copy  # the newest
        return copy

    def _free(self, copy: DeviceCopy) -> None:
        self._side.announce(copy.va, 0, "")
        copy.buffer.free()

    def _has_addresses(self, table: HostPointer) -> bool:
        values = self._read_values(table)
        return values is not None and bool(((values >= LEAST_ADDRESS) & (values < 1 << 47)).any())

    def _read_values(self, table: HostPointer) -> np.ndarray | None:
        assert table.allocation is not None
        count = int(np.prod(table.shape))
        if not 0 < count <= _STORED_POINTERS or table.address % 8:
            return None
        return np.ctypeslib.as_array((ctypes.c_int64 * count).from_address(table.address))

    def _find_meant(self, tables: Sequence[HostPointer], numbers: Sequence[int]) -> list[HostAllocation]:
        """Return the live allocations that contain an address of a table or an integer argument."""
        values = [np.asarray(list(numbers), np.int64)] + [
            v for t in tables if (v := self._read_values(t)) is not None
        ]
        addresses = np.unique(np.concatenate(values))
        chosen = []
        for live_allocation in list_live_allocations():
            offset = np.searchsorted(addresses, live_allocation.address)
            if offset < len(addresses) and live_allocation.contains(int(addresses[offset])):
                chosen.append(live_allocation)
        return chosen

    def _translate(self, table: HostPointer, *, to_gpu: bool) -> None:
        """Replace host addresses in the copy of a table by GPU addresses, or the other way round."""
        copy = next((item for item in self._copies if item.host.contains(table.address)), None)
        if copy is None or self._read_values(table) is None:
            return
        offset = copy.buffer.host.address + copy.offset + table.address - copy.host.address
        values = np.ctypeslib.as_array((ctypes.c_int64 * int(np.prod(table.shape))).from_address(offset))
        original = values.copy()
        for item in self._copies:
            here, there = (item.host.address, item.va) if to_gpu else (item.va, item.host.address)
            inside = (original >= here) & (original < here + item.host.size_bytes)
            values[inside] = original[inside] - here + there
