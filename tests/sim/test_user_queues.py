"""Render-node ioctls and user queues: errnos by kernel version, fences, lifetime."""

from __future__ import annotations

import contextlib
import errno
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kmd import unsent_ioctls
from sim import device as kfd_device
from sim.device import Client, IdleCp, open_machine

from zinc_rt.kmd.uapi import amdgpu, drm
from zinc_rt.kmd.uapi.host_memory import HostArray, make_u32_array
from zinc_rt.kmd.uapi.structs import Ioctl, StructBytes
from zinc_rt.sim.driver.fences import DmaFence
from zinc_rt.sim.gpu import SimGpu
from zinc_rt.sim.in_process import SimDriver
from zinc_rt.sim.interfaces import QueueState
from zinc_rt.sim.machine import SimMachine
from zinc_rt.sim.memory.buffers import Heap
from zinc_rt.sim.tables import amdgpu as sim_amdgpu

PAGE = 4096
ENOTSUPP = 524
RWX = 2 | 4 | 8
LATER = (1 << 63) - 1


class RenderClient:
    def __init__(self, owner: SimMachine) -> None:
        self.machine, self.driver, self.gpu = owner, SimDriver(owner), owner.gpus[0]
        self.drm = self.driver.open("/dev/dri/renderD128", 2)
        self.arrays: list[HostArray] = []
        self.va: dict[int, int] = {}
        self._va = 0x4000_0000

    def call(self, command: Ioctl, **values: Any) -> StructBytes:
        record = command.struct.new(**values)
        self.driver.ioctl(self.drm, command.request, record.raw)
        return record

    def errno(self, command: Ioctl, **values: Any) -> int:
        try:
            self.call(command, **values)
        except OSError as error:
            return error.errno or -1
        return 0

    def keep(self, array: HostArray) -> int:
        self.arrays.append(array)
        return array.address

    def buffer(self, size: int = PAGE, domain: int = amdgpu.AMDGPU_GEM_DOMAIN_GTT, *, mapped: bool = True) -> int:
        """Handle; its address is `self.at(handle)`."""
        handle = self.call(amdgpu.IOCTL_GEM_CREATE, bo_size=size, alignment=PAGE, domains=domain)["handle"]
        if mapped:
            self.va[handle], self._va = self._va, self._va + size + PAGE
            self.call(amdgpu.IOCTL_GEM_VA, **self.mapping(handle, self.va[handle], size))
        return handle

    @staticmethod
    def mapping(handle: int, va: int, size: int, operation: int = amdgpu.AMDGPU_VA_OP_MAP) -> dict[str, int]:
        flags = RWX | amdgpu.AMDGPU_VM_MTYPE_UC
        return {"handle": handle, "operation": operation, "flags": flags, "va_address": va, "map_size": size}

    def create(self, **changes: Any) -> dict[str, Any]:
        doorbell = self.buffer(PAGE, amdgpu.AMDGPU_GEM_DOMAIN_DOORBELL, mapped=False)
        ring, rptr, wptr, eop = (self.va[self.buffer(size)] for size in (0x10000, PAGE, PAGE, PAGE))
        mqd = self.keep(HostArray(eop.to_bytes(8, "little")))
        wanted = {
            "op": amdgpu.AMDGPU_USERQ_OP_CREATE,
            "ip_type": amdgpu.AMDGPU_HW_IP_COMPUTE,
            "doorbell_handle": doorbell,
            "doorbell_offset": 4,
            "queue_va": ring,
            "queue_size": 0x10000,
            "rptr_va": rptr,
            "wptr_va": wptr,
            "mqd": mqd,
            "mqd_size": 8,
        }
        return wanted | changes

    def info(self, query: int, size: int, **values: int) -> bytes:
        array = HostArray(bytes(size))
        self.call(amdgpu.IOCTL_INFO, return_pointer=array.address, return_size=size, query=query, **values)
        return array.bytes()


@contextlib.contextmanager
def open_render_client(*inject: str, linux: str = "7.0", chip: str = "r9700") -> Iterator[RenderClient]:
    with open_machine(*inject, linux=linux, chip=chip) as owner:
        client = RenderClient(owner)
        yield client
        client.driver.exit()
        assert not client.gpu.memory.bos


