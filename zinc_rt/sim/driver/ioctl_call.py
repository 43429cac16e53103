"""One ioctl in the driver: the calling process, the struct, and the arrays it points to."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from zinc_rt.sim.driver.files import DmaBufFile, DrmFile, File
from zinc_rt.sim.driver.kfd_state import KfdProcessState
from zinc_rt.sim.driver.process import Process
from zinc_rt.sim.gpu import SimGpu
from zinc_rt.sim.inject import Injector
from zinc_rt.sim.profiles import LinuxProfile
from zinc_rt.sim.tables.structs import Fields, IoctlRow, StructLayout


class MachineState(Protocol):
    """The machine's state for ioctls. `lock` guards the driver's state, `changed` events and fences."""

    linux: LinuxProfile
    injector: Injector
    gpus: list[SimGpu]
    lock: threading.RLock
    changed: threading.Condition


@dataclass(slots=True)
class IoctlCall:
    """One ioctl: the machine, the process, the file, and the struct, updated in place."""

    machine: MachineState
    process: Process
    file: File
    arg: Fields

    @property
    def drm(self) -> DrmFile:
        """Return the render node, for the handlers of its ioctls."""
        assert isinstance(self.file, DrmFile)
        return self.file

    @property
    def kfd(self) -> KfdProcessState:
        """Return the process's state in amdkfd, for the handlers of /dev/kfd's ioctls."""
        assert self.process.kfd is not None
        return self.process.kfd

    def find_dma_buf(self, fd: int, none: int = errno.EBADF) -> DmaBufFile:
        """Return the dma-buf. `none`: the errno for an unknown fd; another kind of file is EINVAL."""
        file = self.process.files.get(fd)
        if not isinstance(file, DmaBufFile):
            raise OSError(none if file is None else errno.EINVAL, "no dma-buf")
        return file

    def read_bytes(self, address: int, size_bytes: int) -> bytes:
        """Read bytes like copy_from_user: EFAULT."""
        if size_bytes and not address:
            raise OSError(errno.EFAULT, "null pointer")
        return self.process.memory.read(address, size_bytes) if size_bytes else b""

    def read_numbers(self, address: int, count: int, item_bytes: int = 4, limit: int = 1 << 20) -> list[int]:
        """Read an array of unsigned numbers. `limit`: a larger array is ENOMEM, because the kernel would not
        allocate it.
        """
        if count > limit:
            raise OSError(errno.ENOMEM, f"{count} entries")
        raw = self.read_bytes(address, count * item_bytes)
        return [int.from_bytes(raw[i : i + item_bytes], "little") for i in range(0, len(raw), item_bytes)]

    def read_records(self, address: int, count: int, layout: StructLayout, limit: int = 1 << 16) -> list[Fields]:
        """Read an array of structs."""
        if count > limit:
            raise OSError(errno.ENOMEM, f"{count} entries")
        raw = self.read_bytes(address, count * layout.size_bytes)
        return [layout.read(raw[i * layout.size_bytes :]) for i in range(count)]

    def put(self, address: int, data: bytes) -> None:
        """Write bytes like copy_to_user: EFAULT."""
        if data and not address:
            raise OSError(errno.EFAULT, "null pointer")
        if data:
            self.process.memory.write(address, data)


@dataclass(frozen=True, slots=True)
class IoctlHandler:
    """One row of an ioctl table. `unlocked`: it may sleep, and acquires the machine's lock itself if needed."""

    ioctl: IoctlRow
    run: Callable[[IoctlCall], None]
    unlocked: bool = False


def make_table(*rows: IoctlHandler) -> dict[int, IoctlHandler]:
    """Return the handlers by ioctl number."""
    numbers = {row.ioctl.number: row for row in rows}
    if len(numbers) != len(rows):
        raise ValueError("duplicate handler for one ioctl")
    return numbers
