"""Host memory that the GPU caches: stale on either side until it is invalidated or written back."""

from __future__ import annotations

import ctypes

import pytest
from sim.device import GTT, GTT_CACHED, PAGE, open_client
from sim.lives import run_kfd_life
from sim.test_whole_device import Word, kfd_gpu, simulated_machine, submit

from zinc_rt.kmd import kfd_memory
from zinc_rt.kmd.transport import Placement
from zinc_rt.kmd.uapi import kfd
from zinc_rt.pm4.gcr import acquire, release
from zinc_rt.pm4.generation import Generation
from zinc_rt.pm4.packets import AcquireMem, CopyData, ReleaseMem, WaitRegMem, WriteData
from zinc_rt.sim.interfaces import AccessKind
from zinc_rt.sim.memory.gl2 import LINE_BYTES

COHERENT = kfd.KFD_IOC_ALLOC_MEM_FLAGS_COHERENT
UNCACHED = kfd.KFD_IOC_ALLOC_MEM_FLAGS_UNCACHED


def test_lines_read_by_gpu_are_stale_until_invalidated() -> None:
    with open_client() as c:
        buffer = c.alloc(PAGE, GTT_CACHED)
        host, vm, va = c.host(buffer), c.gpu_vm, buffer["va_addr"]
        host.view[:4] = b"one!"
        assert vm.read(va, 4) == b"one!", "a line nobody held comes from memory"
        host.view[:4] = b"two!"
        host.view[LINE_BYTES : LINE_BYTES + 4] = b"next"
        assert vm.read(va, 4) == b"one!" and vm.read(va + LINE_BYTES, 4) == b"next"
        vm.invalidate_gl2((va + LINE_BYTES, PAGE - LINE_BYTES))
        assert vm.read(va, 4) == b"one!", "outside of the range"
        vm.invalidate_gl2()
        assert vm.read(va, 4) == b"two!"
        c.driver.munmap(host)


def test_coherent_memory_of_a_process_with_aql_queues_is_not_cached() -> None:
    with open_client() as c:
        shared, cached = c.alloc(PAGE, GTT_CACHED | COHERENT), c.alloc(PAGE, GTT_CACHED)
        maps, vm = [c.host(buffer) for buffer in (shared, cached)], c.gpu_vm
        for buffer in (shared, cached):
            vm.write(buffer["va_addr"], b"gpu!")
        vm.stop_caching_coherent()
        assert [bytes(host.view[:4]) for host in maps] == [b"gpu!", bytes(4)], "earlier stores are not lost"
        for host in maps:
            host.view[:4] = b"host"
        assert [vm.read(buffer["va_addr"], 4) for buffer in (shared, cached)] == [b"host", b"gpu!"]
        vm.write(shared["va_addr"] + 8, b"next")
        assert bytes(maps[0].view[8:12]) == b"next"
        for host in maps:
            c.driver.munmap(host)


def test_read_across_pages_refills_lines_of_both() -> None:
    with open_client() as c:
        buffer = c.alloc(2 * PAGE, GTT_CACHED)
        host, vm, va = c.host(buffer), c.gpu_vm, buffer["va_addr"]
        vm.read(va + PAGE - 3, 63)
        host.view[PAGE - 3 : PAGE + 60] = bytes(range(63))
        vm.invalidate_gl2()
        assert vm.read(va + PAGE - 3, 63) == bytes(range(63))
        c.driver.munmap(host)


def test_gpu_stores_reach_the_host_at_a_write_back() -> None:
    with open_client() as c:
        buffer = c.alloc(PAGE, GTT_CACHED)
        host, vm, va = c.host(buffer), c.gpu_vm, buffer["va_addr"]
        vm.write(va, b"gpu!")
        vm.view(va + 200, 4, AccessKind.WRITE)[:] = b"view"
        host.view[100:104] = b"host"
        assert bytes(host.view[:4]) == bytes(4)
        vm.invalidate_gl2()
        assert vm.read(va, 4) == b"gpu!" and vm.read(va + 100, 4) == b"host", "stores are no one's to drop"
        vm.write_back()
        assert bytes(host.view[:4]) == b"gpu!" and bytes(host.view[200:204]) == b"view"
        assert bytes(host.view[100:104]) == b"host"
        c.driver.munmap(host)


