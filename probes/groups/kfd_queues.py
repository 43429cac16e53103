"""KFD queue objects: P15 creates them, P16 makes invalid requests, P17 maps their doorbells."""

from __future__ import annotations

import errno

from zinc_rt.kmd.cwsr import list_cwsr_sizes
from zinc_rt.kmd.driver import PROT_READ, PROT_WRITE
from zinc_rt.kmd.errors import ENOTSUPP
from zinc_rt.kmd.kfd_queue import DOORBELL_BYTES, EOP_BYTES
from zinc_rt.kmd.transport import Placement
from zinc_rt.kmd.uapi import kfd
from zinc_rt.kmd.uapi.structs import StructBytes
from zinc_rt.probes.kit.context import ProbeContext
from zinc_rt.probes.kit.queue_rules import explain_refusals
from zinc_rt.probes.kit.refusals import Refusal, catch_errno, check_refusals
from zinc_rt.probes.outcome import (
    T1,
    Outcome,
    Signature,
    check,
    match_failed_call,
    match_message,
    passed,
    symptom,
)
from zinc_rt.probes.probe import fails, fails_like, probe, proves

ROUNDS = 10
RING_BYTES = 1 << 16
_PAGE = 4096

_FIRMWARE = "`dmesg | grep -i mes`; update linux-firmware and boot again"
DOORBELL_REFUSED = Signature(
    lambda o: o.call == "mmap doorbell",
    "the doorbell offset was changed on its way to the kernel (sign or low bits), or belongs to another GPU",
    "the offset must be used unmodified, masked with ~0x1fff; a 32-bit or seccomp layer may change it",
)


class KfdQueueBuffers:
    """The buffers of a queue, and CREATE_QUEUE requests that use them."""

    def __init__(self, c: ProbeContext) -> None:
        self.c = c
        gpu = c.gpu
        self.sizes = list_cwsr_sizes(c.node)[0]
        self.ring = gpu.alloc(RING_BYTES, Placement.GTT, "ring")
        self.rptr = gpu.alloc(_PAGE, Placement.GTT, "rptr")
        self.wptr = gpu.alloc(_PAGE, Placement.GTT, "wptr")
        self.eop = gpu.alloc(EOP_BYTES, Placement.VRAM, "eop")
        self.area = gpu.alloc(self.sizes.buffer_bytes, Placement.GTT, "save area")

    def request(self, **changed: int) -> StructBytes:
        fields = {
            "ring_base_address": self.ring.gpu_va,
            "write_pointer_address": self.wptr.gpu_va,
            "read_pointer_address": self.rptr.gpu_va,
            "ring_size": RING_BYTES,
            "gpu_id": self.c.node.gpu_id,
            "queue_type": kfd.KFD_IOC_QUEUE_TYPE_COMPUTE,
            "queue_percentage": 100,
            "queue_priority": 7,
            "eop_buffer_address": self.eop.gpu_va,
            "eop_buffer_size": EOP_BYTES,
            "ctx_save_restore_address": self.area.gpu_va,
            "ctx_save_restore_size": self.sizes.save_bytes,
            "ctl_stack_size": self.sizes.control_stack_bytes,
        }
        return kfd.CREATE_QUEUE.new(**{**fields, **changed})

    def create(self, **changed: int) -> StructBytes:
        return self.c.process.file.ioctl(kfd.IOC_CREATE_QUEUE, self.request(**changed))

    def destroy(self, queue_id: int) -> None:
        self.c.process.file.ioctl(kfd.IOC_DESTROY_QUEUE, kfd.DESTROY_QUEUE.new(queue_id=queue_id))

    def try_create(self, **changed: int) -> None:
        """Create the queue; if that unexpectedly succeeds, destroy it."""
        self.destroy(self.create(**changed)["queue_id"])


@probe("P15", "create and destroy a queue", (T1,), hazard=1, needs=("P08", "P09", "P13"), seconds=60.0)
@proves(
    "the kernel and MES create a PM4 compute queue and destroy it",
    passes_when=f"{ROUNDS} times: a queue id, a doorbell offset, no id lost",
)
@fails(
    match_message("the context save area:", "queue-rule"),
    (
        "this kernel's context save area differs from the size it reports (gfx1151, ROCm issue 5151), or "
        "an old kernel has another table of VGPR sizes"
    ),
    "update the kernel; compare cwsr_size and ctl_stack_size of the topology node with P14",
)
@fails(
    symptom("queue-rule"),
    (
        "a part of the request does not match the kernel's requirement: the message names it, determined "
        "by substituting each part into an accepted request"
    ),
    "compare zinc_rt/kmd/kfd_queue.py with amdkfd/kfd_queue.c of this kernel; P16 tries each rule",
)
@fails_like(DOORBELL_REFUSED)
@fails(
    match_failed_call("CREATE_QUEUE", errno.EIO, errno.ETIME, errno.ETIMEDOUT),
    "the MES firmware rejected ADD_QUEUE or did not respond",
    _FIRMWARE,
)
@fails(
    match_failed_call("DESTROY_QUEUE", errno.EIO, errno.ETIME), "MES did not respond to REMOVE_QUEUE", _FIRMWARE
)
@fails(match_failed_call("CREATE_QUEUE", errno.ESRCH), "no GPU address space is bound", "P07 tests only that")
@fails(
    match_failed_call("CREATE_QUEUE", ENOTSUPP),
    "the kernel does not support PM4 queues (type 0)",
    "use a newer kernel",
)
@fails(
    match_failed_call("CREATE_QUEUE", errno.EPERM, errno.ENOSPC),
    "no queues or hardware slots are left, and the scheduler may not oversubscribe",
    "boot without amdgpu.sched_policy; close other programs that use this GPU",
)
def probe_create_destroy(c: ProbeContext) -> Outcome:
    """Create queues as the runtime does; analyse rejected requests."""
    ids = []
    with explain_refusals(c):
        for _ in range(ROUNDS):
            with c.gpu.create_queue(ring_bytes=RING_BYTES) as queue:
                check(queue.doorbell_address % 8 == 0, "doorbell", f"doorbell at {queue.doorbell_address:#x}")
                ids.append(queue.queue_id)
    check(len(set(ids)) == 1, "leak", f"queue ids {ids}: destroyed queues keep theirs")
    parts = KfdQueueBuffers(c)
    created = parts.create()
    parts.destroy(created["queue_id"])
    return passed(rounds=ROUNDS, queue_id=ids[0], doorbell_offset=hex(created["doorbell_offset"]))


