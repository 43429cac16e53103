"""User queues against a scripted amdgpu: availability, order, bytes, and nothing kept after any failure."""

from __future__ import annotations

import errno
import time

import pytest
from fake_driver import PARAMETER, RENDER, FakeDriver

from zinc_rt.host.errors import UnsupportedError
from zinc_rt.kmd.errors import DriverError
from zinc_rt.kmd.gpu_addresses import GpuAddresses
from zinc_rt.kmd.render_node import RenderNode
from zinc_rt.kmd.transport import Placement, Transport
from zinc_rt.kmd.uapi import amdgpu, drm
from zinc_rt.kmd.uapi.structs import StructBytes
from zinc_rt.kmd.userq import DOORBELL_INDEX, UserqGpu
from zinc_rt.kmd.userq_availability import EXCLUDED, MINIMA, UserqFacts, decide_availability

GFX1201 = (12, 0, 1)
NEW = {"ME": 2780, "PFP": 2840, "MEC": 3050, "MES": 123}


def use_every_resource(driver: FakeDriver) -> None:
    with UserqGpu(driver, RENDER) as gpu:
        transport: Transport = gpu
        buffer = transport.alloc(3 << 20, Placement.VRAM, "weights")
        syncobj = gpu.create_syncobj("done")
        with gpu.create_queue(ring_bytes=1 << 16) as queue:
            gpu.signal(queue, [syncobj], writes=[buffer])
            gpu.query_fences(queue, [syncobj])
        syncobj.wait(0.0)
        gpu.fault()


# --- availability ---


@pytest.mark.parametrize(
    ("facts", "usable", "words"),
    [
        (UserqFacts(GFX1201, 0b111, 4, 1, NEW), True, "4 compute slots"),
        (UserqFacts(GFX1201, 0b111, 0, 1, NEW), True, "does not count slots"),
        (UserqFacts(GFX1201, 0, 0, -1, NEW), False, "amdgpu.user_queue=-1, the default"),
        (UserqFacts(GFX1201, 0, 0, 0, NEW), False, "boot with amdgpu.user_queue=1"),
        (UserqFacts(GFX1201, 0, 4, 1, {**NEW, "MES": 110}), False, "firmware is too old: MES 110 < 123"),
        (UserqFacts((11, 0, 0), 0, 8, 1, {**NEW, "PFP": 2000}), False, "PFP 2000 < 2580"),
        (UserqFacts((11, 5, 1), 0, 0, -1, {}), False, "leaves gfx1151 out"),
        (UserqFacts((11, 5, 1), 0, 8, 1, {}), False, "use --tier t1"),
        (UserqFacts((11, 5, 1), 0b10, 8, 1, {}), True, "8 compute slots"),  # a later kernel may: it is asked
        (UserqFacts(GFX1201, 0, 0, None, NEW), False, "Linux 6.16"),
        (UserqFacts((10, 3, 0), 0, 0, None, {}), False, "gfx1030 has no user queues"),
        (UserqFacts(GFX1201, 0b101, 4, 1, NEW), False, "does not offer compute"),  # GFX and DMA, no compute
    ],
)
def test_each_reason_has_a_message_and_advice(facts: UserqFacts, usable: bool, words: str) -> None:
    result = decide_availability(facts)
    assert result.usable == usable
    assert words in f"{result.why}; {result.next}"
    assert bool(result.next) != usable


def test_excluded_chips_and_minimum_versions_do_not_overlap() -> None:
    assert not EXCLUDED & set(MINIMA)


def test_kernel_6_16_without_slot_count_is_usable() -> None:
    driver = FakeDriver()
    driver.compute_bytes = 32
    with UserqGpu(driver, RENDER) as gpu:
        assert gpu.availability.facts.slots == 0 and "does not count slots" in gpu.availability.why


def test_disabled_gpu_is_rejected_with_advice_and_leaks_nothing() -> None:
    driver = FakeDriver()
    driver.device["userq_ip_mask"] = 0
    driver.files[PARAMETER] = b"-1\n"
    with pytest.raises(UnsupportedError, match=r"boot with amdgpu\.user_queue=1"):
        UserqGpu(driver, RENDER)
    assert driver.remaining_resources() == {}


