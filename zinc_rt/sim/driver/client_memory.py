"""The client's memory as ioctls access it: checked copies; a bad address is EFAULT and never a crash."""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Protocol

from zinc_rt.sim.chips import PAGE_BYTES

USER_END = (1 << 47) - PAGE_BYTES  # TASK_SIZE on x86-64 with 4-level tables


class UserMemory(Protocol):
    """Client memory. Raises OSError(EFAULT) for addresses that the client may not access."""

    def read(self, address: int, size_bytes: int) -> bytes: ...

    def write(self, address: int, data: bytes) -> None: ...

    def pages(self, address: int, size_bytes: int) -> memoryview:
        """Return the client's own pages, for the lifetime of the buffer (USERPTR)."""


def is_user_range(address: int, size_bytes: int = 1) -> bool:
    """Check the range like access_ok()."""
    return address >= 0 and address + size_bytes <= USER_END


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


class InProcessMemory:
    """This process's memory, accessed with process_vm_readv(2), which returns errors where memcpy would
    crash."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        for call in (self._libc.process_vm_readv, self._libc.process_vm_writev):
            call.restype = ctypes.c_ssize_t
            vector, count = ctypes.c_void_p, ctypes.c_ulong
            call.argtypes = [ctypes.c_int, vector, count, vector, count, ctypes.c_ulong]

    def read(self, address: int, size_bytes: int) -> bytes:
        buffer = (ctypes.c_char * size_bytes)()
        self._copy(self._libc.process_vm_readv, buffer, address, size_bytes)
        return buffer.raw

    def write(self, address: int, data: bytes) -> None:
        buffer = (ctypes.c_char * len(data)).from_buffer_copy(data)
        self._copy(self._libc.process_vm_writev, buffer, address, len(data))

    def _copy(self, call: object, buffer: object, address: int, size_bytes: int) -> None:
        if size_bytes == 0:
            return
        if not is_user_range(address, size_bytes):
            raise OSError(errno.EFAULT, f"0x{address:x}: no user address")
        here = _Vector(ctypes.addressof(buffer), size_bytes)  # type: ignore[arg-type]
        vector = _Vector(address, size_bytes)
        result = call(os.getpid(), ctypes.byref(here), 1, ctypes.byref(vector), 1, 0)  # type: ignore[operator]
        if result != size_bytes:
            raise OSError(errno.EFAULT, f"0x{address:x}: not all of the {size_bytes} bytes are mapped")

    def pages(self, address: int, size_bytes: int) -> memoryview:
        if address % PAGE_BYTES or size_bytes % PAGE_BYTES:
            raise OSError(errno.EINVAL, "not whole pages")
        for index in range(address, address + size_bytes, PAGE_BYTES):
            self.write(index, self.read(index, 1))  # readable and writable, and paged in
        return memoryview((ctypes.c_char * size_bytes).from_address(address)).cast("B")
