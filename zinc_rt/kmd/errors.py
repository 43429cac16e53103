"""The meaning of failed system calls: one row with a sentence and advice for each call and errno.

Rows follow the driver's source: amdkfd (kfd_chardev.c, kfd_queue.c, kfd_events.c, kfd_process_queue_manager.c,
amdgpu_amdkfd_gpuvm.c) and amdgpu (amdgpu_userq.c, amdgpu_userq_fence.c, amdgpu_gem.c), Linux 6.12 to 7.2.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from zinc_rt.host.errors import ZincError

ENOTSUPP = 524  # include/linux/errno.h: kernel-only, but amdkfd and amdgpu return it to user space


@dataclass(frozen=True, slots=True)
class ErrnoAdvice:
    """The meaning of `errno` from `call`: the ioctl's macro, "open PATH" or "mmap WHAT"; "" matches any call."""

    call: str
    errno: int
    why: str
    next: str


_GROUP = "join the group that owns the node (`sudo usermod -aG render,video $USER`), then log in again"
_RESET = "close every program that uses this GPU; `dmesg | grep -i amdgpu` says whether the reset worked"
_FIRMWARE = "look for `MES` in `dmesg`; update linux-firmware, then boot again"
_BUG = "this is a fault of ZINC_RT: please report it with this message"
_VRAM = "use less memory, or close other programs that use this GPU"

KFD, DRM = "AMDKFD_IOC_", "DRM_IOCTL_AMDGPU_"