def test_firmware_unknown_to_the_kernel_is_skipped() -> None:
    driver = FakeDriver()
    driver.refuse["DRM_IOCTL_AMDGPU_INFO"] = lambda r: (
        errno.EINVAL if r["query"] == amdgpu.AMDGPU_INFO_FW_VERSION and r["fw_type"] == 0x1A else 0
    )
    node = RenderNode(driver, RENDER)
    assert set(node.query_firmware()) == {"ME", "PFP", "MEC", "MES_KIQ"}
    node.close()


# --- queues ---


def test_queue_creation_waits_until_its_buffers_are_mapped() -> None:
    driver = FakeDriver()
    gpu = UserqGpu(driver, RENDER)
    queue = gpu.create_queue(ring_bytes=1 << 16)
    names = driver.call_names()
    assert names.index("DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT") < names.index("DRM_IOCTL_AMDGPU_USERQ")
    assert driver.waited_point == 4 == len(driver.sent_records(amdgpu.IOCTL_GEM_VA))
    (request,) = driver.sent_records(amdgpu.IOCTL_USERQ)
    doorbell = request["doorbell_handle"]
    assert request.as_dict() == {
        "op": 1,
        "queue_id": 0,
        "ip_type": 1,
        "doorbell_handle": doorbell,
        "doorbell_offset": DOORBELL_INDEX,
        "flags": 0,
        "queue_va": queue.ring.gpu_va,
        "queue_size": 1 << 16,
        "rptr_va": queue.rptr.gpu_va,
        "wptr_va": queue.wptr.gpu_va,
        "mqd": request["mqd"],
        "mqd_size": 8,
        "new_queue_id": 1,
    }
    assert driver.mqd == queue.eop.gpu_va.to_bytes(8, "little")
    assert driver.bos[doorbell]["domains"] == 0x40 and driver.bos[doorbell]["bo_size"] == 4096
    assert driver.bos[queue.wptr.handle]["bo_size"] == 4096
    assert driver.bos[queue.wptr.handle]["domains"] == amdgpu.AMDGPU_GEM_DOMAIN_GTT
    assert queue.doorbell_address % 4096 == 32
    assert (queue.kind, queue.inherits_vmid, queue.kmd_fence) == ("userq", True, True)
    queue.destroy()
    free = driver.sent_records(amdgpu.IOCTL_USERQ)[-1]
    assert {name: value for name, value in free.as_dict().items() if value} == {
        "op": 2,
        "queue_id": queue.queue_id,
        "new_queue_id": 2,  # the union's other name for op
    }
    assert set(gpu.resources()) == {"fd", "syncobj"}
    gpu.close()
    assert driver.remaining_resources() == {}


def test_mapping_carries_the_memory_type_and_gpu_access() -> None:
    driver = FakeDriver()
    gpu = UserqGpu(driver, RENDER)
    gpu.alloc(4096, Placement.GTT, "a")
    gpu.alloc(4096, Placement.VRAM, "b", writable=False)
    first, second = driver.sent_records(amdgpu.IOCTL_GEM_VA)
    assert first["flags"] == 0b1110 | amdgpu.AMDGPU_VM_MTYPE_UC
    assert second["flags"] == 0b1010
    assert [item["vm_timeline_point"] for item in (first, second)] == [1, 2]
    gpu.close()
    unmaps = driver.sent_records(amdgpu.IOCTL_GEM_VA)[2:]
    assert [unmap["operation"] for unmap in unmaps] == [2, 2]
    assert driver.remaining_resources() == {}