CREATE: tuple[tuple[int, dict[str, int], str], ...] = (
    (0, {}, "7.0"),
    (errno.EINVAL, {"op": 3}, "7.0"),
    (errno.EINVAL, {"flags": 8}, "7.0"),
    (0, {"flags": 4}, "7.0"),  # SECURE, which compute accepts without TMZ too
    (errno.EACCES, {"flags": 3, "queue_va": 0}, "6.17"),
    (errno.EINVAL, {"flags": 3, "queue_va": 0}, "6.18"),
    (errno.EINVAL, {"ip_type": 7}, "7.0"),
    (errno.EINVAL, {"queue_va": 0}, "7.0"),
    (errno.EINVAL, {"queue_va": (1 << 64) - 1}, "7.0"),
    (errno.EINVAL, {"queue_size": 0}, "7.0"),
    (errno.EINVAL, {"rptr_va": 0}, "7.0"),
    (errno.EINVAL, {"wptr_va": 0}, "7.0"),
    (errno.EACCES, {"flags": 3}, "7.0"),
    (errno.EINVAL, {"queue_va": 0x7000_0000}, "7.0"),
    (0, {"queue_va": 0x7000_0000}, "6.17"),
    (errno.EINVAL, {"doorbell_handle": 99}, "7.0"),
    (errno.EINVAL, {"doorbell_handle": 99}, "6.17"),
    (0, {"doorbell_handle": 99}, "6.16"),  # success without a queue
    (errno.EINVAL, {"doorbell_handle": 2}, "7.0"),
    (errno.EINVAL, {"doorbell_offset": 512}, "6.18.y"),
    (0, {"doorbell_offset": 511}, "6.18.y"),
    (0, {"doorbell_offset": 512}, "7.0"),
    (errno.EINVAL, {"queue_size": 0x3000}, "6.18.y"),
    (0, {"queue_size": 0x3000}, "7.0"),
    (errno.EINVAL, {"queue_size": 2048}, "6.18.y"),
    (errno.EINVAL, {"mqd_size": 16}, "7.0"),
    (errno.ENOMEM, {"mqd": 0}, "7.0"),
    (errno.ENOMEM, {"mqd": PAGE}, "7.0"),
    (errno.EINVAL, {"wptr_va": 0x7000_0000}, "6.17"),
)


@pytest.mark.parametrize(("number", "changes", "linux"), CREATE)
def test_userq_create_errno(number: int, changes: dict[str, int], linux: str) -> None:
    with open_render_client(linux=linux) as c:
        assert c.errno(amdgpu.IOCTL_USERQ, **c.create(**changes)) == number


def test_wptr_must_be_a_single_page_buffer_and_eop_must_be_mapped() -> None:
    with open_render_client() as c:
        wide = c.va[c.buffer(2 * PAGE)]
        assert c.errno(amdgpu.IOCTL_USERQ, **c.create(wptr_va=wide)) == errno.EINVAL
        nowhere = c.keep(HostArray((0x7000_0000).to_bytes(8, "little")))
        assert c.errno(amdgpu.IOCTL_USERQ, **c.create(mqd=nowhere)) == errno.EINVAL


@pytest.mark.parametrize(
    ("linux", "chip", "inject", "mask", "slots", "number"),
    [
        ("7.0", "r9700", (), 2, 4, 0),
        ("7.0", "r9700", ("user-queue-off",), 0, 0, ENOTSUPP),
        ("6.18.y", "r9700", ("user-queue-off",), 0, 0, ENOTSUPP),
        ("6.17", "r9700", ("user-queue-off",), 0, 0, errno.EINVAL),
        ("7.0", "r9700", ("firmware-old",), 0, 4, errno.EINVAL),
        ("7.0", "gfx1151", (), 0, 8, errno.EINVAL),
        ("6.16", "r9700", (), 2, 0, 0),
        ("7.0", "gfx1100", (), 2, 8, 0),
    ],
)
def test_availability_depends_on_kernel_and_chip(
    linux: str, chip: str, inject: tuple[str, ...], mask: int, slots: int, number: int
) -> None:
    with open_render_client(*inject, linux=linux, chip=chip) as c:
        device = amdgpu.INFO_DEVICE.read(c.info(amdgpu.AMDGPU_INFO_DEV_INFO, 448))
        register = c.info(0x15, 4, hw_ip_type=0x263E, hw_ip_instance=1)  # READ_MMR_REG: dword offset, count
        assert int.from_bytes(register, "little") == c.gpu.chip.gb_addr_config  # as GET_TILE_CONFIG has it
        with pytest.raises(OSError):
            c.info(0x15, 4, hw_ip_type=0x263F, hw_ip_instance=1)
        ip = amdgpu.INFO_HW_IP.read(c.info(amdgpu.AMDGPU_INFO_HW_IP_INFO, 40, hw_ip_type=1))
        assert (device["userq_ip_mask"], ip["userq_num_slots"]) == (mask, slots)
        assert c.errno(amdgpu.IOCTL_USERQ, **c.create()) == number


