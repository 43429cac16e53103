"""Buffers and address space of a render node. Errnos: amdgpu_gem.c, amdgpu_vm.c, drm_gem.c."""

from __future__ import annotations

import errno
import threading
from dataclasses import dataclass

from zinc_rt.sim.chips import PAGE_BYTES, round_up
from zinc_rt.sim.driver.client_memory import is_user_range
from zinc_rt.sim.driver.fences import DmaFence
from zinc_rt.sim.driver.files import DmaBufFile, DrmFile
from zinc_rt.sim.driver.ioctl_call import IoctlCall
from zinc_rt.sim.gpu import SimGpu
from zinc_rt.sim.memory.buffers import Bo, Heap
from zinc_rt.sim.memory.vm import GpuVm, VmSpan
from zinc_rt.sim.tables import amdgpu

_CREATE_FLAGS = (
    amdgpu.AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED
    | amdgpu.AMDGPU_GEM_CREATE_NO_CPU_ACCESS
    | amdgpu.AMDGPU_GEM_CREATE_CPU_GTT_USWC
    | amdgpu.AMDGPU_GEM_CREATE_VRAM_CLEARED
    | amdgpu.AMDGPU_GEM_CREATE_VM_ALWAYS_VALID
    | amdgpu.AMDGPU_GEM_CREATE_EXPLICIT_SYNC
    | amdgpu.AMDGPU_GEM_CREATE_DISCARDABLE
    | amdgpu.AMDGPU_GEM_CREATE_GFX12_DCC
)  # and ENCRYPTED, where the board has TMZ
_CACHE_FLAGS = (
    amdgpu.AMDGPU_GEM_CREATE_COHERENT
    | amdgpu.AMDGPU_GEM_CREATE_UNCACHED
    | amdgpu.AMDGPU_GEM_CREATE_EXT_COHERENT
    | amdgpu.AMDGPU_GEM_CREATE_VRAM_WIPE_ON_RELEASE
)  # kernel/gem_cache_flags
_MTYPE = 0xF << 5
_VA_FLAGS = (
    amdgpu.AMDGPU_VM_DELAY_UPDATE
    | amdgpu.AMDGPU_VM_PAGE_READABLE
    | amdgpu.AMDGPU_VM_PAGE_WRITEABLE
    | amdgpu.AMDGPU_VM_PAGE_EXECUTABLE
    | _MTYPE
    | amdgpu.AMDGPU_VM_PAGE_NOALLOC
)
_PRT_FLAGS = amdgpu.AMDGPU_VM_DELAY_UPDATE | amdgpu.AMDGPU_VM_PAGE_PRT
LATE_SECONDS = 0.02  # of a page-table update under "page-tables-late"
_USERPTR_FLAGS = 0xF  # READONLY, ANONONLY, VALIDATE, REGISTER
_RDWR = 0x2
MAX_METADATA_BYTES = 256


