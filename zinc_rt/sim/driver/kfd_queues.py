"""KFD ioctls on queues. Errnos and their order: kfd_chardev.c, kfd_queue.c, kfd_process_queue_manager.c."""

from __future__ import annotations

import errno

from zinc_rt.host.sanitizer_rules import RULES
from zinc_rt.sim.chips import PAGE_BYTES, Cwsr
from zinc_rt.sim.driver.client_memory import is_user_range
from zinc_rt.sim.driver.ioctl_call import IoctlCall
from zinc_rt.sim.driver.kfd_memory import MMAP_TYPE_DOORBELL, make_mmap_cookie
from zinc_rt.sim.driver.kfd_state import (
    DOORBELLS,
    MAX_QUEUE_IDS,
    MAX_QUEUES_PER_GPU,
    KfdProcessState,
    KfdQueueState,
    ProcessOnGpu,
)
from zinc_rt.sim.gpu import SimGpu
from zinc_rt.sim.interfaces import DeviceFinding, HardwareQueue, QueueKind
from zinc_rt.sim.memory.buffers import Bo, Heap
from zinc_rt.sim.memory.vm import GpuVm
from zinc_rt.sim.profiles import ENOTSUPP
from zinc_rt.sim.tables import kfd
from zinc_rt.sim.tables.structs import Fields

_COMPUTE = {
    kfd.KFD_IOC_QUEUE_TYPE_COMPUTE: QueueKind.KFD_COMPUTE,
    kfd.KFD_IOC_QUEUE_TYPE_COMPUTE_AQL: QueueKind.KFD_AQL,
}
EOP_BYTES = 4096
MAX_CU_MASK_BITS = 1024
SDMA_BY_ENGINE_MINOR = 17
_SDMA = (
    kfd.KFD_IOC_QUEUE_TYPE_SDMA,
    kfd.KFD_IOC_QUEUE_TYPE_SDMA_XGMI,
    kfd.KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID,
)


def compute_node_cwsr(gpu: SimGpu) -> Cwsr:
    """Return the save area sizes of this kernel; sysfs shows the same."""
    return gpu.chip.compute_cwsr(old_table=not gpu.linux.gfx1151_new_table)


def _find_enforced_cwsr(gpu: SimGpu) -> Cwsr:
    sizes = compute_node_cwsr(gpu)
    if not gpu.injector.is_due("cwsr-mismatch"):
        return sizes
    return Cwsr(sizes.control_stack_bytes + PAGE_BYTES, sizes.save_restore_bytes, sizes.debugger_bytes)


def _check_common(arg: Fields) -> None:
    # bits 7:0 percentage, 15:8 target XCC
    if arg["queue_percentage"] & 0xFF > kfd.KFD_MAX_QUEUE_PERCENTAGE:
        raise OSError(errno.EINVAL, "percentage above 100")
    if arg["queue_priority"] > kfd.KFD_MAX_QUEUE_PRIORITY:
        raise OSError(errno.EINVAL, "priority above 15")
    ring, size = arg["ring_base_address"], arg["ring_size"]
    if ring and not is_user_range(ring, 8):
        raise OSError(errno.EFAULT, "ring: no user address")
    if size & (size - 1) or (size == 0 and ring):
        raise OSError(errno.EINVAL, "the ring's size is not a power of two")


