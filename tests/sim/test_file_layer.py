"""A Python program's own file layer over the simulated device, in this process and served."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Iterator

import pytest

from zinc_rt.kmd.driver import PROT_NONE
from zinc_rt.sim.file_layer import FileLayer
from zinc_rt.sim.in_process import SimDriver
from zinc_rt.sim.serve.client import SimClient

GET_VERSION, ACQUIRE_VM, ALLOC_MEMORY = 0x80084B01, 0x40084B15, 0xC0284B16
NODE = "/sys/class/kfd/kfd/topology/nodes/1"
GTT_WRITABLE = 0x80000002
BYTES = 8192


class Version(ctypes.Structure):
    _fields_ = (("major", ctypes.c_uint32), ("minor", ctypes.c_uint32))


class AcquireVm(ctypes.Structure):
    _fields_ = (("drm_fd", ctypes.c_uint32), ("gpu_id", ctypes.c_uint32))


class AllocMemory(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("va_addr", "size", "handle", "mmap_offset")),
        *((name, ctypes.c_uint32) for name in ("gpu_id", "flags")),
    )


@pytest.fixture(params=["in this process", "served"])
def file_layer(request: pytest.FixtureRequest) -> Iterator[FileLayer]:
    device = SimDriver() if request.param == "in this process" else SimClient(name=f"file-layer-{os.getpid()}")
    yield FileLayer(device)
    device.close_all()


@pytest.mark.rest(keep=1)
def test_buffer_is_allocated_and_mapped_over_a_reserved_range(file_layer: FileLayer) -> None:
    gpu_id = int(file_layer.open(f"{NODE}/gpu_id").read())
    with file_layer.open("/dev/kfd", os.O_RDWR) as kfd, file_layer.open("/dev/dri/renderD128", os.O_RDWR) as drm:
        version = Version()
        assert kfd.ioctl(GET_VERSION, version) == 0 and version.major == 1
        kfd.ioctl(ACQUIRE_VM, AcquireVm(drm.fd, gpu_id))
        index = file_layer.map_anonymous(0, BYTES, PROT_NONE)
        buffer = AllocMemory(index, BYTES, 0, 0, gpu_id, GTT_WRITABLE)
        kfd.ioctl(ALLOC_MEMORY, buffer)
        assert buffer.handle
        assert drm.mmap(index, BYTES, mmap.PROT_READ | mmap.PROT_WRITE, buffer.mmap_offset) == index
        ctypes.memset(index, 0x5A, BYTES)
        assert ctypes.string_at(index + BYTES - 1, 1) == b"\x5a"
        with pytest.raises(OSError) as refused:
            file_layer.munmap(index, BYTES // 2)
        assert refused.value.errno == errno.EINVAL
        file_layer.munmap(index, BYTES)


def test_layer_shows_files_and_directories_of_the_device(file_layer: FileLayer) -> None:
    assert "properties" in file_layer.open(NODE).names()
    assert b"gfx_target_version 120001" in file_layer.open(f"{NODE}/properties").read()
    assert file_layer.exists("/dev/kfd") and not file_layer.exists("/dev/no-such")


def test_errors_match_linux_and_structs_are_not_read_past_their_end(file_layer: FileLayer) -> None:
    with pytest.raises(OSError) as missing:
        file_layer.open("/dev/dri/renderD999")
    assert missing.value.errno in (errno.ENOENT, errno.ENODEV)
    with file_layer.open("/dev/kfd", os.O_RDWR) as kfd, pytest.raises(OSError) as short:
        kfd.ioctl(ALLOC_MEMORY, Version())
    assert short.value.errno == errno.EFAULT
