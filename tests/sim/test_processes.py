"""Limits, several clients, and what is left when one ends: nothing."""

from __future__ import annotations

import errno
import os

import pytest
from kmd import unsent_ioctls
from sim.device import GTT, PAGE, VRAM_PUBLIC, Client, IdleCp, open_client, open_machine

from zinc_rt.kmd.uapi import kfd
from zinc_rt.sim.driver.kfd_state import MAX_QUEUES_PER_GPU
from zinc_rt.sim.in_process import SimDriver


def test_process_is_limited_to_127_queues_per_gpu() -> None:
    with open_client() as c:
        arguments = c.queue_arguments()
        ids = [c.call(kfd.IOC_CREATE_QUEUE, **arguments)["queue_id"] for _ in range(MAX_QUEUES_PER_GPU)]
        assert ids == list(range(MAX_QUEUES_PER_GPU))
        assert c.errno(kfd.IOC_CREATE_QUEUE, **arguments) == errno.ENOSPC
        other = Client(c.machine)
        assert other.queue()["queue_id"] == 0
        other.driver.exit()
        c.call(kfd.IOC_DESTROY_QUEUE, queue_id=5)
        assert c.call(kfd.IOC_CREATE_QUEUE, **arguments)["queue_id"] == 5


def test_exhausted_sdma_queues_give_enomem() -> None:
    with open_client() as c:
        arguments = c.queue_arguments(queue_type=unsent_ioctls.KFD_IOC_QUEUE_TYPE_SDMA)
        limit = c.gpu.chip.sdma_engines * c.gpu.chip.sdma_queues_per_engine
        for _ in range(limit):
            c.call(kfd.IOC_CREATE_QUEUE, **arguments)
        assert c.errno(kfd.IOC_CREATE_QUEUE, **arguments) == errno.ENOMEM


def test_process_513_gets_enomem_from_kfd() -> None:
    with open_machine() as owner:
        drivers = [SimDriver(owner) for _ in range(513)]
        for driver in drivers[:512]:
            driver.open("/dev/kfd", os.O_RDWR)
        with pytest.raises(OSError) as caught:
            drivers[512].open("/dev/kfd", os.O_RDWR)
        assert caught.value.errno == errno.ENOMEM
        drivers[0].exit()
        drivers[512].open("/dev/kfd", os.O_RDWR)


def test_exiting_process_leaves_no_buffer_queue_or_doorbell() -> None:
    with open_machine() as owner:
        c = Client(owner)
        c.event(page=c.alloc(0x8000)["handle"])
        c.queue()
        host = c.host(c.alloc(PAGE, VRAM_PUBLIC))
        c.driver.exit()
        assert not c.gpu.memory.bos and not c.gpu.on_hardware and not owner.processes and not c.gpu.owners
        assert not any(c.gpu.memory.used.values())
        assert isinstance(c.gpu.cp, IdleCp) and not c.gpu.cp.attached
        host.view[:4] = b"mine"  # the mapping is the process's own to end
        with pytest.raises(OSError) as caught:
            c.call(kfd.IOC_GET_VERSION)
        assert caught.value.errno == errno.ENODEV


def test_fd_of_another_process_is_ebadf() -> None:
    with open_client() as c:
        other = SimDriver(c.machine)
        with pytest.raises(OSError) as caught:
            other.ioctl(c.kfd, kfd.IOC_GET_VERSION.request, bytearray(8))
        assert caught.value.errno == errno.EBADF
        other.exit()


def test_opening_kfd_twice_gives_one_process() -> None:
    with open_client() as c:
        event_id = c.event()["event_id"]
        second = c.driver.open("/dev/kfd", os.O_RDWR)
        record = kfd.SET_EVENT.new(event_id=event_id)
        c.driver.ioctl(second, kfd.IOC_SET_EVENT.request, record.raw)
        assert c.wait(event_id)[0] == kfd.KFD_IOC_WAIT_RESULT_COMPLETE
        c.driver.close(second)
        assert c.errno(kfd.IOC_SET_EVENT, event_id=event_id) == 0


def test_handles_are_per_process_and_vram_is_shared() -> None:
    with open_client() as c:
        other = Client(c.machine)
        buffer = c.alloc(1 << 20, VRAM_PUBLIC)
        assert other.errno(kfd.IOC_FREE_MEMORY_OF_GPU, handle=buffer["handle"] + 77) == errno.EINVAL
        left = other.call(kfd.IOC_AVAILABLE_MEMORY, gpu_id=c.gpu_id)["available"]
        other.alloc(left - (1 << 20), VRAM_PUBLIC & ~kfd.KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC)
        assert (
            c.errno(
                kfd.IOC_ALLOC_MEMORY_OF_GPU, va_addr=PAGE * 99, size=1 << 30, gpu_id=c.gpu_id, flags=VRAM_PUBLIC
            )
            == errno.ENOMEM
        )
        other.driver.exit()
        c.alloc(1 << 30, VRAM_PUBLIC)


def test_process_has_one_8192_byte_doorbell_slice_that_reaches_its_queue() -> None:
    with open_client() as c:
        c.queue()
        offset = c.queue()["doorbell_offset"]
        for size in (4096, 16384):
            with pytest.raises(OSError) as caught:
                c.driver.mmap(c.kfd, size, offset & ~0x1FFF, 3)
            assert caught.value.errno == errno.EINVAL
        with pytest.raises(OSError) as caught:
            c.driver.mmap(c.kfd, 8192, (3 << 62) | 5 << 46, 3)
        assert caught.value.errno == errno.ENODEV
        doorbells = c.driver.mmap(c.kfd, 8192, offset & ~0x1FFF, 3)
        doorbells.view[offset & 0x1FFF : (offset & 0x1FFF) + 8] = (99).to_bytes(8, "little")
        c.gpu.doorbells.look()
        c.gpu.doorbells.look()
        assert isinstance(c.gpu.cp, IdleCp) and c.gpu.cp.rung == [(1, 99)]
        c.driver.munmap(doorbells)


def test_two_gpus_have_separate_nodes_ids_and_memory() -> None:
    with open_machine(chip="r9700,gfx1100") as owner:
        first, second = owner.gpus
        assert first.gpu_id != second.gpu_id and owner.tree.names("/dev/dri") == ["renderD128", "renderD129"]
        assert owner.tree.names("/sys/devices/virtual/kfd/kfd/topology/nodes") == ["0", "1", "2"]
        c = Client(owner)
        c.alloc(PAGE, GTT)
        assert first.memory.bos and not second.memory.bos


def test_failed_queue_creation_leaks_no_gpu_memory() -> None:
    with open_client("mes-add-failure") as c:
        arguments = c.queue_arguments()
        before = {bo: bo.references for bo in c.gpu.memory.bos}
        assert c.errno(kfd.IOC_CREATE_QUEUE, **arguments) == errno.EIO
        assert before == {bo: bo.references for bo in c.gpu.memory.bos}


def test_kfd_state_persists_until_the_process_ends() -> None:
    with open_client() as c:
        c.queue()
        c.driver.close(c.kfd)
        c.driver.close(c.drm)
        assert len(c.gpu.on_hardware) == 1
        c.kfd = c.driver.open("/dev/kfd", os.O_RDWR)
        c.drm = c.driver.open("/dev/dri/renderD128", os.O_RDWR)
        assert c.errno(kfd.IOC_ACQUIRE_VM, drm_fd=c.drm, gpu_id=c.gpu_id) == errno.EBUSY
        c.call(kfd.IOC_DESTROY_QUEUE, queue_id=0)