def gem_create(call: IoctlCall) -> None:
    file, arg = call.drm, call.arg
    gpu = file.gpu
    size, domains, flags = arg["bo_size"], arg["domains"], arg["domain_flags"]
    known = amdgpu.AMDGPU_GEM_DOMAIN_CPU | amdgpu.AMDGPU_GEM_DOMAIN_GTT | amdgpu.AMDGPU_GEM_DOMAIN_VRAM
    known |= amdgpu.AMDGPU_GEM_DOMAIN_GDS | amdgpu.AMDGPU_GEM_DOMAIN_GWS | amdgpu.AMDGPU_GEM_DOMAIN_OA
    if not gpu.injector.is_due("no-doorbell-domain"):
        known |= amdgpu.AMDGPU_GEM_DOMAIN_DOORBELL
    settable = _CREATE_FLAGS | (_CACHE_FLAGS if gpu.linux.gem_cache_flags else 0)
    if flags & ~settable or domains & ~known or not domains or arg["alignment"] & (arg["alignment"] - 1):
        raise OSError(errno.EINVAL, "unknown flags or domains")
    gpu.check_alive()
    special = amdgpu.AMDGPU_GEM_DOMAIN_GDS | amdgpu.AMDGPU_GEM_DOMAIN_GWS | amdgpu.AMDGPU_GEM_DOMAIN_OA
    if domains & special or size == 0:
        raise OSError(errno.EINVAL, "size 0, or a domain that this chip does not have")
    if size >= 1 << 48:
        raise OSError(errno.ENOMEM, "beyond any memory")
    if domains & amdgpu.AMDGPU_GEM_DOMAIN_VRAM:
        gpu.make_room(round_up(size, PAGE_BYTES), call.process.pid)
    location = _place(gpu, domains, round_up(size, PAGE_BYTES), flags)
    uncached = amdgpu.AMDGPU_GEM_CREATE_UNCACHED
    if gpu.chip.major < 12:  # gmc_v11_0_get_vm_pte; gfx12's looks at UNCACHED alone
        uncached |= amdgpu.AMDGPU_GEM_CREATE_COHERENT
    bo = gpu.memory.allocate(
        location.heap,
        size,
        f"{location.heap.value} of file",
        host_visible=not flags & amdgpu.AMDGPU_GEM_CREATE_NO_CPU_ACCESS,
        cached=location.heap is Heap.GTT and not flags & uncached,
    )
    bo.coherent = bool(flags & (amdgpu.AMDGPU_GEM_CREATE_COHERENT | amdgpu.AMDGPU_GEM_CREATE_EXT_COHERENT))
    bo.domains, bo.visible, bo.owner = location.domains, location.visible, call.process.pid
    bo.create_flags = flags & ~amdgpu.AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED  # only a hint
    bo.create_flags |= amdgpu.AMDGPU_GEM_CREATE_VRAM_CLEARED
    handle = file.add(bo)
    bo.name = f"{location.heap.value} handle {handle}"
    arg.raw[:] = bytes(len(arg.raw))  # a union: the answer replaces the question
    arg["handle"] = handle


@dataclass(frozen=True, slots=True)
class GemPlacement:
    """The placement of a buffer by GEM_CREATE. `domains`: the domains of the last attempt, which GEM_OP reports.
    `visible`: in the part of VRAM that the CPU can access.
    """

    heap: Heap
    domains: int
    visible: bool


def _place(gpu: SimGpu, domains: int, size: int, flags: int) -> GemPlacement:
    """Place a buffer like amdgpu_gem_create_ioctl: if there is no room, first retry without CPU access, then, if
    only VRAM was requested, also in host memory. ENOMEM only after both.
    """
    visible = bool(flags & amdgpu.AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED)
    full = gpu.injector.is_due("out-of-memory")
    if domains & amdgpu.AMDGPU_GEM_DOMAIN_DOORBELL:
        return GemPlacement(Heap.DOORBELL, domains, False)
    host = gpu.memory.count_available_bytes(Heap.GTT) if not full or domains & amdgpu.AMDGPU_GEM_DOMAIN_VRAM else 0
    while True:
        vram = gpu.memory.count_visible_bytes if visible else gpu.memory.count_available_bytes(Heap.VRAM)
        if domains & amdgpu.AMDGPU_GEM_DOMAIN_VRAM and size <= vram and not full:
            return GemPlacement(Heap.VRAM, domains, visible)
        if domains != amdgpu.AMDGPU_GEM_DOMAIN_VRAM and size <= host:
            return GemPlacement(Heap.GTT, domains, False)
        if visible:
            visible = False
        elif domains == amdgpu.AMDGPU_GEM_DOMAIN_VRAM:
            domains |= amdgpu.AMDGPU_GEM_DOMAIN_GTT
        else:
            raise OSError(errno.ENOMEM, "no room")


def gem_mmap(call: IoctlCall) -> None:
    file = call.drm
    bo = file.find_bo(call.arg["handle"])
    if not bo.host_visible or bo.heap is Heap.USERPTR:
        raise OSError(errno.EPERM, "created without CPU access")
    call.arg["addr_ptr"] = file.gpu.find_offset(bo)


def gem_close(call: IoctlCall) -> None:
    file, handle = call.drm, call.arg["handle"]
    if handle not in file.handles:
        raise OSError(errno.EINVAL, f"no buffer {handle}")
    file.close_handle(handle)


