"""The memory of a client on this machine, read and written where it lies (process_vm_readv(2))."""

from __future__ import annotations

import ctypes
import errno
import os

from zinc_rt.sim.driver.client_memory import is_user_range


class _Part(ctypes.Structure):
    _fields_ = (("address", ctypes.c_void_p), ("size_bytes", ctypes.c_size_t))


_LIBC = ctypes.CDLL(None, use_errno=True)


def read(pid: int, address: int, size_bytes: int) -> bytes:
    """Raises OSError: EFAULT where not all of it is there, EPERM where the process does not let this one."""
    data = ctypes.create_string_buffer(max(size_bytes, 1))
    _move(_LIBC.process_vm_readv, pid, data, address, size_bytes)
    return data.raw[:size_bytes]


def write(pid: int, address: int, data: bytes) -> None:
    """Raises OSError as `read` does."""
    _move(_LIBC.process_vm_writev, pid, ctypes.create_string_buffer(data, max(len(data), 1)), address, len(data))


def _move(call: object, pid: int, data: ctypes.Array[ctypes.c_char], address: int, size_bytes: int) -> None:
    if not size_bytes:
        return
    if not is_user_range(address, size_bytes):
        raise OSError(errno.EFAULT, f"0x{address:x}: no user address")
    assert callable(call)
    here, there = _Part(ctypes.addressof(data), size_bytes), _Part(address, size_bytes)
    done = call(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    if done != size_bytes:
        number = ctypes.get_errno() if done < 0 else errno.EFAULT
        raise OSError(number, f"0x{address:x}: {size_bytes} bytes of process {pid}: {os.strerror(number)}")
