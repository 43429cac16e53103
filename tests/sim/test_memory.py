"""What the host and the GPU see of each other's stores, and when."""

from __future__ import annotations

import errno

import pytest
from kmd import unsent_ioctls
from sim.device import GTT, PAGE, VRAM, VRAM_PUBLIC, open_client

from zinc_rt.kmd.uapi import kfd
from zinc_rt.sim.interfaces import AccessKind, Fault


def test_uncached_gtt_is_coherent_in_both_directions() -> None:
    with open_client() as c:
        buffer = c.alloc(PAGE, GTT)
        host, vm = c.host(buffer), c.gpu_vm
        host.view[:4] = b"host"
        assert vm.read(buffer["va_addr"], 4) == b"host"
        vm.write(buffer["va_addr"] + 8, b"gpu!gpu!")
        assert bytes(host.view[8:16]) == b"gpu!gpu!"
        c.driver.munmap(host)


def test_host_stores_reach_vram_only_with_an_hdp_flush() -> None:
    with open_client() as c:
        buffer = c.alloc(2 * PAGE, VRAM_PUBLIC)
        host, vm, va = c.host(buffer), c.gpu_vm, buffer["va_addr"]
        host.view[PAGE : PAGE + 4] = b"host"
        assert vm.read(va + PAGE, 4) == bytes(4)
        vm.flush_hdp()
        assert vm.read(va + PAGE, 4) == b"host"
        c.driver.munmap(host)


def test_hdp_flush_of_a_range_leaves_other_buffers_stale() -> None:
    with open_client() as c:
        first, second = c.alloc(2 * PAGE, VRAM_PUBLIC), c.alloc(PAGE, VRAM_PUBLIC)
        maps = [c.host(buffer) for buffer in (first, second)]
        for host in maps:
            host.view[8:12] = b"host"
        c.gpu_vm.flush_hdp((first["va_addr"], 64))
        assert [c.gpu_vm.read(buffer["va_addr"] + 8, 4) for buffer in (first, second)] == [b"host", bytes(4)]
        for host in maps:
            c.driver.munmap(host)


def test_unflushed_host_stores_are_found_by_byte() -> None:
    with open_client() as c:
        buffer = c.alloc(2 * PAGE, VRAM_PUBLIC)
        host, vm, va = c.host(buffer), c.gpu_vm, buffer["va_addr"]
        host.view[PAGE + 5] = 1
        assert vm.find_unflushed([(va, PAGE + 5)]) is None
        assert vm.find_unflushed([(va, 4), (va + PAGE, 8)]) == va + PAGE + 5
        vm.flush_hdp()
        vm.write(va + PAGE, b"gpu!")  # not written back: the copies differ, but not by a host store
        assert vm.find_unflushed([(va, 2 * PAGE)]) is None
        host.view[PAGE + 100] = 7
        assert vm.find_unflushed([(va, 2 * PAGE)]) == va + PAGE + 100
        assert vm.find_unflushed([(va + PAGE + 2, 98)]) is None
        assert vm.find_unflushed([(va + PAGE + 2, 99)]) == va + PAGE + 100
        c.driver.munmap(host)
        assert vm.find_unflushed([(va, 2 * PAGE)]) == va + PAGE + 100


def test_gpu_stores_reach_the_host_only_with_a_write_back() -> None:
    with open_client() as c:
        buffer = c.alloc(PAGE, VRAM_PUBLIC)
        host, vm, va = c.host(buffer), c.gpu_vm, buffer["va_addr"]
        vm.write(va, b"gpu!")
        assert bytes(host.view[:4]) == bytes(4)
        vm.write_back()
        assert bytes(host.view[:4]) == b"gpu!"
        c.driver.munmap(host)


def test_host_and_gpu_stores_to_one_page_are_merged_per_byte() -> None:
    with open_client() as c:
        buffer = c.alloc(PAGE, VRAM_PUBLIC)
        host, vm, va = c.host(buffer), c.gpu_vm, buffer["va_addr"]
        vm.write(va, b"gpu!")
        host.view[100:104] = b"host"
        vm.view(va + 200, 4, AccessKind.WRITE)[:] = b"view"
        vm.flush_hdp()
        assert vm.read(va, 4) == b"gpu!" and vm.read(va + 100, 4) == b"host" and vm.read(va + 200, 4) == b"view"
        vm.write_back()
        assert bytes(host.view[:4]) == b"gpu!" and bytes(host.view[200:204]) == b"view"
        assert bytes(host.view[100:104]) == b"host"
        c.driver.munmap(host)


