"""KFD ioctls on memory. Errnos: kfd_chardev.c, amdgpu_amdkfd_gpuvm.c."""

from __future__ import annotations

import errno

from zinc_rt.sim.chips import PAGE_BYTES, round_up
from zinc_rt.sim.driver.client_memory import is_user_range
from zinc_rt.sim.driver.files import DmaBufFile, DrmFile
from zinc_rt.sim.driver.ioctl_call import IoctlCall
from zinc_rt.sim.driver.kfd_state import KfdBuffer, ProcessOnGpu
from zinc_rt.sim.gpu import DOORBELL_SLICE_BYTES, SimGpu
from zinc_rt.sim.memory.buffers import Bo, Heap, SharedStore
from zinc_rt.sim.memory.vm import GpuVm
from zinc_rt.sim.tables import kfd

VRAM_RESERVE_BYTES = 64 << 20  # kept for page tables
MMAP_TYPE_DOORBELL = 3 << 62  # kfd_priv.h: bits 63:62 type, 61:46 gpu_id
MMAP_TYPE_EVENTS = 2 << 62
MMAP_TYPE_RESERVED = 1 << 62
MMAP_TYPE_MMIO = 0
MMAP_GPU_SHIFT = 46
MAX_DEVICES = 1 << 16
_DOMAINS = (
    (kfd.KFD_IOC_ALLOC_MEM_FLAGS_VRAM, Heap.VRAM),
    (kfd.KFD_IOC_ALLOC_MEM_FLAGS_GTT, Heap.GTT),
    (kfd.KFD_IOC_ALLOC_MEM_FLAGS_USERPTR, Heap.USERPTR),
    (kfd.KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL, Heap.DOORBELL),
    (kfd.KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP, Heap.MMIO),
)


def make_mmap_cookie(kind: int, gpu_id: int) -> int:
    return kind | (gpu_id & 0xFFFF) << MMAP_GPU_SHIFT


def acquire_vm(call: IoctlCall) -> None:
    process = call.kfd
    gpu = process.gpu(call.arg["gpu_id"])
    gpu.check_alive()
    if gpu.injector.is_due("vm-busy"):
        raise OSError(errno.EBUSY, "injected")
    file = call.process.files.get(call.arg["drm_fd"])
    if not isinstance(file, DrmFile):
        raise OSError(errno.EINVAL, "no render node")
    bound = process.on.get(gpu.gpu_id)
    if bound is not None:
        if bound.file is not file:
            raise OSError(errno.EBUSY, "another file's address space is in use")
        return
    if file.gpu is not gpu:
        raise OSError(errno.EINVAL, "a render node of another GPU")
    doorbells = SharedStore("doorbells", DOORBELL_SLICE_BYTES)
    process.on[gpu.gpu_id] = ProcessOnGpu(gpu, file, file.vm, doorbells)


def alloc(call: IoctlCall) -> None:
    process, arg = call.kfd, call.arg
    size, flags, va = arg["size"], arg["flags"], arg["va_addr"]
    if size == 0:
        raise OSError(errno.EINVAL, "size 0")
    gpu = process.gpu(arg["gpu_id"])
    public_vram = kfd.KFD_IOC_ALLOC_MEM_FLAGS_VRAM | kfd.KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC
    if flags & public_vram == public_vram and not gpu.memory.large_bar:
        raise OSError(errno.EINVAL, "CPU-visible VRAM needs a large BAR")
    on = process.bound(gpu, errno.ENODEV)
    heap = next((heap for bit, heap in _DOMAINS if flags & bit), None)
    if heap is None:
        raise OSError(errno.EINVAL, "no domain")
    if heap is Heap.VRAM:
        heap = gpu.kfd_vram_heap
    if heap is Heap.DOORBELL and size != DOORBELL_SLICE_BYTES:
        raise OSError(errno.EINVAL, "not the process's slice of doorbells")
    if heap is Heap.MMIO and size != PAGE_BYTES:
        raise OSError(errno.EINVAL, "not one page")
    if size >= 1 << 48 or round_up(size, PAGE_BYTES) * 2 >= 1 << 63:
        raise OSError(errno.ENOMEM, "beyond any memory")
    bo = _create_bo(call, gpu, on, heap, size, flags)
    arg["handle"] = process.add_buffer(gpu, va, flags, bo)
    if heap is Heap.MMIO:
        arg["mmap_offset"] = make_mmap_cookie(MMAP_TYPE_MMIO, gpu.gpu_id)
    elif heap is not Heap.USERPTR:
        arg["mmap_offset"] = gpu.find_offset(bo)


