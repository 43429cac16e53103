"""A client's memory: data carried by a request, or read from the client (process_vm_readv(2))."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import struct
import threading
from dataclasses import dataclass, field

from zinc_rt.sim.driver.client_memory import is_user_range
from zinc_rt.sim.tables.aql import PACKET_BYTES

_ROW = struct.Struct("<2Q")
_HASH_FACTOR, _MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1  # of preload/launches.c; a power of two of rows


@dataclass(slots=True)
class CarriedMemory:
    """The data of a request: arrays by address, user pages, and written data to return."""

    arrays: list[tuple[int, bytearray]] = field(default_factory=list)
    pages_at: int = 0
    pages: memoryview | None = None
    written: list[tuple[int, bytes]] = field(default_factory=list)
    pid: int = 0  # of the process whose memory is read directly, instead of transferred arrays


class RemoteMemory:
    """The UserMemory (sim.driver.client_memory) of a client in another process. Each thread serves one request."""

    def __init__(self) -> None:
        self._local = threading.local()

    def carry(self, carried: CarriedMemory) -> None:
        self._local.carried = carried

    def _find_part(self, address: int, size_bytes: int) -> tuple[bytearray, int]:
        for start, content in self._local.carried.arrays:
            if start <= address and address + size_bytes <= start + len(content):
                return content, address - start
        raise OSError(errno.EFAULT, f"0x{address:x}: {size_bytes} bytes are not all there")

    def read(self, address: int, size_bytes: int) -> bytes:
        if self._local.carried.pid:
            return _read_process(self._local.carried.pid, address, size_bytes)
        content, offset = self._find_part(address, size_bytes)
        return bytes(content[offset : offset + size_bytes])

    def write(self, address: int, data: bytes) -> None:
        if self._local.carried.pid:
            _write_process(self._local.carried.pid, address, data)
            return
        content, offset = self._find_part(address, len(data))
        content[offset : offset + len(data)] = data
        self._local.carried.written.append((address, data))

    def pages(self, address: int, size_bytes: int) -> memoryview:
        carried: CarriedMemory = self._local.carried
        offset = address - carried.pages_at
        if carried.pages is None or offset < 0 or offset + size_bytes > len(carried.pages):
            raise OSError(errno.EFAULT, f"0x{address:x}: no user pages came along")
        return carried.pages[offset : offset + size_bytes]


def map_pages(fd: int, size_bytes: int, offset: int = 0) -> memoryview:
    """Map a part of a client's memfd, which must be sealed against shrinking."""
    sealed = fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
    if not sealed or offset < 0 or os.fstat(fd).st_size < offset + size_bytes:
        raise OSError(errno.EFAULT, "user pages: a memfd sealed against shrinking, and long enough")
    return memoryview(mmap.mmap(fd, size_bytes, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE, offset=offset))


class _Part(ctypes.Structure):
    _fields_ = (("address", ctypes.c_void_p), ("size_bytes", ctypes.c_size_t))


_LIBC = ctypes.CDLL(None, use_errno=True)


def _read_process(pid: int, address: int, size_bytes: int) -> bytes:
    """Read memory. Raises OSError: EFAULT if not all of it is mapped, EPERM if the process does not permit
    access."""
    data = ctypes.create_string_buffer(max(size_bytes, 1))
    _move(_LIBC.process_vm_readv, pid, data, address, size_bytes)
    return data.raw[:size_bytes]


def _write_process(pid: int, address: int, data: bytes) -> None:
    """Write memory. Raises OSError like `_read_process`."""
    _move(_LIBC.process_vm_writev, pid, ctypes.create_string_buffer(data, max(len(data), 1)), address, len(data))


def _move(call: object, pid: int, data: ctypes.Array[ctypes.c_char], address: int, size_bytes: int) -> None:
    if not size_bytes:
        return
    if not is_user_range(address, size_bytes):
        raise OSError(errno.EFAULT, f"0x{address:x}: no user address")
    assert callable(call)
    here, there = _Part(ctypes.addressof(data), size_bytes), _Part(address, size_bytes)
    result = call(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    if result != size_bytes:
        number = ctypes.get_errno() if result < 0 else errno.EFAULT
        raise OSError(number, f"0x{address:x}: {size_bytes} bytes of process {pid}: {os.strerror(number)}")


@dataclass(frozen=True, slots=True)
class LaunchTable:
    """A table in a client's memory (preload/launches.c): the code that wrote each packet of its AQL queues. A row
    has the packet's address, its index, and text with a final 0."""

    pid: int
    va: int
    rows: int
    row_bytes: int

    def find(self, packet_va: int, index: int) -> str:
        """Return FILE+OFFSET of the code that wrote the packet; "" if the table has another packet there, or the
        client has ended."""
        number = (packet_va // PACKET_BYTES * _HASH_FACTOR & _MASK) * self.rows >> 64
        row = self.va + number * self.row_bytes
        try:
            data = _read_process(self.pid, row, self.row_bytes)
        except OSError:
            return ""
        if _ROW.unpack_from(data) != (packet_va, index):
            return ""
        return data[_ROW.size :].partition(b"\0")[0].decode(errors="replace")