def test_direct_coherence_has_one_copy() -> None:
    with open_client(coherence="direct") as c:
        buffer = c.alloc(PAGE, VRAM_PUBLIC)
        host = c.host(buffer)
        host.view[:4] = b"host"
        assert c.gpu_vm.read(buffer["va_addr"], 4) == b"host"
        c.driver.munmap(host)


def test_remap_page_flushes_before_a_later_doorbell() -> None:
    with open_client() as c:
        data = c.alloc(PAGE, VRAM_PUBLIC)
        page = c.alloc(PAGE, kfd.KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP, mapped=False)
        host, remap = c.host(data), c.driver.mmap(c.kfd, PAGE, page["mmap_offset"], 3)
        for text, stored in ((b"host", b"\1\0\0\0"), (b"next", bytes(4)), (b"last", bytes(4))):
            host.view[:4] = text
            c.gpu.doorbells.look()
            assert c.gpu_vm.read(data["va_addr"], 4) != text
            remap.view[:4] = stored
            c.gpu.doorbells.look()
            assert c.gpu_vm.read(data["va_addr"], 4) == text
        c.driver.munmap(host)
        c.driver.munmap(remap)


def test_stale_hdp_and_missing_write_back_can_be_injected() -> None:
    with open_client("stale-hdp", "no-write-back") as c:
        buffer = c.alloc(PAGE, VRAM_PUBLIC)
        host, vm = c.host(buffer), c.gpu_vm
        host.view[:4] = b"host"
        vm.flush_hdp()
        vm.write(buffer["va_addr"] + 8, b"gpu!")
        vm.write_back()
        assert vm.read(buffer["va_addr"], 4) == bytes(4)
        assert bytes(host.view[8:12]) == bytes(4)
        c.driver.munmap(host)


@pytest.mark.parametrize("inject", [(), ("stale-icache",)])
def test_instructions_stay_as_first_fetched_until_invalidated(inject: tuple[str, ...]) -> None:
    with open_client(*inject) as c:
        code, vm = c.alloc(2 * PAGE), c.gpu_vm
        va = code["va_addr"] + PAGE - 4
        vm.write(va, b"A" * 8)
        assert vm.fetch(va, 8) == b"A" * 8
        vm.write(va, b"B" * 8)
        assert vm.fetch(va, 8) == b"A" * 8 and vm.read(va, 8) == b"B" * 8
        vm.invalidate_icache()
        assert vm.fetch(va, 8) == (b"A" if inject else b"B") * 8


@pytest.mark.parametrize(
    ("flags", "access", "reason"),
    [
        (kfd.KFD_IOC_ALLOC_MEM_FLAGS_GTT, AccessKind.WRITE, "read only"),
        (kfd.KFD_IOC_ALLOC_MEM_FLAGS_GTT, AccessKind.EXECUTE, "no execute"),
    ],
)
def test_permission_violations_fault(flags: int, access: AccessKind, reason: str) -> None:
    with open_client() as c:
        buffer = c.alloc(PAGE, flags)
        with pytest.raises(Fault) as caught:
            c.gpu_vm.view(buffer["va_addr"] + 8, 4, access)
        assert (caught.value.va, caught.value.why) == (buffer["va_addr"] + 8, reason)


def test_write_past_end_of_buffer_faults_and_writes_nothing() -> None:
    with open_client() as c:
        buffer = c.alloc(PAGE)
        end = buffer["va_addr"] + PAGE
        with pytest.raises(Fault) as caught:
            c.gpu_vm.write(end - 4, b"12345678")
        assert caught.value.va == end and caught.value.why == "not present"
        assert c.gpu_vm.read(end - 4, 4) == bytes(4)


def test_allocation_of_a_client_has_bounds_and_the_rest_of_its_buffer_stays_accessible() -> None:
    with open_client() as c:
        va = c.alloc(0x10000)["va_addr"]
        c.driver.announce_allocation(va + 0x2000, 100, 100 + PAGE, "hipMalloc of 100 bytes")
        ranges = sorted((item.va - va, item.size_bytes) for item in c.gpu_vm.announced)
        assert ranges == [(0, 0x2000), (0x2000, 100), (0x4000, 0xC000)]
        assert c.gpu_vm.describe(va + 0x2064).endswith("0 bytes past the end of hipMalloc of 100 bytes")
        c.driver.announce_allocation(va + 0x20000000, 8, 8, "in no buffer")
        assert c.machine.allocations == 1
        c.driver.announce_allocation(va + 0x2000, 0, 0, "")
        assert c.gpu_vm.announced == ()