@pytest.mark.parametrize(("linux", "minor"), [("6.8", 57), ("6.12", 59), ("6.14", 61), ("7.2", 64)])
def test_version_of_the_drm_interface(linux: str, minor: int) -> None:
    with open_render_client(linux=linux) as c:
        answer = c.call(drm.IOCTL_VERSION)
        assert (answer["version_major"], answer["version_minor"]) == (3, minor)


def test_sizes_of_the_areas_of_compute_queues_are_known_from_7_2_on() -> None:
    with open_render_client(linux="7.2") as c:
        sizes = c.info(sim_amdgpu.AMDGPU_INFO_UQ_FW_AREAS, 32, hw_ip_type=1)
        assert int.from_bytes(sizes[:4], "little") == 2048
    with open_render_client(linux="7.0") as c, pytest.raises(OSError) as caught:
        c.info(sim_amdgpu.AMDGPU_INFO_UQ_FW_AREAS, 32, hw_ip_type=1)
    assert caught.value.errno == errno.EINVAL


@pytest.mark.parametrize(("linux", "is_reported"), [("6.18", False), ("6.19", True), ("7.0", True)])
def test_unmapping_the_ring_of_a_live_queue_is_reported_from_6_19_on(linux: str, is_reported: bool) -> None:
    with open_render_client(linux=linux) as c:
        values = c.create()
        queue_id = c.call(amdgpu.IOCTL_USERQ, **values)["new_queue_id"]
        handle = next(handle for handle, va in c.va.items() if va == values["queue_va"])
        unmap = c.mapping(handle, values["queue_va"], 0x10000, amdgpu.AMDGPU_VA_OP_UNMAP)
        assert c.errno(amdgpu.IOCTL_GEM_VA, **unmap) == 0
        assert any("unmapping a vital queue va" in line for line in c.machine.dmesg) == is_reported
        c.call(amdgpu.IOCTL_USERQ, op=2, queue_id=queue_id)


def test_kernel_6_12_has_doorbell_domain_but_no_userq_ioctls() -> None:
    with open_render_client(linux="6.12") as c:
        c.buffer(PAGE, amdgpu.AMDGPU_GEM_DOMAIN_DOORBELL, mapped=False)
        assert c.errno(amdgpu.IOCTL_USERQ, op=1) == errno.EINVAL


GTT, VRAM = amdgpu.AMDGPU_GEM_DOMAIN_GTT, amdgpu.AMDGPU_GEM_DOMAIN_VRAM


@pytest.mark.parametrize(("linux", "number"), [("6.12", errno.EINVAL), ("6.17", errno.EINVAL), ("6.18", 0)])
@pytest.mark.parametrize("flag", [amdgpu.AMDGPU_GEM_CREATE_COHERENT, amdgpu.AMDGPU_GEM_CREATE_UNCACHED])
def test_cache_flags_are_accepted_from_6_18_on(linux: str, number: int, flag: int) -> None:
    with open_render_client(linux=linux) as c:
        assert c.errno(amdgpu.IOCTL_GEM_CREATE, bo_size=PAGE, domains=GTT, domain_flags=flag) == number


def create_info(c: RenderClient, handle: int) -> dict[str, int]:
    answer = HostArray(bytes(32))
    c.call(amdgpu.IOCTL_GEM_OP, handle=handle, op=0, value=answer.address)
    return answer.record(amdgpu.GEM_CREATE_INFO).as_dict()


