"""Allocation and release of GPU memory: P09, P10, P11 through KFD, P12 through DRM."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial

from zinc_rt.kmd.driver import ANONYMOUS, PROT_NONE
from zinc_rt.kmd.errors import DriverError
from zinc_rt.kmd.kfd import KfdGpu
from zinc_rt.kmd.transport import Placement
from zinc_rt.kmd.uapi import amdgpu, drm, kfd
from zinc_rt.kmd.uapi.host_memory import make_u32_array
from zinc_rt.kmd.userq import UserqGpu
from zinc_rt.probes.kit.context import ProbeContext
from zinc_rt.probes.kit.gpu_access import GpuAccess
from zinc_rt.probes.kit.mapped_buffer import MappedBuffer, find_first_difference, find_first_lost, make_pattern
from zinc_rt.probes.kit.refusals import Refusal, check_refusals
from zinc_rt.probes.outcome import (
    T1,
    T2,
    Outcome,
    ProbeFailed,
    Signature,
    check,
    is_device_lost,
    match_failed_call,
    passed,
    symptom,
)
from zinc_rt.probes.probe import fails, fails_like, probe, proves

SIZE_BYTES = 256 << 10
_PAGE = 4096
_BASE = kfd.KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE | kfd.KFD_IOC_ALLOC_MEM_FLAGS_NO_SUBSTITUTE
_GTT = _BASE | kfd.KFD_IOC_ALLOC_MEM_FLAGS_GTT
_WRONG_DATA = Signature(
    symptom("wrong-data"),
    "data written by the CPU is not read back: pages of another buffer, or a mapping with the wrong offset",
    "`dmesg | grep -iE 'amdgpu|iommu'`; try iommu=pt on the kernel command line",
)

_VRAM_TAKEN = Signature(
    lambda o: o.errno == errno.ENOMEM,
    "other clients use the memory, or a limit is reached",
    "close other programs that use this GPU; `cat /sys/class/drm/card*/device/mem_info_vram_used`",
)


def write_and_read(memory: MappedBuffer, name: str) -> None:
    """Check that the CPU reads back what it writes over the whole buffer."""
    size_bytes = memory.size_bytes
    lost = find_first_lost(partial(memory.put, 0), partial(memory.read, 0, size_bytes), size_bytes, (1, 2))
    if lost is not None:
        seed, bad = lost
        raise ProbeFailed("wrong-data", f"{name}: pattern {seed} differs from byte {bad}")


def check_no_leaks(c: ProbeContext, before: dict[str, int]) -> None:
    after = c.transport.resources()
    check(after == before, "leak", f"held before {before}, afterwards {after}")


@probe("P09", "GTT buffer", (T1,), hazard=0, needs=("P07",))
@proves(
    "host memory can be allocated, mapped for CPU and GPU, and released",
    passes_when="two patterns are read back, and nothing remains allocated",
)
@fails_like(_VRAM_TAKEN)
@fails(
    match_failed_call("mmap buffer", errno.EINVAL),
    "the offset differs from that of ALLOC, or /dev/kfd was mapped instead of the render node",
    "the kernel does not permit mapping the buffer: `dmesg | grep -i amdgpu`",
)
@fails(
    match_failed_call("ALLOC_MEMORY_OF_GPU", errno.EADDRINUSE),
    "the address range is used by shared memory (SVM) of a library in this process",
    "run it in a process without ROCm",
)
@fails_like(_WRONG_DATA)
def probe_gtt(c: ProbeContext) -> Outcome:
    c.side.settle()
    before = c.transport.resources()
    for size_bytes in (_PAGE, SIZE_BYTES, 4 << 20):
        memory = c.memory(size_bytes, f"gtt {size_bytes}")
        write_and_read(memory, f"{size_bytes} bytes")
        memory.free()
    check_no_leaks(c, before)
    return passed(largest_bytes=4 << 20)


@probe("P10", "VRAM buffer and BAR", (T1,), hazard=1, needs=("P09", "P24"), seconds=60.0)
@proves(
    "VRAM can be allocated, keeps data written by the GPU, and the CPU sees the same bytes",
    passes_when=(
        "patterns written by DMA_DATA to ordinary VRAM are read back; through the BAR CPU and GPU read "
        "each other's data"
    ),
)
@fails(
    symptom("gpu-wrong-data"),
    (
        "VRAM does not keep data written by the GPU: pages of another buffer, a mapping of the wrong "
        "size, or defective memory"
    ),
    "`dmesg | grep -iE 'amdgpu|ras|ecc'`; zinc-rt mem-test tests more of it",
)
@fails(
    symptom("bar-differs"),
    "CPU and GPU access different pages of the same buffer, or one sees the other's writes too late (HDP, GL2)",
    "P41 distinguishes stale from wrong data; `dmesg | grep -iE 'amdgpu|iommu'`",
)
@fails(
    symptom("small-bar"),
    "a small BAR: the CPU can access only 256 MiB of VRAM",
    "enable Resizable BAR and Above-4G decoding in the firmware set-up; until then ZINC_RT stages through GTT",
)
@fails_like(_VRAM_TAKEN, _WRONG_DATA)
def probe_vram(c: ProbeContext) -> Outcome:
    """Test the mapped part of VRAM with the CPU and all of it with the GPU."""
    gpu = GpuAccess(c)
    c.side.settle()
    before = c.transport.resources()
    hidden = c.transport.alloc(SIZE_BYTES, Placement.VRAM, "vram")
    c.side.settle()
    gpu.check_all(hidden.gpu_va, SIZE_BYTES, "VRAM that the CPU does not map")
    hidden.free()
    try:
        visible = c.memory(SIZE_BYTES, "visible vram", Placement.VRAM_BAR)
    except Exception as error:
        if getattr(error, "errno", 0) == errno.EINVAL:
            raise ProbeFailed(
                "small-bar", "CPU-visible VRAM is rejected (EINVAL), ordinary VRAM works", errno=errno.EINVAL
            ) from error
        raise
    write_and_read(visible, "VRAM through the BAR")
    want = make_pattern(SIZE_BYTES, 5)
    visible.put(0, want)
    bad = find_first_difference(gpu.read(visible.gpu_va, SIZE_BYTES), want)
    check(
        bad is None, "bar-differs", f"the GPU reads other bytes than the CPU wrote through the BAR, from {bad} on"
    )
    want = make_pattern(SIZE_BYTES, 6)
    gpu.write(visible.gpu_va, want)
    bad = find_first_difference(visible.read(0, SIZE_BYTES), want)
    check(
        bad is None, "bar-differs", f"through the BAR the CPU reads other bytes than the GPU wrote, from {bad} on"
    )
    visible.free()
    c.side.settle()
    check_no_leaks(c, before)
    return passed(bytes=SIZE_BYTES, small_bar=str(c.node.small_bar))


@probe("P11", "allocation negatives", (T1,), hazard=0, needs=("P09",))
@proves(
    "the kernel rejects invalid calls as documented",
    passes_when="the errno of each; a deviation is a variant of the kernel, reported but not a failure",
)
@fails(is_device_lost, "the GPU is gone", "see P08")
def probe_invalid_allocations(c: ProbeContext) -> Outcome:
    gpu = c.gpu
    aside = c.driver.mmap(ANONYMOUS, 16 * _PAGE, 0, PROT_NONE)
    try:
        return check_refusals(_list_refusals(gpu, aside.address))
    finally:
        c.driver.munmap(aside)


def _alloc(gpu: KfdGpu, va: int, flags: int = _GTT, size: int = _PAGE, gpu_id: int | None = None) -> int:
    request = kfd.ALLOC_MEMORY_OF_GPU.new(
        va_addr=va, size=size, gpu_id=gpu.node.gpu_id if gpu_id is None else gpu_id, flags=flags
    )
    return gpu.file.ioctl(kfd.IOC_ALLOC_MEMORY_OF_GPU, request)["handle"]


def _map(gpu: KfdGpu, handle: int, *, unmap: bool = False, n: int = 1) -> None:
    ids = make_u32_array([gpu.node.gpu_id])
    struct = kfd.UNMAP_MEMORY_FROM_GPU if unmap else kfd.MAP_MEMORY_TO_GPU
    command = kfd.IOC_UNMAP_MEMORY_FROM_GPU if unmap else kfd.IOC_MAP_MEMORY_TO_GPU
    gpu.file.ioctl(command, struct.new(handle=handle, device_ids_array_ptr=ids.address, n_devices=n))


def _free(gpu: KfdGpu, handle: int) -> None:
    gpu.file.ioctl(kfd.IOC_FREE_MEMORY_OF_GPU, kfd.FREE_MEMORY_OF_GPU.new(handle=handle))


def _list_refusals(gpu: KfdGpu, va: int) -> list[Refusal]:
    """Return the validity checks in order: the last rows work on one buffer, step by step."""
    held: list[int] = []

    def run_on_buffer(step: Callable[[int], None]) -> Callable[[], None]:
        return lambda: step(held[0])

    return [
        Refusal("ALLOC of 0 bytes", lambda: _alloc(gpu, va, size=0), (errno.EINVAL,)),
        Refusal("ALLOC without a domain", lambda: _alloc(gpu, va, flags=_BASE), (errno.EINVAL,)),
        Refusal("ALLOC on an unknown GPU", lambda: _alloc(gpu, va, gpu_id=0xFFFF), (errno.EINVAL,)),
        Refusal("FREE of an unknown handle", lambda: _free(gpu, gpu.node.gpu_id << 32 | 0xFFFF), (errno.EINVAL,)),
        Refusal(
            "MAP of an unknown handle",
            lambda: _map(gpu, gpu.node.gpu_id << 32 | 0xFFFF),
            (errno.ENOMEM, errno.EINVAL),
        ),
        Refusal("ALLOC", lambda: held.append(_alloc(gpu, va)), (0,)),
        Refusal("UNMAP before MAP", run_on_buffer(lambda handle: _map(gpu, handle, unmap=True)), (errno.EINVAL,)),
        Refusal("MAP to no device", run_on_buffer(lambda handle: _map(gpu, handle, n=0)), (errno.EINVAL,)),
        Refusal("MAP", run_on_buffer(lambda handle: _map(gpu, handle)), (0,)),
        Refusal("MAP twice", run_on_buffer(lambda handle: _map(gpu, handle)), (0,)),
        Refusal("FREE while mapped", run_on_buffer(lambda handle: _free(gpu, handle)), (errno.EBUSY,)),
        Refusal("UNMAP", run_on_buffer(lambda handle: _map(gpu, handle, unmap=True)), (0,)),
        Refusal("UNMAP twice", run_on_buffer(lambda handle: _map(gpu, handle, unmap=True)), (errno.EINVAL,)),
        Refusal("FREE", run_on_buffer(lambda handle: _free(gpu, handle)), (0,)),
        Refusal("FREE twice", run_on_buffer(lambda handle: _free(gpu, handle)), (errno.EINVAL,)),
    ]


@probe("P12", "DRM memory", (T2,), hazard=0, needs=("P05", "P06"))
@proves(
    "GEM buffers of all domains that user queues need can be created at chosen addresses",
    passes_when=(
        "patterns in GTT and VRAM are read back once the page tables' timeline is reached; VRAM is not placed in "
        "host memory; a doorbell page is created"
    ),
)
@fails(
    lambda o: match_failed_call("GEM_CREATE", errno.EINVAL)(o) and "doorbell" in o.reason,
    "the kernel has no doorbell domain: it is older than 6.6",
    "use Linux 6.17 or newer, or --tiers t1",
)
@fails(
    lambda o: match_failed_call("GEM_CREATE", errno.EINVAL)(o) and "doorbell" not in o.reason,
    "the kernel does not accept a creation flag of ZINC_RT (COHERENT and UNCACHED: before Linux 6.18)",
    "please report the kernel; use Linux 6.18 or newer, or --tiers t1",
)
@fails(
    match_failed_call("GEM_CREATE in VRAM", errno.ENOMEM),
    "VRAM is full, and Linux placed the buffer in host memory without an error",
    "close other programs that use this GPU; `cat /sys/class/drm/card*/device/mem_info_vram_used`",
)
@fails_like(_VRAM_TAKEN)
@fails(
    match_failed_call("GEM_VA", errno.EINVAL),
    "the address is in a hole or a reserved range, or is not page-aligned",
    "note the address in the message and the ranges P05 shows; please report it",
)
@fails_like(_WRONG_DATA)
def probe_drm_memory(c: ProbeContext) -> Outcome:
    gpu = c.userq
    before = gpu.resources()
    notes = []
    placements = [Placement.GTT, Placement.GTT_CACHED, Placement.VRAM_BAR]
    if gpu.visible_bytes < gpu.vram_bytes:
        placements.remove(Placement.VRAM_BAR)
        notes = [f"a small BAR of {gpu.visible_bytes >> 20} MiB: ZINC_RT stages through GTT"]
    for placement in placements:
        memory = c.memory(SIZE_BYTES, placement.value, placement)
        write_and_read(memory, placement.value)
        memory.free()
    gpu.alloc(SIZE_BYTES, Placement.VRAM, "vram").free()
    gpu.settle()
    request = amdgpu.GEM_CREATE.new(
        bo_size=_PAGE, alignment=_PAGE, domains=amdgpu.AMDGPU_GEM_DOMAIN_DOORBELL, domain_flags=0
    )
    handle = gpu.node.ioctl(amdgpu.IOCTL_GEM_CREATE, request, "doorbell domain")["handle"]
    gpu.node.ioctl(drm.IOCTL_GEM_CLOSE, drm.GEM_CLOSE.new(handle=handle), "doorbell")
    cache_flags = _accepts(gpu, amdgpu.AMDGPU_GEM_CREATE_COHERENT | amdgpu.AMDGPU_GEM_CREATE_UNCACHED)
    check_no_leaks(c, before)
    return passed(*notes, placements=len(placements), doorbell="made", cache_flags=cache_flags)


def _accepts(gpu: UserqGpu, flags: int) -> str:
    """Return whether GEM_CREATE accepts flags that ZINC_RT does not use: a fact about the kernel."""
    request = amdgpu.GEM_CREATE.new(
        bo_size=_PAGE, alignment=_PAGE, domains=amdgpu.AMDGPU_GEM_DOMAIN_GTT, domain_flags=flags
    )
    try:
        handle = gpu.node.ioctl(amdgpu.IOCTL_GEM_CREATE, request, "COHERENT and UNCACHED")["handle"]
    except DriverError as error:
        if error.errno != errno.EINVAL:
            raise
        return "refused"
    gpu.node.ioctl(drm.IOCTL_GEM_CLOSE, drm.GEM_CLOSE.new(handle=handle), "COHERENT and UNCACHED")
    return "accepted"
