"""DRM_IOCTL_AMDGPU_USERQ, _SIGNAL, _WAIT. Errnos and their order: amdgpu_userq.c, amdgpu_userq_fence.c."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from functools import partial

from zinc_rt.sim.chips import PAGE_BYTES
from zinc_rt.sim.driver.fences import DmaFence, SyncobjState, wait_until
from zinc_rt.sim.driver.files import DrmFile, find_lowest_free
from zinc_rt.sim.driver.ioctl_call import IoctlCall
from zinc_rt.sim.driver.kfd_queues import compute_node_cwsr
from zinc_rt.sim.driver.userq_state import MAX_QUEUES, UserQueue
from zinc_rt.sim.gpu import SimGpu
from zinc_rt.sim.interfaces import HardwareQueue, QueueKind, QueueState
from zinc_rt.sim.memory.buffers import Bo, Heap, SharedStore
from zinc_rt.sim.memory.vm import VA_TOP_RESERVED
from zinc_rt.sim.profiles import ENOTSUPP, LinuxProfile
from zinc_rt.sim.tables import amdgpu
from zinc_rt.sim.tables.structs import Fields

EOP_BYTES = 2048
MAX_HANDLES = 1 << 16
_FLAGS = amdgpu.AMDGPU_USERQ_CREATE_FLAGS_QUEUE_SECURE | 3
_IPS = (amdgpu.AMDGPU_HW_IP_GFX, amdgpu.AMDGPU_HW_IP_COMPUTE, amdgpu.AMDGPU_HW_IP_DMA)


def is_enabled(gpu: SimGpu) -> bool:
    """Return whether amdgpu.user_queue=1."""
    return gpu.linux.userq and not gpu.injector.on("user-queue-off")


def is_ip_usable(gpu: SimGpu, ip_type: int) -> bool:
    """Return whether DEV_INFO.userq_ip_mask includes the IP: parameter, chip and firmware."""
    need, have = gpu.chip.firmware_minimum, gpu.chip.firmware
    if ip_type != amdgpu.AMDGPU_HW_IP_COMPUTE:  # a real card has more; only simulated ones are reported
        return False
    if not is_enabled(gpu) or need is None or gpu.injector.on("firmware-old"):
        return False
    return have.me >= need.me and have.pfp >= need.pfp and have.mec >= need.mec and have.mes >= need.mes


def _open(call: IoctlCall) -> SimGpu:
    """Return the GPU. EINVAL without user queues in the kernel; later kernels return ENOTSUPP if they are
    disabled.
    """
    gpu = call.drm.gpu
    gpu.check_alive()
    if not gpu.linux.userq:
        raise OSError(errno.EINVAL, "this kernel has no user queues")
    if not is_enabled(gpu) and gpu.linux.userq_off_errno == ENOTSUPP:
        raise OSError(ENOTSUPP, "amdgpu.user_queue is off")
    return gpu


def userq(call: IoctlCall) -> None:
    """Create or free a queue. Runs unlocked: FREE waits for the queue's last fence."""
    gpu = _open(call)
    if call.arg["op"] == amdgpu.AMDGPU_USERQ_OP_CREATE:
        with call.machine.lock:
            _create(call, gpu)
    elif call.arg["op"] == amdgpu.AMDGPU_USERQ_OP_FREE:
        _free(call)
    else:
        raise OSError(errno.EINVAL, "unknown operation")


