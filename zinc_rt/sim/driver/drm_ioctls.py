"""The ioctls of a render node: DRM core and amdgpu, one row per ioctl."""

from __future__ import annotations

import errno

from zinc_rt.sim.driver import drm_memory, drm_syncobjs, userq_ioctls
from zinc_rt.sim.driver.drm_info import info
from zinc_rt.sim.driver.files import find_lowest_free
from zinc_rt.sim.driver.ioctl_call import IoctlCall, IoctlHandler, make_table
from zinc_rt.sim.driver.userq_state import DrmContext
from zinc_rt.sim.tables import amdgpu, drm

_TEXT = {"name": b"amdgpu", "date": b"0", "desc": b"AMD GPU"}
_CAPS = {0x5: 3, 0x6: 1, drm.DRM_CAP_SYNCOBJ: 1, drm.DRM_CAP_SYNCOBJ_TIMELINE: 1}  # PRIME, timestamps
_CAP_LAST = 0x15
_PRIORITIES = (-(1 << 31), -1023, -512, 0, 512, 1023)
_PRIORITY_NORMAL = 0


def version(call: IoctlCall) -> None:
    numbers = (3, call.drm.gpu.linux.drm_minor, 0)
    for name, number in zip(("major", "minor", "patchlevel"), numbers, strict=True):
        call.arg[f"version_{name}"] = number
    for name, text in _TEXT.items():
        room = call.arg[f"{name}_len"]
        if room and call.arg[name]:
            call.put(call.arg[name], text[:room])
        call.arg[f"{name}_len"] = len(text)


def get_cap(call: IoctlCall) -> None:
    capability = call.arg["capability"]
    if capability > _CAP_LAST:
        raise OSError(errno.EINVAL, "unknown capability")
    call.arg["value"] = _CAPS.get(capability, 0)


def context(call: IoctlCall) -> None:
    file, arg = call.drm, call.arg
    operation, number, gpu = arg["op"], arg["ctx_id"], file.gpu
    if operation == amdgpu.AMDGPU_CTX_OP_ALLOC_CTX:
        if arg["priority"] not in _PRIORITIES:
            raise OSError(errno.EINVAL, "unknown priority")
        if arg["priority"] > _PRIORITY_NORMAL and not call.process.privileged:
            raise OSError(errno.EACCES, "needs CAP_SYS_NICE")
        number = find_lowest_free(file.contexts)
        file.contexts[number] = DrmContext(gpu.resets, gpu.vram_lost)
        arg.raw[:] = bytes(len(arg.raw))
        arg["new_ctx_id"] = number
        return
    if operation not in (amdgpu.AMDGPU_CTX_OP_FREE_CTX, amdgpu.AMDGPU_CTX_OP_QUERY_STATE2):
        raise OSError(errno.EINVAL, "unknown operation")
    if number not in file.contexts:
        raise OSError(errno.EINVAL, "no such context")
    arg.raw[:] = bytes(len(arg.raw))
    if operation == amdgpu.AMDGPU_CTX_OP_FREE_CTX:
        del file.contexts[number]
        return
    seen = file.contexts[number]
    flags = amdgpu.AMDGPU_CTX_QUERY2_FLAGS_RESET * (gpu.resets != seen.resets_seen)
    flags |= amdgpu.AMDGPU_CTX_QUERY2_FLAGS_VRAMLOST * (gpu.vram_lost != seen.vram_lost_seen)
    flags |= amdgpu.AMDGPU_CTX_QUERY2_FLAGS_GUILTY * seen.guilty
    flags |= amdgpu.AMDGPU_CTX_QUERY2_FLAGS_RESET_IN_PROGRESS * gpu.resetting
    arg["state_flags"] = flags


def submit(call: IoctlCall) -> None:
    """Reject the submission: kernel rings are not simulated."""
    if call.arg["ctx_id"] not in call.drm.contexts or not call.arg["num_chunks"]:
        raise OSError(errno.EINVAL, "no context, or nothing to submit")
    raise OSError(errno.EINVAL, "kernel queues are not part of this device")


HANDLERS = make_table(
    IoctlHandler(drm.IOCTL_VERSION, version),
    IoctlHandler(drm.IOCTL_GEM_CLOSE, drm_memory.gem_close),
    IoctlHandler(drm.IOCTL_GET_CAP, get_cap),
    IoctlHandler(drm.IOCTL_PRIME_HANDLE_TO_FD, drm_memory.prime_to_fd),
    IoctlHandler(drm.IOCTL_PRIME_FD_TO_HANDLE, drm_memory.prime_from_fd),
    IoctlHandler(drm.IOCTL_SYNCOBJ_CREATE, drm_syncobjs.create),
    IoctlHandler(drm.IOCTL_SYNCOBJ_DESTROY, drm_syncobjs.destroy),
    IoctlHandler(drm.IOCTL_SYNCOBJ_WAIT, drm_syncobjs.wait, unlocked=True),
    IoctlHandler(drm.IOCTL_SYNCOBJ_RESET, drm_syncobjs.reset),
    IoctlHandler(drm.IOCTL_SYNCOBJ_SIGNAL, drm_syncobjs.signal),
    IoctlHandler(drm.IOCTL_SYNCOBJ_TIMELINE_WAIT, drm_syncobjs.timeline_wait, unlocked=True),
    IoctlHandler(drm.IOCTL_SYNCOBJ_QUERY, drm_syncobjs.query),
    IoctlHandler(drm.IOCTL_SYNCOBJ_TIMELINE_SIGNAL, drm_syncobjs.timeline_signal),
    IoctlHandler(amdgpu.IOCTL_GEM_CREATE, drm_memory.gem_create),
    IoctlHandler(amdgpu.IOCTL_GEM_MMAP, drm_memory.gem_mmap),
    IoctlHandler(amdgpu.IOCTL_CTX, context),
    IoctlHandler(amdgpu.IOCTL_CS, submit),
    IoctlHandler(amdgpu.IOCTL_INFO, info),
    IoctlHandler(amdgpu.IOCTL_GEM_VA, drm_memory.gem_va),
    IoctlHandler(amdgpu.IOCTL_GEM_OP, drm_memory.gem_op),
    IoctlHandler(amdgpu.IOCTL_GEM_USERPTR, drm_memory.gem_userptr),
    IoctlHandler(amdgpu.IOCTL_USERQ, userq_ioctls.userq, unlocked=True),
    IoctlHandler(amdgpu.IOCTL_USERQ_SIGNAL, userq_ioctls.signal),
    IoctlHandler(amdgpu.IOCTL_USERQ_WAIT, userq_ioctls.wait, unlocked=True),
)
