"""Kernels in GPU memory: each once, with its constants patched, as long as a program dispatches it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from zinc_rt.backends.amd.device_memory import ALIGNMENT, DeviceMemory
from zinc_rt.errors import UnsupportedError
from zinc_rt.exec import Buffer
from zinc_rt.kernels.zrt import Zrt, patched
from zinc_rt.kmd.driver import Expected
from zinc_rt.kmd.transport import Placement
from zinc_rt.mem.heaps import Heap
from zinc_rt.mem.suballocator import align_up


@dataclass(frozen=True, slots=True)
class LoadedKernel:
    """What a dispatch needs of a kernel. `rsrc` are PGM_RSRC1 to 3, `program_va` is 256-byte aligned."""

    name: str
    program_va: int
    rsrc: tuple[int, int, int]
    threads: tuple[int, int, int]
    buffers: int
    constants: int

    @property
    def expected(self) -> Expected:
        return Expected(self.program_va, self.rsrc[0], self.rsrc[1], self.threads)


KernelKey = tuple[str, tuple[tuple[str, int], ...]]  # name, patches


class KernelCode:
    """`read(name)` gives a kernel's container, `write(va, bytes)` puts bytes into device memory."""

    def __init__(
        self, read: Callable[[str], Zrt], memory: DeviceMemory, write: Callable[[int, np.ndarray], None]
    ) -> None:
        self._read = read
        self._memory = memory
        self._write = write
        self._loaded: dict[KernelKey, tuple[LoadedKernel, Buffer]] = {}
        self._users: Counter[KernelKey] = Counter()

    def load(self, keys: Iterable[KernelKey]) -> dict[KernelKey, LoadedKernel]:
        """Those that are new go into one allocation; `release` gives them up. Raises UnsupportedError for one that
        needs scratch."""
        wanted = list(dict.fromkeys(keys))
        fresh = [(key, self._read(key[0])) for key in wanted if key not in self._loaded]
        offsets, end = [], 0
        for (name, _), zrt in fresh:
            if zrt.scratch_bytes:
                raise UnsupportedError(
                    f"kernel {name} needs {zrt.scratch_bytes} bytes of scratch a lane, which graphs do not set up",
                    next="keep it in registers or LDS",
                )
            offsets.append(end)
            end = align_up(end + len(zrt.image), ALIGNMENT)
        if fresh:
            block = self._memory.block(end, Placement.VRAM, "kernels")
            for (key, zrt), offset in zip(fresh, offsets, strict=True):
                code = patched(zrt, dict(key[1]))
                buffer = self._memory.buffer(block, offset, len(code), Heap.DEVICE_LOCAL, f"kernel {key[0]}")
                assert buffer.gpu_va is not None
                self._write(buffer.gpu_va, np.frombuffer(code, np.uint8))
                kernel = LoadedKernel(
                    key[0],
                    buffer.gpu_va + zrt.entry_offset,
                    (zrt.rsrc1, zrt.rsrc2, zrt.rsrc3),
                    zrt.workgroup,
                    zrt.buffers,
                    zrt.constant_bytes // 4,
                )
                self._loaded[key] = kernel, buffer
        self._users.update(wanted)
        return {key: self._loaded[key][0] for key in wanted}

    def release(self, keys: Iterable[KernelKey]) -> None:
        """One user less of each: the memory of those that nobody dispatches any more goes back."""
        for key in keys:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key]
                self._memory.free(self._loaded.pop(key)[1])
