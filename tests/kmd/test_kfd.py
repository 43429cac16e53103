"""The KFD transport against a scripted kernel: order, bytes, fallbacks, and nothing kept after any failure."""

from __future__ import annotations

import errno

import pytest
from fake_driver import GPU_ID, NODES, RENDER, FakeDriver, properties

from zinc_rt.host.errors import UnsupportedError, ZincError
from zinc_rt.kmd.driver import Driver
from zinc_rt.kmd.errors import DriverError, LeakError
from zinc_rt.kmd.events import UNSIGNALLED, EventKind, GpuReset
from zinc_rt.kmd.kfd import KfdGpu, KfdProcess
from zinc_rt.kmd.transport import MemoryFault, Placement, Transport
from zinc_rt.kmd.uapi import kfd
from zinc_rt.kmd.uapi.structs import StructBytes

VRAM, GTT = kfd.KFD_IOC_ALLOC_MEM_FLAGS_VRAM, kfd.KFD_IOC_ALLOC_MEM_FLAGS_GTT
PUBLIC = kfd.KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC
UNCACHED = kfd.KFD_IOC_ALLOC_MEM_FLAGS_COHERENT | kfd.KFD_IOC_ALLOC_MEM_FLAGS_UNCACHED
ALWAYS = (
    kfd.KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE
    | kfd.KFD_IOC_ALLOC_MEM_FLAGS_EXECUTABLE
    | kfd.KFD_IOC_ALLOC_MEM_FLAGS_NO_SUBSTITUTE
)


def open_process(driver: FakeDriver) -> tuple[KfdProcess, KfdGpu]:
    seam: Driver = driver
    process = KfdProcess(seam)
    return process, process.open_gpu(process.topology.gpus[0])


def use_every_resource(driver: FakeDriver) -> None:
    """Create one of each object of the transport, then close it."""
    with KfdProcess(driver) as process:
        gpu = process.open_gpu(process.topology.gpus[0])
        transport: Transport = gpu
        events = [process.events.create(kind) for kind in (EventKind.SIGNAL, EventKind.MEMORY)]
        transport.alloc(3 << 20, Placement.VRAM, "weights")
        gpu.alloc(100, Placement.USERPTR, "mine")
        gpu.flush_hdp()
        with gpu.create_queue(ring_bytes=1 << 16) as queue:
            queue.ring.host.view[:4] = b"\0\x10\xff\xff"
        process.events.wait(events, 0.0)


def test_open_issues_ioctls_in_the_order_the_kernel_requires() -> None:
    driver = FakeDriver()
    process, gpu = open_process(driver)
    assert driver.call_names()[:8] == [
        "open",
        "AMDKFD_IOC_GET_VERSION",
        "open",
        "AMDKFD_IOC_ACQUIRE_VM",
        "AMDKFD_IOC_GET_PROCESS_APERTURES_NEW",
        "AMDKFD_IOC_GET_PROCESS_APERTURES_NEW",
        "mmap",
        "AMDKFD_IOC_ALLOC_MEMORY_OF_GPU",
    ]
    assert driver.sent_records(kfd.IOC_ACQUIRE_VM)[0].as_dict() == {"drm_fd": gpu.render_fd, "gpu_id": GPU_ID}
    assert gpu.apertures.gpuvm == (0x10000, (1 << 47) - 1)
    page = process.events.page
    assert page is not None and page.size_bytes == 0x8000
    assert page.host.view[:8] == UNSIGNALLED.to_bytes(8, "little")
    process.close()
    assert driver.remaining_resources() == {}


@pytest.mark.parametrize(
    ("placement", "flags", "mapped_by_cpu"),
    [
        (Placement.VRAM, VRAM, False),
        (Placement.VRAM_BAR, VRAM | PUBLIC, True),
        (Placement.GTT, GTT | UNCACHED, True),
        (Placement.GTT_CACHED, GTT | kfd.KFD_IOC_ALLOC_MEM_FLAGS_COHERENT, True),
        (Placement.USERPTR, kfd.KFD_IOC_ALLOC_MEM_FLAGS_USERPTR | UNCACHED, True),
    ],
)
def test_buffer_is_created_with_the_flags_of_its_placement(
    placement: Placement, flags: int, mapped_by_cpu: bool
) -> None:
    driver = FakeDriver()
    process, gpu = open_process(driver)
    buffer = gpu.alloc((2 << 20) + 5, placement, "b")
    request = driver.sent_records(kfd.IOC_ALLOC_MEMORY_OF_GPU)[-1]
    assert request["flags"] == flags | ALWAYS
    assert request["size"] == buffer.size_bytes == (2 << 20) + 4096
    assert request["va_addr"] == buffer.gpu_va and buffer.gpu_va % (2 << 20) == 0
    assert (buffer.mapping is not None) == mapped_by_cpu
    if placement is Placement.USERPTR:
        assert request["mmap_offset"] == buffer.host.address
    elif mapped_by_cpu:
        fd, size, offset, _, fixed = driver.calls[-2][1]
        assert (driver.fds[fd], size, fixed) == (RENDER, buffer.size_bytes, buffer.gpu_va) and offset
        assert buffer.host.address != buffer.gpu_va  # the fake maps elsewhere: nobody may take them for the same
    else:
        with pytest.raises(ValueError, match="cannot access"):
            _ = buffer.host
    buffer.free()
    buffer.free()
    process.close()
    assert driver.remaining_resources() == {}


