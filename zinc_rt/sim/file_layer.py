"""The file layer of a Python program on the simulated device: paths, ioctls on ctypes structs, mappings.

Programs that reach a GPU through their own file layer (open, ioctl, mmap, read) can use this one in place
of the system's. Other programs run unchanged under `zinc-rt sim -- PROGRAM`.
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Any

from zinc_rt.kmd.driver import ANONYMOUS, Driver, Mapping
from zinc_rt.sim.tables.structs import decode_size_bytes

CtypesObject = ctypes.Structure | ctypes.Array[Any] | ctypes.c_uint32 | ctypes.c_uint64


class FileLayer:
    """Open files and mappings of one process at `device`, a SimDriver or SimClient owned by the caller.

    Addresses are those of this process, as for mmap(2). Every failure is an OSError with Linux's errno.
    """

    def __init__(self, device: Driver) -> None:
        self.device = device
        self._mapped: dict[int, Mapping] = {}

    def open(self, path: str, flags: int = os.O_RDONLY) -> LayeredFile:
        """Open a device node, or a file or directory that the device shows below /sys and /proc."""
        return LayeredFile(self, path, self.device.open(path, flags))

    def exists(self, path: str) -> bool:
        try:
            self.device.close(self.device.open(path, os.O_RDONLY))
        except OSError as error:
            return error.errno != errno.ENOENT
        return True

    def map_anonymous(self, address: int, size_bytes: int, prot: int) -> int:
        """Map private memory at `address`, or at any address if that is 0. PROT_NONE reserves the range."""
        return self.keep(self.device.mmap(ANONYMOUS, size_bytes, 0, prot, address or None))

    def munmap(self, address: int, size_bytes: int) -> None:
        """Unmap a whole mapping. EINVAL if no mapping of that size begins there: a mapping cannot be
        unmapped in part."""
        mapping = self._mapped.get(address)
        if mapping is None or mapping.size_bytes != size_bytes:
            raise OSError(errno.EINVAL, f"0x{address:x}: no mapping of {size_bytes} bytes begins at this address")
        self.device.munmap(self._mapped.pop(address))

    def keep(self, mapping: Mapping) -> int:
        """Keep the mapping and return its address. It lives until `munmap`, or until a new mapping
        replaces it (as with MAP_FIXED)."""
        self._mapped[mapping.address] = mapping
        return mapping.address


class LayeredFile:
    """One open file of a FileLayer; a context manager that closes it."""

    def __init__(self, layer: FileLayer, path: str, fd: int) -> None:
        self.layer, self.path, self.fd = layer, path, fd

    def __enter__(self) -> LayeredFile:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def ioctl(self, request: int, argument: CtypesObject) -> int:
        """Perform the ioctl and return 0. The struct is updated in place even if the call fails: some
        errors return results.

        Raises OSError; EFAULT if the struct is shorter than the size encoded in `request`.
        """
        size_bytes = decode_size_bytes(request)
        if ctypes.sizeof(argument) < size_bytes:
            raise OSError(
                errno.EFAULT, f"a struct of {ctypes.sizeof(argument)} bytes; the request encodes {size_bytes}"
            )
        raw = bytearray(argument)[:size_bytes]
        try:
            self.layer.device.ioctl(self.fd, request, raw)
        finally:
            ctypes.memmove(ctypes.addressof(argument), bytes(raw), size_bytes)
        return 0

    def mmap(self, address: int, size_bytes: int, prot: int, offset: int) -> int:
        """Map the file shared with the device at `address` (over a reserved range), or at any address if
        that is 0."""
        return self.layer.keep(self.layer.device.mmap(self.fd, size_bytes, offset, prot, address or None))

    def read(self) -> bytes:
        return self.layer.device.read_file(self.path)

    def names(self) -> list[str]:
        """Return the names in a directory."""
        return self.layer.device.list_dir(self.path)

    def close(self) -> None:
        """Close the file. Its mappings remain, as with close(2)."""
        if self.fd >= 0:
            self.layer.device.close(self.fd)
            self.fd = -1
