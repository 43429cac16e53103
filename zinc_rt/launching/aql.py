"""Launch a kernel by one AQL dispatch packet with a completion signal, as ROCr's clients do.

Sources: HSA Runtime Programmer's Reference 1.2, section 2.9; ROCr's amd_hsa_queue.h and amd_hsa_signal.h.
"""

from __future__ import annotations

import ctypes
import struct
import threading
import time
from collections.abc import Callable

from zinc_rt.kmd.kfd import KfdGpu
from zinc_rt.kmd.kfd_queue import AQL_PACKET_BYTES, AQL_WRITE_INDEX
from zinc_rt.kmd.transport import Queue
from zinc_rt.launching.code_object import CodeKernel
from zinc_rt.launching.dispatch import RING_BYTES, KernelOnQueue, dispatch_packet, wait_for_fence
from zinc_rt.launching.kernarg import LaunchShape

BARRIER, SYSTEM_SCOPES = 1 << 8, 2 << 9 | 2 << 11  # of the header: after all before it; acquire and release
TMPRING_SIZE, SCRATCH_VA = 0x8C, 0xA0  # in amd_queue_t
USER_SIGNAL = 1  # amd_signal_t: kind, then the value
SIGNAL_AT = 56  # in the packet


class KernelOnAqlQueue(KernelOnQueue):
    """A kernel on an AQL queue. The packet processor reads its descriptor, sets registers and invalidates
    caches.
    """

    def create_queue(self, gpu: KfdGpu) -> Queue:
        return gpu.create_queue(ring_bytes=RING_BYTES, aql=True)

    def encode_packet(
        self, kernel: CodeKernel, image_va: int, kernarg_va: int, shape: LaunchShape, lds_bytes: int
    ) -> bytes:
        """Return the 64-byte packet. Raise InputError for an invalid workgroup shape."""
        self.check(kernel, image_va, shape, lds_bytes)
        tmpring, scratch_va = self.scratch(kernel)
        struct.pack_into("<I", self._queue.rptr.host.view, TMPRING_SIZE, tmpring)
        struct.pack_into("<Q", self._queue.rptr.host.view, SCRATCH_VA, scratch_va)
        packet = bytearray(dispatch_packet(kernel, image_va, kernarg_va, shape, lds_bytes))
        (header,) = struct.unpack_from("<H", packet)
        struct.pack_into("<H", packet, 0, header | BARRIER | SYSTEM_SCOPES)
        struct.pack_into("<Q", packet, SIGNAL_AT, self._fence.gpu_va)
        return bytes(packet)

    def run_packet(self, packet: bytes, timeout_seconds: float, stopped: Callable[[], str]) -> float:
        """Submit and wait. Return the seconds from the doorbell until the signal is 0. See `run`."""
        index, self._launches = self._launches, self._launches + 1
        slot = self._queue.ring.host.address + index * AQL_PACKET_BYTES % RING_BYTES
        signal = ctypes.c_int64.from_address(self._fence.host.address + 8)
        ctypes.c_int64.from_address(self._fence.host.address).value = USER_SIGNAL
        signal.value = 1
        ctypes.memmove(slot + 4, packet[4:], AQL_PACKET_BYTES - 4)
        _drain()
        ctypes.c_uint32.from_address(slot).value = int.from_bytes(packet[:4], "little")  # whole, and valid now
        ctypes.c_uint64.from_address(self._queue.rptr.host.address + AQL_WRITE_INDEX).value = index + 1
        _drain()
        start = time.monotonic()
        ctypes.c_uint64.from_address(self._queue.doorbell_address).value = index
        return wait_for_fence(lambda: signal.value == 0, start, timeout_seconds, stopped)


def _drain() -> None:
    """Make earlier stores visible before later ones.

    Taking a lock executes a locked instruction, which on x86 also drains the write-combining buffers.
    """
    with threading.Lock():
        pass
