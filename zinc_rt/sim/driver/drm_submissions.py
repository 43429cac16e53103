"""AMDGPU_CS and the waits for its jobs. Errnos and their order: amdgpu_cs.c."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from zinc_rt.sim.chips import PAGE_BYTES
from zinc_rt.sim.driver.drm_contexts import find_context, find_ring, read_bo_list
from zinc_rt.sim.driver.drm_syncobjs import find_submitted, wait_for_fence
from zinc_rt.sim.driver.fences import DmaFence, SyncobjState, wait_until
from zinc_rt.sim.driver.files import find_lowest_free
from zinc_rt.sim.driver.ioctl_call import IoctlCall
from zinc_rt.sim.driver.kernel_rings import JOBS_KEPT, MAX_IBS, ContextRing, DrmContext, JobBuffer
from zinc_rt.sim.memory.buffers import Bo, Heap
from zinc_rt.sim.tables import amdgpu
from zinc_rt.sim.tables.structs import Fields, StructLayout

NO_SIGNALED = (1 << 32) - 1


@dataclass(slots=True)
class JobChunks:
    """The chunks of one AMDGPU_CS, as far as they have been read."""

    context: DrmContext
    ring: ContextRing | None = None
    buffers: list[JobBuffer] = field(default_factory=list)
    bos: list[Bo] | None = None
    user_fence: tuple[Bo, int] | None = None
    waits: list[DmaFence] = field(default_factory=list)
    signals: list[tuple[SyncobjState, int]] | None = None


def submit(call: IoctlCall) -> None:
    """Submit a job. Runs unlocked: it waits for a fence that is not submitted yet, and for room in the ring."""
    file, arg = call.drm, call.arg
    file.gpu.check_alive()
    with call.machine.lock:
        if not arg["num_chunks"]:
            raise OSError(errno.EINVAL, "no chunks")
        item = JobChunks(find_context(file, arg["ctx_id"]))
        if item.context.guilty:
            raise OSError(errno.ECANCELED, "a job of this context caused a reset")
        chunks = _read_chunks(call)
        for chunk_id, raw in chunks:
            if chunk_id not in _FIRST and chunk_id not in _SECOND:
                raise OSError(errno.EINVAL, f"unknown chunk {chunk_id}")
            if chunk_id in _FIRST:
                _FIRST[chunk_id](call, item, raw)
        if item.ring is None:
            raise OSError(errno.EINVAL, "no indirect buffer")
        if item.context.vram_lost_seen != file.gpu.vram_lost:
            raise OSError(errno.ECANCELED, "the GPU was reset since this context was created")
    for chunk_id, raw in chunks:
        if chunk_id in _SECOND:
            _SECOND[chunk_id](call, item, raw)
    with call.machine.lock:
        bos = _find_bos(call, item, arg["bo_list_handle"])
    fence = item.ring.find_fence(item.ring.count - JOBS_KEPT + 1) if item.ring.count >= JOBS_KEPT else None
    if fence is not None:
        wait_for_fence(call, fence)
    with call.machine.changed:
        rings = file.kernel_rings
        for bo in bos:
            bo.fences = [fence for fence in bo.fences if not fence.done]
            if not bo.create_flags & amdgpu.AMDGPU_GEM_CREATE_EXPLICIT_SYNC:
                item.waits += [fence for fence in bo.fences if fence.owner is not rings]
        job = rings.submit(item.ring, item.buffers, item.waits, item.user_fence)
        for bo in bos:
            bo.fences.append(job.fence)
        for syncobj, point in item.signals or ():
            syncobj.attach(job.fence, point)
        call.machine.changed.notify_all()
    arg.raw[:] = bytes(len(arg.raw))
    arg["handle"] = job.number


def _read_chunks(call: IoctlCall) -> list[tuple[int, bytes]]:
    pointers = call.read_numbers(call.arg["chunks"], call.arg["num_chunks"], 8)
    result = []
    for pointer in pointers:
        chunk = amdgpu.CS_CHUNK.read(call.read_bytes(pointer, amdgpu.CS_CHUNK.size_bytes))
        if chunk["length_dw"] > 1 << 22:
            raise OSError(errno.ENOMEM, f"a chunk of {chunk['length_dw']} dwords")
        result.append((chunk["chunk_id"], call.read_bytes(chunk["chunk_data"], 4 * chunk["length_dw"])))
    return result


def _read_one(raw: bytes, layout: StructLayout) -> Fields:
    if len(raw) < layout.size_bytes:
        raise OSError(errno.EINVAL, f"{layout.c_name}: the chunk is too short")
    return layout.read(raw)


def _read_all(raw: bytes, layout: StructLayout) -> list[Fields]:
    size = layout.size_bytes
    return [layout.read(raw[at : at + size]) for at in range(0, len(raw) // size * size, size)]


def _take_buffer(call: IoctlCall, item: JobChunks, raw: bytes) -> None:
    chunk = _read_one(raw, amdgpu.CS_CHUNK_IB)
    ring = find_ring(call, item.context, chunk["ip_type"], chunk["ip_instance"], chunk["ring"])
    if item.ring not in (None, ring):
        raise OSError(errno.EINVAL, "jobs on several rings at once are not simulated")
    if len(item.buffers) >= MAX_IBS[ring.hardware.kind]:
        raise OSError(errno.EINVAL, f"more than {MAX_IBS[ring.hardware.kind]} indirect buffers")
    item.ring = ring
    sync = bool(chunk["flags"] & amdgpu.AMDGPU_IB_FLAG_EMIT_MEM_SYNC)
    item.buffers.append(JobBuffer(chunk["va_start"], chunk["ib_bytes"] // 4, sync))


def _take_user_fence(call: IoctlCall, item: JobChunks, raw: bytes) -> None:
    chunk = _read_one(raw, amdgpu.CS_CHUNK_FENCE)
    bo, offset = call.drm.handles.get(chunk["handle"]), chunk["offset"]
    if bo is None or bo.size_bytes != PAGE_BYTES or offset > PAGE_BYTES - 8 or bo.heap is Heap.USERPTR:
        raise OSError(errno.EINVAL, "user fence: not in a buffer of one page")
    item.user_fence = bo, offset


def _take_bo_list(call: IoctlCall, item: JobChunks, raw: bytes) -> None:
    listed = _read_one(raw, amdgpu.BO_LIST_IN)
    if item.bos is not None:
        raise OSError(errno.EINVAL, "two lists of buffers")
    item.bos = read_bo_list(call, listed)


def _find_bos(call: IoctlCall, item: JobChunks, number: int) -> list[Bo]:
    if not number:
        return item.bos or []
    if item.bos is not None:
        raise OSError(errno.EINVAL, "two lists of buffers")
    if number not in call.drm.bo_lists:
        raise OSError(errno.ENOENT, "no such list")
    return call.drm.bo_lists[number]


def _take_dependencies(call: IoctlCall, item: JobChunks, raw: bytes) -> None:
    for chunk in _read_all(raw, amdgpu.CS_CHUNK_DEP):
        fence = _find_fence(call, chunk, chunk["handle"])
        if fence is not None:
            item.waits.append(fence)


def _take_waits(call: IoctlCall, item: JobChunks, raw: bytes) -> None:
    for chunk in _read_all(raw, amdgpu.CS_CHUNK_SEM):
        item.waits += find_submitted(call, call.drm.find_syncobj(chunk["handle"]), 0, 0)


def _take_timeline_waits(call: IoctlCall, item: JobChunks, raw: bytes) -> None:
    for chunk in _read_all(raw, amdgpu.CS_CHUNK_SYNCOBJ):
        syncobj = call.drm.find_syncobj(chunk["handle"])
        item.waits += find_submitted(call, syncobj, chunk["point"], chunk["flags"])


def _take_signals(call: IoctlCall, item: JobChunks, raw: bytes) -> None:
    _add_signals(call, item, [(chunk["handle"], 0) for chunk in _read_all(raw, amdgpu.CS_CHUNK_SEM)])


def _take_timeline_signals(call: IoctlCall, item: JobChunks, raw: bytes) -> None:
    chunks = _read_all(raw, amdgpu.CS_CHUNK_SYNCOBJ)
    _add_signals(call, item, [(chunk["handle"], chunk["point"]) for chunk in chunks])


def _add_signals(call: IoctlCall, item: JobChunks, rows: list[tuple[int, int]]) -> None:
    if item.signals is not None:
        raise OSError(errno.EINVAL, "two chunks of syncobjs to signal")
    item.signals = [(call.drm.find_syncobj(handle, errno.EINVAL), point) for handle, point in rows]


def _refuse_shadow(call: IoctlCall, item: JobChunks, raw: bytes) -> None:
    raise OSError(errno.EINVAL, "register shadowing is not simulated")


_Take = Callable[[IoctlCall, JobChunks, bytes], None]
_FIRST: Mapping[int, _Take] = {  # amdgpu_cs_pass1
    amdgpu.AMDGPU_CHUNK_ID_IB: _take_buffer,
    amdgpu.AMDGPU_CHUNK_ID_FENCE: _take_user_fence,
    amdgpu.AMDGPU_CHUNK_ID_BO_HANDLES: _take_bo_list,
}
_SECOND: Mapping[int, _Take] = {  # amdgpu_cs_pass2
    amdgpu.AMDGPU_CHUNK_ID_DEPENDENCIES: _take_dependencies,
    amdgpu.AMDGPU_CHUNK_ID_SCHEDULED_DEPENDENCIES: _take_dependencies,
    amdgpu.AMDGPU_CHUNK_ID_SYNCOBJ_IN: _take_waits,
    amdgpu.AMDGPU_CHUNK_ID_SYNCOBJ_OUT: _take_signals,
    amdgpu.AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_WAIT: _take_timeline_waits,
    amdgpu.AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_SIGNAL: _take_timeline_signals,
    amdgpu.AMDGPU_CHUNK_ID_CP_GFX_SHADOW: _refuse_shadow,
}


def _find_fence(call: IoctlCall, members: Fields, number: int) -> DmaFence | None:
    """Return the fence of a job; None if it ended long ago. Raises OSError(EINVAL)."""
    with call.machine.lock:
        context = find_context(call.drm, members["ctx_id"])
        ring = find_ring(call, context, members["ip_type"], members["ip_instance"], members["ring"])
    with call.machine.changed:
        return ring.find_fence(number)


def _find_deadline(timeout_ns: int) -> int | None:
    """Return the deadline; None for a time in the far future, which means no deadline (amdgpu_gem_timeout)."""
    return None if timeout_ns >> 63 else timeout_ns


def wait_cs(call: IoctlCall) -> None:
    arg = call.arg
    fence = _find_fence(call, arg, arg["handle"])
    deadline = _find_deadline(arg["timeout"])
    late = fence is not None and not wait_for_fence(call, fence, deadline)
    if fence is not None and fence.error:
        raise OSError(fence.error, "the job ended with an error")
    arg.raw[:] = bytes(len(arg.raw))
    arg["status"] = int(late)


def wait_fences(call: IoctlCall) -> None:
    arg = call.arg
    rows = call.read_records(arg["fences"], arg["fence_count"], amdgpu.FENCE)
    fences = [_find_fence(call, row, row["seq_no"]) for row in rows]
    deadline, wait_all = _find_deadline(arg["timeout_ns"]), bool(arg["wait_all"])

    def find_ready() -> int | None:
        done = [index for index, fence in enumerate(fences) if fence is None or fence.done]
        if len(done) == len(fences) or (done and not wait_all):
            return done[0] if done else 0
        call.process.check_uninterrupted()
        return None

    first = wait_until(call.machine.changed, find_ready, deadline)
    ended = fences if wait_all else fences[first : first + 1] if first is not None else []
    error = next((fence.error for fence in ended if fence is not None and fence.error), 0)
    if error:
        raise OSError(error, "a job ended with an error")
    arg.raw[:] = bytes(len(arg.raw))
    arg["status"] = int(first is not None)
    if not wait_all:
        arg["first_signaled"] = NO_SIGNALED if first is None else first


def fence_to_handle(call: IoctlCall) -> None:
    """Return the fence of a job as a syncobj; the two kinds of files are refused."""
    arg, file = call.arg, call.drm
    fence = _find_fence(call, arg, arg["seq_no"]) or DmaFence(done=True)
    if arg["what"] != amdgpu.AMDGPU_FENCE_TO_HANDLE_GET_SYNCOBJ:
        raise OSError(errno.EINVAL, "files of fences are not simulated")
    with call.machine.lock:
        handle = find_lowest_free(file.syncobjs)
        syncobj = file.syncobjs[handle] = SyncobjState()
    with call.machine.changed:
        syncobj.replace(fence)
    arg.raw[:] = bytes(len(arg.raw))
    arg["handle"] = handle


def gem_wait_idle(call: IoctlCall) -> None:
    """Wait until no job and no user queue uses a buffer."""
    arg, bo = call.arg, call.drm.find_bo(call.arg["handle"])
    deadline = _find_deadline(arg["timeout"])
    late = not all(wait_for_fence(call, fence, deadline) for fence in list(bo.fences))
    arg.raw[:] = bytes(len(arg.raw))
    arg["status"] = int(late)