@pytest.mark.parametrize(
    ("chip", "flags", "cached"),
    [
        ("r9700", 0, True),
        ("r9700", COHERENT, True),  # gmc_v12_0_get_vm_pte looks at UNCACHED alone
        ("r9700", UNCACHED, False),
        ("gfx1100", 0, True),
        ("gfx1100", COHERENT, False),
        ("gfx1100", UNCACHED, False),
    ],
)
def test_allocation_flags_select_uncached_host_memory(chip: str, flags: int, cached: bool) -> None:
    with open_client(chip=chip) as c:
        buffer = c.alloc(PAGE, GTT_CACHED | flags)
        host = c.host(buffer)
        c.gpu_vm.read(buffer["va_addr"], 4)
        host.view[:4] = b"host"
        assert (c.gpu_vm.read(buffer["va_addr"], 4) == b"host") != cached
        c.driver.munmap(host)


def test_pinned_client_pages_are_cached() -> None:
    with open_client() as c:
        mine = c.driver.mmap(-1, PAGE, 0, 3)
        record = c.call(
            kfd.IOC_ALLOC_MEMORY_OF_GPU,
            va_addr=mine.address,
            size=PAGE,
            mmap_offset=mine.address,
            gpu_id=c.gpu_id,
            flags=kfd.KFD_IOC_ALLOC_MEM_FLAGS_USERPTR | kfd.KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE,
        )
        c.map(record["handle"])
        c.gpu_vm.write(mine.address, b"gpu!")
        assert bytes(mine.view[:4]) == bytes(4)
        c.gpu_vm.write_back()
        assert bytes(mine.view[:4]) == b"gpu!"


def test_packets_invalidate_and_write_back() -> None:
    g12 = Generation.GFX12
    with simulated_machine() as owner, kfd_gpu(owner) as gpu:
        cached, fence = Word(gpu), Word(gpu)
        cached.buffer.free()
        cached.buffer = gpu.alloc(PAGE, Placement.GTT_CACHED, "cached")
        cell = ctypes.c_uint32.from_address(cached.buffer.host.address)  # type: ignore[union-attr]
        queue, va, seen = gpu.create_queue(ring_bytes=1 << 16), cached.buffer.gpu_va, fence.va + 64
        result = ctypes.c_uint32.from_address(fence.buffer.host.address + 64)  # type: ignore[union-attr]

        def copy_and_read(number: int, *before: object) -> int:
            submit(queue, *before, CopyData(va, seen), ReleaseMem(fence.va, number))
            assert fence.wait_for_value(number)
            return result.value

        cell.value = 1
        assert copy_and_read(1) == 1
        cell.value = 2
        assert copy_and_read(2) == 1, "held since the first copy"
        assert copy_and_read(3, AcquireMem(acquire(g12, GLV_INV=1))) == 1, "no operation on GL2"
        assert copy_and_read(4, AcquireMem(acquire(g12, GL2_INV=1))) == 2
        submit(queue, WriteData(va, (9,)), ReleaseMem(fence.va, 5))
        assert fence.wait_for_value(5) and cell.value == 2
        submit(queue, ReleaseMem(fence.va, 6, release(g12, GL2_WB=1)))
        assert fence.wait_for_value(6) and cell.value == 9


def test_wait_on_cached_memory_needs_an_invalidation() -> None:
    with simulated_machine() as owner, kfd_gpu(owner) as gpu:
        fence, queue = Word(gpu), gpu.create_queue(ring_bytes=1 << 16)
        flag = gpu.alloc(PAGE, Placement.GTT_CACHED, "flag")
        cell = ctypes.c_uint32.from_address(flag.host.address)  # type: ignore[union-attr]
        submit(queue, WaitRegMem(flag.gpu_va, 1), ReleaseMem(fence.va, 1))
        assert not fence.wait_for_value(1, seconds=0.1)
        cell.value = 1
        assert not fence.wait_for_value(1, seconds=0.2), "the CP polls the line it holds"


@pytest.mark.parametrize("placement", [Placement.GTT])
def test_runtime_that_omits_uncached_flag_is_detected(
    placement: Placement, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(kfd_memory.FLAGS, placement, kfd_memory.FLAGS[placement] & ~UNCACHED)
    assert run_kfd_life(), "queues, fences and events in memory that the GPU caches"


def test_uncached_memory_has_one_copy() -> None:
    with open_client() as c:
        buffer = c.alloc(PAGE, GTT)
        host = c.host(buffer)
        c.gpu_vm.read(buffer["va_addr"], PAGE)
        host.view[:4] = b"host"
        assert c.gpu_vm.read(buffer["va_addr"], 4) == b"host"
        c.driver.munmap(host)