def _create_bo(call: IoctlCall, gpu: SimGpu, on: ProcessOnGpu, heap: Heap, size: int, flags: int) -> Bo:
    name = f"{heap.value} 0x{call.arg['va_addr']:x}"
    if heap is Heap.DOORBELL:
        return Bo(heap, size, on.doorbells, name, references=2)  # the store belongs to the process
    if heap is Heap.MMIO:
        return Bo(heap, size, gpu.remap_page, name, references=2)
    if heap is Heap.USERPTR:
        start = call.arg["mmap_offset"]
        size = round_up(size, PAGE_BYTES)  # amdgpu_amdkfd_gpuvm_alloc_memory_of_gpu: PAGE_ALIGN
        if start % PAGE_BYTES or not is_user_range(start, size):
            raise OSError(errno.EINVAL, "no user pages")
        if size > gpu.memory.count_available_bytes(Heap.USERPTR):
            raise OSError(errno.ENOMEM, "beyond the limit of pinned memory")
        pages = call.process.memory.pages(start, size)
        bo = gpu.allocate(heap, size, name, pages=pages, cached=_is_cached(gpu, flags))
        bo.coherent = bool(flags & _COHERENT)
        return bo
    public = bool(flags & kfd.KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC)  # without it too the CPU may map: Linux 5.13
    if heap is Heap.VRAM:
        # amdgpu_amdkfd_reserve_mem_limit: buffers of KFD's clients never evict each other
        allocated = sum(bo.size_bytes for bo in gpu.memory.snapshot() if bo.kfd)
        if allocated + size > gpu.memory.limit[heap] - VRAM_RESERVE_BYTES:
            raise OSError(errno.ENOMEM, f"vram: {size} bytes requested, KFD's clients have {allocated}")
        gpu.make_room(size + VRAM_RESERVE_BYTES, call.process.pid)
    if heap is Heap.VRAM and size > gpu.memory.count_available_bytes(heap) - VRAM_RESERVE_BYTES:
        raise OSError(errno.ENOMEM, f"vram: {size} bytes requested")
    bo = gpu.allocate(heap, size, name, public=public, cached=heap is Heap.GTT and _is_cached(gpu, flags))
    bo.owner, bo.kfd = call.process.pid, heap is Heap.VRAM
    bo.coherent = bool(flags & _COHERENT)
    return bo


_COHERENT = kfd.KFD_IOC_ALLOC_MEM_FLAGS_COHERENT | kfd.KFD_IOC_ALLOC_MEM_FLAGS_EXT_COHERENT


def _is_cached(gpu: SimGpu, flags: int) -> bool:
    """Return whether GL2 caches this host memory: it is UC on gfx12 for UNCACHED (gmc_v12_0_get_vm_pte),
    on gfx11 also for COHERENT and EXT_COHERENT (gmc_v11_0_get_vm_pte); everything else is NC."""
    uncached = kfd.KFD_IOC_ALLOC_MEM_FLAGS_UNCACHED
    if gpu.chip.major < 12:
        uncached |= _COHERENT
    return not flags & uncached


def free(call: IoctlCall) -> None:
    process = call.kfd
    handle = call.arg["handle"]
    if process.events.page_handle and handle == process.events.page_handle:
        raise OSError(errno.EPERM, "the event page cannot be freed")
    process.gpu(handle >> 32)
    buffer = process.buffer(handle, errno.EINVAL)
    if buffer.spans:
        raise OSError(errno.EBUSY, "still mapped")
    del process.buffers[handle]
    on = process.on.get(buffer.gpu.gpu_id)
    if on is not None:
        on.file.allowed.discard(buffer.bo)
    buffer.gpu.release(buffer.bo)


def _read_devices(call: IoctlCall) -> list[int]:
    count, result = call.arg["n_devices"], call.arg["n_success"]
    if count == 0:
        raise OSError(errno.EINVAL, "no devices")
    if result > count:
        raise OSError(errno.EINVAL, "more successes than devices")
    return call.read_numbers(call.arg["device_ids_array_ptr"], count, limit=MAX_DEVICES)


