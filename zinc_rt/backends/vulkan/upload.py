"""Upload weights: import the file's own pages if the device can read them, else pack copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from zinc_rt.backends.vulkan.blocks import VulkanStorage
from zinc_rt.backends.vulkan.memory import VulkanMemory
from zinc_rt.exec import Buffer
from zinc_rt.kernels.sets import KernelSet
from zinc_rt.kernels.weight import Weight
from zinc_rt.mem.heaps import BufferHeap

Put = Callable[[VulkanStorage, int, np.ndarray], None]
"""(where, offset in bytes, uint8): on its way when it returns."""
Arrays = Mapping[str, Weight | np.ndarray]


def upload(
    memory: VulkanMemory,
    kernels: KernelSet,
    put: Put,
    finish: Callable[[], None],
    weights: Mapping[str, Weight],
    constants: Mapping[str, np.ndarray],
) -> dict[str, Buffer]:
    """Return buffers by name, in the type that the kernels need. `finish` waits for all writes. Raise
    UnsupportedError with the sizes if they do not fit; in that case all are freed.
    """
    arrays: Arrays = {**weights, **constants}
    buffers: dict[str, Buffer] = {}
    try:
        _import(memory, kernels, weights, buffers)
        sizes = {
            name: _compute_packed_bytes(kernels, item) for name, item in arrays.items() if name not in buffers
        }
        for number, pool in enumerate(memory.pack_pools(sizes)):
            last, offset = pool[-1]
            size_bytes = offset + max(1, sizes[last])
            block = memory.block(
                size_bytes, BufferHeap.DEVICE_LOCAL, last if len(pool) == 1 else f"weights {number}"
            )
            for name, offset in pool:
                buffers[name] = memory.buffer(block, offset, sizes[name], BufferHeap.DEVICE_LOCAL, name)
            for name, _ in pool:  # one at a time: a model may fill most of the host's memory
                put(buffers[name].storage, 0, _pack(kernels, arrays[name]))
        finish()
    except BaseException:
        finish()  # pending copies must not write to memory that is reused
        for buffer in buffers.values():
            memory.free(buffer)
        raise
    return buffers


def _import(
    memory: VulkanMemory, kernels: KernelSet, weights: Mapping[str, Weight], buffers: dict[str, Buffer]
) -> None:
    """Import weights whose packed bytes equal the file's, as far as the device can."""
    for name, weight in weights.items():
        if _compute_packed_bytes(kernels, weight) != weight.nbytes or not weight.raw.flags.c_contiguous:
            continue
        packed = kernels.pack(weight)
        if (
            packed.ctypes.data == weight.raw.ctypes.data
            and (imported := memory.import_host_memory(packed, name)) is not None
        ):
            buffers[name] = memory.buffer(*imported, packed.nbytes, BufferHeap.DEVICE_LOCAL, name)


def _pack(kernels: KernelSet, array: Weight | np.ndarray) -> np.ndarray:
    """Return the packed bytes, uint8, 1-D."""
    packed = array if isinstance(array, np.ndarray) else kernels.pack(array)
    return np.ascontiguousarray(packed).reshape(-1).view(np.uint8)


def _compute_packed_bytes(kernels: KernelSet, array: Weight | np.ndarray) -> int:
    return array.nbytes if isinstance(array, np.ndarray) else kernels.packed_bytes(array)