def _create(call: IoctlCall, gpu: SimGpu) -> None:
    file, arg, linux = call.drm, call.arg, gpu.linux
    priority = arg["flags"] & 3
    if arg["flags"] & ~_FLAGS:
        raise OSError(errno.EINVAL, "unknown flags")
    if arg["ip_type"] not in _IPS:
        raise OSError(errno.EINVAL, "no such IP")
    if linux.userq_va_checks:
        _check_addresses(arg, linux)
    if priority == amdgpu.AMDGPU_USERQ_CREATE_FLAGS_QUEUE_PRIORITY_HIGH and not call.process.privileged:
        raise OSError(errno.EACCES, "high priority needs CAP_SYS_NICE")
    if not is_ip_usable(gpu, arg["ip_type"]):
        raise OSError(errno.EINVAL, "no user queues on this IP")
    size = arg["queue_size"]
    held = _find_mapped_buffers(file, gpu, call)
    doorbell = file.handles.get(arg["doorbell_handle"])
    if doorbell is None or doorbell.heap is not Heap.DOORBELL:
        if not linux.userq_reports_doorbell:
            return  # success without a queue: the id stays the operation's number, which shares its place
        raise OSError(errno.EINVAL, "no doorbell buffer")
    assert isinstance(doorbell.store, SharedStore)
    slots = doorbell.size_bytes // 8
    if arg["doorbell_offset"] >= slots and linux.userq_hardened:
        raise OSError(errno.EINVAL, "beyond the doorbell buffer")
    index = arg["doorbell_offset"] % slots  # unhardened kernels accept a doorbell of another process
    if not linux.userq_va_checks:
        _check_addresses(arg, linux)
    eop_va, mqd_buffers = _make_mqd(file, gpu, call)
    wptr = file.vm.find_span(arg["wptr_va"])
    if wptr is None or wptr.bo.size_bytes != PAGE_BYTES or gpu.injector.is_due("wptr-rejected"):
        raise OSError(errno.EINVAL, "wptr: not in a buffer of one page")
    if len(file.user_queues.queues) >= MAX_QUEUES:
        raise OSError(errno.ENOMEM, "512 queues in this file")
    queues = call.drm.user_queues
    queue_id = find_lowest_free(file.user_queues.queues)
    hardware = HardwareQueue(
        queue_id=queue_id,
        process_id=call.process.pid,
        kind=QueueKind.USERQ_COMPUTE,
        space=file.vm,
        ring_va=arg["queue_va"] & ~0xFF,
        ring_size_bytes=1 << (size.bit_length() - 1),
        rptr_va=arg["rptr_va"],
        wptr_va=arg["wptr_va"],
        eop_va=eop_va,
        priority=priority,
    )
    queues.allocate_fence_memory()
    held += [doorbell, wptr.bo, *mqd_buffers]
    queue = UserQueue(queue_id, hardware, held, 0)
    queue.fence_va = VA_TOP_RESERVED + queues.find_fence_slot(queue_id) * 8
    queues.start(queue)
    try:
        gpu.map_queue(hardware, queues, doorbell.store, index, held)
    except OSError:
        del queues.queues[queue_id]
        raise
    arg["new_queue_id"] = queue_id


def _check_addresses(arg: Fields, linux: LinuxProfile) -> None:
    """Check that ring and pointers are given. Linux before 6.18 does this after the doorbell, with fewer rules."""
    size = arg["queue_size"]
    invalid = (0, (1 << 64) - 1) if linux.userq_va_checks else (0,)
    if arg["queue_va"] in invalid or not size or not arg["rptr_va"] or not arg["wptr_va"]:
        raise OSError(errno.EINVAL, "ring, rptr or wptr missing")
    if linux.userq_hardened and (size & (size - 1) or size < PAGE_BYTES):
        raise OSError(errno.EINVAL, "the ring's size is not a power of two of a page or more")


def _find_mapped_buffers(file: DrmFile, gpu: SimGpu, call: IoctlCall) -> list[Bo]:
    if not gpu.linux.userq_va_checks:
        return []
    wanted = (("queue_va", call.arg["queue_size"]), ("rptr_va", PAGE_BYTES), ("wptr_va", PAGE_BYTES))
    return [_find_mapping(file, call.arg[name], size, name) for name, size in wanted]


def _find_mapping(file: DrmFile, va: int, size_bytes: int, name: str) -> Bo:
    """Check that one mapping covers the range; the size counts in whole pages, rounded down."""
    span = file.vm.find_span(va)
    start, pages = va & ~(PAGE_BYTES - 1), size_bytes // PAGE_BYTES
    if span is None or start + pages * PAGE_BYTES > span.end:
        raise OSError(errno.EINVAL, f"{name}: not mapped")
    return span.bo


