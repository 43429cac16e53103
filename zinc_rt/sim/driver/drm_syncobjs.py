"""Ioctls on DRM syncobjs: each has one fence, or a timeline of points. Source: drm_syncobj.c."""

from __future__ import annotations

import errno
import time

from zinc_rt.sim.driver.fences import DmaFence, SyncobjState, wait_until
from zinc_rt.sim.driver.files import File, SyncFile, SyncobjFile, find_lowest_free
from zinc_rt.sim.driver.ioctl_call import IoctlCall
from zinc_rt.sim.tables import drm

MAX_HANDLES = 1 << 16
SUBMIT_SECONDS = 5.0  # DRM_SYNCOBJ_WAIT_FOR_SUBMIT_TIMEOUT


def create(call: IoctlCall) -> None:
    if call.arg["flags"] & ~drm.DRM_SYNCOBJ_CREATE_SIGNALED:
        raise OSError(errno.EINVAL, "unknown flags")
    file = call.drm
    handle = find_lowest_free(file.syncobjs)
    file.syncobjs[handle] = SyncobjState(signaled=bool(call.arg["flags"]))
    call.arg["handle"] = handle


def destroy(call: IoctlCall) -> None:
    if call.arg["pad"]:
        raise OSError(errno.EINVAL, "padding is not zero")
    call.drm.find_syncobj(call.arg["handle"], errno.EINVAL)
    del call.drm.syncobjs[call.arg["handle"]]


def export(call: IoctlCall) -> None:
    """Return a file of a syncobj, or of its fence, for which this then waits."""
    arg, file = call.arg, call.drm
    if arg["flags"] & ~drm.DRM_SYNCOBJ_HANDLE_TO_FD_FLAGS_EXPORT_SYNC_FILE or arg["pad"] or arg["point"]:
        raise OSError(errno.EINVAL, "unknown flags, padding not zero, or a point of a timeline")
    syncobj = file.find_syncobj(arg["handle"], errno.EINVAL)
    made: File = SyncobjFile(syncobj)
    if arg["flags"]:
        for fence in find_submitted(call, syncobj, 0, 0):
            wait_for_fence(call, fence)
        made = SyncFile()
    with call.machine.lock:
        arg["fd"] = call.process.add_file(made)


def import_file(call: IoctlCall) -> None:
    """Return a handle of an exported syncobj, or give a syncobj an exported fence."""
    arg, file = call.arg, call.drm
    if arg["flags"] & ~drm.DRM_SYNCOBJ_FD_TO_HANDLE_FLAGS_IMPORT_SYNC_FILE or arg["pad"] or arg["point"]:
        raise OSError(errno.EINVAL, "unknown flags, padding not zero, or a point of a timeline")
    source = call.process.files.get(arg["fd"])
    if not isinstance(source, SyncFile if arg["flags"] else SyncobjFile):
        raise OSError(errno.EINVAL, "not a file of this kind")
    if isinstance(source, SyncobjFile):
        handle = find_lowest_free(file.syncobjs)
        file.syncobjs[handle] = source.syncobj
        arg["handle"] = handle
        return
    with call.machine.changed:
        file.find_syncobj(arg["handle"]).replace(DmaFence(done=True))
        call.machine.changed.notify_all()


def wait_for_fence(call: IoctlCall, fence: DmaFence, deadline_nsec: int | None = None) -> bool:
    """Wait for a fence. Return whether it is done before the deadline. Raises OSError(EINTR)."""

    def is_done() -> int | None:
        if fence.done:
            return 0
        call.process.check_uninterrupted()
        return None

    return wait_until(call.machine.changed, is_done, deadline_nsec) is not None


def _find_syncobjs(call: IoctlCall, *, empty_ok: bool = False) -> list[SyncobjState]:
    count = call.arg["count_handles"]
    if count == 0 and not empty_ok:
        raise OSError(errno.EINVAL, "no handles")
    numbers = call.read_numbers(call.arg["handles"], count, limit=MAX_HANDLES)
    return [call.drm.find_syncobj(number) for number in numbers]


def reset(call: IoctlCall) -> None:
    for item in _find_syncobjs(call):
        item.replace(None)


def signal(call: IoctlCall) -> None:
    objects = _find_syncobjs(call)
    with call.machine.changed:
        for item in objects:
            item.replace(DmaFence(done=True))
        call.machine.changed.notify_all()