def gem_userptr(call: IoctlCall) -> None:
    file, arg = call.drm, call.arg
    start, size, flags = arg["addr"], arg["size"], arg["flags"]
    if start % PAGE_BYTES or size % PAGE_BYTES or size == 0 or flags & ~_USERPTR_FLAGS:
        raise OSError(errno.EINVAL, "not whole pages, or unknown flags")
    if not flags & 1 and not flags & 8:  # writable needs REGISTER
        raise OSError(errno.EACCES, "writable pages must be registered")
    if not is_user_range(start, size):
        raise OSError(errno.EFAULT, "no user pages")
    bo = file.gpu.allocate(Heap.USERPTR, size, "userptr", pages=call.process.memory.pages(start, size))
    arg["handle"] = file.add(bo)


def gem_va(call: IoctlCall) -> None:
    file, arg = call.drm, call.arg
    operation, flags, va, size = arg["operation"], arg["flags"], arg["va_address"], arg["map_size"]
    if operation not in (1, 2, 3, 4):
        raise OSError(errno.EINVAL, "unknown operation")
    GpuVm.check_range(va, size)
    if flags & ~_VA_FLAGS and flags & ~_PRT_FLAGS:
        raise OSError(errno.EINVAL, "unknown flags")
    file.gpu.check_alive()
    timeline = file.gpu.linux.userq
    inputs = call.read_numbers(arg["input_fence_syncobj_handles"], arg["num_syncobj_handles"]) if timeline else []
    for handle in inputs:
        file.find_syncobj(handle)
    out = arg["vm_timeline_syncobj_out"] if timeline else 0
    fence = DmaFence()
    if out:
        syncobj = file.find_syncobj(out)
    change = _change(call, file)
    late = operation in (1, 4) and file.gpu.injector.is_due("page-tables-late")

    def finish() -> None:
        try:
            change()
        finally:
            with call.machine.changed:
                fence.complete()
                call.machine.changed.notify_all()

    if not late:
        finish()
    else:
        timer = threading.Timer(LATE_SECONDS, finish)
        timer.daemon = True
        timer.start()
    if out:
        with call.machine.changed:
            syncobj.attach(fence, arg["vm_timeline_point"])


def _change(call: IoctlCall, file: DrmFile):  # type: ignore[no-untyped-def]
    """Return the checked update of the page tables, to be performed now or later."""
    arg = call.arg
    operation, flags, va, size = arg["operation"], arg["flags"], arg["va_address"], arg["map_size"]
    prt = bool(flags & amdgpu.AMDGPU_VM_PAGE_PRT)
    if operation == amdgpu.AMDGPU_VA_OP_CLEAR:
        return lambda: clear_range(file, va, size)
    if prt:
        return lambda: None  # holes that read zero: nothing to map
    bo = file.find_bo(arg["handle"])
    if operation == amdgpu.AMDGPU_VA_OP_UNMAP:
        span = next((span for span in file.vm.spans if span.start == va and span.bo is bo), None)
        if span is None:
            raise OSError(errno.ENOENT, "not mapped there")
        if file.gpu.linux.userq_unmap_check and file.user_queues.holds(bo):
            file.gpu.log("amdgpu: unmapping a vital queue va")
        return lambda: _drop(file, span)
    offset = arg["offset_in_bo"]
    if offset % PAGE_BYTES or offset + size > bo.size_bytes:
        raise OSError(errno.EINVAL, "outside the buffer")
    if operation == amdgpu.AMDGPU_VA_OP_MAP and next(file.vm.iterate_overlapping(va, size), None) is not None:
        raise OSError(errno.EINVAL, "the range is already mapped")

    def insert() -> None:
        if operation == amdgpu.AMDGPU_VA_OP_REPLACE:
            clear_range(file, va, size)
        _map(file, va, size, bo, offset, flags)

    return insert


def _map(file: DrmFile, va: int, size: int, bo: Bo, offset: int, flags: int) -> None:
    if flags & _MTYPE == amdgpu.AMDGPU_VM_MTYPE_UC:
        bo.stop_caching()
    elif bo.gl2 is not None:
        file.gpu.consulted.add_mark("host memory that GL2 caches")
    file.vm.map(
        va,
        size,
        bo,
        offset=offset,
        read=bool(flags & amdgpu.AMDGPU_VM_PAGE_READABLE),
        write=bool(flags & amdgpu.AMDGPU_VM_PAGE_WRITEABLE),
        execute=bool(flags & amdgpu.AMDGPU_VM_PAGE_EXECUTABLE),
    )
    bo.references += 1


