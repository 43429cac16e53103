"""Every ioctl that T1 and T2 send, against the simulated driver of each Linux version."""

from __future__ import annotations

import pytest

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.kmd.events import EventKind
from zinc_rt.kmd.kfd import KfdProcess
from zinc_rt.kmd.transport import Placement
from zinc_rt.kmd.uapi import amdgpu, drm, kfd
from zinc_rt.kmd.uapi.structs import Ioctl
from zinc_rt.kmd.userq import UserqGpu
from zinc_rt.sim.in_process import SimDriver
from zinc_rt.sim.profiles import LINUX_VERSIONS, VERSIONS

RENDER = "/dev/dri/renderD128"
ONLY_PROBED = {"AMDKFD_IOC_UPDATE_QUEUE"}  # by P16, with invalid arguments


class Recorder(SimDriver):
    """A simulated device that records the requests of its client."""

    def __init__(self, linux: str) -> None:
        super().__init__(linux=linux)
        self.requests: set[int] = set()

    def ioctl(self, fd: int, request: int, arg: bytearray) -> None:
        super().ioctl(fd, request, arg)
        self.requests.add(request)


def sent_ioctls(driver: Recorder, *modules: dict[tuple[str, int], Ioctl]) -> tuple[set[str], set[str]]:
    """Return the names of the ioctls that succeeded, and of all that the modules declare."""
    declared = {item.request: item.name for module in modules for item in module.values()}
    return {declared[request] for request in driver.requests if request in declared}, set(declared.values())


versions = pytest.mark.parametrize("linux", VERSIONS)


@versions
@pytest.mark.rest(keep=2)
def test_every_ioctl_of_t1_succeeds(linux: str) -> None:
    driver = Recorder(linux)
    with KfdProcess(driver) as process:
        gpu = process.open_gpu(process.topology.gpus[0])
        for placement in Placement:
            gpu.alloc(3 << 20, placement, placement.value).free()
        event = process.events.create(EventKind.SIGNAL, auto_reset=False)
        process.events.set(event)
        assert process.events.wait([event], 0.0)
        process.events.reset(event)
        assert not process.events.wait([event], 0.0)
        event.destroy()
        with gpu.create_queue(ring_bytes=1 << 16) as queue:
            gpu.queues.set_cu_mask(queue, (0xFFFFFFFF,))
        assert gpu.read_clocks().gpu >= 0 and gpu.query_available_memory() > 0
        gpu.flush_hdp()
    result, declared = sent_ioctls(driver, kfd.IOCTLS)
    assert declared - result == ONLY_PROBED


@pytest.mark.parametrize("linux", [version for version in VERSIONS if LINUX_VERSIONS[version].userq])
@pytest.mark.rest(keep=2)
def test_every_ioctl_of_t2_succeeds(linux: str) -> None:
    driver = Recorder(linux)
    with UserqGpu(driver, RENDER) as gpu:
        buffers = [gpu.alloc(3 << 20, item, item.value) for item in Placement if item is not Placement.USERPTR]
        assert gpu.fallbacks == [] and gpu.fault() is None and gpu.node.query_vram_lost_count() == 0
        with gpu.create_queue(ring_bytes=1 << 16) as queue:
            syncobj = gpu.create_syncobj("done")
            gpu.signal(queue, [syncobj], writes=buffers)
            assert all(value == 0 for _, value in gpu.query_fences(queue, [syncobj]))  # of no work
            assert syncobj.wait(1.0)
    succeeded, declared = sent_ioctls(driver, amdgpu.IOCTLS, drm.IOCTLS)
    assert declared - succeeded == set()


@pytest.mark.parametrize("linux", [version for version in VERSIONS if not LINUX_VERSIONS[version].userq])
def test_linux_without_user_queues_is_named(linux: str) -> None:
    with pytest.raises(UnsupportedError, match="this amdgpu has no user queues"):
        UserqGpu(SimDriver(linux=linux), RENDER)
