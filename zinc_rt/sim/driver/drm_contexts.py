"""Contexts and lists of buffers of a render file. Errnos: amdgpu_ctx.c, amdgpu_bo_list.c."""

from __future__ import annotations

import errno

from zinc_rt.sim.driver.files import DrmFile, find_lowest_free
from zinc_rt.sim.driver.ioctl_call import IoctlCall
from zinc_rt.sim.driver.kernel_rings import KINDS, RINGS, ContextRing, DrmContext
from zinc_rt.sim.memory.buffers import Bo
from zinc_rt.sim.tables import amdgpu
from zinc_rt.sim.tables.structs import Fields

MAX_LISTED = 128 * 1024  # AMDGPU_BO_LIST_MAX_ENTRIES
_PRIORITIES = (-(1 << 31), -1023, -512, 0, 512, 1023)
_PRIORITY_NORMAL = 0


def find_context(file: DrmFile, number: int) -> DrmContext:
    if number not in file.contexts:
        raise OSError(errno.EINVAL, "no such context")
    return file.contexts[number]


def find_ring(call: IoctlCall, context: DrmContext, ip: int, instance: int, index: int) -> ContextRing:
    """Return a ring of the context, by the members of a chunk or of a wait. Raises OSError(EINVAL) for an unknown
    one."""
    kind = KINDS.get(ip)
    if kind is None or instance or index >= RINGS[kind]:
        raise OSError(errno.EINVAL, f"no ring {index} of IP {ip}, instance {instance}")
    return call.drm.kernel_rings.find_ring(context, kind, index, call.process.pid)


def context(call: IoctlCall) -> None:
    file, arg = call.drm, call.arg
    operation, number, gpu = arg["op"], arg["ctx_id"], file.gpu
    if operation == amdgpu.AMDGPU_CTX_OP_ALLOC_CTX:
        priority = arg["priority"] if arg["priority"] in _PRIORITIES else _PRIORITY_NORMAL
        if priority > _PRIORITY_NORMAL and not call.process.privileged:
            raise OSError(errno.EACCES, "needs CAP_SYS_NICE")
        number = find_lowest_free(file.contexts)
        file.contexts[number] = DrmContext(gpu.resets, gpu.vram_lost)
        arg.raw[:] = bytes(len(arg.raw))
        arg["new_ctx_id"] = number
        return
    known = _OPERATIONS.get(operation)
    if known is None:
        raise OSError(errno.EINVAL, "unknown operation")
    found, flags = find_context(file, number), arg["flags"]
    arg.raw[:] = bytes(len(arg.raw))
    known(call, found, flags)


def _free(call: IoctlCall, found: DrmContext, flags: int) -> None:
    file = call.drm
    file.kernel_rings.free(found)
    file.contexts = {number: item for number, item in file.contexts.items() if item is not found}


def _query_state(call: IoctlCall, found: DrmContext, flags: int) -> None:
    gpu = call.drm.gpu
    state = amdgpu.AMDGPU_CTX_QUERY2_FLAGS_RESET * (gpu.resets != found.resets_seen)
    state |= amdgpu.AMDGPU_CTX_QUERY2_FLAGS_VRAMLOST * (gpu.vram_lost != found.vram_lost_seen)
    state |= amdgpu.AMDGPU_CTX_QUERY2_FLAGS_GUILTY * found.guilty
    state |= amdgpu.AMDGPU_CTX_QUERY2_FLAGS_RESET_IN_PROGRESS * gpu.resetting
    call.arg["state_flags"] = state


def _query_old_state(call: IoctlCall, found: DrmContext, flags: int) -> None:
    """Report whether the GPU was reset since the last query; the kernel does not know by whom (UNKNOWN_RESET)."""
    gpu = call.drm.gpu
    call.arg["reset_status"] = amdgpu.AMDGPU_CTX_UNKNOWN_RESET * (gpu.resets != found.resets_seen)
    found.resets_seen = gpu.resets


def _get_pstate(call: IoctlCall, found: DrmContext, flags: int) -> None:
    if flags:
        raise OSError(errno.EINVAL, "unknown flags")
    call.arg["new_ctx_id"] = found.pstate  # out.pstate.flags: at the same place


def _set_pstate(call: IoctlCall, found: DrmContext, flags: int) -> None:
    """Set a fixed clock, which has no effect here. One context of a GPU may hold it."""
    pstate = flags & amdgpu.AMDGPU_CTX_STABLE_PSTATE_FLAGS_MASK
    if flags & ~amdgpu.AMDGPU_CTX_STABLE_PSTATE_FLAGS_MASK or pstate > amdgpu.AMDGPU_CTX_STABLE_PSTATE_PEAK:
        raise OSError(errno.EINVAL, "unknown power state")
    found.pstate = pstate


_OPERATIONS = {
    amdgpu.AMDGPU_CTX_OP_FREE_CTX: _free,
    amdgpu.AMDGPU_CTX_OP_QUERY_STATE: _query_old_state,
    amdgpu.AMDGPU_CTX_OP_QUERY_STATE2: _query_state,
    amdgpu.AMDGPU_CTX_OP_GET_STABLE_PSTATE: _get_pstate,
    amdgpu.AMDGPU_CTX_OP_SET_STABLE_PSTATE: _set_pstate,
}


def read_bo_list(call: IoctlCall, listed: Fields) -> list[Bo]:
    """Read the buffers of a drm_amdgpu_bo_list_in: EFAULT, EINVAL for too many, ENOENT for an unknown handle."""
    count, entry_bytes = listed["bo_number"], listed["bo_info_size"]
    if count > MAX_LISTED:
        raise OSError(errno.EINVAL, f"{count} buffers in one list")
    start, size_bytes = listed["bo_info_ptr"], min(entry_bytes, 4)  # the handle is the first member
    if entry_bytes == amdgpu.BO_LIST_ENTRY.size_bytes:
        handles = call.read_numbers(start, count, entry_bytes)
    else:
        handles = [
            int.from_bytes(call.read_bytes(start + index * entry_bytes, size_bytes), "little")
            for index in range(count)
        ]
    return [call.drm.find_bo(handle & 0xFFFFFFFF) for handle in handles]


def bo_list(call: IoctlCall) -> None:
    file, arg = call.drm, call.arg
    operation, number = arg["operation"], arg["list_handle"]
    bos = read_bo_list(call, arg)
    if operation == amdgpu.AMDGPU_BO_LIST_OP_CREATE:
        number = find_lowest_free(file.bo_lists)
        file.bo_lists[number] = bos
    elif operation == amdgpu.AMDGPU_BO_LIST_OP_DESTROY:
        file.bo_lists.pop(number, None)
        number = 0
    elif operation == amdgpu.AMDGPU_BO_LIST_OP_UPDATE:
        if number not in file.bo_lists:
            raise OSError(errno.ENOENT, "no such list")
        file.bo_lists[number] = bos
    else:
        raise OSError(errno.EINVAL, "unknown operation")
    arg.raw[:] = bytes(len(arg.raw))
    arg["new_list_handle"] = number


def vm(call: IoctlCall) -> None:
    """Reserve a VMID, which has no effect here."""
    if call.arg["op"] not in (amdgpu.AMDGPU_VM_OP_RESERVE_VMID, amdgpu.AMDGPU_VM_OP_UNRESERVE_VMID):
        raise OSError(errno.EINVAL, "unknown operation")
    if call.arg["flags"]:
        raise OSError(errno.EINVAL, "unknown flags")