def test_read_only_buffer_is_not_writable_by_the_gpu() -> None:
    driver = FakeDriver()
    process, gpu = open_process(driver)
    gpu.alloc(4096, Placement.VRAM, "read only", writable=False)
    flags = driver.sent_records(kfd.IOC_ALLOC_MEMORY_OF_GPU)[-1]["flags"]
    assert flags == VRAM | ALWAYS & ~kfd.KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE
    process.close()


def test_small_bar_is_an_error_without_a_fallback_and_reported_with_one() -> None:
    driver = FakeDriver()
    driver.refuse["AMDKFD_IOC_ALLOC_MEMORY_OF_GPU"] = lambda r: errno.EINVAL if r["flags"] & PUBLIC else 0
    process, gpu = open_process(driver)
    with pytest.raises(DriverError, match="Resizable BAR") as caught:
        gpu.alloc(4096, Placement.VRAM_BAR, "staging")
    assert caught.value.errno == errno.EINVAL and gpu.fallbacks == []
    buffer = gpu.alloc(4096, Placement.VRAM_BAR, "staging", fallback=Placement.GTT)
    assert buffer.placement is Placement.GTT
    assert len(gpu.fallbacks) == 1 and "staging: vram_bar refused" in gpu.fallbacks[0]
    process.close()
    assert driver.remaining_resources() == {}


def test_queue_has_exactly_the_buffers_the_kernel_checks() -> None:
    driver = FakeDriver()
    process, gpu = open_process(driver)
    queue = gpu.create_queue(ring_bytes=1 << 16, priority=9)
    (request,) = driver.sent_records(kfd.IOC_CREATE_QUEUE)
    area = queue.save_area
    assert area is not None
    assert request.as_dict() == {
        "ring_base_address": queue.ring.gpu_va,
        "write_pointer_address": queue.wptr.gpu_va,
        "read_pointer_address": queue.rptr.gpu_va,
        "doorbell_offset": 0,
        "ring_size": 1 << 16,
        "gpu_id": GPU_ID,
        "queue_type": 0,
        "queue_percentage": 100,
        "queue_priority": 9,
        "queue_id": 0,
        "eop_buffer_address": queue.eop.gpu_va,
        "eop_buffer_size": 4096,
        "ctx_save_restore_address": area.gpu_va,
        "ctx_save_restore_size": 0x1D47000,
        "ctl_stack_size": 0x7000,
        "sdma_engine_id": 0,
        "metadata_ring_size": 0,
    }
    assert area.size_bytes == 0x1D57000 and queue.wptr.size_bytes == queue.rptr.size_bytes == 4096
    assert (queue.ring_dw, queue.kind, queue.inherits_vmid, queue.kmd_fence) == (1 << 14, "kfd", False, False)
    queue.destroy()
    assert driver.queues == {} and len(driver.allocs) == 1  # the event page
    process.close()
    assert driver.remaining_resources() == {}


def test_doorbells_share_one_slice_of_8192_bytes() -> None:
    driver = FakeDriver()
    process, gpu = open_process(driver)
    first, second = (gpu.create_queue(ring_bytes=4096) for _ in range(2))
    maps = [what for name, what in driver.calls if name == "mmap" and what[1] == 8192]
    assert len(maps) == 1 and driver.fds[maps[0][0]] == "/dev/kfd"
    assert maps[0][2] == 3 << 62 | (GPU_ID & 0xFFFF) << 46
    for queue in (first, second):
        offset = driver.queues[queue.queue_id]["doorbell_offset"] & 8191
        assert queue.doorbell_address == gpu.queues.doorbells().address + offset and offset
    process.close()
    assert driver.remaining_resources() == {}


