"""P55: deliberate hangs and faults through user queues."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from zinc_rt.kmd.errors import DriverError
from zinc_rt.pm4.packets import Nop, WriteData
from zinc_rt.probes.groups.faults import BAD_HEADER, FROZEN_SECONDS, spin
from zinc_rt.probes.kit.cases import Case, in_processes
from zinc_rt.probes.kit.context import ProbeContext, until
from zinc_rt.probes.kit.probe_queue import ProbeQueue
from zinc_rt.probes.kit.recovery import RESET_SECONDS
from zinc_rt.probes.kit.shaders import generation_apart, no_kernels
from zinc_rt.probes.outcome import T2, Outcome, check, gone, symptom
from zinc_rt.probes.probe import fails, probe, proves

BAD_ADDRESS = 0xDEADBEE0  # IGT's


@probe("P55", "user-queue hang", (T2,), hazard=2, needs=("P52",), seconds=150.0)
@proves(
    "a hung user queue is detected and ended, without effect on others",
    passes_when=(
        f"its kernel fence ends within {RESET_SECONDS:g} s, a bad address is in GPUVM_FAULT, VRAM survives; P20 "
        "passes after it; so for an illegal packet, a bad address and a shader without an end"
    ),
)
@fails(
    symptom("vram-lost"),
    "the driver reset the whole GPU instead of the queue, and VRAM's content is gone",
    "newer kernel (6.19 resets the queue alone) and linux-firmware; keep --hazard 1 while others use it",
)
@fails(
    symptom("no-end", "deadline", "stuck-in-kernel"),
    "the kernel does not detect hung user queues (before 6.19), or MES did not release it",
    "use a newer kernel; on this one only a reboot or /sys/kernel/debug/dri/*/amdgpu_gpu_recover ends it",
)
@fails(symptom("no-fault-record"), "the fault was not recorded", "please report the kernel")
@fails(symptom("accepted"), "this chip implements the packet, or the address is mapped", "see the report")
@fails(gone, "the GPU was lost in the reset", "reboot; use newer kernel and firmware")
def hangs(c: ProbeContext) -> Outcome:
    cases: dict[str, Case] = {"opcode 0xf2": _bad_opcode, "bad address": _bad_address}
    no_shaders = no_kernels(generation_apart(c))
    if not no_shaders:
        cases["long shader"] = _long_shader
    outcome = in_processes(c, cases, 3 * RESET_SECONDS)
    return replace(outcome, notes=(*outcome.notes, f"packets only: {no_shaders}")) if no_shaders else outcome


def _bad_opcode(c: ProbeContext) -> dict[str, Any]:
    return _hang(c, lambda queue: queue.raw([BAD_HEADER, 0], "bad packet"))


def _bad_address(c: ProbeContext) -> dict[str, Any]:
    def send(queue: ProbeQueue) -> None:
        queue.run([Nop(), WriteData(BAD_ADDRESS, (1,), wr_confirm=1)], "bad address")

    found = _hang(c, send)
    check(
        found.get("fault") == hex(BAD_ADDRESS & -4096),
        "no-fault-record",
        f"GPUVM_FAULT reports {found.get('fault', 'nothing')}, the write was to {BAD_ADDRESS:#x}",
    )
    return found


def _long_shader(c: ProbeContext) -> dict[str, Any]:
    """A user queue has no area to save waves to: one that never ends can only be killed."""
    return _hang(c, lambda queue: (spin(c, queue), None)[1])


def _hang(c: ProbeContext, send: Callable[[ProbeQueue], None]) -> dict[str, Any]:
    """The fence never comes; FREE (or a reset before it) ends the kernel's fence with an error."""
    c.expected.add("page-fault")
    queue, gpu = c.queue(), c.userq
    lost_before = gpu.node.vram_lost_count()
    queue.finish([Nop()], "before")
    send(queue)
    fence = queue.submit([Nop()], "behind it")
    ended = gpu.syncobj("ended")
    gpu.signal(queue.kmd_queue, [ended])
    came = until(fence.reached, FROZEN_SECONDS, 0.01)
    check(
        not came,
        "accepted",
        "the submission that should have stopped the queue did not",
        evidence=queue.evidence(),
    )
    fault = gpu.fault()
    rptr = queue.evidence().rptr
    began = time.monotonic()
    trouble = ""
    try:
        queue.close()
    except DriverError as error:
        trouble = errno.errorcode.get(error.errno, str(error.errno))
    how = _how_it_ended(ended, c.scaled(RESET_SECONDS))
    seconds = time.monotonic() - began
    lost = gpu.node.vram_lost_count() - lost_before
    check(how != "", "no-end", f"neither FREE nor a reset ended the kernel's fence within {RESET_SECONDS:g} s")
    check(not lost, "vram-lost", f"VRAM was lost {lost} times: all of its contents must be uploaded again")
    said: dict[str, Any] = {"rptr": rptr, "fence": how, "free_ms": round(seconds * 1e3)}
    if trouble:
        said["free"] = trouble
    if fault is not None:
        said["fault"] = hex(fault.va)
    return said


def _how_it_ended(syncobj: Any, seconds: float) -> str:
    """ "ECANCELED" where the wait says so; drm_syncobj_wait may also just return, the error stays in the fence."""
    try:
        return "signalled" if syncobj.wait(seconds) else ""
    except DriverError as error:
        return errno.errorcode.get(error.errno, str(error.errno))
