"""The Driver implementation for Linux."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import select
import time
from collections.abc import Sequence
from pathlib import Path

from zinc_rt.kmd.driver import ANONYMOUS, PROT_NONE, Mapping

# asm-generic/mman-common.h, x86-64
_MAP_SHARED = 0x01
_MAP_PRIVATE = 0x02
_MAP_FIXED = 0x10
_MAP_ANONYMOUS = 0x20
_MAP_NORESERVE = 0x4000

_AGAIN_SECONDS = 1.0  # libdrm and libhsakmt repeat EAGAIN for ever; a GPU in reset deserves an end


class LinuxDriver:
    """Real system calls. `open_fds` and `live_mappings` count open resources and are 0 after a clean exit."""

    simulated = False

    def __init__(self) -> None:
        self.open_fds: dict[int, str] = {}
        self.live_mappings: set[Mapping] = set()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.mmap.restype = ctypes.c_void_p
        self._libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
        self._libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

    def open(self, path: str, flags: int) -> int:
        fd = os.open(path, flags | os.O_CLOEXEC)
        self.open_fds[fd] = path
        return fd

    def ioctl(self, fd: int, request: int, arg: bytearray) -> None:
        give_up = time.monotonic() + _AGAIN_SECONDS
        while True:
            try:
                fcntl.ioctl(fd, request, arg, True)
                return
            except InterruptedError:
                continue
            except BlockingIOError:
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.001)

    def mmap(self, fd: int, size_bytes: int, offset: int, prot: int, fixed_va: int | None = None) -> Mapping:
        covers = fixed_va is not None
        if fixed_va is not None and not self._reserve_range(fixed_va, size_bytes):
            raise OSError(errno.EINVAL, f"0x{fixed_va:x} lies in no address range set aside here")
        flags = _MAP_SHARED if fd != ANONYMOUS else _MAP_PRIVATE | _MAP_ANONYMOUS
        if fd == ANONYMOUS and prot == PROT_NONE:
            flags |= _MAP_NORESERVE
        address = self._mmap(fixed_va, size_bytes, prot, flags | (_MAP_FIXED if covers else 0), fd, offset)
        mapping = Mapping(address, size_bytes, prot, covers=covers)
        self.live_mappings.add(mapping)
        return mapping

    def munmap(self, mapping: Mapping) -> None:
        if mapping not in self.live_mappings:
            raise OSError(errno.EINVAL, f"{mapping} is not mapped")
        mapping.release()
        if mapping.covers:  # the range stays set aside: in between another thread could take it
            flags = _MAP_PRIVATE | _MAP_ANONYMOUS | _MAP_NORESERVE | _MAP_FIXED
            self._mmap(mapping.address, mapping.size_bytes, PROT_NONE, flags, ANONYMOUS, 0)
        elif self._libc.munmap(mapping.address, mapping.size_bytes):
            raise _make_os_error()
        self.live_mappings.remove(mapping)

    def close(self, fd: int) -> None:
        if fd not in self.open_fds:
            raise OSError(errno.EBADF, f"fd {fd} was not opened here, or is closed")
        del self.open_fds[fd]
        os.close(fd)

    def poll(self, fds: Sequence[int], timeout_seconds: float) -> list[int]:
        poller = select.poll()
        for fd in fds:
            poller.register(fd, select.POLLIN)
        return [fd for fd, _ in poller.poll(max(0.0, timeout_seconds) * 1000)]

    def read_file(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def list_dir(self, path: str) -> list[str]:
        return sorted(entry.name for entry in Path(path).iterdir())

    def _mmap(self, address: int | None, size_bytes: int, prot: int, flags: int, fd: int, offset: int) -> int:
        # KFD's offsets use bit 63: as a C off_t they are negative
        signed = offset - (1 << 64) if offset >> 63 else offset
        at = self._libc.mmap(address, size_bytes, prot, flags, fd, signed)
        if at is None or at == ctypes.c_void_p(-1).value:
            raise _make_os_error()
        return int(at)

    def _reserve_range(self, va: int, size_bytes: int) -> bool:
        return any(
            item.set_aside and item.address <= va and va + size_bytes <= item.address + item.size_bytes
            for item in self.live_mappings
        )


def _make_os_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