@probe("P16", "queue negatives", (T1,), hazard=0, needs=("P15",), seconds=60.0)
@proves(
    "the kernel rejects invalid queues as documented",
    passes_when="the errno of each; a deviation is a variant of the kernel (before 6.12 buffers are not checked)",
)
def probe_invalid_queues(c: ProbeContext) -> Outcome:
    parts = KfdQueueBuffers(c)
    gpu = c.gpu
    small = gpu.alloc(_PAGE, Placement.VRAM_BAR, "vram page", fallback=Placement.VRAM)
    double = gpu.alloc(2 * EOP_BYTES, Placement.VRAM, "large eop")
    unmapped = parts.area.gpu_va + parts.area.size_bytes + (64 << 20)
    old = 0  # kernels before 6.12 take any buffer

    def make_refusal(what: str, *wanted: int, **changed: int) -> Refusal:
        return Refusal(f"CREATE with {what}", lambda: parts.try_create(**changed), wanted)

    def update(queue_id: int) -> None:
        request = kfd.UPDATE_QUEUE.new(
            ring_base_address=parts.ring.gpu_va,
            queue_id=queue_id,
            ring_size=RING_BYTES,
            queue_percentage=100,
            queue_priority=7,
        )
        c.process.file.ioctl(kfd.IOC_UPDATE_QUEUE, request)

    stack = parts.sizes.control_stack_bytes
    return check_refusals(
        [
            make_refusal("priority 16", errno.EINVAL, queue_priority=16),
            make_refusal("percentage 101", errno.EINVAL, queue_percentage=101),
            make_refusal("a ring of 3000 bytes", errno.EINVAL, ring_size=3000),
            make_refusal("a ring that is not mapped", errno.EINVAL, old, ring_base_address=unmapped),
            make_refusal("a ring twice its mapping", errno.EINVAL, old, ring_size=2 * RING_BYTES),
            make_refusal(
                "EOP of 8192 bytes",
                errno.EINVAL,
                old,
                eop_buffer_address=double.gpu_va,
                eop_buffer_size=2 * EOP_BYTES,
            ),
            make_refusal("a control stack a page too large", errno.EINVAL, old, ctl_stack_size=stack + _PAGE),
            make_refusal("wptr in VRAM", errno.EINVAL, write_pointer_address=small.gpu_va),
            make_refusal("an unknown GPU", errno.EINVAL, gpu_id=0xFFFF),
            make_refusal("an unknown type", ENOTSUPP, errno.EINVAL, queue_type=99),
            make_refusal("rptr at a kernel address", errno.EFAULT, read_pointer_address=0xFFFF_8000_0000_0000),
            Refusal("DESTROY of an unknown queue", lambda: parts.destroy(1000), (errno.EINVAL,)),
            Refusal("UPDATE of an unknown queue", lambda: update(1000), (errno.EFAULT,)),
        ]
    )


@probe("P17", "doorbell map", (T1,), hazard=0, needs=("P15",))
@proves(
    "the doorbells of this process can be mapped, in their exact size only",
    passes_when="8192 bytes can be mapped, twice; 4096 and 16384 are rejected",
)
@fails_like(DOORBELL_REFUSED)
@fails(match_message("mmap of"), "the kernel maps other sizes", "nothing depends on it; please report the kernel")
def probe_doorbells(c: ProbeContext) -> Outcome:
    parts = KfdQueueBuffers(c)
    queue = parts.create()
    offset = queue["doorbell_offset"]
    slice_offset = offset & -DOORBELL_BYTES

    def map_doorbells(size_bytes: int, index: int = slice_offset) -> None:
        c.driver.munmap(c.driver.mmap(c.process.file.fd, size_bytes, index, PROT_READ | PROT_WRITE))

    try:
        first = catch_errno(lambda: map_doorbells(DOORBELL_BYTES))
        check(
            first == 0,
            "doorbell-map",
            f"mmap of the doorbells at {slice_offset:#x}: errno {first}",
            errno=first,
            call="mmap doorbell",
        )
        one = c.driver.mmap(c.process.file.fd, DOORBELL_BYTES, slice_offset, PROT_READ | PROT_WRITE)
        second = catch_errno(lambda: map_doorbells(DOORBELL_BYTES))
        c.driver.munmap(one)
        check(second == 0, "doorbell-map", f"a second mapping: errno {second}", errno=second, call="mmap doorbell")
        return check_refusals(
            [
                Refusal("mmap of half the slice", lambda: map_doorbells(DOORBELL_BYTES // 2), (errno.EINVAL,)),
                Refusal("mmap of two slices", lambda: map_doorbells(2 * DOORBELL_BYTES), (errno.EINVAL,)),
            ]
        )
    finally:
        parts.destroy(queue["queue_id"])