def _pin_wptr(file: DrmFile, va: int) -> int:
    """Read the write pointer through the buffer mapped there, regardless of the mapping's permissions
    (amdgpu_userq_fence_read_wptr)."""
    span = file.vm.find_span(va)
    if span is None or va + 8 > span.end:
        raise OSError(errno.EINVAL, "the write pointer is no longer mapped")
    offset = span.offset + va - span.start
    return int.from_bytes(span.bo.host_view.view[offset : offset + 8], "little")


def _make_mqd(file: DrmFile, gpu: SimGpu, call: IoctlCall) -> tuple[int, list[Bo]]:
    """Return the EOP buffer's address, and the buffers of the MQD that the queue holds."""
    structs = (amdgpu.USERQ_MQD_COMPUTE, amdgpu.USERQ_MQD_COMPUTE_CWSR)
    struct = next(struct for struct in structs if struct.size_bytes == gpu.linux.userq_mqd_bytes)
    if call.arg["mqd_size"] != struct.size_bytes:
        raise OSError(errno.EINVAL, "mqd_size")
    try:
        raw = call.read_bytes(call.arg["mqd"], struct.size_bytes)
    except OSError as error:
        raise OSError(errno.ENOMEM, "mqd: no user address") from error  # sic: memdup_user's errno is replaced
    mqd = struct.read(raw)
    held = []
    if struct is amdgpu.USERQ_MQD_COMPUTE_CWSR:
        sizes = compute_node_cwsr(gpu)
        if mqd["ctl_stack_size"] != sizes.control_stack_bytes or (
            mqd["ctx_save_area_size"] < sizes.save_restore_bytes
        ):
            raise OSError(errno.EINVAL, "sizes of the context save area")
        held.append(_find_mapping(file, mqd["ctx_save_area_va"], mqd["ctx_save_area_size"], "ctx_save_area_va"))
    eop_va = mqd["eop_va"]
    if gpu.linux.userq_eop_check == "none":
        return eop_va, held
    try:
        return eop_va, [*held, _find_mapping(file, eop_va, EOP_BYTES, "eop_va")]
    except OSError:
        if gpu.linux.userq_eop_check == "crash":
            gpu.log("BUG: kernel NULL pointer dereference, in mes_userq_map")
            gpu.gone = True
        raise


def _free(call: IoctlCall) -> None:
    """Free a queue, after its last fence: Linux up to 6.18 waits 100 ms for it, later ones without limit."""
    arg, file = call.arg, call.drm
    others = [arg[name] for name in arg.layout.fields if name not in ("op", "queue_id", "new_queue_id")]
    if any(others):
        raise OSError(errno.EINVAL, "other fields are set")
    queue = file.user_queues.queues.get(arg["queue_id"])
    if queue is None:
        raise OSError(file.gpu.linux.userq_free_unknown, "unknown queue")
    limit_ms = file.gpu.linux.userq_free_waits_ms
    deadline = time.monotonic_ns() + int(limit_ms * file.gpu.time_scale * 1e6) if limit_ms else None
    if queue.pending and queue.hardware.state is QueueState.ACTIVE:
        _wait(call, lambda: not queue.pending, deadline)
    with call.machine.lock:
        if queue in file.user_queues.queues.values():
            file.user_queues.free(queue)


def _check_counts(call: IoctlCall, *names: str) -> None:
    if call.drm.gpu.linux.userq_hardened and any(call.arg[name] > MAX_HANDLES for name in names):
        raise OSError(errno.EINVAL, "too many handles")