def _drop(file: DrmFile, span: VmSpan) -> None:
    file.vm.unmap(span)
    file.gpu.release(span.bo)


def clear_range(file: DrmFile, va: int, size: int) -> None:
    """Unmap a range, keeping the parts of mappings outside it."""
    end = va + size
    for span in list(file.vm.iterate_overlapping(va, size)):
        span.bo.references += 2  # until the pieces hold it
        _drop(file, span)
        for start, stop in ((span.start, min(span.end, va)), (max(span.start, end), span.end)):
            if start < stop:
                offset = span.offset + start - span.start
                rights = {"read": span.read, "write": span.write, "execute": span.execute}
                file.vm.map(start, stop - start, span.bo, offset=offset, **rights)
                span.bo.references += 1
        file.gpu.release(span.bo)
        file.gpu.release(span.bo)


def gem_op(call: IoctlCall) -> None:
    """Report how a buffer was created, or change its allowed placements, which does not move it here."""
    arg, bo = call.arg, call.drm.find_bo(call.arg["handle"])
    if arg["op"] == amdgpu.AMDGPU_GEM_OP_GET_GEM_CREATE_INFO:
        info = amdgpu.GEM_CREATE_INFO.new(
            bo_size=bo.size_bytes,
            alignment=PAGE_BYTES,
            domains=bo.domains or _DOMAINS.get(bo.heap, 0),
            domain_flags=bo.create_flags,
        )
        call.put(arg["value"], bytes(info.raw))
    elif arg["op"] != amdgpu.AMDGPU_GEM_OP_SET_PLACEMENT:
        raise OSError(errno.EINVAL, "unknown operation")
    elif bo.heap is Heap.USERPTR:
        raise OSError(errno.EPERM, "the client's own pages")
    else:
        movable = amdgpu.AMDGPU_GEM_DOMAIN_CPU | amdgpu.AMDGPU_GEM_DOMAIN_GTT | amdgpu.AMDGPU_GEM_DOMAIN_VRAM
        bo.domains = arg["value"] & movable


def gem_metadata(call: IoctlCall) -> None:
    """Store or return what the client attached to a buffer: flags, tiling, up to 256 bytes."""
    arg, bo = call.arg, call.drm.find_bo(call.arg["handle"])
    if arg["op"] == amdgpu.AMDGPU_GEM_METADATA_OP_GET_METADATA:
        arg.raw[8:] = bo.metadata.ljust(len(arg.raw) - 8, b"\0")
    elif arg["op"] == amdgpu.AMDGPU_GEM_METADATA_OP_SET_METADATA:
        if arg["data_size_bytes"] > MAX_METADATA_BYTES:
            raise OSError(errno.EINVAL, f"more than {MAX_METADATA_BYTES} bytes")
        bo.metadata = bytes(arg.raw[8:])
    else:
        raise OSError(errno.EINVAL, "unknown operation")


_DOMAINS = {Heap.VRAM: amdgpu.AMDGPU_GEM_DOMAIN_VRAM, Heap.GTT: amdgpu.AMDGPU_GEM_DOMAIN_GTT}  # of KFD's buffers


def prime_to_fd(call: IoctlCall) -> None:
    file = call.drm
    bo = file.find_bo(call.arg["handle"])
    if call.arg["flags"] & ~(_RDWR | 0o2000000):  # DRM_RDWR, DRM_CLOEXEC
        raise OSError(errno.EINVAL, "unknown flags")
    bo.references += 1
    call.arg["fd"] = call.process.add_file(DmaBufFile(bo, file.gpu))


def prime_from_fd(call: IoctlCall) -> None:
    file = call.drm
    bo = call.find_dma_buf(call.arg["fd"]).bo
    known = next((handle for handle, item in file.handles.items() if item is bo), None)
    if known is None:
        bo.references += 1
        known = file.add(bo)
    call.arg["handle"] = known
