"""Common parts of tiers that compute on this machine's CPU: memory functions over host memory, the CPU's name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from zinc_rt.exec import Buffer, Fence, HostExecutor, HostFence, Stream
from zinc_rt.kernels.weight import Weight

ALIGNMENT_BYTES = 64  # a cache line, and the widest vector


class HostMemory:
    """Host memory as a backend's memory. Weights stay in the mapped file. Replays run on `executor`."""

    def __init__(self, executor: HostExecutor) -> None:
        self._executor = executor

    def alloc(self, size_bytes: int, heap: str, name: str, *, zeroed: bool = True) -> Buffer:
        return Buffer(name, size_bytes, heap, storage=allocate_aligned(size_bytes))

    def free(self, buffer: Buffer) -> None:
        buffer.check_owned()
        buffer.storage = None

    def write(self, buffer: Buffer, offset_bytes: int, data: memoryview) -> None:
        memoryview(buffer.storage)[offset_bytes : offset_bytes + data.nbytes] = data

    def read(self, buffer: Buffer, offset_bytes: int, size_bytes: int) -> memoryview:
        return memoryview(buffer.storage)[offset_bytes : offset_bytes + size_bytes].toreadonly()

    def fill(self, buffer: Buffer, offset_bytes: int, size_bytes: int, stream: Stream) -> HostFence:
        storage: np.ndarray = buffer.storage
        return self._executor.submit(partial(storage[offset_bytes : offset_bytes + size_bytes].fill, 0), stream)

    def copy(
        self,
        source: Buffer,
        source_offset_bytes: int,
        target: Buffer,
        target_offset_bytes: int,
        size_bytes: int,
        stream: Stream,
    ) -> HostFence:
        """Copy bytes. Raise ValueError for weights, which are the file's own bytes here."""
        read = _host_array(source)[source_offset_bytes : source_offset_bytes + size_bytes]
        written = _host_array(target)[target_offset_bytes : target_offset_bytes + size_bytes]
        return self._executor.submit(partial(np.copyto, written, read), stream)

    def upload(self, weights: Mapping[str, Weight], constants: Mapping[str, np.ndarray]) -> dict[str, Buffer]:
        operands = {**weights, **{name: Weight("f32", a.shape, a) for name, a in constants.items()}}
        return {name: Buffer(name, w.nbytes, "device_local", storage=w) for name, w in operands.items()}

    def wait(self, fence: Fence, timeout_seconds: float) -> None:
        fence.wait(timeout_seconds)


def allocate_aligned(size_bytes: int, alignment: int = ALIGNMENT_BYTES) -> np.ndarray:
    """Return zeroed uint8 memory that starts at a multiple of `alignment`."""
    room = np.zeros(size_bytes + alignment, np.uint8)
    skip = -room.ctypes.data % alignment
    return room[skip : skip + size_bytes]


def _host_array(buffer: Buffer) -> np.ndarray:
    if not isinstance(buffer.storage, np.ndarray):
        raise ValueError(f"{buffer.name} is not CPU memory; this tier copies only allocated or wrapped buffers")
    return buffer.storage