def test_full_vram_places_buffers_in_host_memory_without_an_error() -> None:
    with open_render_client() as c:
        c.gpu.memory.limit[Heap.VRAM] = 3 * PAGE
        first, second = (c.buffer(2 * PAGE, VRAM, mapped=False) for _ in range(2))
        assert [create_info(c, handle)["domains"] for handle in (first, second)] == [VRAM, VRAM | GTT]
        assert (c.gpu.memory.used[Heap.VRAM], c.gpu.memory.used[Heap.GTT]) == (2 * PAGE, 2 * PAGE)
        c.gpu.memory.limit[Heap.GTT] = 0
        assert c.errno(amdgpu.IOCTL_GEM_CREATE, bo_size=2 * PAGE, domains=VRAM) == errno.ENOMEM


def test_small_bar_drops_the_cpu_access_flag_and_a_mapping_moves_the_buffer() -> None:
    with open_render_client("small-bar") as c:
        c.gpu.memory.bar_bytes = PAGE
        flags = amdgpu.AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED
        request = {"bo_size": 2 * PAGE, "domains": VRAM, "domain_flags": flags}
        handle = c.call(amdgpu.IOCTL_GEM_CREATE, **request)["handle"]
        info = create_info(c, handle)
        assert info["domains"] == VRAM and not info["domain_flags"] & flags
        assert c.gpu.memory.used[Heap.VRAM] == 2 * PAGE
        offset = c.call(amdgpu.IOCTL_GEM_MMAP, handle=handle)["addr_ptr"]
        c.driver.mmap(c.drm, 2 * PAGE, offset, 3)
        assert (c.gpu.memory.used[Heap.VRAM], c.gpu.memory.used[Heap.GTT]) == (0, 2 * PAGE)


def test_free_requires_zero_fields_and_an_existing_queue() -> None:
    with open_render_client() as c:
        queue_id = c.call(amdgpu.IOCTL_USERQ, **c.create())["new_queue_id"]
        assert queue_id == 1
        assert c.errno(amdgpu.IOCTL_USERQ, op=2, queue_id=1, mqd_size=8) == errno.EINVAL
        assert c.errno(amdgpu.IOCTL_USERQ, op=2, queue_id=2) == errno.EINVAL
        assert c.errno(amdgpu.IOCTL_USERQ, op=2, queue_id=1) == 0
        assert c.errno(amdgpu.IOCTL_USERQ, op=2, queue_id=1) == errno.EINVAL
    with open_render_client(linux="7.2") as c:
        assert c.errno(amdgpu.IOCTL_USERQ, op=2, queue_id=1) == errno.ENOENT


def is_signalled(c: RenderClient, syncobj: int, seconds: float = 0.0) -> int:
    deadline = time.monotonic_ns() + int(seconds * 1e9)
    address = c.keep(make_u32_array([syncobj]))
    return c.errno(drm.IOCTL_SYNCOBJ_WAIT, handles=address, count_handles=1, timeout_nsec=deadline)


def find_fence(c: RenderClient, syncobj: int) -> DmaFence:
    """Return the fence of a syncobj, whose error only the driver knows: SYNCOBJ_WAIT does not report it."""
    (file,) = c.driver.process.list_drm_files()
    fence = file.find_syncobj(syncobj).fence
    assert fence is not None
    return fence


def test_signal_samples_write_pointer_and_fence_follows_its_position() -> None:
    with open_render_client() as c:
        arguments = c.create()
        c.call(amdgpu.IOCTL_USERQ, **arguments)
        syncobj = c.call(drm.IOCTL_SYNCOBJ_CREATE)["handle"]
        handles = c.keep(make_u32_array([syncobj]))
        signal = {"queue_id": 1, "syncobj_handles": handles, "num_syncobj_handles": 1}
        c.call(amdgpu.IOCTL_USERQ_SIGNAL, **signal)
        assert is_signalled(c, syncobj) == 0  # nothing new: satisfied at once
        hardware = c.gpu.on_hardware[0].queue
        hardware.space.write(arguments["wptr_va"], (64).to_bytes(8, "little"))
        c.call(amdgpu.IOCTL_USERQ_SIGNAL, **signal)
        assert is_signalled(c, syncobj) == errno.ETIME
        wait = {"waitq_id": 1, "syncobj_handles": handles, "num_syncobj_handles": 1}
        assert c.call(amdgpu.IOCTL_USERQ_WAIT, **wait)["num_fences"] == 1
        fences = HostArray(bytes(16))
        c.call(amdgpu.IOCTL_USERQ_WAIT, **wait, num_fences=1, out_fences=fences.address)
        va, value = struct.unpack("<2Q", fences.bytes())
        assert value == 64 and hardware.space.read(va, 8) == bytes(8)
        c.gpu.fence_signal(hardware, 64)
        assert is_signalled(c, syncobj) == 0 and int.from_bytes(hardware.space.read(va, 8), "little") == 64