def signal(call: IoctlCall) -> None:
    gpu = _open(call)
    file, arg = call.drm, call.arg
    _check_counts(call, "num_bo_read_handles", "num_bo_write_handles")
    handles = call.read_numbers(arg["syncobj_handles"], arg["num_syncobj_handles"])
    reads = call.read_numbers(arg["bo_read_handles"], arg["num_bo_read_handles"])
    writes = call.read_numbers(arg["bo_write_handles"], arg["num_bo_write_handles"])
    syncobjs = [file.find_syncobj(handle) for handle in handles]
    bos = [file.find_bo(handle) for handle in (*reads, *writes)]
    queue = file.user_queues.queues.get(arg["queue_id"])
    if queue is None:
        raise OSError(errno.ENOENT, "unknown queue")
    value = _pin_wptr(file, queue.hardware.wptr_va)
    if gpu.injector.is_due("signal-before-wptr"):
        value = queue.wptr_rung
    queue.wptr_rung = value
    queues = call.drm.user_queues
    with call.machine.changed:
        fence = DmaFence(queue_va=queue.fence_va, value=value)
        if queues.position(queue) >= value:
            fence.complete()
        elif queue.hardware.state is QueueState.DESTROYED:
            fence.complete(errno.ECANCELED)
        else:
            queue.pending.append(fence)
            queues.watch(queue)
        for syncobj in syncobjs:
            syncobj.replace(fence)
        for bo in bos:
            bo.fences = [fence for fence in bo.fences if not fence.done] + [fence]
        call.machine.changed.notify_all()


def wait(call: IoctlCall) -> None:
    """Wait for fences. Runs unlocked: it waits here for a syncobj without a fence and for fences that
    belong to no user queue."""
    _open(call)
    file, arg = call.drm, call.arg
    _check_counts(call, "num_bo_read_handles", "num_bo_write_handles")
    binary = call.read_numbers(arg["syncobj_handles"], arg["num_syncobj_handles"])
    count = arg["num_syncobj_timeline_handles"]
    timelines = call.read_numbers(arg["syncobj_timeline_handles"], count)
    # read as 32 bits: a quirk of the kernel up to 7.0
    points = [point & 0xFFFFFFFF for point in call.read_numbers(arg["syncobj_timeline_points"], count, 8)]
    reads = call.read_numbers(arg["bo_read_handles"], arg["num_bo_read_handles"])
    writes = call.read_numbers(arg["bo_write_handles"], arg["num_bo_write_handles"])
    pairs = [(file.find_syncobj(handle), 0) for handle in binary]
    pairs += [(file.find_syncobj(handle), point) for handle, point in zip(timelines, points, strict=True)]
    bos = [file.find_bo(handle) for handle in (*reads, *writes)]
    for syncobj, point in pairs:
        _wait(call, partial(syncobj.submitted, point))
    fences = [fence for syncobj, point in pairs for fence in _list_fences(syncobj, point)]
    fences += [fence for bo in bos for fence in bo.fences if not fence.done]
    room = arg["num_fences"]
    if room == 0:
        arg["num_fences"] = len(fences)
        return
    if arg["waitq_id"] not in file.user_queues.queues:
        raise OSError(errno.EINVAL, "unknown waiting queue")
    if room < len(fences):
        raise OSError(errno.EINVAL, "no room for all fences")
    wanted: dict[int, int] = {}
    for fence in fences:
        if fence.queue_va:
            wanted[fence.queue_va] = max(fence.value, wanted.get(fence.queue_va, 0))
        else:
            _wait(call, fence.is_done)
    infos = [amdgpu.USERQ_FENCE_INFO.new(va=va, value=value) for va, value in wanted.items()]
    call.put(arg["out_fences"], b"".join(bytes(info.raw) for info in infos))
    arg["num_fences"] = len(infos)


def _wait(call: IoctlCall, is_ready: Callable[[], bool], deadline_nsec: int | None = None) -> None:
    process = call.process
    wait_until(call.machine.changed, lambda: 0 if is_ready() or process.is_interrupted() else None, deadline_nsec)
    process.check_uninterrupted()


def _list_fences(syncobj: SyncobjState, point: int) -> list[DmaFence]:
    if point:
        return [fence for index, fence in syncobj.points if index >= point][:1]
    return [syncobj.fence] if syncobj.fence is not None else []
