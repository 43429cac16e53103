"""The Linux driver, as far as any Linux can show it: ordinary files, pipes and memory."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from zinc_rt.kmd.driver import ANONYMOUS, PROT_NONE, PROT_READ, PROT_WRITE
from zinc_rt.kmd.errors import ADVICE, DriverError, find_advice
from zinc_rt.kmd.linux import LinuxDriver

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the driver makes Linux system calls")
PAGE = 4096
RW = PROT_READ | PROT_WRITE


@pytest.fixture
def linux_driver() -> Iterator[LinuxDriver]:
    driver = LinuxDriver()
    yield driver
    assert not driver.open_fds and not driver.live_mappings


def test_file_is_mapped_over_a_reserved_range_and_released(linux_driver: LinuxDriver, tmp_path: Path) -> None:
    file = tmp_path / "bo"
    file.write_bytes(bytes(2 * PAGE))
    fd = linux_driver.open(str(file), os.O_RDWR)
    aside = linux_driver.mmap(ANONYMOUS, 4 * PAGE, 0, PROT_NONE)
    over = linux_driver.mmap(fd, PAGE, PAGE, RW, fixed_va=aside.address + PAGE)
    assert over.address == aside.address + PAGE
    over.view[:4] = b"here"
    assert file.read_bytes()[PAGE : PAGE + 4] == b"here"
    linux_driver.munmap(over)
    second = linux_driver.mmap(fd, PAGE, 0, RW, fixed_va=aside.address + PAGE)
    linux_driver.munmap(second)
    linux_driver.munmap(aside)
    linux_driver.close(fd)


def test_fixed_address_outside_every_range_is_rejected(linux_driver: LinuxDriver) -> None:
    memory = linux_driver.mmap(ANONYMOUS, PAGE, 0, RW)
    with pytest.raises(OSError, match="set aside") as caught:
        linux_driver.mmap(ANONYMOUS, PAGE, 0, RW, fixed_va=memory.address)
    assert caught.value.errno == errno.EINVAL
    linux_driver.munmap(memory)


def test_memory_still_referenced_is_not_unmapped(linux_driver: LinuxDriver) -> None:
    memory = linux_driver.mmap(ANONYMOUS, PAGE, 0, RW)
    array = np.frombuffer(memory.view, np.uint32)
    with pytest.raises(BufferError):
        linux_driver.munmap(memory)
    assert array[0] == 0
    del array
    linux_driver.munmap(memory)
    with pytest.raises(ValueError, match="released"):
        memory.view[0]


def test_ioctl_changes_its_argument_and_reports_errno(linux_driver: LinuxDriver, tmp_path: Path) -> None:
    file = tmp_path / "plain"
    file.write_bytes(b"12345")
    fd = linux_driver.open(str(file), os.O_RDWR)
    left = bytearray(4)
    linux_driver.ioctl(fd, 0x541B, left)  # FIONREAD
    assert int.from_bytes(left, "little") == 5
    with pytest.raises(OSError, match="Inappropriate") as caught:
        linux_driver.ioctl(fd, 0x80084B01, bytearray(8))
    assert caught.value.errno == errno.ENOTTY
    linux_driver.close(fd)
    with pytest.raises(OSError, match="not opened here"):
        linux_driver.close(fd)


def test_poll_returns_readable_fds_and_respects_the_timeout(linux_driver: LinuxDriver) -> None:
    read, write = os.pipe()
    try:
        assert linux_driver.poll([read], 0.01) == []
        os.write(write, b"x")
        assert linux_driver.poll([read], 1.0) == [read]
    finally:
        os.close(read)
        os.close(write)


def test_missing_files_raise_file_not_found_error(linux_driver: LinuxDriver, tmp_path: Path) -> None:
    (tmp_path / "b").write_text("2")
    (tmp_path / "a").write_text("1")
    assert linux_driver.list_dir(str(tmp_path)) == ["a", "b"]
    assert linux_driver.read_file(str(tmp_path / "b")) == b"2"
    with pytest.raises(FileNotFoundError):
        linux_driver.read_file(str(tmp_path / "c"))
    with pytest.raises(FileNotFoundError):
        linux_driver.open(str(tmp_path / "c"), os.O_RDWR)


def test_every_advice_row_makes_a_complete_message() -> None:
    for row in ADVICE:
        error = DriverError(row.call or "AMDKFD_IOC_SVM", row.errno, "gpu 0x1234")
        assert row.why in str(error) and f"next: {row.next}" in str(error) and row.why[-1] != "."


def test_undescribed_errno_still_has_a_message() -> None:
    assert "too many links" in str(DriverError("AMDKFD_IOC_SVM", errno.EMLINK))
    assert "errno 999" in str(DriverError("AMDKFD_IOC_SVM", 999))
    assert find_advice("AMDKFD_IOC_CREATE_QUEUE", 524).why != find_advice("DRM_IOCTL_AMDGPU_USERQ", 524).why