@pytest.mark.parametrize("ring_bytes", [0, 1024, 2048, 5000, 3 << 12])
def test_ring_size_that_is_not_a_power_of_two_pages_is_rejected(ring_bytes: int) -> None:
    driver = FakeDriver()
    process, gpu = open_process(driver)
    with pytest.raises(ValueError, match="power of two"):
        gpu.create_queue(ring_bytes=ring_bytes)
    process.close()


def test_gfx1151_uses_the_save_area_its_kernel_accepts_and_reports_it() -> None:
    driver = FakeDriver(gfx_target_version=110501, simd_count=80)
    process, gpu = open_process(driver)
    driver.refuse["AMDKFD_IOC_CREATE_QUEUE"] = lambda r: (
        errno.EINVAL if r["ctx_save_restore_size"] != 0x124C000 else 0
    )
    queue = gpu.create_queue(ring_bytes=4096)
    assert queue.save_area is not None and queue.save_area.size_bytes == 0x1256000
    assert len(gpu.fallbacks) == 1 and "older Linux" in gpu.fallbacks[0]
    process.close()
    assert driver.remaining_resources() == {}


def test_queue_that_does_not_preempt_is_destroyed_and_reported() -> None:
    driver = FakeDriver()
    process, gpu = open_process(driver)
    queue = gpu.create_queue(ring_bytes=4096)

    def torn_down(request: StructBytes) -> int:
        driver.queues.clear()
        return errno.ETIME

    driver.refuse["AMDKFD_IOC_DESTROY_QUEUE"] = torn_down
    with pytest.raises(DriverError, match="could not be preempted"):
        queue.destroy()
    queue.destroy()
    assert len(gpu.queues.incidents) == 1
    assert len(driver.allocs) == 1
    process.close()
    assert driver.remaining_resources() == {}


def test_cu_mask_is_set_for_its_queue() -> None:
    driver = FakeDriver()
    process, gpu = open_process(driver)
    queue = gpu.create_queue(ring_bytes=4096)
    gpu.queues.set_cu_mask(queue, (0x3, 0xC0000000))
    assert driver.cu_mask == b"\x03\0\0\0\0\0\0\xc0"
    assert gpu.read_clocks().system_hz == 10**9 and gpu.query_available_memory() == 31 << 30
    process.close()


# --- events ---


def test_event_page_is_passed_once_and_outlives_the_process() -> None:
    driver = FakeDriver()
    process, _ = open_process(driver)
    events = [process.events.create(EventKind.SIGNAL) for _ in range(3)]
    page = process.events.page
    assert page is not None
    assert [item["event_page_offset"] for item in driver.sent_records(kfd.IOC_CREATE_EVENT)] == [page.handle, 0, 0]
    assert events[2].slot_va == page.gpu_va + 8 * events[2].trigger
    process.close()
    assert driver.remaining_resources() == {} and list(driver.allocs) == [page.handle]
    assert page.handle not in [item["handle"] for item in driver.sent_records(kfd.IOC_FREE_MEMORY_OF_GPU)]


def test_event_page_without_signal_events_is_freed() -> None:
    driver = FakeDriver()
    process, _ = open_process(driver)
    process.events.create(EventKind.MEMORY)
    process.close()
    assert driver.remaining_resources() == {} and driver.allocs == {}


def test_wait_returns_fired_events_and_their_data() -> None:
    driver = FakeDriver()
    process, _ = open_process(driver)
    signal, other = (process.events.create(EventKind.SIGNAL) for _ in range(2))
    memory, reset = process.events.create(EventKind.MEMORY), process.events.create(EventKind.HW_EXCEPTION)
    assert process.events.wait([signal, other, memory, reset], 0.25) == []
    assert driver.sent_records(kfd.IOC_WAIT_EVENTS)[-1]["timeout"] == 250
    process.events.set(signal)
    driver.fire[memory.event_id] = {"va": 0xDEAD000, "not_present": 1, "memory_gpu_id": GPU_ID}
    driver.fire[reset.event_id] = {"reset_cause": 0, "memory_lost": 1, "reset_gpu_id": GPU_ID}
    fired = process.events.wait([signal, other, memory, reset], 1.0)
    assert [item.event for item in fired] == [signal, memory, reset]
    assert fired[1].detail == MemoryFault(0xDEAD000, not_present=True, gpu_id=GPU_ID)
    assert fired[2].detail == GpuReset(GPU_ID, whole_gpu=True, ecc=False, memory_lost=True)
    assert signal.age == 2
    signal.destroy()
    process.close()
    assert driver.remaining_resources() == {}


# --- nothing leaks ---