def test_vram_that_linux_placed_in_host_memory_is_an_error() -> None:
    driver = FakeDriver()
    gpu = UserqGpu(driver, RENDER)
    driver.vram_full = True
    with pytest.raises(DriverError, match=r"weights, 4096 bytes\): ENOMEM: VRAM is full: Linux placed") as caught:
        gpu.alloc(4096, Placement.VRAM, "weights")
    assert caught.value.errno == errno.ENOMEM
    assert gpu.alloc(4096, Placement.VRAM, "table", fallback=Placement.GTT).placement is Placement.GTT
    assert gpu.fallbacks == [
        "table: vram refused (VRAM is full: Linux placed the buffer in host memory), gtt instead"
    ]
    gpu.close()
    assert driver.remaining_resources() == {}


def test_small_bar_falls_back_as_through_kfd() -> None:
    driver = FakeDriver()
    driver.memory["cpu_accessible_vram.total_heap_size"] = 256 << 20
    gpu = UserqGpu(driver, RENDER)
    with pytest.raises(DriverError, match="the CPU can access 256 of 32768 MiB of VRAM"):
        gpu.alloc(4096, Placement.VRAM_BAR, "ib")
    assert gpu.alloc(4096, Placement.VRAM_BAR, "ib", fallback=Placement.GTT).placement is Placement.GTT
    assert len(gpu.fallbacks) == 1
    gpu.close()
    assert driver.remaining_resources() == {}


def test_larger_mqd_is_tried_where_linux_refuses_the_smaller() -> None:
    driver = FakeDriver()
    gpu = UserqGpu(driver, RENDER)
    sizes = []

    def refuse_small(request: StructBytes) -> int:
        sizes.append(request["mqd_size"])
        return errno.EINVAL if request["op"] == 1 and request["mqd_size"] == 8 else 0

    driver.refuse["DRM_IOCTL_AMDGPU_USERQ"] = refuse_small
    with gpu.create_queue(ring_bytes=4096) as queue:
        assert sizes == [8, 24] and queue.save_area is not None
        mqd = amdgpu.USERQ_MQD_COMPUTE_CWSR.read(driver.mqd)
        assert (mqd["eop_va"], mqd["ctx_save_area_va"]) == (queue.eop.gpu_va, queue.save_area.gpu_va)
    driver.refuse["DRM_IOCTL_AMDGPU_USERQ"] = errno.EINVAL
    with pytest.raises(DriverError, match="tried an MQD of 8 bytes, and of 24 with a context save area"):
        gpu.create_queue(ring_bytes=4096)
    driver.refuse.clear()
    gpu.close()
    assert driver.remaining_resources() == {}


def test_page_table_timeout_is_waited_for_only_once() -> None:
    driver = FakeDriver()
    gpu = UserqGpu(driver, RENDER)
    buffers = [gpu.alloc(4096, Placement.GTT, f"b{index}") for index in range(3)]
    driver.refuse["DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT"] = errno.ETIME
    with pytest.raises(DriverError, match="page tables"):
        gpu.create_queue(ring_bytes=4096)
    assert driver.call_names().count("DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT") == 1
    assert buffers


def test_deadlines_use_the_monotonic_clock() -> None:
    driver = FakeDriver()
    gpu = UserqGpu(driver, RENDER)
    syncobj = gpu.create_syncobj("done")
    before = time.monotonic_ns()
    assert syncobj.wait(2.0)
    deadline_ns = driver.sent_records(drm.IOCTL_SYNCOBJ_WAIT)[-1]["timeout_nsec"]
    assert 2_000_000_000 <= deadline_ns - before < 4_000_000_000
    driver.refuse["DRM_IOCTL_SYNCOBJ_WAIT"] = errno.ETIME
    assert not syncobj.wait(0.0)
    driver.refuse["DRM_IOCTL_SYNCOBJ_WAIT"] = errno.ENOENT
    with pytest.raises(DriverError):
        syncobj.wait(0.0)
    gpu.close()
    assert driver.remaining_resources() == {}