ADVICE = (
    # --- nodes ---
    ErrnoAdvice(
        "open /dev/kfd",
        errno.ENOENT,
        "Linux offers no KFD device",
        "load amdgpu, use a Linux with CONFIG_HSA_AMD; in a container add --device=/dev/kfd",
    ),
    ErrnoAdvice("open /dev/kfd", errno.EACCES, "this user may not open it; root is never needed", _GROUP),
    ErrnoAdvice(
        "open /dev/kfd",
        errno.EPERM,
        "not allowed: a container's device rules, or a 32-bit process",
        "in a container add --device=/dev/kfd --device=/dev/dri; use a 64-bit Python",
    ),
    ErrnoAdvice("open /dev/kfd", errno.EAGAIN, "the GPU is being reset, or KFD is locked", _RESET),
    ErrnoAdvice(
        "open /dev/kfd",
        errno.ENODEV,
        "the node has a minor number KFD does not serve",
        "remove stale nodes in /dev",
    ),
    ErrnoAdvice(
        "open render node",
        errno.ENOENT,
        "the render node of this GPU is missing",
        "load amdgpu; in a container add --device=/dev/dri",
    ),
    ErrnoAdvice("open render node", errno.EACCES, "this user may not open it; root is never needed", _GROUP),
    ErrnoAdvice("open render node", errno.EPERM, "a container's device rules forbid it", "add --device=/dev/dri"),
    ErrnoAdvice("open render node", errno.ENODEV, "the GPU behind it is gone", _RESET),
    # --- KFD ---
    ErrnoAdvice(f"{KFD}GET_VERSION", errno.ENOTTY, "/dev/kfd is not a KFD device", "check what made that node"),
    ErrnoAdvice(
        f"{KFD}ACQUIRE_VM",
        errno.EINVAL,
        "the render node belongs to another GPU, or the GPU id is unknown",
        "check drm_render_minor in the topology node",
    ),
    ErrnoAdvice(
        f"{KFD}ACQUIRE_VM",
        errno.EBUSY,
        "this process already uses KFD on that GPU through another fd",
        "do not load ROCm (HIP, OpenCL, PyTorch) into the same process",
    ),
    ErrnoAdvice(
        f"{KFD}ALLOC_MEMORY_OF_GPU",
        errno.EINVAL,
        "size, domain or GPU refused; CPU-visible VRAM fails like this on a small BAR",
        "enable Resizable BAR and Above-4G decoding in the firmware set-up, or use GTT",
    ),
    ErrnoAdvice(f"{KFD}ALLOC_MEMORY_OF_GPU", errno.ENOMEM, "the memory limit of that domain is reached", _VRAM),
    ErrnoAdvice(
        f"{KFD}ALLOC_MEMORY_OF_GPU", errno.ENODEV, "the process has no GPU address space: ACQUIRE_VM", _BUG
    ),
    ErrnoAdvice(
        f"{KFD}ALLOC_MEMORY_OF_GPU", errno.EADDRINUSE, "the address range is taken by shared memory (SVM)", _BUG
    ),
    ErrnoAdvice(f"{KFD}MAP_MEMORY_TO_GPU", errno.ENOMEM, "unknown handle, or no memory for page tables", _VRAM),
    ErrnoAdvice(
        f"{KFD}MAP_MEMORY_TO_GPU", errno.EINVAL, "GPU unknown, or the address overlaps or is unaligned", _BUG
    ),
    ErrnoAdvice(f"{KFD}MAP_MEMORY_TO_GPU", errno.ENODEV, "the process has no GPU address space: ACQUIRE_VM", _BUG),
    ErrnoAdvice(f"{KFD}UNMAP_MEMORY_FROM_GPU", errno.EBUSY, "a live queue still uses this buffer", _BUG),
    ErrnoAdvice(f"{KFD}UNMAP_MEMORY_FROM_GPU", errno.EINVAL, "the buffer is not mapped on that GPU", _BUG),
    ErrnoAdvice(f"{KFD}FREE_MEMORY_OF_GPU", errno.EBUSY, "the buffer is still mapped", _BUG),
    ErrnoAdvice(f"{KFD}FREE_MEMORY_OF_GPU", errno.EPERM, "the event page stays until the process ends", _BUG),
    ErrnoAdvice(f"{KFD}FREE_MEMORY_OF_GPU", errno.EINVAL, "unknown handle", _BUG),
    ErrnoAdvice(
        f"{KFD}CREATE_EVENT",
        errno.EINVAL,
        "the event page's handle is unknown, or a page was given before in this process",
        "open one KFD transport per process",
    ),
    ErrnoAdvice(
        f"{KFD}CREATE_EVENT", errno.ENODEV, "no GPU address space behind the event page: ACQUIRE_VM", _BUG
    ),
    ErrnoAdvice(
        f"{KFD}CREATE_EVENT", errno.ENOSPC, "all 4095 signal events of this process are used", "destroy some"
    ),
    ErrnoAdvice(f"{KFD}WAIT_EVENTS", errno.EINVAL, "an event id is unknown", _BUG),
    ErrnoAdvice(
        f"{KFD}WAIT_EVENTS", errno.EIO, "an event was destroyed during the wait, or the GPU was lost", _RESET
    ),
    ErrnoAdvice(f"{KFD}SET_EVENT", errno.EINVAL, "unknown, or no signal event", _BUG),
    ErrnoAdvice(f"{KFD}RESET_EVENT", errno.EINVAL, "unknown, or no signal event", _BUG),
    ErrnoAdvice(f"{KFD}DESTROY_EVENT", errno.EINVAL, "unknown event", _BUG),
    ErrnoAdvice(
        f"{KFD}CREATE_QUEUE",
        errno.EINVAL,
        "a buffer is not mapped exactly as required: ring = ring_size, rptr and wptr their own page in GTT, EOP "
        "4096 bytes, context save area as KFD sizes it (gfx1151 differs between Linux versions)",
        "compare cwsr_size and ctl_stack_size in the topology node with `zinc-rt devices --json -`",
    ),
    ErrnoAdvice(f"{KFD}CREATE_QUEUE", errno.EFAULT, "an address is no user address", _BUG),
    ErrnoAdvice(f"{KFD}CREATE_QUEUE", errno.ESRCH, "the process has no GPU address space: ACQUIRE_VM", _BUG),
    ErrnoAdvice(f"{KFD}CREATE_QUEUE", ENOTSUPP, "this KFD has no such queue type", _BUG),
    ErrnoAdvice(
        f"{KFD}CREATE_QUEUE",
        errno.ENOSPC,
        "no queue or doorbell slot left (about 127 queues per process and GPU)",
        "close queues, or other programs that use this GPU",
    ),
    ErrnoAdvice(
        f"{KFD}CREATE_QUEUE",
        errno.EPERM,
        "hardware queues are full and the scheduler may not oversubscribe",
        "boot without amdgpu.sched_policy, or close other programs that use this GPU",
    ),
    ErrnoAdvice(
        f"{KFD}CREATE_QUEUE", errno.ENOMEM, "no memory in Linux, or all 1024 queue ids used", "close queues"
    ),
    ErrnoAdvice(f"{KFD}CREATE_QUEUE", errno.EIO, "the MES firmware refused the queue", _FIRMWARE),
    ErrnoAdvice(f"{KFD}CREATE_QUEUE", errno.ETIMEDOUT, "the MES firmware did not answer", _FIRMWARE),
    ErrnoAdvice(f"{KFD}DESTROY_QUEUE", errno.EINVAL, "unknown queue", _BUG),
    ErrnoAdvice(
        f"{KFD}DESTROY_QUEUE", errno.ETIME, "the queue could not be preempted; it is gone all the same", _FIRMWARE
    ),
    ErrnoAdvice(f"{KFD}DESTROY_QUEUE", errno.EIO, "the GPU was reset; the queue is gone all the same", _RESET),
    ErrnoAdvice(f"{KFD}UPDATE_QUEUE", errno.EFAULT, "unknown queue, or the new ring is not exactly mapped", _BUG),
    ErrnoAdvice(
        f"{KFD}SET_CU_MASK",
        errno.EINVAL,
        "the mask is empty, no multiple of 32 bits, or splits a pair of CUs",
        "set bits 2n and 2n+1 alike",
    ),
    ErrnoAdvice(f"{KFD}SET_CU_MASK", errno.EFAULT, "unknown queue", _BUG),
    ErrnoAdvice(f"{KFD}SET_CU_MASK", errno.EBUSY, "a debugger holds the mask", "detach it"),
    ErrnoAdvice("mmap doorbell", errno.EINVAL, "not exactly this process's slice of 8192 bytes", _BUG),
    ErrnoAdvice("mmap doorbell", errno.ENODEV, "the GPU id in the offset is unknown", _BUG),
    # --- amdgpu ---
    ErrnoAdvice(
        f"{DRM}USERQ",
        ENOTSUPP,
        "user queues are switched off in the driver",
        "boot with amdgpu.user_queue=1, or use --tier t1",
    ),
    ErrnoAdvice(
        f"{DRM}USERQ",
        errno.EINVAL,
        "refused: user queues off (6.16, 6.17), firmware too old, an address not mapped, wptr larger than a "
        "page, or the doorbell",
        "see the t2 row of `zinc-rt devices`; or use --tier t1",
    ),
    ErrnoAdvice(
        f"{DRM}USERQ",
        errno.EACCES,
        "high priority needs CAP_SYS_NICE or DRM master",
        "use normal priority",
    ),
    ErrnoAdvice(
        f"{DRM}USERQ",
        errno.ENOMEM,
        "no memory, 512 queues open, or the MQD could not be read (amdgpu reports that so)",
        "close queues",
    ),
    ErrnoAdvice(f"{DRM}USERQ", errno.ETIMEDOUT, "the MES firmware did not answer", _FIRMWARE),
    ErrnoAdvice(f"{DRM}USERQ_SIGNAL", errno.ENOENT, "queue, syncobj or buffer unknown", _BUG),
    ErrnoAdvice(f"{DRM}USERQ_WAIT", errno.ENOENT, "syncobj or buffer unknown", _BUG),
    ErrnoAdvice(f"{DRM}USERQ_WAIT", errno.EINVAL, "queue unknown, or more fences than asked for", _BUG),
    ErrnoAdvice(
        f"{DRM}GEM_CREATE",
        errno.EINVAL,
        "size, alignment, domain or flags that this amdgpu does not accept",
        "use a newer Linux, or --tier t1",
    ),
    ErrnoAdvice(f"{DRM}GEM_CREATE", errno.ENOMEM, "no memory in that domain", _VRAM),
    ErrnoAdvice("GEM_CREATE in VRAM", errno.ENOMEM, "VRAM is full: Linux placed the buffer in host memory", _VRAM),
    ErrnoAdvice(
        "GEM_CREATE in CPU-visible VRAM",
        errno.EINVAL,
        "a small BAR: Linux would move the buffer to host memory when the CPU writes it",
        "enable Resizable BAR and Above-4G decoding in the firmware set-up, or place it in GTT",
    ),
    ErrnoAdvice(f"{DRM}GEM_OP", errno.ENOENT, "unknown buffer", _BUG),
    ErrnoAdvice(
        f"{DRM}GEM_VA", errno.EINVAL, "the address is unaligned, taken, or outside the valid ranges", _BUG
    ),
    ErrnoAdvice(f"{DRM}GEM_VA", errno.ENOENT, "unknown buffer or syncobj", _BUG),
    ErrnoAdvice(f"{DRM}GEM_VA", errno.EBUSY, "a live queue still uses this buffer", _BUG),
    ErrnoAdvice(f"{DRM}INFO", errno.EINVAL, "this amdgpu does not know the question", "use a newer Linux"),
    ErrnoAdvice("DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT", errno.ETIME, "not reached in time", _RESET),
    ErrnoAdvice("DRM_IOCTL_SYNCOBJ_WAIT", errno.ETIME, "not reached in time", _RESET),
    # --- any call ---
    ErrnoAdvice("", errno.ENODEV, "the GPU is gone: reset, unplugged or its driver unloaded", _RESET),
    ErrnoAdvice("", errno.EIO, "the GPU does not answer", _RESET),
    ErrnoAdvice("", errno.EBADF, "the fd is closed, or another process's: KFD ends at fork", _BUG),
    ErrnoAdvice("", errno.ENOTTY, "this Linux does not know the call", "use a newer Linux"),
    ErrnoAdvice("", errno.EFAULT, "an address in the request is not readable or writable", _BUG),
    ErrnoAdvice("", errno.ENOMEM, "no memory", _VRAM),
    ErrnoAdvice("", errno.EMFILE, "too many open files", "raise `ulimit -n`"),
    ErrnoAdvice("", errno.EACCES, "not allowed", _GROUP),
    ErrnoAdvice("", ENOTSUPP, "this Linux or GPU does not support it", "see `zinc-rt devices`"),
)

