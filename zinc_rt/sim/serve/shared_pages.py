"""Convert ordinary pages of this process to shared memory in place, as USERPTR buffers need for a device
in another process."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from pathlib import Path

from zinc_rt.sim.chips import PAGE_BYTES
from zinc_rt.sim.driver.client_memory import InProcessMemory, is_user_range
from zinc_rt.sim.memory.buffers import FIXED_SIZE

_MAP_SHARED_FIXED = 0x01 | 0x10
_READ_WRITE = 3
_NAME = "zinc-rt user pages"


class SharedPages:
    """A range that was shared before and is still mapped unchanged keeps its memory.

    A store by another thread between the copy and the exchange can be lost: share buffers before work on
    them starts.
    """

    def __init__(self) -> None:
        self._memory = InProcessMemory()
        self._libc = ctypes.PyDLL(None, use_errno=True)
        self._libc.mmap.restype = ctypes.c_void_p
        self._libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
        self._shared: dict[tuple[int, int], int] = {}  # (address, size): memfd

    def share(self, address: int, size_bytes: int) -> int:
        """Return a memfd that contains exactly this range from now on. OSError if the pages are not
        readable and writable."""
        if address % PAGE_BYTES or size_bytes % PAGE_BYTES or not size_bytes:
            raise OSError(errno.EINVAL, "not whole pages")
        if not is_user_range(address, size_bytes):
            raise OSError(errno.EFAULT, "no user pages")
        known = self._shared.get((address, size_bytes))
        if known is not None and self._is_current(address, size_bytes, known):
            return known
        content = self._memory.read(address, size_bytes)
        self._memory.write(address, content[:1])
        fd = os.memfd_create(_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, size_bytes)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, FIXED_SIZE)
        os.pwrite(fd, self._memory.read(address, size_bytes), 0)
        offset = self._libc.mmap(address, size_bytes, _READ_WRITE, _MAP_SHARED_FIXED, fd, 0)
        if offset != address:
            os.close(fd)
            raise OSError(ctypes.get_errno() or errno.EFAULT, "the pages could not be exchanged")
        self._shared[address, size_bytes] = fd
        return fd

    def _is_current(self, address: int, size_bytes: int, fd: int) -> bool:
        inode = os.fstat(fd).st_ino
        for line in Path("/proc/self/maps").read_text().splitlines():
            span, _, _, _, number = line.split()[:5]
            start, end = (int(part, 16) for part in span.split("-"))
            if start <= address and address + size_bytes <= end:
                return int(number) == inode
        return False
