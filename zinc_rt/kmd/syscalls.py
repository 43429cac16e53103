"""System calls through a Driver, with errors that contain advice."""

from __future__ import annotations

import errno
import os

from zinc_rt.kmd.driver import Driver, Mapping
from zinc_rt.kmd.errors import DriverError
from zinc_rt.kmd.resources import Ledger
from zinc_rt.kmd.uapi.structs import Ioctl, StructBytes

PAGE_BYTES = 4096
KFD_PATH = "/dev/kfd"


def send_ioctl(driver: Driver, fd: int, command: Ioctl, record: StructBytes, about: str = "") -> StructBytes:
    """Send `record`, which contains the output afterwards, even if DriverError is raised."""
    try:
        driver.ioctl(fd, command.request, record.raw)
    except OSError as error:
        raise DriverError(command.name, error.errno or 0, _add_device_loss(about, error)) from error
    return record


def _add_device_loss(about: str, error: OSError) -> str:
    """Return `about`, extended by a lost device's record of its end. A simulated device knows the record's
    path.
    """
    output = error.strerror or ""
    if error.errno != errno.ENODEV or output in ("", os.strerror(errno.ENODEV)):
        return about
    return f"{about}: {output}" if about else output


def open_node(driver: Driver, ledger: Ledger, path: str) -> int:
    """Open a device node. The fd is tracked in `ledger`."""
    what = f"open {path}" if path == KFD_PATH else "open render node"
    try:
        fd = driver.open(path, os.O_RDWR)
    except OSError as error:
        raise DriverError(what, error.errno or 0, path if path != KFD_PATH else "") from error
    ledger.hold("fd", path, lambda: driver.close(fd))
    return fd


def map_memory(
    driver: Driver,
    what: str,
    about: str,
    fd: int,
    size_bytes: int,
    offset: int,
    prot: int,
    *,
    fixed_va: int | None = None,
) -> Mapping:
    """Call the driver's mmap. A failure raises DriverError for `mmap WHAT`."""
    try:
        return driver.mmap(fd, size_bytes, offset, prot, fixed_va=fixed_va)
    except OSError as error:
        raise DriverError(f"mmap {what}", error.errno or 0, about) from error


def round_up_to_pages(size_bytes: int) -> int:
    """Round the size up to whole pages."""
    return size_bytes + -size_bytes % PAGE_BYTES
