"""User queues (T2): P48 creates them, P49 makes invalid requests, P50 to P53 test their specific
functions."""

from __future__ import annotations

import errno
import time

from zinc_rt.kmd.errors import ENOTSUPP
from zinc_rt.kmd.syncobj import Syncobj
from zinc_rt.kmd.transport import Placement
from zinc_rt.kmd.uapi import amdgpu, drm
from zinc_rt.kmd.uapi.host_memory import HostArray
from zinc_rt.pm4.packets import Nop, WaitRegMem, WaitRegMem64, WriteData
from zinc_rt.probes.groups.cp_basic import GONE, NOPS, NOT_FETCHED, write_fence
from zinc_rt.probes.groups.cp_data import expect_dwords
from zinc_rt.probes.kit.context import ProbeContext
from zinc_rt.probes.kit.mapped_buffer import POISON32
from zinc_rt.probes.kit.probe_queue import FREE_AT
from zinc_rt.probes.kit.refusals import Refusal, check_refusals
from zinc_rt.probes.outcome import (
    T2,
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
FENCE_SECONDS = 1.0
HELD_SECONDS = 0.05
_PAGE = 4096

_VMID = Signature(
    lambda o: "page fault" in o.text,
    "the IB ran in VMID 0: bit 30 of INDIRECT_BUFFER (inherit the queue's VMID) is missing or ignored",
    (
        "size | 1 << 23 | 1 << 30; if the packet in the report has it, the firmware is too old: update "
        "linux-firmware"
    ),
)


@probe("P48", "create and free a user queue", (T2,), hazard=1, needs=("P06", "P12"), seconds=60.0)
@proves(
    "the kernel and MES create a user queue and free it",
    passes_when=f"{ROUNDS} times: an id of 1 or more, nothing remains allocated",
)
@fails(match_failed_call("USERQ", ENOTSUPP), "user queues are disabled", "see P06: amdgpu.user_queue=1")
@fails(
    match_failed_call("USERQ", errno.EINVAL),
    "a buffer is rejected: wptr must be a GTT buffer of exactly one page, every address mapped, mqd_size 8",
    "-k P49 tests each; P06 shows whether the feature is on",
)
@fails(
    match_failed_call("USERQ", errno.EIO, errno.ETIMEDOUT),
    "MES refused ADD_QUEUE",
    "`dmesg | grep -i mes`; update linux-firmware",
)
@fails(
    match_failed_call("USERQ", errno.ENOMEM),
    "an invalid MQD pointer (the kernel returns ENOMEM), or MES memory",
    "-k P49",
)
@fails(match_failed_call("USERQ", errno.EACCES), "high priority needs CAP_SYS_NICE", "normal priority")
def probe_create_free(c: ProbeContext) -> Outcome:
    ids = []
    gpu = c.userq
    before = gpu.resources()
    for _ in range(ROUNDS):
        with gpu.create_queue(ring_bytes=RING_BYTES) as queue:
            ids.append(queue.queue_id)
    check(min(ids) >= 1, "wrong-id", f"queue ids {ids}")
    after = gpu.resources()
    check(after == before, "leak", f"held before {before}, afterwards {after}")
    return passed(rounds=ROUNDS, queue_id=ids[-1])


class UserqBuffers:
    """The buffers of a user queue, and USERQ requests that use them."""

    def __init__(self, c: ProbeContext) -> None:
        gpu = self.gpu = c.userq
        self.ring = gpu.alloc(RING_BYTES, Placement.GTT, "ring")
        self.rptr = gpu.alloc(_PAGE, Placement.GTT, "rptr")
        self.wptr = gpu.alloc(_PAGE, Placement.GTT, "wptr")
        self.wide = gpu.alloc(2 * _PAGE, Placement.GTT, "wptr of two pages")
        self.eop = gpu.alloc(_PAGE, Placement.VRAM, "eop")
        gpu.settle()
        request = amdgpu.GEM_CREATE.new(
            bo_size=_PAGE, alignment=_PAGE, domains=amdgpu.AMDGPU_GEM_DOMAIN_DOORBELL, domain_flags=0
        )
        self.doorbell = gpu.node.ioctl(amdgpu.IOCTL_GEM_CREATE, request, "doorbell")["handle"]
        self.mqd = HostArray(bytes(amdgpu.USERQ_MQD_COMPUTE.new(eop_va=self.eop.gpu_va).raw))

    def try_create(self, **changed: int) -> None:
        """Call CREATE; if that unexpectedly succeeds, FREE."""
        fields = {
            "op": amdgpu.AMDGPU_USERQ_OP_CREATE,
            "ip_type": amdgpu.AMDGPU_HW_IP_COMPUTE,
            "doorbell_handle": self.doorbell,
            "doorbell_offset": 4,
            "flags": 0,
            "queue_va": self.ring.gpu_va,
            "queue_size": RING_BYTES,
            "rptr_va": self.rptr.gpu_va,
            "wptr_va": self.wptr.gpu_va,
            "mqd": self.mqd.address,
            "mqd_size": self.mqd.size_bytes,
        }
        reply = self.gpu.node.ioctl(amdgpu.IOCTL_USERQ, amdgpu.USERQ.new(**{**fields, **changed}), "create")
        self.free(reply["new_queue_id"])

    def free(self, queue_id: int, **more: int) -> None:
        request = amdgpu.USERQ.new(op=amdgpu.AMDGPU_USERQ_OP_FREE, queue_id=queue_id, **more)
        self.gpu.node.ioctl(amdgpu.IOCTL_USERQ, request, f"free {queue_id}")

    def close(self) -> None:
        self.gpu.node.ioctl(drm.IOCTL_GEM_CLOSE, drm.GEM_CLOSE.new(handle=self.doorbell), "doorbell")


@probe("P49", "create negatives", (T2,), hazard=0, needs=("P48",))
@proves(
    "the kernel rejects invalid user queues as documented",
    passes_when="the errno of each, for its version; a deviation is reported but not a failure",
)
@fails_like(GONE)
def probe_invalid_user_queues(c: ProbeContext) -> Outcome:
    parts = UserqBuffers(c)
    old = 0  # kernels that do not check it: 6.16 to 7.0 differ (userq.md §6)
    no = errno.EINVAL

    def make_refusal(what: str, *wanted: int, **changed: int) -> Refusal:
        return Refusal(f"CREATE with {what}", lambda: parts.try_create(**changed), wanted)

    high = amdgpu.AMDGPU_USERQ_CREATE_FLAGS_QUEUE_PRIORITY_HIGH
    rows = [
        Refusal("CREATE as it should be", parts.try_create, (0,)),
        make_refusal("operation 3", no, op=3),
        make_refusal("unknown flags", no, flags=1 << 20),
        make_refusal("IP type 7", no, ip_type=7),
        make_refusal("no ring", no, queue_va=0),
        make_refusal("ring size 0", no, queue_size=0),
        make_refusal("no rptr", no, rptr_va=0),
        make_refusal("no wptr", no, wptr_va=0),
        make_refusal("high priority", errno.EACCES, old, flags=high),
        make_refusal("a ring that is not mapped", no, old, queue_va=parts.ring.gpu_va + (1 << 40)),
        make_refusal("an unknown doorbell", no, errno.ENOENT, old, doorbell_handle=0xFFFF),
        make_refusal("a doorbell beyond its page", no, old, doorbell_offset=_PAGE // 8),
        make_refusal("a ring of 3000 bytes", no, old, queue_size=3000),
        make_refusal("mqd_size 4", no, mqd_size=4),
        make_refusal("a null MQD", errno.ENOMEM, mqd=0),
        make_refusal("wptr in a buffer of two pages", no, wptr_va=parts.wide.gpu_va),
        Refusal("FREE of an unknown queue", lambda: parts.free(500), (no, errno.ENOENT)),
        Refusal("FREE with other fields", lambda: parts.free(1, queue_va=parts.ring.gpu_va), (no,)),
    ]
    try:
        return check_refusals(rows)
    finally:
        parts.close()


@probe("P50", "NOP and fence", (T2,), hazard=1, needs=("P48",))
@proves(
    "a user queue reads its ring and writes a fence",
    passes_when="rptr == wptr; the fence has its value, adjacent dwords unchanged",
)
@fails_like(GONE)
@fails(
    match_message("page fault"),
    "an address was not in the GPU's page tables yet (GEM_VA not awaited), or belongs to another VMID",
    "the timeline's point is waited for before a queue is made; the fault's address says what was missing",
)
@fails(
    symptom("rptr-stuck"),
    "the doorbell's index (8-byte units), or page-table updates that were not awaited",
    "-k P49 checks the doorbell's bounds; `dmesg | grep -iE 'mes|userq'`",
)
@fails(symptom("no-fence"), "EOP buffer, or cache policy", "-k P20 --tiers t1 distinguishes the tiers")
def probe_nop_and_fence(c: ProbeContext) -> Outcome:
    queue = c.queue()
    queue.run([Nop()] * NOPS, "one-dword NOPs")
    queue.parsed()
    return write_fence(queue)


@probe("P51", "IB with VMID inherit", (T2,), hazard=1, needs=("P50",))
@proves(
    "indirect buffers run in the queue's address space",
    passes_when="WRITE_DATA in an IB called with bits 23 and 30",
)
@fails_like(_VMID, NOT_FETCHED)
@fails(symptom("rptr-stopped", "no-fence"), _VMID.cause, _VMID.advice)
def probe_vmid(c: ProbeContext) -> Outcome:
    queue = c.queue()
    code = c.memory(_PAGE, "ib")
    mark = WriteData(queue.memory.gpu_va + FREE_AT, (0x1B,), wr_confirm=1)
    call = queue.put_ib(code, [mark, *[Nop()] * 3])
    check(call.inherit_vmid == 1, "no-bit-30", "the call does not have bit 30")
    queue.finish([call], "IB with inherited VMID")
    expect_dwords(queue, FREE_AT, (0x1B, POISON32), "WRITE_DATA in an IB")
    return passed(ib_dw=call.size_dw)


@probe("P52", "kernel fence", (T2,), hazard=1, needs=("P50",))
@proves(
    "the kernel detects the end of a user queue's work, neither too early nor too late",
    passes_when=(
        f"a syncobj stays unsignalled while work is held back, and is signalled within {FENCE_SECONDS:g} s after "
        "it; a SIGNAL without new work at once"
    ),
)
@fails(
    symptom("early"),
    "USERQ_SIGNAL saw a wptr from before the submission: it must follow the wptr store",
    "publish, then SIGNAL; where that order holds, wptr's buffer is cached for the kernel (GTT, uncached)",
)
@fails(
    symptom("no-signal"),
    (
        "PROTECTED_FENCE_SIGNAL completed nothing: it was not the last packet before the doorbell, or "
        "its end-of-pipe interrupt was lost"
    ),
    "`grep amdgpu /proc/interrupts` must count; `dmesg | grep -iE 'userq|mes'`; update linux-firmware",
)
@fails_like(NOT_FETCHED)
def probe_kernel_fence(c: ProbeContext) -> Outcome:
    queue, gpu = c.queue(), c.userq
    queue.memory.put32(FREE_AT, 0)
    queue.submit([WaitRegMem(queue.memory.gpu_va + FREE_AT, 1)], "held back")
    first = gpu.create_syncobj("first")
    gpu.signal(queue.kmd_queue, [first])
    early = first.wait(HELD_SECONDS)
    check(not early, "early", "the syncobj was signalled before the queue's work was done")
    queue.memory.put32(FREE_AT, 1)
    start = time.perf_counter()
    check_arrival(queue.ring.wait_until_idle, first, c)
    micros = (time.perf_counter() - start) * 1e6
    second = gpu.create_syncobj("second")
    gpu.signal(queue.kmd_queue, [second])
    check(second.wait(FENCE_SECONDS), "no-signal", "SIGNAL without new work is not signalled at once")
    for item in (second, first):
        item.destroy()
    return passed(microseconds=round(micros, 1))


def check_arrival(idle: object, syncobj: Syncobj, c: ProbeContext) -> None:
    """Check the queue's own fence first: without it the kernel's fence cannot be signalled."""
    assert callable(idle)
    idle(c.poll_seconds)
    check(
        syncobj.wait(FENCE_SECONDS),
        "no-signal",
        f"the queue's own fence was signalled, the kernel's was not within {FENCE_SECONDS:g} s",
    )


@probe("P53", "cross-queue wait", (T2,), hazard=1, needs=("P52",))
@proves(
    "one user queue waits for another on the GPU",
    passes_when="USERQ_WAIT returns (address, value); the second queue runs only after the first",
)
@fails(symptom("early"), "the value is compared differently, or was reached before", "compare with P52")
@fails(symptom("no-fences"), "the fence was complete before it was queried", "see P52")
@fails_like(NOT_FETCHED)
def probe_cross_queue(c: ProbeContext) -> Outcome:
    first, second, gpu = c.queue("first"), c.queue("second"), c.userq
    flag = first.memory.gpu_va + FREE_AT
    first.memory.put32(FREE_AT, 0)
    first.submit([WaitRegMem(flag, 1), WriteData(first.memory.gpu_va + FREE_AT + 64, (1,), wr_confirm=1)], "first")
    syncobj = gpu.create_syncobj("first is done")
    gpu.signal(first.kmd_queue, [syncobj])
    pairs = gpu.query_fences(second.kmd_queue, [syncobj])
    check(bool(pairs), "no-fences", "USERQ_WAIT returns no fence for a running queue")
    waits = [WaitRegMem64(va, value) for va, value in pairs]
    fence = second.submit([*waits, WriteData(second.memory.gpu_va + FREE_AT, (2,), wr_confirm=1)], "second")
    time.sleep(HELD_SECONDS)
    check(not fence.done(), "early", "the second queue ran before the first was done")
    first.memory.put32(FREE_AT, 1)
    fence.wait(c.poll_seconds)
    expect_dwords(first, FREE_AT + 64, (1,), "the first queue's mark")
    expect_dwords(second, FREE_AT, (2,), "the second queue's mark")
    syncobj.destroy()
    return passed(fences=len(pairs))
