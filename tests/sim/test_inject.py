"""Each switch of the injection table does what its row says, where a client can see it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest
from sim.device import PAGE, VRAM_PUBLIC, Client, IdleCp, client, machine

from zinc_rt.kmd.uapi import amdgpu, kfd
from zinc_rt.kmd.uapi.host_memory import HostArray
from zinc_rt.sim.inject import INJECTIONS, Injector, parse
from zinc_rt.sim.interfaces import AccessKind, Fault


def opens(path: str) -> Callable[[Client], int]:
    def try_it(c: Client) -> int:
        try:
            c.driver.open(path, os.O_RDWR)
        except OSError as error:
            return error.errno or -1
        return 0

    return try_it


def new_queue(c: Client) -> int:
    return c.errno(kfd.IOC_CREATE_QUEUE, **c.queue_arguments())


def userq_mask(c: Client) -> int:
    array = HostArray(bytes(448))
    c.call(amdgpu.IOCTL_INFO, return_pointer=array.address, return_size=448, query=amdgpu.AMDGPU_INFO_DEV_INFO)
    return array.record(amdgpu.INFO_DEVICE)["userq_ip_mask"]


def counter_moves(c: Client) -> bool:
    first, second = (c.call(kfd.IOC_GET_CLOCK_COUNTERS, gpu_id=c.gpu_id)["gpu_clock_counter"] for _ in range(2))
    return second > first


def map_doorbells(c: Client) -> int:
    offset = c.queue()["doorbell_offset"]
    try:
        c.driver.mmap(c.kfd, 8192, offset & ~0x1FFF, 3)
    except OSError as error:
        return error.errno or -1
    return 0


def rings(c: Client) -> list[tuple[int, int]]:
    offset = c.queue()["doorbell_offset"]
    doorbells = c.driver.mmap(c.kfd, 8192, offset & ~0x1FFF, 3)
    doorbells.view[offset & 0x1FFF] = 7
    c.gpu.doorbells.look()
    c.driver.munmap(doorbells)
    assert isinstance(c.gpu.cp, IdleCp)
    return c.gpu.cp.rung


def ring_bytes(c: Client) -> int:
    c.queue()
    return c.gpu.on_hardware[-1].queue.ring_size_bytes


def eop(c: Client) -> bool:
    c.queue()
    return bool(c.gpu.on_hardware[-1].queue.eop_va)


def interrupt(c: Client) -> int:
    page = c.alloc(0x8000)
    event_id = c.event(page=page["handle"])["event_id"]
    c.queue()
    c.gpu_vm.write(page["va_addr"] + event_id * 8, event_id.to_bytes(8, "little"))
    c.gpu.interrupt(c.gpu.on_hardware[-1].queue, event_id)
    return c.wait(event_id)[0]


def memory_event(c: Client) -> int:
    event_id = c.event(kfd.KFD_IOC_EVENT_MEMORY)["event_id"]
    c.queue()
    c.gpu.vm_fault(c.gpu.on_hardware[-1].queue, Fault(0x1000, AccessKind.READ, "not present"))
    return c.wait(event_id)[0]


def destroy(c: Client) -> int:
    return c.errno(kfd.IOC_DESTROY_QUEUE, queue_id=c.queue()["queue_id"])


def reset(c: Client) -> bool:
    assert isinstance(c.gpu.cp, IdleCp)
    c.gpu.cp.stuck = True
    destroy(c)
    return c.gpu.gone


def topology(c: Client) -> str:
    try:
        return c.driver.read_file("/sys/class/kfd/kfd/topology/nodes/1/gpu_id").decode()
    except OSError as error:
        return errno.errorcode[error.errno or 0]


def target(c: Client) -> bool:
    return b"gfx_target_version 120001\n" in c.driver.read_file("/sys/class/kfd/kfd/topology/nodes/1/properties")


def hdp(c: Client) -> bytes:
    buffer = c.alloc(PAGE, VRAM_PUBLIC)
    host = c.host(buffer)
    host.view[:4] = b"host"
    c.gpu_vm.flush_hdp()
    c.driver.munmap(host)
    return c.gpu_vm.read(buffer["va_addr"], 4)


def write_back(c: Client) -> bytes:
    buffer = c.alloc(PAGE, VRAM_PUBLIC)
    host = c.host(buffer)
    c.gpu_vm.write(buffer["va_addr"], b"gpu!")
    c.gpu_vm.write_back()
    seen = bytes(host.view[:4])
    c.driver.munmap(host)
    return seen


def icache(c: Client) -> bytes:
    va = c.alloc(PAGE)["va_addr"]
    c.gpu_vm.fetch(va, 4)
    c.gpu_vm.write(va, b"code")
    c.gpu_vm.invalidate_icache()
    return c.gpu_vm.fetch(va, 4)


def gem(c: Client, domain: int = amdgpu.AMDGPU_GEM_DOMAIN_DOORBELL) -> int:
    return c.errno(amdgpu.IOCTL_GEM_CREATE, bo_size=PAGE, domains=domain)


def acquire(c: Client) -> int:
    return c.errno(kfd.IOC_ACQUIRE_VM, drm_fd=c.drm, gpu_id=c.gpu_id)


def public_vram(c: Client) -> int:
    values = {"va_addr": PAGE * 64, "size": PAGE, "gpu_id": c.gpu_id, "flags": VRAM_PUBLIC}
    return c.errno(kfd.IOC_ALLOC_MEMORY_OF_GPU, **values)


def event_page(c: Client) -> int:
    return c.errno(kfd.IOC_CREATE_EVENT, event_page_offset=c.alloc(0x8000)["handle"])


COMPLETE, TIMEOUT = kfd.KFD_IOC_WAIT_RESULT_COMPLETE, kfd.KFD_IOC_WAIT_RESULT_TIMEOUT
SEEN: dict[str, tuple[Callable[[Client], object], object, object]] = {  # how to look; sane; injected
    "no-kfd-node": (opens("/dev/kfd"), 0, errno.ENOENT),
    "no-access": (opens("/dev/kfd"), 0, errno.EACCES),
    "reset-in-progress": (opens("/dev/kfd"), 0, errno.EAGAIN),
    "old-kfd": (lambda c: c.call(kfd.IOC_GET_VERSION)["minor_version"], 20, 8),
    "hidden-gpu": (topology, "56387\n", "EPERM"),
    "user-queue-off": (userq_mask, 2, 0),
    "firmware-old": (userq_mask, 2, 0),
    "vm-busy": (acquire, 0, errno.EBUSY),
    "counter-stuck": (counter_moves, True, False),
    "gpu-gone": (opens("/dev/dri/renderD128"), 0, errno.ENODEV),
    "out-of-memory": (public_vram, 0, errno.ENOMEM),
    "no-doorbell-domain": (gem, 0, errno.EINVAL),
    "event-page-refused": (event_page, 0, errno.EINVAL),
    "cwsr-mismatch": (new_queue, 0, errno.EINVAL),
    "mes-add-failure": (new_queue, 0, errno.EIO),
    "doorbell-offset": (map_doorbells, 0, errno.EFAULT),
    "lost-doorbell": (rings, [(0, 7)], []),
    "no-eop": (eop, True, False),
    "no-interrupt": (interrupt, COMPLETE, TIMEOUT),
    "ring-size-off-by-one": (ring_bytes, 0x10000, 0x8000),
    "stale-icache": (icache, b"code", bytes(4)),
    "stale-hdp": (hdp, b"host", bytes(4)),
    "no-write-back": (write_back, b"gpu!", bytes(4)),
    "lost-memory-event": (memory_event, COMPLETE, TIMEOUT),
    "no-reset": (reset, False, True),
    "mes-remove-failure": (destroy, 0, errno.ETIME),
    "device-crash": (lambda c: (rings(c), c.gpu.gone)[1], False, True),
}
# set up before the device exists
AT_START = {"small-bar": (public_vram, 0, errno.EINVAL), "unknown-target": (target, True, False)}
# seen where the command processor runs, or with user queues: tests/sim/test_user_queues.py, test_whole_device.py
ELSEWHERE = {
    "fence-never-written",
    "vmid-not-inherited",
    "wptr-rejected",
    "page-tables-late",
    "fence-interrupt-lost",
    "signal-before-wptr",
    "shader-crash",
}


@pytest.mark.parametrize("name", SEEN)
def test_runtime_injection_takes_effect(name: str) -> None:
    look, sane, injected = SEEN[name]
    with client() as c:
        assert look(c) == sane
    with client() as c:
        c.machine.injector.add(name)
        assert look(c) == injected
        c.machine.injector.remove(name)


@pytest.mark.parametrize("name", AT_START)
def test_startup_injection_takes_effect(name: str) -> None:
    look, sane, injected = AT_START[name]
    with client() as c:
        assert look(c) == sane
    with client(name) as c:
        assert look(c) == injected


def test_every_injection_is_tested_somewhere() -> None:
    """Those of a board, which zinc-rt accept looks for, in tests/probes/test_accept.py."""
    others = {row.name: row for row in INJECTIONS if row.probe != "accept"}
    assert {*SEEN, *AT_START, *ELSEWHERE} == set(others)
    assert all(row.probe.startswith("P") for row in others.values()) and all(row.does for row in INJECTIONS)


@pytest.mark.parametrize(
    ("text", "struck"), [("vm-busy", [1, 1, 1, 1]), ("vm-busy:2", [1, 1, 0, 0]), ("vm-busy@3", [0, 0, 1, 0])]
)
def test_injection_count_selects_always_first_n_or_nth(text: str, struck: list[int]) -> None:
    injector = Injector([text])
    assert [int(injector.strikes("vm-busy")) for _ in range(4)] == struck


@pytest.mark.parametrize("text", ["nonsense", "vm-busy:0", "vm-busy@x", "vm-busy:"])
def test_misspelt_injection_is_rejected(text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)


def test_nth_allocation_fails() -> None:
    with machine("out-of-memory@3") as owner:
        c = Client(owner)
        assert [public_vram(c) for _ in range(4)] == [0, 0, errno.ENOMEM, 0]
