"""Kernels in GPU memory. Each is loaded once, with its constants patched, and stays while an executable dispatches
it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from zinc_rt.backends.amd.device_memory import ALIGNMENT, DeviceMemory
from zinc_rt.exec import Buffer
from zinc_rt.host.errors import UnsupportedError
from zinc_rt.kernels.zrt import Zrt
from zinc_rt.kmd.driver import KernelToCompile
from zinc_rt.kmd.transport import Placement
from zinc_rt.mem.arena import align_up
from zinc_rt.mem.heaps import BufferHeap


@dataclass(frozen=True, slots=True)
class LoadedKernel:
    """A kernel's data for a dispatch. `rsrc` are PGM_RSRC1 to 3; `program_va` is 256-byte aligned."""

    name: str
    program_va: int
    rsrc: tuple[int, int, int]
    threads: tuple[int, int, int]
    buffers: int
    constants: int

    @property
    def to_compile(self) -> KernelToCompile:
        return KernelToCompile(self.program_va, self.rsrc[0], self.rsrc[1], self.threads)


def make_label(name: str, zrt: Zrt) -> str:
    """Return the label of a kernel's code in device memory. Two backends that share a device may have different
    kernels of the same name; the label of another compiler's code includes the compiler.
    """
    return f"kernel {name} by {zrt.compiler}" if zrt.compiler else f"kernel {name}"


class LoadedKernels:
    """The kernels of one backend. `read(name)` returns a kernel's container, `write(va, bytes)` writes device
    memory."""

    def __init__(
        self, read: Callable[[str], Zrt], memory: DeviceMemory, write: Callable[[int, np.ndarray], None]
    ) -> None:
        self.read = read
        self._memory = memory
        self._write = write
        self._loaded: dict[str, tuple[LoadedKernel, Buffer]] = {}
        self._users: Counter[str] = Counter()

    def load(self, names: Iterable[str]) -> dict[str, LoadedKernel]:
        """Load kernels; new ones share one allocation. `release` frees them. Raise UnsupportedError for a kernel
        that needs scratch."""
        unique = list(dict.fromkeys(names))
        fresh = [(name, self.read(name)) for name in unique if name not in self._loaded]
        offsets, end = [], 0
        for name, zrt in fresh:
            if zrt.scratch_bytes:
                raise UnsupportedError(
                    f"kernel {name} needs {zrt.scratch_bytes} bytes of scratch per lane, which graphs do not "
                    "provide",
                    next="keep it in registers or LDS",
                )
            offsets.append(end)
            end = align_up(end + len(zrt.image), ALIGNMENT)
        if fresh:
            self._write_code(fresh, offsets, end)
        self._users.update(unique)
        return {name: self._loaded[name][0] for name in unique}

    def _write_code(self, fresh: list[tuple[str, Zrt]], offsets: list[int], size_bytes: int) -> None:
        images = [zrt.image for _, zrt in fresh]
        block = self._memory.block(size_bytes, Placement.VRAM, "kernels")
        buffers = [
            self._memory.buffer(block, offset, len(code), BufferHeap.DEVICE_LOCAL, make_label(name, zrt))
            for (name, zrt), offset, code in zip(fresh, offsets, images, strict=True)
        ]
        try:
            for buffer, code in zip(buffers, images, strict=True):
                self._write(_va(buffer), np.frombuffer(code, np.uint8))
        except BaseException:
            for buffer in buffers:
                self._memory.free(buffer)
            raise
        for (name, zrt), buffer in zip(fresh, buffers, strict=True):
            kernel = LoadedKernel(
                name,
                _va(buffer) + zrt.entry_offset,
                (zrt.rsrc1, zrt.rsrc2, zrt.rsrc3),
                zrt.workgroup,
                zrt.buffers,
                zrt.constant_bytes // 4,
            )
            self._loaded[name] = kernel, buffer

    def release(self, names: Iterable[str]) -> None:
        """Drop one reference to each kernel. Memory of kernels without references is freed."""
        for name in names:
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name]
                self._memory.free(self._loaded.pop(name)[1])


def _va(buffer: Buffer) -> int:
    assert buffer.gpu_va is not None, buffer.name
    return buffer.gpu_va