def timeline_signal(call: IoctlCall) -> None:
    if call.arg["flags"]:
        raise OSError(errno.EINVAL, "unknown flags")
    objects = _find_syncobjs(call)
    points = call.read_numbers(call.arg["points"], len(objects), 8) if call.arg["points"] else [0] * len(objects)
    with call.machine.changed:
        for item, point in zip(objects, points, strict=True):
            item.attach(DmaFence(done=True), point)
        call.machine.changed.notify_all()


def transfer(call: IoctlCall) -> None:
    """Attach the fence at one point to another point or syncobj."""
    arg, file = call.arg, call.drm
    if arg["pad"] or arg["flags"] & ~drm.DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT:
        raise OSError(errno.EINVAL, "padding is not zero, or unknown flags")
    source, target = file.find_syncobj(arg["src_handle"]), file.find_syncobj(arg["dst_handle"])
    fences = find_submitted(call, source, arg["src_point"], arg["flags"])
    with call.machine.changed:
        target.attach(fences[-1] if fences else DmaFence(done=True), arg["dst_point"])
        call.machine.changed.notify_all()


def find_submitted(call: IoctlCall, syncobj: SyncobjState, point: int, flags: int) -> list[DmaFence]:
    """Return the unfinished fences of a point, like drm_syncobj_find_fence: EINVAL if none was submitted; with
    WAIT_FOR_SUBMIT it waits for one, at most 5 s, then ETIME."""
    if flags & drm.DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT:

        def is_submitted() -> int | None:
            if syncobj.submitted(point):
                return 0
            call.process.check_uninterrupted()
            return None

        deadline = time.monotonic_ns() + int(SUBMIT_SECONDS * 1e9)
        if wait_until(call.machine.changed, is_submitted, deadline) is None:
            raise OSError(errno.ETIME, f"nothing was submitted for point {point}")
    with call.machine.changed:
        return syncobj.list_fences(point)


def query(call: IoctlCall) -> None:
    if call.arg["flags"] & ~drm.DRM_SYNCOBJ_QUERY_FLAGS_LAST_SUBMITTED:
        raise OSError(errno.EINVAL, "unknown flags")
    objects = _find_syncobjs(call)
    submitted = bool(call.arg["flags"])
    values = [max([item.reached()] + [p for p, _ in item.points if submitted]) for item in objects]
    call.put(call.arg["points"], b"".join(value.to_bytes(8, "little") for value in values))


_FLAGS = (
    drm.DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL
    | drm.DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT
    | drm.DRM_SYNCOBJ_WAIT_FLAGS_WAIT_DEADLINE
)


def wait(call: IoctlCall) -> None:
    if call.arg["flags"] & ~_FLAGS:
        raise OSError(errno.EINVAL, "unknown flags")
    _wait(call, _find_syncobjs(call, empty_ok=True), None)


def timeline_wait(call: IoctlCall) -> None:
    if call.arg["flags"] & ~(_FLAGS | drm.DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE):
        raise OSError(errno.EINVAL, "unknown flags")
    objects = _find_syncobjs(call, empty_ok=True)
    points = call.read_numbers(call.arg["points"], len(objects), 8) if objects and call.arg["points"] else None
    _wait(call, objects, points)


def _wait(call: IoctlCall, objects: list[SyncobjState], points: list[int] | None) -> None:
    """Wait for fences to end. One that ended with an error counts as ended: drm_syncobj_array_wait_timeout asks
    dma_fence_is_signaled only. AMDGPU_WAIT_CS and SYNC_IOC_FILE_INFO return the error."""
    flags = call.arg["flags"]
    points = points or [0] * len(objects)
    pairs = list(zip(objects, points, strict=True))
    available = bool(flags & drm.DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE)
    for_submit = flags & drm.DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT or available
    if not for_submit and not all(item.submitted(point) for item, point in pairs):
        raise OSError(errno.EINVAL, "nothing was submitted to wait for")
    wait_all = bool(flags & drm.DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL)

    def find_ready() -> int | None:
        result = [(item.submitted if available else item.is_signaled)(point) for item, point in pairs]
        if all(result) if wait_all else any(result) or not pairs:
            return result.index(True) if result else 0
        call.process.check_uninterrupted()
        return None

    first = wait_until(call.machine.changed, find_ready, call.arg["timeout_nsec"])
    if first is None:
        raise OSError(errno.ETIME, "not signalled in time")
    call.arg["first_signaled"] = first
