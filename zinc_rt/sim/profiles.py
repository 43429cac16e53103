"""Kernel versions, as rows of the differences that a client of KFD or of user queues can observe.

Sources: reference notes on amdkfd and amdgpu, 6.12 to 7.2; UAPI changelog of kfd_ioctl.h. Versions whose
code was not read (7.1, 7.2) behave like 6.18.y, including its hardening (userq.md).
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, replace

ENOTSUPP = 524  # include/linux/errno.h; kernel-only, yet let out by amdkfd and amdgpu


@dataclass(frozen=True, slots=True)
class LinuxProfile:
    """A version of Linux, by the behaviour that clients of amdgpu can observe."""

    version: str
    release: str  # uname -r
    kfd_minor: int
    buffer_validation: bool  # kfd_queue.c: exact ring, EOP, CWSR buffers; UNMAP of a live queue's buffer EBUSY
    gfx1151_new_table: bool
    cwsr_in_sysfs: bool  # properties has cwsr_size and ctl_stack_size
    sdma_engine_mask_in_sysfs: bool
    queue_reset: bool  # a hung queue is reset alone before the whole GPU is
    userq: bool  # the USERQ ioctls exist
    userq_slots: bool  # INFO HW_IP_INFO has userq_num_slots
    userq_va_checks: bool  # ring, rptr, wptr and EOP must be mapped at CREATE
    userq_hardened: bool  # power-of-two and minimum size, doorbell index, handle counts
    userq_off_errno: int  # CREATE while switched off
    userq_detects_hangs: bool  # 6.19+: FREE and eviction reset a hung queue, fences get ECANCELED
    userq_unmap_check: bool
    userq_compute_metadata: bool  # INFO UQ_FW_AREAS answers for compute
    kfd_open_process: bool  # 1.19: CREATE_PROCESS


_6_12 = LinuxProfile(
    version="6.12",
    release="6.12.57",
    kfd_minor=17,
    buffer_validation=True,
    gfx1151_new_table=False,
    cwsr_in_sysfs=False,
    sdma_engine_mask_in_sysfs=True,
    queue_reset=False,
    userq=False,
    userq_slots=False,
    userq_va_checks=False,
    userq_hardened=False,
    userq_off_errno=errno.EINVAL,
    userq_detects_hangs=False,
    userq_unmap_check=False,
    userq_compute_metadata=False,
    kfd_open_process=False,
)
_6_16 = replace(_6_12, version="6.16", release="6.16.12", kfd_minor=18, queue_reset=True, userq=True)
_6_17 = replace(_6_16, version="6.17", release="6.17.13", userq_slots=True)
_6_18 = replace(_6_17, version="6.18", release="6.18.0", userq_va_checks=True, gfx1151_new_table=True)
_6_18_Y = replace(
    _6_18,
    version="6.18.y",
    release="6.18.36",
    cwsr_in_sysfs=True,
    userq_hardened=True,
    userq_off_errno=ENOTSUPP,
)
_6_19 = replace(
    _6_18,
    version="6.19",
    release="6.19.8",
    cwsr_in_sysfs=True,
    userq_off_errno=ENOTSUPP,
    userq_detects_hangs=True,
    userq_unmap_check=True,
    kfd_minor=19,
    kfd_open_process=True,
)
_7_0 = replace(_6_19, version="7.0", release="7.0.4", kfd_minor=20)
_7_2 = replace(
    _7_0, version="7.2", release="7.2.1", kfd_minor=23, userq_hardened=True, userq_compute_metadata=True
)

# before kfd_queue.c: any buffer is accepted, and a wrong one faults later
_6_8 = replace(_6_12, version="6.8", release="6.8.12", kfd_minor=15, buffer_validation=False)

LINUX_VERSIONS: dict[str, LinuxProfile] = {
    row.version: row for row in (_6_8, _6_12, _6_16, _6_17, _6_18, _6_18_Y, _6_19, _7_0, _7_2)
}


def linux(name: str) -> LinuxProfile:
    if name not in LINUX_VERSIONS:
        raise ValueError(f"no Linux version {name!r}; available: {', '.join(LINUX_VERSIONS)}")
    return LINUX_VERSIONS[name]