@pytest.mark.parametrize(
    ("changes", "number"),
    [
        ({"queue_id": 9}, errno.ENOENT),
        ({"syncobj_handles": "bad"}, errno.ENOENT),
        ({"syncobj_handles": PAGE}, errno.EFAULT),
        ({"bo_read_handles": "bad", "num_bo_read_handles": 1}, errno.ENOENT),
    ],
)
def test_userq_signal_errno(changes: dict[str, Any], number: int) -> None:
    with open_render_client() as c:
        c.call(amdgpu.IOCTL_USERQ, **c.create())
        syncobj = c.call(drm.IOCTL_SYNCOBJ_CREATE)["handle"]
        base = {"queue_id": 1, "syncobj_handles": c.keep(make_u32_array([syncobj])), "num_syncobj_handles": 1}
        bad = c.keep(make_u32_array([777]))
        values = base | {name: bad if value == "bad" else value for name, value in changes.items()}
        assert c.errno(amdgpu.IOCTL_USERQ_SIGNAL, **values) == number


def hang_with_a_kernel_fence(c: RenderClient) -> int:
    """Create queue 1, which hangs with a fence of USERQ_SIGNAL; return the syncobj."""
    arguments = c.create()
    c.call(amdgpu.IOCTL_USERQ, **arguments)
    c.gpu.on_hardware[0].queue.space.write(arguments["wptr_va"], (8).to_bytes(8, "little"))
    syncobj = c.call(drm.IOCTL_SYNCOBJ_CREATE)["handle"]
    handles = c.keep(make_u32_array([syncobj]))
    assert isinstance(c.gpu.cp, IdleCp)
    c.gpu.cp.stuck = True
    c.call(amdgpu.IOCTL_USERQ_SIGNAL, queue_id=1, syncobj_handles=handles, num_syncobj_handles=1)
    return syncobj


def test_freeing_a_hung_queue_cancels_its_fences() -> None:
    with open_render_client(linux="6.18") as c:
        syncobj = hang_with_a_kernel_fence(c)
        c.call(amdgpu.IOCTL_USERQ, op=2, queue_id=1)
        assert is_signalled(c, syncobj) == 0 and find_fence(c, syncobj).error == errno.ECANCELED
        context = c.call(unsent_ioctls.IOCTL_CTX, op=1)["new_ctx_id"]
        assert c.call(unsent_ioctls.IOCTL_CTX, op=4, ctx_id=context)["state_flags"] == 0  # made after the reset


def test_free_of_a_hung_queue_waits_from_6_19_on_until_its_process_ends() -> None:
    with open_render_client(linux="7.0") as c:
        hang_with_a_kernel_fence(c)
        thread = threading.Thread(target=lambda: c.errno(amdgpu.IOCTL_USERQ, op=2, queue_id=1))
        thread.start()
        thread.join(0.3)
        assert thread.is_alive() and c.errno(amdgpu.IOCTL_INFO) == errno.EINVAL  # other calls go on
        c.machine.end_process(c.driver.process)
        thread.join(30)
        assert not thread.is_alive()


def test_hang_detection_of_newest_linux_is_armed_by_signal() -> None:
    with open_render_client(linux="7.2") as c:
        c.gpu.time_scale = 0.01
        syncobj = hang_with_a_kernel_fence(c)
        assert is_signalled(c, syncobj, 60) == 0 and find_fence(c, syncobj).error == errno.ECANCELED
        c.call(amdgpu.IOCTL_USERQ, op=2, queue_id=1)


