"""Each switch of the injection table does what its row says, where a client can see it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest
from sim.device import PAGE, VRAM_PUBLIC, Client, IdleCp, open_client, open_machine

from zinc_rt.kmd.uapi import amdgpu, kfd
from zinc_rt.kmd.uapi.host_memory import HostArray
from zinc_rt.sim.inject import INJECTIONS, PROGRAM, Injector, parse
from zinc_rt.sim.interfaces import AccessKind, Fault, QueueState


def open_errno(path: str) -> Callable[[Client], int]:
    def open_and_catch(client: Client) -> int:
        try:
            client.driver.open(path, os.O_RDWR)
        except OSError as error:
            return error.errno or -1
        return 0

    return open_and_catch


def create_queue_errno(client: Client) -> int:
    return client.errno(kfd.IOC_CREATE_QUEUE, **client.queue_arguments())


def read_userq_mask(client: Client) -> int:
    array = HostArray(bytes(448))
    client.call(
        amdgpu.IOCTL_INFO, return_pointer=array.address, return_size=448, query=amdgpu.AMDGPU_INFO_DEV_INFO
    )
    return array.record(amdgpu.INFO_DEVICE)["userq_ip_mask"]


def is_counter_advancing(client: Client) -> bool:
    first, second = (
        client.call(kfd.IOC_GET_CLOCK_COUNTERS, gpu_id=client.gpu_id)["gpu_clock_counter"] for _ in range(2)
    )
    return second > first


def map_doorbells(client: Client) -> int:
    offset = client.queue()["doorbell_offset"]
    try:
        client.driver.mmap(client.kfd, 8192, offset & ~0x1FFF, 3)
    except OSError as error:
        return error.errno or -1
    return 0


def ring_doorbell(client: Client) -> list[tuple[int, int]]:
    offset = client.queue()["doorbell_offset"]
    doorbells = client.driver.mmap(client.kfd, 8192, offset & ~0x1FFF, 3)
    doorbells.view[offset & 0x1FFF] = 7
    client.gpu.doorbells.look()
    client.driver.munmap(doorbells)
    assert isinstance(client.gpu.cp, IdleCp)
    return client.gpu.cp.rung


def read_ring_bytes(client: Client) -> int:
    client.queue()
    return client.gpu.on_hardware[-1].queue.ring_size_bytes


def hang_queue(client: Client) -> QueueState:
    ring_doorbell(client)
    return client.gpu.on_hardware[0].queue.state


def has_eop(client: Client) -> bool:
    client.queue()
    return bool(client.gpu.on_hardware[-1].queue.eop_va)


def raise_interrupt(client: Client) -> int:
    page = client.alloc(0x8000)
    event_id = client.event(page=page["handle"])["event_id"]
    client.queue()
    client.gpu_vm.write(page["va_addr"] + event_id * 8, event_id.to_bytes(8, "little"))
    client.gpu.interrupt(client.gpu.on_hardware[-1].queue, event_id)
    return client.wait(event_id)[0]


def read_memory_event(client: Client) -> int:
    event_id = client.event(kfd.KFD_IOC_EVENT_MEMORY)["event_id"]
    client.queue()
    client.gpu.vm_fault(client.gpu.on_hardware[-1].queue, Fault(0x1000, AccessKind.READ, "not present"))
    return client.wait(event_id)[0]


def destroy_errno(client: Client) -> int:
    return client.errno(kfd.IOC_DESTROY_QUEUE, queue_id=client.queue()["queue_id"])


def reset_gpu(client: Client) -> bool:
    assert isinstance(client.gpu.cp, IdleCp)
    client.gpu.cp.stuck = True
    destroy_errno(client)
    return client.gpu.gone


def read_topology(client: Client) -> str:
    try:
        return client.driver.read_file("/sys/class/kfd/kfd/topology/nodes/1/gpu_id").decode()
    except OSError as error:
        return errno.errorcode[error.errno or 0]


def has_gfx1201_target(client: Client) -> bool:
    return b"gfx_target_version 120001\n" in client.driver.read_file(
        "/sys/class/kfd/kfd/topology/nodes/1/properties"
    )


def read_after_hdp_flush(client: Client) -> bytes:
    buffer = client.alloc(PAGE, VRAM_PUBLIC)
    host = client.host(buffer)
    host.view[:4] = b"host"
    client.gpu_vm.flush_hdp()
    client.driver.munmap(host)
    return client.gpu_vm.read(buffer["va_addr"], 4)


def read_after_write_back(client: Client) -> bytes:
    buffer = client.alloc(PAGE, VRAM_PUBLIC)
    host = client.host(buffer)
    client.gpu_vm.write(buffer["va_addr"], b"gpu!")
    client.gpu_vm.write_back()
    seen = bytes(host.view[:4])
    client.driver.munmap(host)
    return seen


def read_stale_code(client: Client) -> bytes:
    va = client.alloc(PAGE)["va_addr"]
    client.gpu_vm.fetch(va, 4)
    client.gpu_vm.write(va, b"code")
    client.gpu_vm.invalidate_icache()
    return client.gpu_vm.fetch(va, 4)


def create_gem_errno(client: Client, domain: int = amdgpu.AMDGPU_GEM_DOMAIN_DOORBELL) -> int:
    return client.errno(amdgpu.IOCTL_GEM_CREATE, bo_size=PAGE, domains=domain)


def acquire_errno(client: Client) -> int:
    return client.errno(kfd.IOC_ACQUIRE_VM, drm_fd=client.drm, gpu_id=client.gpu_id)


def alloc_public_vram(client: Client) -> int:
    values = {"va_addr": PAGE * 64, "size": PAGE, "gpu_id": client.gpu_id, "flags": VRAM_PUBLIC}
    return client.errno(kfd.IOC_ALLOC_MEMORY_OF_GPU, **values)


def create_event_page(client: Client) -> int:
    return client.errno(kfd.IOC_CREATE_EVENT, event_page_offset=client.alloc(0x8000)["handle"])


COMPLETE, TIMEOUT = kfd.KFD_IOC_WAIT_RESULT_COMPLETE, kfd.KFD_IOC_WAIT_RESULT_TIMEOUT
SEEN: dict[str, tuple[Callable[[Client], object], object, object]] = {  # how to look; sane; injected
    "no-kfd-node": (open_errno("/dev/kfd"), 0, errno.ENOENT),
    "no-access": (open_errno("/dev/kfd"), 0, errno.EACCES),
    "reset-in-progress": (open_errno("/dev/kfd"), 0, errno.EAGAIN),
    "old-kfd": (lambda c: c.call(kfd.IOC_GET_VERSION)["minor_version"], 20, 8),
    "hidden-gpu": (read_topology, "56387\n", "EPERM"),
    "user-queue-off": (read_userq_mask, 2, 0),
    "firmware-old": (read_userq_mask, 2, 0),
    "vm-busy": (acquire_errno, 0, errno.EBUSY),
    "counter-stuck": (is_counter_advancing, True, False),
    "gpu-gone": (open_errno("/dev/dri/renderD128"), 0, errno.ENODEV),
    "out-of-memory": (alloc_public_vram, 0, errno.ENOMEM),
    "no-doorbell-domain": (create_gem_errno, 0, errno.EINVAL),
    "event-page-refused": (create_event_page, 0, errno.EINVAL),
    "cwsr-mismatch": (create_queue_errno, 0, errno.EINVAL),
    "mes-add-failure": (create_queue_errno, 0, errno.EIO),
    "doorbell-offset": (map_doorbells, 0, errno.EFAULT),
    "lost-doorbell": (ring_doorbell, [(0, 7)], []),
    "no-eop": (has_eop, True, False),
    "no-interrupt": (raise_interrupt, COMPLETE, TIMEOUT),
    "ring-size-off-by-one": (read_ring_bytes, 0x10000, 0x8000),
    "stale-icache": (read_stale_code, b"code", bytes(4)),
    "stale-hdp": (read_after_hdp_flush, b"host", bytes(4)),
    "no-write-back": (read_after_write_back, b"gpu!", bytes(4)),
    "lost-memory-event": (read_memory_event, COMPLETE, TIMEOUT),
    "no-reset": (reset_gpu, False, True),
    "mes-remove-failure": (destroy_errno, 0, errno.ETIME),
    "device-lost": (lambda c: (ring_doorbell(c), c.gpu.gone)[1], False, True),
    "hung-queue": (hang_queue, QueueState.ACTIVE, QueueState.HUNG),
    "device-crash": (lambda c: (ring_doorbell(c), c.gpu.gone)[1], False, True),
}
# set up before the device exists
AT_START = {"small-bar": (alloc_public_vram, 0, errno.EINVAL), "unknown-target": (has_gfx1201_target, True, False)}
# seen where the command processor runs: test_user_queues.py, test_whole_device.py, test_submissions.py
ELSEWHERE = {
    "slow-fence",
    "guilty-context",
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
    with open_client() as c:
        assert look(c) == sane
    with open_client() as c:
        c.machine.injector.add(name)
        assert look(c) == injected
        c.machine.injector.remove(name)


@pytest.mark.parametrize("name", AT_START)
def test_startup_injection_takes_effect(name: str) -> None:
    look, sane, injected = AT_START[name]
    with open_client() as c:
        assert look(c) == sane
    with open_client(name) as c:
        assert look(c) == injected


def test_every_injection_is_tested_somewhere() -> None:
    """Those of a board, which zinc-rt accept looks for, in tests/probes/test_accept.py."""
    others = {row.name: row for row in INJECTIONS if row.probe != "accept"}
    assert {*SEEN, *AT_START, *ELSEWHERE} == set(others)
    assert all(row.probe.startswith("P") or row.probe == PROGRAM for row in others.values())
    assert all(row.does for row in INJECTIONS)


@pytest.mark.parametrize(
    ("text", "failing"), [("vm-busy", [1, 1, 1, 1]), ("vm-busy:2", [1, 1, 0, 0]), ("vm-busy@3", [0, 0, 1, 0])]
)
def test_injection_count_selects_always_first_n_or_nth(text: str, failing: list[int]) -> None:
    injector = Injector([text])
    assert [int(injector.is_due("vm-busy")) for _ in range(4)] == failing


@pytest.mark.parametrize("text", ["nonsense", "vm-busy:0", "vm-busy@x", "vm-busy:"])
def test_misspelt_injection_is_rejected(text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)


def test_nth_allocation_fails() -> None:
    with open_machine("out-of-memory@3") as owner:
        c = Client(owner)
        assert [alloc_public_vram(c) for _ in range(4)] == [0, 0, errno.ENOMEM, 0]


def test_report_has_what_programs_did_after_the_first_fault() -> None:
    with open_machine("out-of-memory@2", "vm-busy@9") as owner:
        c = Client(owner)
        assert alloc_public_vram(c) == 0
        assert owner.injector.report()["seconds"] is None and owner.injector.report()["calls"] == 0
        assert alloc_public_vram(c) == errno.ENOMEM and alloc_public_vram(c) == 0
        ring_doorbell(c)
        assert c.errno(kfd.IOC_DESTROY_QUEUE, queue_id=77) == errno.EINVAL
        report = owner.injector.report()
        assert {row["name"]: row["occurred"] for row in report["faults"]} == {"out-of-memory": 1, "vm-busy": 0}
        assert report["doorbells"] == 1 and report["calls"] > 5 and report["seconds"] >= 0
        assert report["errors"] == [
            {"call": "AMDKFD_IOC_ALLOC_MEMORY_OF_GPU", "errno": "ENOMEM", "count": 1},
            {"call": "AMDKFD_IOC_DESTROY_QUEUE", "errno": "EINVAL", "count": 1},
        ]