def test_address_is_described_by_buffer_or_announced_name() -> None:
    with open_client() as c:
        buffer = c.alloc(PAGE)
        va = buffer["va_addr"]
        c.driver.announce(va + 256, 256, "kv page 3")
        assert c.gpu_vm.describe(va + 0x140) == "kv page 3+0x40"
        assert c.gpu_vm.describe(va + 4).endswith("+0x4, 252 bytes before kv page 3")
        assert c.gpu_vm.describe(va + PAGE) == "unmapped"


@pytest.mark.parametrize("inject", [(), ("small-bar",)])
def test_vram_without_public_flag_can_be_mapped(inject: tuple[str, ...]) -> None:
    """Linux 5.13 took NO_CPU_ACCESS away from KFD's buffers; shipped runtimes map every buffer they make."""
    with open_client(*inject) as c:
        buffer = c.alloc(PAGE, VRAM)
        c.host(buffer).view[:4] = b"seen"
        exported = c.call(unsent_ioctls.IOC_EXPORT_DMABUF, handle=buffer["handle"])["dmabuf_fd"]
        flags = c.call(unsent_ioctls.IOC_GET_DMABUF_INFO, dmabuf_fd=exported)["flags"]
        assert flags == kfd.KFD_IOC_ALLOC_MEM_FLAGS_VRAM
        c.driver.close(exported)


def test_foreign_and_oversized_mappings_are_rejected() -> None:
    with open_client() as c:
        open_ = c.alloc(PAGE, VRAM_PUBLIC)
        with pytest.raises(OSError) as caught:
            c.host(open_, 2 * PAGE)
        assert caught.value.errno == errno.EINVAL
        second = c.driver.open("/dev/dri/renderD128", 2)
        with pytest.raises(OSError) as caught:
            c.driver.mmap(second, PAGE, open_["mmap_offset"], 3)
        assert caught.value.errno == errno.EACCES


def test_bytes_of_each_heap_are_counted_and_limited() -> None:
    with open_client() as c:
        before = c.call(kfd.IOC_AVAILABLE_MEMORY, gpu_id=c.gpu_id)["available"]
        buffer = c.alloc(1 << 30, VRAM)
        assert before - c.call(kfd.IOC_AVAILABLE_MEMORY, gpu_id=c.gpu_id)["available"] == 1 << 30
        c.unmap(buffer["handle"])
        c.call(kfd.IOC_FREE_MEMORY_OF_GPU, handle=buffer["handle"])
        assert c.call(kfd.IOC_AVAILABLE_MEMORY, gpu_id=c.gpu_id)["available"] == before


@pytest.mark.parametrize("size", [2 * PAGE, PAGE + 1, 2 * PAGE - 17])
def test_user_pages_are_shared_with_the_gpu(size: int) -> None:
    """Of any size: the kernel takes whole pages of it."""
    with open_client() as c:
        mine = c.driver.mmap(-1, 2 * PAGE, 0, 3)
        mine.view[:4] = b"mine"
        flags = kfd.KFD_IOC_ALLOC_MEM_FLAGS_USERPTR | kfd.KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE
        flags |= kfd.KFD_IOC_ALLOC_MEM_FLAGS_UNCACHED
        record = c.call(
            kfd.IOC_ALLOC_MEMORY_OF_GPU,
            va_addr=mine.address,
            size=size,
            mmap_offset=mine.address,
            gpu_id=c.gpu_id,
            flags=flags,
        )
        c.map(record["handle"])
        assert c.gpu_vm.read(mine.address, 4) == b"mine"
        c.gpu_vm.write(mine.address + PAGE, b"gpu!")
        assert bytes(mine.view[PAGE : PAGE + 4]) == b"gpu!"


def test_scattered_host_stores_all_arrive_without_side_effects() -> None:
    with open_client() as c:
        buffer = c.alloc(3 << 20, VRAM_PUBLIC)
        host, vm, va = c.host(buffer), c.gpu_vm, buffer["va_addr"]
        places = [0, PAGE, 2 * PAGE, 9 * PAGE + 7, (1 << 20) - 1, 1 << 20, (3 << 20) - 1]
        for location in places:
            host.view[location] = 0x5A
        vm.flush_hdp()
        seen = vm.read(va, 3 << 20)
        assert [location for location, value in enumerate(seen) if value] == places
        c.driver.munmap(host)