def create(call: IoctlCall) -> None:
    process, arg = call.kfd, call.arg
    _check_common(arg)
    for name in ("read_pointer_address", "write_pointer_address"):
        if not arg[name] or not is_user_range(arg[name], 8):
            raise OSError(errno.EFAULT, f"{name}: no user address")
    for name in ("eop_buffer_address", "ctx_save_restore_address"):
        if arg[name] and not is_user_range(arg[name], 4):
            raise OSError(errno.EFAULT, f"{name}: no user address")
    kind = arg["queue_type"]
    by_engine = kind == kfd.KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID
    if kind not in _COMPUTE and kind not in _SDMA:
        raise OSError(ENOTSUPP, f"queue type {kind}")
    gpu = process.gpu(arg["gpu_id"])
    if by_engine and gpu.linux.kfd_minor < SDMA_BY_ENGINE_MINOR:
        raise OSError(ENOTSUPP, f"queue type {kind}")
    if by_engine and arg["sdma_engine_id"] >= gpu.chip.sdma_engines:
        raise OSError(errno.EINVAL, "no such SDMA engine")
    on = process.bound(gpu, errno.ESRCH)
    size = max(arg["ring_size"], kfd.KFD_MIN_QUEUE_RING_SIZE)
    held = _acquire_buffers(gpu, on, arg, kind, size)
    queue_id = next((i for i in range(MAX_QUEUE_IDS) if i not in process.queues), None)
    if queue_id is None:
        raise OSError(errno.ENOMEM, "all queue ids are used")
    if len(process.list_queues(gpu)) >= MAX_QUEUES_PER_GPU:
        raise OSError(errno.ENOSPC, "all queues of this process on this GPU are used")
    sdma_slot = _choose_sdma_slot(process, gpu, arg) if kind in _SDMA else None
    taken = {queue.doorbell for queue in process.list_queues(gpu)}
    doorbell = next(i for i in range(DOORBELLS) if i not in taken)  # fewer queues than doorbells
    hardware = HardwareQueue(
        queue_id=queue_id,
        process_id=call.process.pid,
        kind=_COMPUTE.get(kind, QueueKind.KFD_SDMA),
        space=on.vm,
        ring_va=arg["ring_base_address"] & ~0xFF,  # the MQD holds bits 47:8
        ring_size_bytes=size,
        rptr_va=arg["read_pointer_address"],
        wptr_va=arg["write_pointer_address"],
        eop_va=arg["eop_buffer_address"],
        priority=arg["queue_priority"],
        extra={"save_area_va": arg["ctx_save_restore_address"]},
        launched_at=call.process.launched_at,
    )
    queue = KfdQueueState(queue_id, kind, gpu, hardware, doorbell, held, sdma_slot=sdma_slot)
    process.queues[queue_id] = queue
    try:
        gpu.map_queue(hardware, process, on.doorbells, doorbell, held)
    except OSError:
        del process.queues[queue_id]
        raise
    _report_unused(gpu, arg, kind, queue_id)
    _run_or_stop(queue, arg)
    arg["queue_id"] = queue_id
    arg["doorbell_offset"] = make_mmap_cookie(MMAP_TYPE_DOORBELL, gpu.gpu_id) | doorbell * 8


NO_ENGINE = 0xFFFFFFFF  # ROCr's sdma_engine_id of a queue without a chosen engine


def _report_unused(gpu: SimGpu, arg: Fields, kind: int, queue_id: int) -> None:
    """Report members that only other queue types use: a value there was probably intended for another member."""
    engine_matters = kind == kfd.KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID
    for name in ("metadata_ring_size",) if engine_matters else ("sdma_engine_id", "metadata_ring_size"):
        if arg[name] not in (0, NO_ENGINE):
            sentence = (
                f"CREATE_QUEUE.{name} is {arg[name]:#x}, which a queue of type {kind} does not use: set it to 0"
            )
            gpu.finding(DeviceFinding(RULES["argument-unused"].severity, "argument-unused", queue_id, 0, sentence))


def _acquire_buffers(gpu: SimGpu, on: ProcessOnGpu, arg: Fields, kind: int, ring_size: int) -> list[Bo]:
    """Check and reference the buffers like kfd_queue_acquire_buffers."""
    vm = on.vm
    wptr = vm.find_span(arg["write_pointer_address"])
    # whatever the kind: MES reads it through the GART (init_user_queue)
    if wptr is None or wptr.bo.heap is Heap.VRAM or wptr.bo not in gpu.memory.bos:
        raise OSError(errno.EINVAL, "wptr: not in this GPU's GTT")
    if not gpu.linux.buffer_validation:
        return []
    held = [
        _find_exact_buffer(vm, arg["write_pointer_address"], PAGE_BYTES, "wptr"),
        _find_exact_buffer(vm, arg["read_pointer_address"], PAGE_BYTES, "rptr"),
    ]
    if arg["ring_base_address"]:
        held.append(
            _find_exact_buffer(vm, arg["ring_base_address"], ring_size if ring_size >= PAGE_BYTES else 0, "ring")
        )
    if kind in _SDMA:
        return held
    if arg["eop_buffer_address"]:
        if arg["eop_buffer_size"] != EOP_BYTES:
            raise OSError(errno.EINVAL, f"EOP: {arg['eop_buffer_size']} bytes, not {EOP_BYTES}")
        held.append(_find_exact_buffer(vm, arg["eop_buffer_address"], EOP_BYTES, "EOP"))
    sizes = _find_enforced_cwsr(gpu)
    if arg["ctl_stack_size"] != sizes.control_stack_bytes:
        raise OSError(errno.EINVAL, f"control stack: not {sizes.control_stack_bytes} bytes")
    if arg["ctx_save_restore_size"] < sizes.save_restore_bytes:
        raise OSError(errno.EINVAL, f"context save area: below {sizes.save_restore_bytes} bytes")
    save_bytes = sizes.compute_buffer_bytes(arg["ctx_save_restore_size"])
    held.append(_find_exact_buffer(vm, arg["ctx_save_restore_address"], save_bytes, "context save area"))
    return held