def test_proposed_mqd_with_a_context_save_area_is_an_option() -> None:
    with open_render_client(linux="7.0+userq-cwsr") as c:
        assert c.errno(amdgpu.IOCTL_USERQ, **c.create()) == errno.EINVAL
        sizes = c.gpu.chip.compute_cwsr(old_table=False)
        eop, area = c.buffer(), c.buffer(sizes.save_restore_bytes + PAGE)
        mqd = {
            "eop_va": c.va[eop],
            "ctx_save_area_va": c.va[area],
            "ctx_save_area_size": sizes.save_restore_bytes,
            "ctl_stack_size": sizes.control_stack_bytes,
        }
        for change, number in (({}, 0), ({"ctl_stack_size": PAGE}, errno.EINVAL), ({"eop_va": 1}, errno.EINVAL)):
            raw = c.keep(HostArray(bytes(amdgpu.USERQ_MQD_COMPUTE_CWSR.new(**mqd | change).raw)))
            assert c.errno(amdgpu.IOCTL_USERQ, **c.create(mqd=raw, mqd_size=24)) == number


def test_eop_that_is_not_mapped_crashes_linux_6_18_0() -> None:
    for linux, number in (("6.17", 0), ("6.18", errno.EINVAL), ("6.18.y", errno.EINVAL)):
        with open_render_client(linux=linux) as c:
            nowhere = c.keep(HostArray((0x7000_0000).to_bytes(8, "little")))
            assert c.errno(amdgpu.IOCTL_USERQ, **c.create(mqd=nowhere)) == number
            assert any("NULL pointer" in line for line in c.machine.dmesg) == (linux == "6.18")


VA: tuple[tuple[int, dict[str, int]], ...] = (
    (0, {}),
    (errno.EINVAL, {"va_address": 0x5000_0001}),
    (errno.EINVAL, {"va_address": 0}),
    (errno.EINVAL, {"va_address": 0x8000_0000_0000}),
    (errno.EINVAL, {"va_address": 0xFFFF_FFFF_FFFF_F000}),
    (errno.EINVAL, {"map_size": 3 * PAGE}),
    (errno.EINVAL, {"map_size": 0}),
    (errno.EINVAL, {"offset_in_bo": 1}),
    (errno.EINVAL, {"offset_in_bo": 2 * PAGE}),
    (errno.EINVAL, {"offset_in_bo": (1 << 64) - PAGE}),
    (errno.EINVAL, {"operation": 9}),
    (errno.EINVAL, {"flags": 1 << 20}),
    (errno.ENOENT, {"handle": 99}),
    (errno.ENOENT, {"operation": 2}),
    (errno.ENOENT, {"vm_timeline_syncobj_out": 5}),
    (0, {"operation": 3}),
    (0, {"operation": 4}),
)


@pytest.mark.parametrize(("number", "changes"), VA)
def test_gem_va_errno(number: int, changes: dict[str, int]) -> None:
    with open_render_client() as c:
        handle = c.buffer(2 * PAGE, mapped=False)
        assert c.errno(amdgpu.IOCTL_GEM_VA, **c.mapping(handle, 0x5000_0000, 2 * PAGE) | changes) == number


def test_clear_keeps_the_rest_of_a_mapping_and_overlap_is_rejected() -> None:
    with open_render_client() as c:
        handle = c.buffer(3 * PAGE, mapped=False)
        whole = c.mapping(handle, 0x5000_0000, 3 * PAGE)
        c.call(amdgpu.IOCTL_GEM_VA, **whole)
        assert c.errno(amdgpu.IOCTL_GEM_VA, **whole) == errno.EINVAL
        c.call(amdgpu.IOCTL_GEM_VA, **c.mapping(0, 0x5000_1000, PAGE, unsent_ioctls.AMDGPU_VA_OP_CLEAR))
        file = c.driver.process.files[c.drm]
        spans = [(span.start, span.size_bytes, span.offset) for span in file.vm.spans]  # type: ignore[attr-defined]
        assert spans == [(0x5000_0000, PAGE, 0), (0x5000_2000, PAGE, 2 * PAGE)]


