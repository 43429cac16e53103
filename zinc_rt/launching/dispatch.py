"""One kernel on one KFD queue: memory, registers, the packets of a dispatch, and the wait for its fence."""

from __future__ import annotations

import ctypes
import struct
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from zinc_rt.backends.amd.publish import PublishTarget, load_publisher
from zinc_rt.host.errors import CheckFailed, InputError
from zinc_rt.kmd.kfd import KfdGpu
from zinc_rt.kmd.transport import DeviceBuffer, Placement, Queue
from zinc_rt.launching.code_object import CodeImage, CodeKernel
from zinc_rt.launching.kernarg import LaunchShape
from zinc_rt.pm4 import Generation, gcr
from zinc_rt.pm4.packet import Packet
from zinc_rt.pm4.packets import AcquireMem, DispatchDirect, EventWrite, ReleaseMem, SetShReg
from zinc_rt.pm4.registers import Sh

RING_BYTES = 1 << 16
INITIATOR, WAVE32 = 0x5, 1 << 15  # COMPUTE_SHADER_EN, FORCE_START_AT_000; CS_W32_EN
FORCE_START_AT_000 = 0x4
MOST_PARTS = 1000  # of a reversed grid: 12 dwords each in the ring
LDS_LIMIT_BYTES, LDS_GRANULE_BYTES = 65536, 512
LDS_SIZE_MASK = 0x1FF << 15
SCRATCH_UNIT_BYTES = 256
SCRATCH_MOST_BYTES = 1 << 28  # of all waves: fewer of them run at a time where one needs much
WAVES_PER_CU = 32
MAX_BLOCK = 1024
POLL_SECONDS = 0.05
ACQUIRE_CACHES = {  # GL1, between L0 and GL2, is on gfx11 only
    Generation.GFX11: gcr.acquire(Generation.GFX11, GLI_INV=1, GLK_INV=1, GLV_INV=1, GL1_INV=1),
    Generation.GFX12: gcr.acquire(Generation.GFX12, GLI_INV=1, GLK_INV=1, GLV_INV=1),
}
Announce = Callable[[int, int, str], None]


