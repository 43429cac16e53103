"""The kernel log since a point in time, and the core dump that amdgpu leaves after a reset, if they are
readable.
"""

from __future__ import annotations

import os
from typing import Protocol

from zinc_rt.kmd.driver import Driver

KMSG = "/dev/kmsg"
CORE_DUMPS = "/sys/class/devcoredump"
_RECORD_BYTES = 8192  # CONSOLE_EXT_LOG_MAX in the kernel


class KmdLog(Protocol):
    missing: str
    """Why there is no log; empty where there is one."""

    def lines(self) -> tuple[str, ...]:
        """Return the messages logged since this object was created."""


class KmsgLog:
    """Reader of /dev/kmsg from now on. Without permission (dmesg_restrict) it is empty and reports that."""

    def __init__(self, path: str = KMSG) -> None:
        self.missing = ""
        self._fd = -1
        self._lines: list[str] = []
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError as error:
            self.missing = f"{path} cannot be read: {error.strerror}; run `dmesg` as root"
            self.close()

    def lines(self) -> tuple[str, ...]:
        while self._fd >= 0:
            try:
                record = os.read(self._fd, _RECORD_BYTES)
            except BrokenPipeError:
                self._lines.append("(records were overwritten before they were read)")
                continue
            except OSError:
                break  # EAGAIN: that was all
            if not record:
                break
            self._lines.append(record_text(record))
        return tuple(self._lines)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class SimulatedLog:
    """The log of a simulated machine. Reads to the end never block."""

    def __init__(self, driver: Driver, path: str = KMSG) -> None:
        self.missing = ""
        self._driver, self._path = driver, path
        self._before = len(self._read())

    def lines(self) -> tuple[str, ...]:
        return tuple(self._read()[self._before :])

    def _read(self) -> list[str]:
        try:
            return self._driver.read_file(self._path).decode(errors="replace").splitlines()
        except OSError as error:
            self.missing = f"{self._path} of the simulated machine cannot be read: {error}"
            return []


def record_text(record: bytes) -> str:
    """Convert "6,339,12345678,-;amdgpu: …" to "[12.345678] amdgpu: …". Only the first line is used; the rest are
    tags."""
    head, separator, text = record.decode(errors="replace").partition(";")
    fields = head.split(",")
    message = text.split("\n", 1)[0]
    if not separator or len(fields) < 3 or not fields[2].isdecimal():
        return record.decode(errors="replace").strip()
    return f"[{int(fields[2]) / 1e6:.6f}] {message}"


def find_core_dump(driver: Driver, old: frozenset[str]) -> bytes:
    """Return the first dump that is not in `old`; empty if there is none or it is unreadable."""
    for name in list_core_dumps(driver) - old:
        try:
            return driver.read_file(f"{CORE_DUMPS}/{name}/data")
        except OSError:
            continue
    return b""


def list_core_dumps(driver: Driver) -> frozenset[str]:
    try:
        return frozenset(name for name in driver.list_dir(CORE_DUMPS) if name != "disabled")
    except OSError:
        return frozenset()
