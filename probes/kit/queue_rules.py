"""Determine the rule of CREATE_QUEUE that a rejected request violates, by substitution.

A separate request over separate buffers is built until the kernel accepts it. Then each part of the
rejected request is substituted individually: the parts with which the kernel rejects it again are wrong.
Sizes are literals from the kernel sources and the layout is that of the simulated device, not of the
runtime, so a wrong constant of the runtime is found as well (for its layout see
probes/layout_differences.py).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from zinc_rt.kmd.cwsr import CwsrSizes, list_cwsr_sizes
from zinc_rt.kmd.errors import DriverError, format_errno
from zinc_rt.kmd.transport import Placement
from zinc_rt.kmd.uapi import kfd
from zinc_rt.kmd.uapi.structs import Ioctl, StructBytes
from zinc_rt.probes.kit.context import ProbeContext
from zinc_rt.probes.layout_differences import find_difference
from zinc_rt.probes.outcome import ProbeFailed
from zinc_rt.sim.tables import kfd as header

PAGE_BYTES = 4096
RING_BYTES = 1 << 16
EOP_BYTES = 4096  # eop_buffer_size of gfx8 and later: amdkfd/kfd_queue.c
COMPUTE = 0  # KFD_IOC_QUEUE_TYPE_COMPUTE: include/uapi/linux/kfd_ioctl.h

_DEVICE = (errno.ENODEV, errno.EIO, errno.ETIME, errno.ETIMEDOUT)  # the GPU or its firmware, not the request

Fields = dict[str, int]
Call = Callable[[Ioctl, StructBytes], StructBytes]  # KfdProcess.ioctl
SENT = tuple(name for name in header.CREATE_QUEUE.fields if name not in ("doorbell_offset", "queue_id"))


@dataclass(frozen=True, slots=True)
class QueueRule:
    """Fields that the kernel checks together, with the rule for them."""

    name: str
    fields: tuple[str, ...]
    wants: str


# kfd_queue_acquire_buffers and kfd_queue_buffer_get in amdkfd/kfd_queue.c, set_queue_properties_from_user in
# amdkfd/kfd_chardev.c, init_user_queue in amdkfd/kfd_process_queue_manager.c
RULES = (
    QueueRule(
        "the ring", ("ring_base_address", "ring_size"), "a power of two, and a mapping of exactly that size"
    ),
    QueueRule("wptr", ("write_pointer_address",), "a separate page in this GPU's GTT"),
    QueueRule("rptr", ("read_pointer_address",), "a separate page"),
    QueueRule(
        "the EOP buffer", ("eop_buffer_address", "eop_buffer_size"), f"{EOP_BYTES} bytes, a separate mapping"
    ),
    QueueRule(
        "the context save area",
        ("ctx_save_restore_address", "ctx_save_restore_size", "ctl_stack_size"),
        "the kernel's own control stack size, and a mapping of exactly the computed size",
    ),
    QueueRule("the priority", ("queue_priority",), "0 to 15"),
    QueueRule("the percentage", ("queue_percentage",), "0 to 100 in bits 7:0"),
    QueueRule("the type", ("queue_type",), f"{COMPUTE}, a PM4 compute queue"),
    QueueRule("the GPU", ("gpu_id",), "the topology node's gpu_id"),
)


@contextmanager
def explain_refusals(c: ProbeContext) -> Iterator[None]:
    """Analyse a rejected CREATE_QUEUE of the runtime inside this context, while its buffers still exist.

    Raises Failed with the rule instead of the runtime's error, unless the analysis finds nothing.
    """
    ioctl = c.process.file.ioctl
    cause = ""

    def call(command: Ioctl, record: StructBytes, about: str = "") -> StructBytes:
        nonlocal cause
        try:
            return ioctl(command, record, about)
        except DriverError as error:
            if command is kfd.IOC_CREATE_QUEUE and error.errno not in _DEVICE:
                refused = {name: record[name] for name in record.struct.fields if name in SENT}
                cause = find_difference(command.name) or find_failing_rule(c, refused, ioctl)
            raise

    setattr(c.process.file, "ioctl", call)  # noqa: B010  (of this process alone, which runs one probe)
    try:
        yield
    except DriverError as error:
        if not cause:
            raise
        reason = f"CREATE_QUEUE: {format_errno(error.errno)}; {cause}"
        raise ProbeFailed("queue-rule", reason, call=error.call, errno=error.errno) from error
    finally:
        setattr(c.process.file, "ioctl", ioctl)  # noqa: B010


def find_failing_rule(c: ProbeContext, refused: Fields, call: Call) -> str:
    """Return the part of `refused` that the kernel rejects, as a sentence.

    Empty if this module's request gets the same errno, because the request is then not the cause.
    """
    reference, why_not = _find_accepted(c, call)
    if reference is None:
        return why_not
    broken = []
    for rule in RULES:
        theirs = {name: refused[name] for name in rule.fields}
        if not _predict_errno(reference | theirs, call):
            continue
        alone = [name for name in rule.fields if _predict_errno(reference | {name: refused[name]}, call)]
        names = [name for name in alone if not name.endswith("_address")] or alone or rule.fields
        seen = ", ".join(f"{name} {refused[name]:#x}" for name in names)
        taken = ", ".join(f"{reference[name]:#x}" for name in names)
        broken.append(
            f"{rule.name}: {seen} is rejected where {taken} is accepted; the kernel requires {rule.wants}"
        )
    return (
        "; ".join(broken)
        or "each part is accepted individually with the others replaced: two of them are incompatible"
    )


def pack_fields(fields: Mapping[str, int]) -> StructBytes:
    """Encode the request with the layout of the header, independently of the runtime."""
    return StructBytes(kfd.CREATE_QUEUE, header.CREATE_QUEUE.new(**fields).raw)


def _predict_errno(fields: Mapping[str, int], call: Call) -> int:
    """Return the errno with which the kernel rejects this queue; 0 if it is created, and then destroyed again."""
    request = pack_fields(fields)
    try:
        call(kfd.IOC_CREATE_QUEUE, request)
    except DriverError as error:
        if error.errno in _DEVICE:
            raise
        return error.errno
    queue_id = header.CREATE_QUEUE.read(request.raw)["queue_id"]
    call(kfd.IOC_DESTROY_QUEUE, kfd.DESTROY_QUEUE.new(queue_id=queue_id))
    return 0


def _find_accepted(c: ProbeContext, call: Call) -> tuple[Fields | None, str]:
    """Find a request that the kernel accepts, or return the rejected ones. Errnos other than EINVAL are not
    interpreted.
    """
    gpu = c.gpu
    fields = {
        "ring_base_address": gpu.alloc(RING_BYTES, Placement.GTT, "own ring").gpu_va,
        "write_pointer_address": gpu.alloc(PAGE_BYTES, Placement.GTT, "own wptr").gpu_va,
        "read_pointer_address": gpu.alloc(PAGE_BYTES, Placement.GTT, "own rptr").gpu_va,
        "ring_size": RING_BYTES,
        "gpu_id": c.node.gpu_id,
        "queue_type": COMPUTE,
        "queue_percentage": 100,
        "queue_priority": 7,
        "eop_buffer_address": gpu.alloc(EOP_BYTES, Placement.VRAM, "own eop").gpu_va,
        "eop_buffer_size": EOP_BYTES,
    }
    tried = []
    for sizes in _save_areas(list_cwsr_sizes(c.node)):
        area = gpu.alloc(sizes.buffer_bytes, Placement.GTT, "own save area")
        whole = fields | {
            "ctx_save_restore_address": area.gpu_va,
            "ctx_save_restore_size": sizes.save_bytes,
            "ctl_stack_size": sizes.control_stack_bytes,
        }
        refusal = _predict_errno(whole, call)
        if refusal not in (0, errno.EINVAL):
            return None, ""
        if not refusal:
            return whole, ""
        area.free()
        tried.append(f"{sizes.control_stack_bytes:#x}")
    without = {"eop_buffer_address": 0, "eop_buffer_size": 0}
    if not _predict_errno(whole | without, call):
        return whole | without, ""
    stacks = ", ".join(tried)
    return None, f"no request is accepted, not even with every part replaced (control stacks of {stacks} bytes)"


def _save_areas(known: tuple[CwsrSizes, ...]) -> Iterator[CwsrSizes]:
    """Yield the sizes that this chip may require, then control stacks that differ by a few pages."""
    yield from known
    for sizes in known:
        for pages in (1, -1, 2, -2, 3, -3):
            stack = sizes.control_stack_bytes + pages * PAGE_BYTES
            if stack > 0:
                yield replace(sizes, control_stack_bytes=stack)