def test_resource_counts_match_the_kernel() -> None:
    driver = FakeDriver()
    process, gpu = open_process(driver)
    gpu.alloc(4096, Placement.GTT, "b")
    assert process.resources() == {
        "fd": 2,
        "gpu": 1,
        "address range": 2,
        "buffer": 2,
        "mapping": 2,
        "gpu mapping": 2,
    }
    gpu.close()
    assert "gpu" not in process.resources() and process.gpus == {}
    process.close()
    assert process.resources() == {}


def count_steps() -> list[int]:
    driver = FakeDriver()
    use_every_resource(driver)
    assert driver.remaining_resources() == {}
    undo = ("munmap", "close", "AMDKFD_IOC_DESTROY", "AMDKFD_IOC_UNMAP", "AMDKFD_IOC_FREE")
    return [index for index, name in enumerate(driver.call_names()) if not name.startswith(undo)]


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.EINVAL, errno.ENODEV])
@pytest.mark.parametrize("step", count_steps())
def test_failed_call_releases_everything_created_before_it(step: int, number: int) -> None:
    driver = FakeDriver()
    driver.fail = (step, number)
    with pytest.raises(DriverError) as caught:
        use_every_resource(driver)
    name = driver.call_names()[step]
    assert caught.value.errno == number
    assert caught.value.call == name or caught.value.call.startswith(name)
    assert caught.value.next in str(caught.value) and caught.value.why in str(caught.value)
    assert driver.remaining_resources() == {}
    assert not hasattr(caught.value, "__notes__")


def test_unreleasable_resource_is_reported_and_the_rest_is_freed() -> None:
    driver = FakeDriver()
    process, gpu = open_process(driver)
    gpu.alloc(4096, Placement.VRAM, "stuck")
    driver.refuse["AMDKFD_IOC_UNMAP_MEMORY_FROM_GPU"] = errno.EBUSY
    with pytest.raises(LeakError, match="gpu mapping stuck"):
        process.close()
    assert "fds" not in driver.remaining_resources() and "mappings" not in driver.remaining_resources()


def test_memory_still_referenced_is_reported() -> None:
    driver = FakeDriver()
    process, gpu = open_process(driver)
    look = gpu.alloc(4096, Placement.GTT, "seen").host.view[8:16]
    with pytest.raises(LeakError, match="still in use"):
        process.close()
    look.release()
    process.close()
    assert driver.remaining_resources() == {}


# --- refusals with advice ---


@pytest.mark.parametrize(
    ("number", "words"), [(errno.ENOENT, "--device=/dev/kfd"), (errno.EACCES, "usermod"), (errno.EAGAIN, "reset")]
)
def test_node_that_does_not_open_is_reported_with_the_reason(number: int, words: str) -> None:
    driver = FakeDriver()
    driver.fail = (0, number)
    with pytest.raises(DriverError, match="open /dev/kfd") as caught:
        KfdProcess(driver)
    assert words in str(caught.value)
    assert driver.remaining_resources() == {}


@pytest.mark.parametrize("version", [(1, 13), (2, 0), (0, 30)])
def test_unsupported_interface_version_is_rejected(version: tuple[int, int]) -> None:
    driver = FakeDriver()
    driver.version = version
    with pytest.raises(UnsupportedError, match=r"expected 1\.14"):
        KfdProcess(driver)
    assert driver.remaining_resources() == {}


def test_hidden_node_is_reported_not_skipped_silently() -> None:
    driver = FakeDriver()
    driver.files[f"{NODES}/1/gpu_id"] = PermissionError(errno.EPERM, "Operation not permitted")
    driver.files[f"{NODES}/2/gpu_id"] = b"\n"
    process = KfdProcess(driver)
    assert process.topology.gpus == ()
    assert [item.split(":")[0] for item in process.topology.hidden] == ["node 1", "node 2"]
    process.close()


def test_unknown_topology_line_is_an_error() -> None:
    driver = FakeDriver()
    driver.files[f"{NODES}/1/properties"] = properties({"simd_count": 2}) + b"mystery\n"
    with pytest.raises(ZincError, match="mystery"):
        KfdProcess(driver)


def test_node_properties_are_read() -> None:
    driver = FakeDriver()
    driver.files[f"{NODES}/1/mem_banks/1/properties"] = properties({"heap_type": 2, "size_in_bytes": 1 << 30})
    process = KfdProcess(driver)
    (node,) = process.topology.gpus
    assert (node.arch, node.generation, node.compute_units, node.shader_engines) == ("gfx1201", (12, 0, 1), 64, 4)
    assert node.vram_bytes == 33 << 30 and node.small_bar is True and node.render_path == RENDER
    with pytest.raises(ZincError, match="has no nonsense"):
        _ = node["nonsense"]
    process.close()