class KernelOnQueue:
    """A loaded kernel with its memory, which is freed with the GPU's process."""

    def __init__(self, gpu: KfdGpu, announce: Announce | None) -> None:
        self._gpu, self._announce = gpu, announce
        self._generation = Generation(gpu.generation[0])
        self._queue = self.create_queue(gpu)
        self._fence = gpu.alloc(4096, Placement.GTT, "fence")
        self._launches = 0
        self._wptr = 0
        self._publish = load_publisher()
        self._target = PublishTarget(
            ring_address=self._queue.ring.host.address,
            ring_dw=self._queue.ring_dw,
            wptr_address=self._queue.wptr.host.address,
            doorbell_address=self._queue.doorbell_address,
        )

    def create_queue(self, gpu: KfdGpu) -> Queue:
        return gpu.create_queue(ring_bytes=RING_BYTES)

    def put(self, content: np.ndarray | bytes, name: str) -> DeviceBuffer:
        """Allocate a buffer with this content; a simulated device checks its bounds to the byte."""
        data = content if isinstance(content, bytes) else content.tobytes()
        buffer = self._gpu.alloc(max(len(data), 1), Placement.GTT, name)
        ctypes.memmove(buffer.host.address, data, len(data))
        if self._announce is not None and data:
            self._announce(buffer.gpu_va, len(data), name)
        return buffer

    def get(self, buffer: DeviceBuffer, like: np.ndarray) -> np.ndarray:
        data = ctypes.string_at(buffer.host.address, like.nbytes)
        return np.frombuffer(data, like.dtype).reshape(like.shape).copy()

    def load(self, code: CodeImage) -> int:
        """Load and relocate the image. Return its address."""
        return self.load_buffer(code).gpu_va

    def load_buffer(self, code: CodeImage) -> DeviceBuffer:
        """Load and relocate the image. Return its buffer.

        A simulated device names code after its kernel, and constants and functions before the first kernel after
        the code object.
        """
        buffer = self._gpu.alloc(len(code.image), Placement.GTT, "code object")
        entries = [(0, "code object"), *sorted((kernel.entry_at, kernel.name) for kernel in code.kernels.values())]
        ends = [index for index, _ in entries[1:]] + [len(code.image)]
        for (index, name), end in zip(entries, ends, strict=True):
            if self._announce is not None:
                self._announce(buffer.gpu_va + index, end - index, name)
        image = bytearray(code.image)
        for where, addend in code.relative:
            struct.pack_into("<Q", image, where, buffer.gpu_va + addend & (1 << 64) - 1)
        ctypes.memmove(buffer.host.address, bytes(image), len(image))
        return buffer

    def packets(
        self,
        kernel: CodeKernel,
        image_va: int,
        kernarg_va: int,
        shape: LaunchShape,
        lds_bytes: int,
        *,
        reverse: bool = False,
    ) -> list[Packet]:
        """Return packets that invalidate caches, set registers and dispatch. `reverse`: run the last workgroups
        first. Raise InputError for an impossible workgroup."""
        program = self.check(kernel, image_va, shape, lds_bytes)
        blocks = -(-lds_bytes // LDS_GRANULE_BYTES)
        rsrc2 = kernel.rsrc2 & ~LDS_SIZE_MASK | blocks << 15
        user = self._make_user_data(kernel, image_va, kernarg_va, shape, lds_bytes)
        tmpring, scratch_va = self.scratch(kernel)
        return [
            AcquireMem(ACQUIRE_CACHES[self._generation]),
            SetShReg(Sh.PGM_LO, (program >> 8 & 0xFFFFFFFF, program >> 40)),
            SetShReg(Sh.DISPATCH_SCRATCH_BASE_LO, (scratch_va >> 8 & 0xFFFFFFFF, scratch_va >> 40)),
            SetShReg(Sh.PGM_RSRC1, (kernel.rsrc1, rsrc2)),
            SetShReg(Sh.PGM_RSRC3, (kernel.rsrc3,)),
            SetShReg(Sh.TMPRING_SIZE, (tmpring,)),
            SetShReg(Sh.RESOURCE_LIMITS, (0,)),
            SetShReg(Sh.USER_DATA_0, tuple(user + [0] * (16 - len(user)))),
            *_split_dispatches(shape, WAVE32 if kernel.wave == 32 else 0, reverse),
        ]

    def check(self, kernel: CodeKernel, image_va: int, shape: LaunchShape, lds_bytes: int) -> int:
        """Return the entry's VA. Raise InputError for an impossible workgroup."""
        if lds_bytes > LDS_LIMIT_BYTES:
            raise InputError(
                f"{kernel.name}: needs {lds_bytes} bytes of LDS, but a workgroup can have at most "
                f"{LDS_LIMIT_BYTES}"
            )
        block = shape.block
        threads, maximum = block[0] * block[1] * block[2], min(kernel.max_threads, MAX_BLOCK)
        if not 0 < threads <= maximum or 0 in shape.grid:
            raise InputError(
                f"{kernel.name}: --block {block}, --grid {shape.grid}: invalid size of {threads} work-items per "
                f"workgroup; the kernel was compiled for 1 to {maximum}, and no axis may be 0"
            )
        program = image_va + kernel.entry_at
        if program % 256 or kernel.preload:
            raise InputError(
                f"{kernel.name}: the entry at {program:#x} is not aligned to 256 bytes, or arguments are "
                "preloaded, which is not supported"
            )
        return program

    def _make_user_data(
        self, kernel: CodeKernel, image_va: int, kernarg_va: int, shape: LaunchShape, lds_bytes: int
    ) -> list[int]:
        """Return the user SGPRs in the order of kernel_code_properties (LLVM AMDGPUUsage)."""
        registers: list[int] = []
        for bit, size in ((0, 4), (1, 2), (2, 2), (3, 2), (4, 2), (5, 2), (6, 1)):
            if not kernel.properties >> bit & 1:
                continue
            value = 0
            if bit == 1:
                value = self.put(
                    dispatch_packet(kernel, image_va, kernarg_va, shape, lds_bytes), "dispatch packet"
                ).gpu_va
            elif bit == 3:
                value = kernarg_va
            elif bit == 6:
                value = kernel.private_bytes
            registers += [value >> 32 * index & 0xFFFFFFFF for index in range(size)]
        return registers

    def scratch(self, kernel: CodeKernel) -> tuple[int, int]:
        """Return (TMPRING_SIZE, the scratch memory's VA). WAVES counts the waves of one shader engine."""
        if not kernel.rsrc2 & 1:
            return 0, 0
        node = self._gpu.node
        units = -(-kernel.private_bytes * kernel.wave // SCRATCH_UNIT_BYTES)
        engines = max(node.shader_engines, 1)
        room = SCRATCH_MOST_BYTES // (max(units, 1) * SCRATCH_UNIT_BYTES * engines)
        waves = max(1, min(node.compute_units * WAVES_PER_CU // engines, room, 0xFFF))
        memory = self._gpu.alloc(max(units, 1) * SCRATCH_UNIT_BYTES * waves * engines, Placement.VRAM, "scratch")
        return waves | units << 12, memory.gpu_va

    def run(self, packets: Sequence[Packet], timeout_seconds: float, stopped: Callable[[], str]) -> float:
        """Submit and wait. Return the seconds from the doorbell to the fence.

        `stopped` returns why the fence will never be reached, or "". Raise CheckFailed with that reason or on
        timeout.
        """
        self._launches += 1
        end = ReleaseMem(
            self._fence.gpu_va, self._launches, gcr.release(self._generation, GL2_WB=1, SEQ=1), data_sel=2
        )
        words = [word for packet in (*packets, end) for word in packet.words(self._generation)]
        array = (ctypes.c_uint32 * len(words))(*words)
        fence = ctypes.c_uint64.from_address(self._fence.host.address)
        start = time.monotonic()
        self._wptr = self._publish(self._target.address, self._wptr, ctypes.addressof(array), len(words))
        return wait_for_fence(lambda: self.has_ended(fence.value), start, timeout_seconds, stopped)

    def has_ended(self, fence: int) -> bool:
        """Return whether the launch has reached its fence. Called again and again while it runs."""
        return fence == self._launches


def _split_dispatches(shape: LaunchShape, wave: int, reverse: bool) -> Iterator[Packet]:
    """Return the packets of one dispatch or, for parts of the grid, of several consecutive dispatches, the last
    part first. The parts are along the last axis that has more than one workgroup.
    """
    if not reverse:
        yield SetShReg(Sh.START_X, (0, 0, 0, *shape.block, 0, 0))
        yield DispatchDirect(*shape.grid, INITIATOR | wave)
        yield EventWrite.cs_partial_flush()
        return
    axis = max((index for index in range(3) if shape.grid[index] > 1), default=0)
    size = -(-shape.grid[axis] // MOST_PARTS)
    for first in reversed(range(0, shape.grid[axis], size)):
        start, counts = [0, 0, 0], list(shape.grid)
        start[axis], counts[axis] = first, min(size, shape.grid[axis] - first)
        yield SetShReg(Sh.START_X, (*start, *shape.block, 0, 0))
        yield DispatchDirect(counts[0], counts[1], counts[2], INITIATOR & ~FORCE_START_AT_000 | wave)
        yield EventWrite.cs_partial_flush()


def wait_for_fence(
    done: Callable[[], bool], start: float, timeout_seconds: float, stopped: Callable[[], str]
) -> float:
    """Return the seconds from `start` until `done`. Raise CheckFailed if `stopped` returns a reason, or on
    timeout."""
    look = start + POLL_SECONDS
    while not done():
        now = time.monotonic()
        if now >= look:
            reason = stopped()
            if reason or now - start > timeout_seconds:
                raise CheckFailed(reason or f"the kernel did not end within {timeout_seconds:g} s")
            look = now + POLL_SECONDS
        time.sleep(50e-6)
    return time.monotonic() - start


def dispatch_packet(
    kernel: CodeKernel, image_va: int, kernarg_va: int, shape: LaunchShape, lds_bytes: int
) -> bytes:
    """Return the hsa_kernel_dispatch_packet_t that kernels read through their dispatch pointer."""
    total = [count * size for count, size in zip(shape.grid, shape.block, strict=True)]
    descriptor = image_va + kernel.descriptor_at
    sizes = (*shape.block, 0, *total, kernel.private_bytes, lds_bytes)
    return struct.pack("<HH3HH3IIIQQQQ", 2, shape.dimensions, *sizes, descriptor, kernarg_va, 0, 0)