def test_late_page_tables_take_effect_at_their_timeline_point() -> None:
    with open_render_client("page-tables-late") as c:
        timeline = c.call(drm.IOCTL_SYNCOBJ_CREATE)["handle"]
        handle = c.buffer(PAGE, mapped=False)
        update = c.mapping(handle, 0x5000_0000, PAGE)
        c.call(amdgpu.IOCTL_GEM_VA, **update, vm_timeline_syncobj_out=timeline, vm_timeline_point=7)
        file = c.driver.process.files[c.drm]
        assert file.vm.describe(0x5000_0000) == "unmapped"  # type: ignore[attr-defined]
        handles, points = c.keep(make_u32_array([timeline])), c.keep(HostArray((7).to_bytes(8, "little")))
        wait = {"handles": handles, "points": points, "count_handles": 1, "timeout_nsec": LATER}
        c.call(drm.IOCTL_SYNCOBJ_TIMELINE_WAIT, **wait)
        assert file.vm.describe(0x5000_0000) != "unmapped"  # type: ignore[attr-defined]


OTHER: tuple[tuple[Ioctl, dict[str, int], int], ...] = (
    (amdgpu.IOCTL_GEM_CREATE, {"bo_size": PAGE, "domains": 0x100}, errno.EINVAL),
    (amdgpu.IOCTL_GEM_CREATE, {"bo_size": PAGE, "domains": 2, "domain_flags": 1 << 40}, errno.EINVAL),
    (amdgpu.IOCTL_GEM_CREATE, {"domains": 2}, errno.EINVAL),
    (amdgpu.IOCTL_GEM_CREATE, {"bo_size": 1 << 40, "domains": 4}, errno.ENOMEM),
    (amdgpu.IOCTL_GEM_MMAP, {"handle": 9}, errno.ENOENT),
    (drm.IOCTL_GEM_CLOSE, {"handle": 9}, errno.EINVAL),
    (amdgpu.IOCTL_INFO, {"query": 0x5}, errno.EINVAL),
    (amdgpu.IOCTL_INFO, {"query": 0x5, "return_pointer": PAGE, "return_size": 8}, errno.EFAULT),
    (amdgpu.IOCTL_INFO, {"query": 0x7F, "return_pointer": PAGE, "return_size": 8}, errno.EINVAL),
    (amdgpu.IOCTL_INFO, {"query": 2, "hw_ip_type": 77, "return_pointer": PAGE, "return_size": 8}, errno.EINVAL),
    (unsent_ioctls.IOCTL_CTX, {"op": 9}, errno.EINVAL),
    (unsent_ioctls.IOCTL_CTX, {"op": 4, "ctx_id": 3}, errno.EINVAL),
    (unsent_ioctls.IOCTL_CTX, {"op": 1, "priority": 512}, errno.EACCES),
    (drm.IOCTL_SYNCOBJ_CREATE, {"flags": 2}, errno.EINVAL),
    (drm.IOCTL_SYNCOBJ_DESTROY, {"handle": 4}, errno.EINVAL),
    (unsent_ioctls.IOCTL_SYNCOBJ_SIGNAL, {}, errno.EINVAL),
    (unsent_ioctls.IOCTL_SYNCOBJ_RESET, {"count_handles": 1}, errno.EFAULT),
    (drm.IOCTL_SYNCOBJ_WAIT, {"count_handles": 1, "handles": PAGE}, errno.EFAULT),
    (drm.IOCTL_SYNCOBJ_WAIT, {"flags": 1 << 30}, errno.EINVAL),
    (unsent_ioctls.IOCTL_GET_CAP, {"capability": 99}, errno.EINVAL),
    (unsent_ioctls.IOCTL_PRIME_FD_TO_HANDLE, {"fd": -1}, errno.EBADF),
    (unsent_ioctls.IOCTL_PRIME_HANDLE_TO_FD, {"handle": 5}, errno.ENOENT),
    (unsent_ioctls.IOCTL_GEM_USERPTR, {"addr": 1, "size": PAGE}, errno.EINVAL),
    (unsent_ioctls.IOCTL_GEM_USERPTR, {"addr": PAGE, "size": PAGE, "flags": 8}, errno.EFAULT),
    (amdgpu.IOCTL_USERQ_WAIT, {"syncobj_handles": PAGE, "num_syncobj_handles": 1}, errno.EFAULT),
)


