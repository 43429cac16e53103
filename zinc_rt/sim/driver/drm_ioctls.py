"""The ioctls of a render node: DRM core and amdgpu, one row per ioctl."""

from __future__ import annotations

import errno

from zinc_rt.sim.driver import drm_contexts, drm_memory, drm_submissions, drm_syncobjs, userq_ioctls
from zinc_rt.sim.driver.drm_info import info
from zinc_rt.sim.driver.ioctl_call import IoctlCall, IoctlHandler, make_table
from zinc_rt.sim.tables import amdgpu, drm

_TEXT = {"name": b"amdgpu", "date": b"0", "desc": b"AMD GPU"}
_CAPS = {0x5: 3, 0x6: 1, drm.DRM_CAP_SYNCOBJ: 1, drm.DRM_CAP_SYNCOBJ_TIMELINE: 1}  # PRIME, timestamps
_CAP_LAST = 0x15


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


HANDLERS = make_table(
    IoctlHandler(drm.IOCTL_VERSION, version),
    IoctlHandler(drm.IOCTL_GEM_CLOSE, drm_memory.gem_close),
    IoctlHandler(drm.IOCTL_GET_CAP, get_cap),
    IoctlHandler(drm.IOCTL_PRIME_HANDLE_TO_FD, drm_memory.prime_to_fd),
    IoctlHandler(drm.IOCTL_PRIME_FD_TO_HANDLE, drm_memory.prime_from_fd),
    IoctlHandler(drm.IOCTL_SYNCOBJ_CREATE, drm_syncobjs.create),
    IoctlHandler(drm.IOCTL_SYNCOBJ_DESTROY, drm_syncobjs.destroy),
    IoctlHandler(drm.IOCTL_SYNCOBJ_HANDLE_TO_FD, drm_syncobjs.export, unlocked=True),
    IoctlHandler(drm.IOCTL_SYNCOBJ_FD_TO_HANDLE, drm_syncobjs.import_file),
    IoctlHandler(drm.IOCTL_SYNCOBJ_WAIT, drm_syncobjs.wait, unlocked=True),
    IoctlHandler(drm.IOCTL_SYNCOBJ_RESET, drm_syncobjs.reset),
    IoctlHandler(drm.IOCTL_SYNCOBJ_SIGNAL, drm_syncobjs.signal),
    IoctlHandler(drm.IOCTL_SYNCOBJ_TIMELINE_WAIT, drm_syncobjs.timeline_wait, unlocked=True),
    IoctlHandler(drm.IOCTL_SYNCOBJ_QUERY, drm_syncobjs.query),
    IoctlHandler(drm.IOCTL_SYNCOBJ_TRANSFER, drm_syncobjs.transfer, unlocked=True),
    IoctlHandler(drm.IOCTL_SYNCOBJ_TIMELINE_SIGNAL, drm_syncobjs.timeline_signal),
    IoctlHandler(amdgpu.IOCTL_GEM_CREATE, drm_memory.gem_create),
    IoctlHandler(amdgpu.IOCTL_GEM_MMAP, drm_memory.gem_mmap),
    IoctlHandler(amdgpu.IOCTL_CTX, drm_contexts.context),
    IoctlHandler(amdgpu.IOCTL_BO_LIST, drm_contexts.bo_list),
    IoctlHandler(amdgpu.IOCTL_CS, drm_submissions.submit, unlocked=True),
    IoctlHandler(amdgpu.IOCTL_INFO, info),
    IoctlHandler(amdgpu.IOCTL_GEM_METADATA, drm_memory.gem_metadata),
    IoctlHandler(amdgpu.IOCTL_GEM_WAIT_IDLE, drm_submissions.gem_wait_idle, unlocked=True),
    IoctlHandler(amdgpu.IOCTL_GEM_VA, drm_memory.gem_va),
    IoctlHandler(amdgpu.IOCTL_WAIT_CS, drm_submissions.wait_cs, unlocked=True),
    IoctlHandler(amdgpu.IOCTL_GEM_OP, drm_memory.gem_op),
    IoctlHandler(amdgpu.IOCTL_GEM_USERPTR, drm_memory.gem_userptr),
    IoctlHandler(amdgpu.IOCTL_WAIT_FENCES, drm_submissions.wait_fences, unlocked=True),
    IoctlHandler(amdgpu.IOCTL_VM, drm_contexts.vm),
    IoctlHandler(amdgpu.IOCTL_FENCE_TO_HANDLE, drm_submissions.fence_to_handle, unlocked=True),
    IoctlHandler(amdgpu.IOCTL_USERQ, userq_ioctls.userq, unlocked=True),
    IoctlHandler(amdgpu.IOCTL_USERQ_SIGNAL, userq_ioctls.signal),
    IoctlHandler(amdgpu.IOCTL_USERQ_WAIT, userq_ioctls.wait, unlocked=True),
)