def map_to_gpu(call: IoctlCall) -> None:
    process, handle = call.kfd, call.arg["handle"]
    ids = _read_devices(call)
    process.bound(process.gpu(handle >> 32), errno.ENODEV)
    buffer = process.buffer(handle, errno.ENOMEM)  # sic
    for index in range(call.arg["n_success"], len(ids)):
        peer = process.gpu(ids[index])
        on = process.bound(peer, errno.ENODEV)
        if peer.gpu_id not in buffer.spans:
            buffer.spans[peer.gpu_id] = _map(buffer, on.vm)
        call.arg["n_success"] = index + 1


def _map(buffer: KfdBuffer, vm: GpuVm) -> list:
    twice = bool(buffer.flags & kfd.KFD_IOC_ALLOC_MEM_FLAGS_AQL_QUEUE_MEM)
    spans = []
    try:
        for va in (buffer.va, buffer.va + buffer.size_bytes) if twice else (buffer.va,):
            span = vm.map(va, buffer.size_bytes, buffer.bo, write=buffer.writable, execute=buffer.executable)
            spans.append(span)
            buffer.bo.references += 1
    except OSError:
        for span in spans:
            vm.unmap(span)
            buffer.bo.references -= 1
        raise
    return spans


def unmap_from_gpu(call: IoctlCall) -> None:
    process, handle = call.kfd, call.arg["handle"]
    ids = _read_devices(call)
    process.gpu(handle >> 32)
    buffer = process.buffer(handle, errno.ENODEV)
    for index in range(call.arg["n_success"], len(ids)):
        peer = process.gpu(ids[index])
        if peer.gpu_id not in buffer.spans:
            raise OSError(errno.EINVAL, "not mapped there")
        held = any(buffer.bo in queue.held for queue in process.queues.values())
        if held and peer.linux.buffer_validation:
            raise OSError(errno.EBUSY, "in use by a live queue")
        process.unmap(buffer, peer.gpu_id)
        call.arg["n_success"] = index + 1


def available_memory(call: IoctlCall) -> None:
    process = call.kfd
    gpu = process.gpu(call.arg["gpu_id"])
    gpu.check_alive()
    left = gpu.memory.count_available_bytes(gpu.kfd_vram_heap) - VRAM_RESERVE_BYTES
    call.arg["available"] = max(0, left) & ~((1 << 21) - 1)  # whole 2 MiB, as the kernel rounds


def export_dmabuf(call: IoctlCall) -> None:
    process, handle = call.kfd, call.arg["handle"]
    process.gpu(handle >> 32)
    buffer = process.buffer(handle, errno.EINVAL)
    buffer.bo.references += 1
    call.arg["dmabuf_fd"] = call.process.add_file(DmaBufFile(buffer.bo, buffer.gpu))


def import_dmabuf(call: IoctlCall) -> None:
    process = call.kfd
    gpu = process.gpu(call.arg["gpu_id"])
    bo = call.find_dma_buf(call.arg["dmabuf_fd"]).bo
    process.bound(gpu, errno.ENODEV)
    if bo.heap not in (Heap.VRAM, Heap.GTT):
        raise OSError(errno.EINVAL, "not a buffer of VRAM or GTT")
    bo.references += 1
    flags = kfd.KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE | kfd.KFD_IOC_ALLOC_MEM_FLAGS_EXECUTABLE
    call.arg["handle"] = process.add_buffer(gpu, call.arg["va_addr"], flags, bo)


def dmabuf_info(call: IoctlCall) -> None:
    bo = call.find_dma_buf(call.arg["dmabuf_fd"], none=errno.EINVAL).bo
    call.arg["size"] = bo.size_bytes
    call.arg["metadata_size"] = 0
    call.arg["gpu_id"] = call.machine.gpus[0].gpu_id
    in_vram = bo.heap is Heap.VRAM
    call.arg["flags"] = kfd.KFD_IOC_ALLOC_MEM_FLAGS_VRAM if in_vram else kfd.KFD_IOC_ALLOC_MEM_FLAGS_GTT
    if in_vram and bo.public:
        call.arg["flags"] |= kfd.KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC


def set_memory_policy(call: IoctlCall) -> None:
    process = call.kfd
    policies = (kfd.KFD_IOC_CACHE_POLICY_COHERENT, kfd.KFD_IOC_CACHE_POLICY_NONCOHERENT)
    if call.arg["default_policy"] not in policies or call.arg["alternate_policy"] not in policies:
        raise OSError(errno.EINVAL, "unknown cache policy")
    process.bound(process.gpu(call.arg["gpu_id"]), errno.ESRCH)


def set_scratch_backing(call: IoctlCall) -> None:
    process = call.kfd
    process.bound(process.gpu(call.arg["gpu_id"]), errno.ESRCH)
