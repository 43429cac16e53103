"""P55: deliberate hangs and faults through user queues."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from zinc_rt.kmd.errors import DriverError
from zinc_rt.pm4.packets import Nop, WriteData
from zinc_rt.probes.groups.faults import BAD_HEADER, FROZEN_SECONDS, start_spin
from zinc_rt.probes.kit.cases import Case, in_processes
from zinc_rt.probes.kit.context import ProbeContext, wait_until
from zinc_rt.probes.kit.probe_queue import ProbeQueue
from zinc_rt.probes.kit.shaders import explain_missing_kernels, find_generation_in_child
from zinc_rt.probes.outcome import T2, Outcome, check, is_device_lost, symptom
from zinc_rt.probes.probe import fails, probe, proves

BAD_ADDRESS = 0xDEADBEE0  # IGT's
DETECTION_SECONDS = 15.0  # above amdgpu's compute time-out, after which its hang detection resets a queue


@probe("P55", "user-queue hang", (T2,), hazard=2, needs=("P52",), seconds=150.0)
@proves(
    "a hung user queue is ended, without effect on others",
    passes_when=(
        f"within {DETECTION_SECONDS:g} s the kernel ends its fence, or the end of its process ends the queue; "
        "a bad address is in GPUVM_FAULT, VRAM survives; P20 passes after it; so for an illegal packet, a bad "
        "address and a shader without an end"
    ),
)
@fails(
    symptom("vram-lost"),
    "the driver reset the whole GPU instead of the queue, and VRAM's content is gone",
    "newer kernel (6.19 resets the queue alone) and linux-firmware; keep --hazard 1 while others use it",
)
@fails(
    symptom("deadline", "stuck-in-kernel"),
    "MES did not release the queue at the end of its process, or FREE waits for its fence (Linux 6.19 and later)",
    "use a newer kernel; on this one only a reboot or /sys/kernel/debug/dri/*/amdgpu_gpu_recover ends it",
)
@fails(symptom("no-fault-record"), "the fault was not recorded", "please report the kernel")
@fails(symptom("accepted"), "this chip implements the packet, or the address is mapped", "see the report")
@fails(is_device_lost, "the GPU was lost in the reset", "reboot; use newer kernel and firmware")
def probe_hangs(c: ProbeContext) -> Outcome:
    cases: dict[str, Case] = {"opcode 0xf2": _send_bad_opcode, "bad address": _send_bad_address}
    no_shaders = explain_missing_kernels(find_generation_in_child(c))
    if not no_shaders:
        cases["long shader"] = _run_long_shader
    outcome = in_processes(c, cases, 3 * DETECTION_SECONDS)
    return replace(outcome, notes=(*outcome.notes, f"packets only: {no_shaders}")) if no_shaders else outcome


def _send_bad_opcode(c: ProbeContext) -> dict[str, Any]:
    return _check_hang(c, lambda queue: queue.raw([BAD_HEADER, 0], "bad packet"))


def _send_bad_address(c: ProbeContext) -> dict[str, Any]:
    def send(queue: ProbeQueue) -> None:
        queue.run([Nop(), WriteData(BAD_ADDRESS, (1,), wr_confirm=1)], "bad address")

    outcome = _check_hang(c, send)
    check(
        outcome.get("fault") == hex(BAD_ADDRESS & -4096),
        "no-fault-record",
        f"GPUVM_FAULT reports {outcome.get('fault', 'nothing')}, the write was to {BAD_ADDRESS:#x}",
    )
    return outcome


def _run_long_shader(c: ProbeContext) -> dict[str, Any]:
    """Run a shader that never ends. A user queue has no save area for waves, so it can only be killed."""
    return _check_hang(c, lambda queue: (start_spin(c, queue), None)[1])


def _check_hang(c: ProbeContext, send: Callable[[ProbeQueue], None]) -> dict[str, Any]:
    """Hang a queue with a kernel fence, and wait for the kernel's hang detection, which USERQ_SIGNAL arms.

    On a kernel without it, the queue is freed when this process ends: from Linux 6.19 on, FREE waits for the fence
    without limit.
    """
    c.expected.add("page-fault")
    queue, gpu = c.queue(), c.userq
    lost_before = gpu.node.query_vram_lost_count()
    queue.finish([Nop()], "before")
    send(queue)
    fence = queue.submit([Nop()], "behind it")
    ended = gpu.create_syncobj("ended")
    gpu.signal(queue.kmd_queue, [ended])
    start = time.monotonic()
    came = wait_until(fence.reached, FROZEN_SECONDS, 0.01)
    check(
        not came,
        "accepted",
        "the submission that should have stopped the queue did not",
        evidence=queue.collect_evidence(),
    )
    fault = gpu.fault()
    result: dict[str, Any] = {"rptr": queue.collect_evidence().rptr}
    if fault is not None:
        result["fault"] = hex(fault.va)
    if not ended.wait(c.scale_timeout(DETECTION_SECONDS)):
        c.leave_open()
        return result | {"hang_detection": "none: only a deadline of the program sees the hang"}
    result["detected_ms"] = round((time.monotonic() - start) * 1e3)
    try:
        queue.close()
    except DriverError as error:
        result["free"] = errno.errorcode.get(error.errno, str(error.errno))
    lost = gpu.node.query_vram_lost_count() - lost_before
    check(not lost, "vram-lost", f"VRAM was lost {lost} times: all of its contents must be uploaded again")
    return result