def _find_exact_buffer(vm: GpuVm, va: int, size_bytes: int, name: str) -> Bo:
    """Return the buffer of a mapping that starts at va's page and has that size (0: any)."""
    span = vm.find_span(va)
    if span is None or span.start != va & ~(PAGE_BYTES - 1) or (size_bytes and span.size_bytes != size_bytes):
        raise OSError(errno.EINVAL, f"{name}: no separate mapping of 0x{size_bytes:x} bytes at 0x{va:x}")
    return span.bo


def _choose_sdma_slot(process: KfdProcessState, gpu: SimGpu, arg: Fields) -> tuple[int, int]:
    taken = {queue.sdma_slot for process in notify_owners(gpu) for queue in process.list_queues(gpu)}
    engines = range(gpu.chip.sdma_engines)
    if arg["queue_type"] == kfd.KFD_IOC_QUEUE_TYPE_SDMA_XGMI:
        engines = range(0)  # these chips have none
    if arg["queue_type"] == kfd.KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID:
        engines = range(arg["sdma_engine_id"], arg["sdma_engine_id"] + 1)
    for slot in range(gpu.chip.sdma_queues_per_engine):
        for engine in engines:
            if (engine, slot) not in taken:
                return engine, slot
    raise OSError(errno.ENOMEM, "all SDMA queues are used")


def notify_owners(gpu: SimGpu) -> list[KfdProcessState]:
    return [owner for owner in gpu.owners if isinstance(owner, KfdProcessState)]


def _run_or_stop(queue: KfdQueueState, arg: Fields) -> None:
    queue.active = bool(arg["ring_base_address"] and arg["queue_percentage"] & 0xFF)
    if queue.active:
        queue.gpu.resume(queue.hardware)
    else:
        queue.gpu.pause(queue.hardware)


def destroy(call: IoctlCall) -> None:
    process = call.kfd
    queue = process.queues.get(call.arg["queue_id"])
    if queue is None:
        raise OSError(errno.EINVAL, "no such queue")
    if not process.destroy_queue(queue):
        raise OSError(errno.ETIME, "could not be preempted; destroyed nevertheless")


def _find_queue(call: IoctlCall) -> KfdQueueState:
    """Return the queue, for the calls that return EFAULT for an unknown one."""
    queue = call.kfd.queues.get(call.arg["queue_id"])
    if queue is None:
        raise OSError(errno.EFAULT, "no such queue")
    return queue


def update(call: IoctlCall) -> None:
    arg = call.arg
    _check_common(arg)
    queue = _find_queue(call)
    on = call.kfd.bound(queue.gpu, errno.EFAULT)
    size = max(arg["ring_size"], kfd.KFD_MIN_QUEUE_RING_SIZE)
    hardware = queue.hardware
    if arg["ring_base_address"] and queue.gpu.linux.buffer_validation:
        try:
            bo = _find_exact_buffer(on.vm, arg["ring_base_address"], size if size >= PAGE_BYTES else 0, "ring")
        except OSError as error:
            raise OSError(errno.EFAULT, str(error)) from error
        if bo not in queue.held:
            bo.references += 1
            queue.held.append(bo)
    if arg["ring_base_address"]:
        hardware.ring_va, hardware.ring_size_bytes = arg["ring_base_address"] & ~0xFF, size
    hardware.priority = arg["queue_priority"]
    _run_or_stop(queue, arg)


def set_cu_mask(call: IoctlCall) -> None:
    bits = call.arg["num_cu_mask"]
    if bits == 0 or bits % 32:
        raise OSError(errno.EINVAL, "not a multiple of 32 bits")
    mask = call.read_bytes(call.arg["cu_mask_ptr"], min(bits, MAX_CU_MASK_BITS) // 8)
    queue = _find_queue(call)
    pairs = int.from_bytes(mask, "little")
    even = int.from_bytes(b"\x55" * len(mask), "little")
    if (pairs & even) != (pairs >> 1 & even):
        raise OSError(errno.EINVAL, "a pair of CUs is split")
    queue.hardware.extra["cu_mask"] = pairs


def get_wave_state(call: IoctlCall) -> None:
    queue = _find_queue(call)
    if queue.kind not in _COMPUTE or queue.active:
        raise OSError(errno.EINVAL, "only for a stopped compute queue")
    call.arg["ctl_stack_used_size"] = 0
    call.arg["save_area_used_size"] = 0