def test_fences_are_counted_then_fetched() -> None:
    driver = FakeDriver()
    gpu = UserqGpu(driver, RENDER)
    queue = gpu.create_queue(ring_bytes=4096)
    syncobj = gpu.create_syncobj("done")
    assert gpu.query_fences(queue, [syncobj]) == ((0x1000, 7),)
    counting, filling = driver.sent_records(amdgpu.IOCTL_USERQ_WAIT)
    assert (counting["num_fences"], filling["num_fences"]) == (0, 2)
    gpu.close()
    assert driver.remaining_resources() == {}


def test_last_fault_is_reported_raw() -> None:
    driver = FakeDriver()
    with UserqGpu(driver, RENDER) as gpu:
        fault = gpu.fault()
        assert fault is not None and (fault.va, fault.status) == (0xBAD000, 0x301)


def test_hdp_flush_is_rejected_rather_than_skipped() -> None:
    with UserqGpu(FakeDriver(), RENDER) as gpu, pytest.raises(UnsupportedError, match="HDP"):
        gpu.flush_hdp()


def test_full_domain_falls_back_only_where_allowed() -> None:
    driver = FakeDriver()
    driver.refuse["DRM_IOCTL_AMDGPU_GEM_CREATE"] = lambda r: errno.ENOMEM if r["domains"] == 4 else 0
    gpu = UserqGpu(driver, RENDER)
    with pytest.raises(DriverError, match="ENOMEM"):
        gpu.alloc(4096, Placement.VRAM, "weights")
    assert gpu.alloc(4096, Placement.VRAM, "weights", fallback=Placement.GTT).placement is Placement.GTT
    assert len(gpu.fallbacks) == 1
    gpu.close()
    assert driver.remaining_resources() == {}


# --- nothing leaks ---


def count_steps() -> list[int]:
    driver = FakeDriver()
    use_every_resource(driver)
    assert driver.remaining_resources() == {}
    undo = {"munmap", "close", "DRM_IOCTL_GEM_CLOSE", "DRM_IOCTL_SYNCOBJ_DESTROY"}
    steps = []
    for index, (name, what) in enumerate(driver.calls):
        unmap = name == "DRM_IOCTL_AMDGPU_GEM_VA" and what["operation"] == amdgpu.AMDGPU_VA_OP_UNMAP
        free = name == "DRM_IOCTL_AMDGPU_USERQ" and what["op"] == amdgpu.AMDGPU_USERQ_OP_FREE
        first_undo = "DRM_IOCTL_AMDGPU_USERQ_WAIT" in driver.call_names()[:index]
        settle = name == "DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT" and first_undo
        if name not in undo and not (unmap or free or settle):
            steps.append(index)
    return steps


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.ENODEV])
@pytest.mark.parametrize("step", count_steps())
def test_failed_call_releases_everything_created_before_it(step: int, number: int) -> None:
    driver = FakeDriver()
    driver.fail = (step, number)
    with pytest.raises(DriverError) as caught:
        use_every_resource(driver)
    name = driver.call_names()[step]
    assert caught.value.errno == number
    assert caught.value.call == name or caught.value.call.startswith(name)
    assert caught.value.next in str(caught.value)
    assert driver.remaining_resources() == {}


# --- addresses ---


def test_addresses_are_allocated_first_fit_and_coalesced() -> None:
    space = GpuAddresses(0x10000, 0x1FFFF)
    first, second = space.take(0x1000, 0x1000), space.take(0x2000, 0x4000)
    assert (first, second) == (0x10000, 0x14000)
    third = space.take(0x1000, 0x1000)
    assert third == 0x11000
    for va, size in ((second, 0x2000), (first, 0x1000), (third, 0x1000)):
        space.give_back(va, size)
    assert space.take(0x10000, 1) == 0x10000
    with pytest.raises(Exception, match="GPU addresses"):
        space.take(1, 1)


def test_unallocated_address_cannot_be_freed() -> None:
    space = GpuAddresses(0, 0xFFFF)
    va = space.take(0x1000, 1)
    space.give_back(va, 0x1000)
    with pytest.raises(ValueError, match="not allocated"):
        space.give_back(va, 0x1000)
    with pytest.raises(ValueError, match="not allocated"):
        space.give_back(0xF000, 0x2000)