_TABLE = {(row.call, row.errno): row for row in ADVICE}
if len(_TABLE) != len(ADVICE):
    raise ValueError("duplicate row of advice for the same call and errno")


def format_errno(number: int) -> str:
    if number == ENOTSUPP:
        return "ENOTSUPP (524)"
    return errno.errorcode.get(number, f"errno {number}")


def find_advice(call: str, number: int) -> ErrnoAdvice:
    """Return the row for this call, else for any call, else one with the C library's message."""
    for key in ((call, number), ("", number)):
        if key in _TABLE:
            return _TABLE[key]
    reason = os.strerror(number).lower() if number in errno.errorcode else "no known meaning"
    return ErrnoAdvice(call, number, reason, "`dmesg | grep -iE 'amdgpu|kfd'` may say more")


class DriverError(ZincError):
    """A system call failed. `call`, `errno`, `why` and `next` are the parts of the message."""

    exit_code = 1

    def __init__(self, call: str, number: int, about: str = "") -> None:
        row = find_advice(call, number)
        self.call, self.errno, self.why, self.next, self.about = call, number, row.why, row.next, about
        subject = f" ({about})" if about else ""
        super().__init__(f"{call}{subject}: {format_errno(number)}: {row.why}", next=row.next)


class LeakError(ZincError):
    """A resource could not be released when its owner was closed."""

    exit_code = 1