@pytest.mark.parametrize(("command", "values", "number"), OTHER)
def test_render_node_errno(command: Ioctl, values: dict[str, int], number: int) -> None:
    with open_render_client() as c:
        assert c.errno(command, **values) == number


def test_dma_buf_transfers_a_buffer_between_files() -> None:
    with open_render_client() as c:
        handle = c.buffer()
        fd = c.call(unsent_ioctls.IOCTL_PRIME_HANDLE_TO_FD, handle=handle)["fd"]
        assert c.call(unsent_ioctls.IOCTL_PRIME_FD_TO_HANDLE, fd=fd)["handle"] == handle
        assert isinstance(c.gpu, SimGpu)


@contextlib.contextmanager
def fill_vram(*inject: str, linux: str = "7.0") -> Iterator[tuple[RenderClient, RenderClient, int, int]]:
    """Two clients of a GPU with 16 MiB of VRAM: the first has a queue, and 12 MiB of VRAM in a buffer. Yield both,
    the buffer, and the queue."""
    with open_machine(*inject, linux=linux, chip="r9700") as owner:
        owner.gpus[0].memory.limit[Heap.VRAM] = 16 << 20
        first, second = RenderClient(owner), RenderClient(owner)
        weights = first.buffer(12 << 20, amdgpu.AMDGPU_GEM_DOMAIN_VRAM)
        queue = first.call(amdgpu.IOCTL_USERQ, **first.create())["new_queue_id"]
        yield first, second, weights, queue
        first.driver.exit()
        second.driver.exit()
        assert not owner.gpus[0].memory.bos


def heap_of(client: RenderClient, handle: int) -> Heap:
    return client.driver.process.files[client.drm].handles[handle].heap  # type: ignore[union-attr]


def test_vram_under_pressure_moves_to_host_memory_and_the_queue_goes_on() -> None:
    with fill_vram() as (first, second, weights, _queue):
        hardware = first.gpu.on_hardware[0].queue
        attached_before = len(first.gpu.cp.attached)  # type: ignore[attr-defined]
        other = second.buffer(8 << 20, amdgpu.AMDGPU_GEM_DOMAIN_VRAM)
        assert (heap_of(first, weights), heap_of(second, other)) == (Heap.GTT, Heap.VRAM)
        assert first.info(amdgpu.AMDGPU_INFO_NUM_EVICTIONS, 8) == (1).to_bytes(8, "little")
        assert first.gpu.memory.used[Heap.VRAM] == 8 << 20
        assert len(first.gpu.cp.attached) == attached_before  # type: ignore[attr-defined]
        assert hardware.state is not QueueState.EVICTED and hardware.state is not QueueState.DESTROYED


def test_client_evicts_no_buffer_of_its_own() -> None:
    with fill_vram() as (first, _, weights, _queue):
        more = first.buffer(8 << 20, amdgpu.AMDGPU_GEM_DOMAIN_VRAM)
        assert (heap_of(first, weights), heap_of(first, more)) == (Heap.VRAM, Heap.GTT)
        assert first.gpu.memory.evictions == 0


def test_user_queue_that_does_not_stop_for_an_eviction_is_reset() -> None:
    with fill_vram() as (first, second, _weights, _queue):
        hardware = first.gpu.on_hardware[0].queue
        first.gpu.cp.stuck = True  # type: ignore[attr-defined]
        second.buffer(8 << 20, amdgpu.AMDGPU_GEM_DOMAIN_VRAM)
        assert hardware.state is QueueState.DESTROYED
        assert first.gpu.resets == 1 and not first.gpu.vram_lost


def test_allocation_of_kfd_moves_the_vram_of_another_process() -> None:
    with fill_vram() as (first, _, weights, _queue):
        first.gpu.memory.limit[Heap.VRAM] = 128 << 20
        client = Client(first.machine)
        client.alloc(56 << 20, kfd_device.VRAM)  # KFD keeps 64 MiB
        assert heap_of(first, weights) is Heap.GTT and first.gpu.memory.evictions == 1
        client.driver.exit()
