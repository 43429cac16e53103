"""P42 to P45: deliberate faults and hangs through KFD."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from zinc_rt.backends.amd.fence import TimelineFence
from zinc_rt.kmd.driver import ANONYMOUS, PROT_NONE
from zinc_rt.kmd.errors import DriverError, format_errno
from zinc_rt.kmd.transport import Placement
from zinc_rt.pm4 import BAD_OPCODE
from zinc_rt.pm4.packet import Packet
from zinc_rt.pm4.packets import Nop, WaitRegMem, WriteData
from zinc_rt.probes.groups.cp_basic import NOT_FETCHED
from zinc_rt.probes.kit.cases import Case, in_processes
from zinc_rt.probes.kit.context import ProbeContext, wait_until
from zinc_rt.probes.kit.mapped_buffer import MappedBuffer
from zinc_rt.probes.kit.probe_queue import FREE_AT, ProbeQueue
from zinc_rt.probes.kit.recovery import (
    DESTROY_SECONDS,
    RESET_SECONDS,
    check_destroy,
    check_preemption,
    check_recovery,
)
from zinc_rt.probes.kit.shaders import ShaderBench, explain_missing_kernels, find_generation_in_child
from zinc_rt.probes.outcome import (
    T1,
    Outcome,
    Signature,
    check,
    is_device_lost,
    make_skip,
    match_failed_call,
    symptom,
)
from zinc_rt.probes.probe import fails, fails_like, probe, proves

FAULT_SECONDS = 5.0
FROZEN_SECONDS = 0.5  # a packet that stops a queue has done so by then
HELD_SECONDS = 5.0
BAD_HEADER = 0xC000_0000 | BAD_OPCODE << 8
RELEASE_MEM_TOO_LONG = (
    0xC007_4900  # RELEASE_MEM with count + 1: the next packet's header becomes its body (kfdtest)
)

_MES = "update linux-firmware; `dmesg | grep -i mes`"
_RESET_LATE = Signature(
    symptom("not-back"),
    "the reset failed: the GPU is lost",
    "reboot; amdgpu.gpu_recovery=1 and newer firmware; keep --hazard 1 on this machine until then",
)


@probe("P42", "memory fault", (T1,), hazard=2, needs=("P22", "P23"), seconds=60.0)
@proves(
    "an invalid address is reported",
    passes_when=(
        f"a MEMORY event within {FAULT_SECONDS:g} s with the page's address: NotPresent, ReadOnly; P20 passes "
        "after it"
    ),
)
@fails(
    symptom("no-event"),
    "the fault was not delivered: retry faults (amdgpu.noretry), XNACK, or a dropped interrupt",
    "boot with amdgpu.noretry=1; without the event an invalid address appears only as a missing fence",
)
@fails(symptom("whole-reset"), "the driver reset the whole GPU for a page fault", "newer kernel and firmware")
@fails(symptom("wrong-page", "wrong-kind"), "the kernel decodes the fault differently", "please report the kernel")
@fails_like(NOT_FETCHED)
def probe_memory_fault(c: ProbeContext) -> Outcome:
    cases: dict[str, Case] = {}
    for by_wave in (False,) if explain_missing_kernels(find_generation_in_child(c)) else (False, True):
        for name, location, kind in (
            ("unmapped", _reserve_unmapped_va, "not_present"),
            ("read-only", _map_read_only_va, "read_only"),
        ):
            case = partial(_check_fault, place=location, kind=kind, by_wave=by_wave)
            cases[f"{name}, by a wave" if by_wave else name] = case
    return in_processes(c, cases, 3 * FAULT_SECONDS)


def _reserve_unmapped_va(c: ProbeContext) -> int:
    return c.driver.mmap(ANONYMOUS, 16 * 4096, 0, PROT_NONE).address + 4096 + 64


def _map_read_only_va(c: ProbeContext) -> int:
    return c.gpu.alloc(4096, Placement.GTT, "read-only page", writable=False).gpu_va + 64


def _check_fault(
    c: ProbeContext, place: Callable[[ProbeContext], int], kind: str, *, by_wave: bool
) -> dict[str, Any]:
    """Check that a write to the address at `place` faults, and that the kernel reports the page's address."""
    va = place(c)
    c.expected.add("page-fault")
    queue = c.queue()
    write: list[Packet] = [Nop(), WriteData(va, (0xBAD,), wr_confirm=1)]
    if by_wave:
        bench = ShaderBench(c, queue=queue)
        bench.finish(bench.launch(bench.load("store"), [queue.memory.gpu_va + FREE_AT + 64]), "good write")
        write = bench.launch(bench.load("store"), [va])
    start = time.monotonic()
    queue.run([*write, queue.release(queue.memory.gpu_va + FREE_AT, 1)], "bad write")
    side = c.side

    def has_incident() -> bool:
        side.look()
        return bool(side.incidents)

    seconds = c.scale_timeout(FAULT_SECONDS)
    wait_until(has_incident, seconds, 0.01)
    faults = [incident.fault for incident in side.incidents if incident.fault is not None]
    if not faults:
        resets = [incident.text for incident in side.incidents]
        check(not resets, "whole-reset", f"no MEMORY event, but {'; '.join(resets)}")
        raise queue.make_stuck_error(
            f"no MEMORY event within {seconds:g} s after a write to {va:#x}", symptom="no-event"
        )
    fault = faults[0]
    check(fault.va == va & -4096, "wrong-page", f"the fault reports {fault.va:#x}, the write was to {va:#x}")
    check(getattr(fault, kind), "wrong-kind", f"the fault at {va:#x} is not marked {kind}: {fault}")
    measure = {"page": hex(fault.va), "milliseconds": round((time.monotonic() - start) * 1e3)}
    try:
        queue.close()
    except DriverError as error:  # the queue is gone all the same; P20 says whether the GPU minded
        measure["destroy"] = format_errno(error.errno)
        check_recovery(c)
    return measure


@probe("P43", "illegal instruction", (T1,), hazard=2, needs=("P33", "P13"), seconds=90.0)
@proves(
    "a wave that cannot continue affects only its queue",
    passes_when=f"its fence never comes, DESTROY takes the queue away in under {DESTROY_SECONDS:g} s; P20 passes "
    "after it",
)
@fails(
    symptom("accepted", "ran-on"),
    "this chip implements the instruction, or skips unknown ones",
    "0xbfff0000 is not suitable for testing illegal instructions here; please report the chip",
)
@fails(
    symptom("not-preempted", "slow-destroy", "deadline", "stuck-in-kernel"),
    "a dead wave cannot be saved: MES did not respond, and the driver had to reset (ETIME)",
    _MES,
)
@fails(symptom("not-alive"), "the GPU did not recover", _RESET_LATE.advice)
@fails_like(NOT_FETCHED)
def probe_illegal_instruction(c: ProbeContext) -> Outcome:
    reason = explain_missing_kernels(find_generation_in_child(c))
    return (
        make_skip(reason) if reason else in_processes(c, {"illegal": _run_illegal_instruction}, RESET_SECONDS * 2)
    )


def _run_illegal_instruction(c: ProbeContext) -> dict[str, Any]:
    c.expected.add("illegal")
    queue = c.queue()
    bench = ShaderBench(c, queue=queue)
    out = queue.memory.gpu_va + FREE_AT
    queue.memory.put32(FREE_AT, 0)
    bench.finish(bench.launch(bench.load("empty")), "before")
    fence = queue.submit(bench.launch(bench.load("illegal"), [out]), "illegal instruction")
    came = wait_until(fence.reached, FROZEN_SECONDS, 0.01)
    evidence = queue.collect_evidence()
    check(
        queue.memory.u32(FREE_AT) == 0,
        "ran-on",
        "code after the illegal instruction ran",
        evidence=evidence,
    )
    check(not came, "accepted", "the wave ended as if no error had occurred", evidence=evidence)
    return {"rptr": evidence.rptr, **check_preemption(c, queue, "a queue with a dead wave")}


@probe("P44", "bad packet", (T1,), hazard=2, needs=("P20", "P13"), seconds=120.0)
@proves(
    "an illegal packet stops one queue, not the machine",
    passes_when=(
        f"rptr freezes, DESTROY returns, a reset is told by HW_EXCEPTION within {RESET_SECONDS:g} s; P20 passes "
        "after it"
    ),
)
@fails_like(_RESET_LATE)
@fails(is_device_lost, "the GPU was lost in the reset", _RESET_LATE.advice)
@fails(
    symptom("accepted"),
    "this chip implements the packet",
    "it is not suitable for testing illegal packets here; use 0xCC",
)
@fails(
    symptom("no-exception"), "no process is notified of a reset", "newer kernel; amdgpu.gpu_recovery must not be 0"
)
@fails(symptom("slow-destroy", "deadline", "stuck-in-kernel"), "MES does not release the queue", _MES)
@fails(symptom("not-alive"), "the GPU did not recover", _RESET_LATE.advice)
def probe_bad_packet(c: ProbeContext) -> Outcome:
    cases: dict[str, Case] = {
        "opcode 0xf2": partial(_check_hang, words=[BAD_HEADER, 0]),
        # data_sel 0 and no address: it would write nothing
        "RELEASE_MEM too long": partial(_check_hang, words=[RELEASE_MEM_TOO_LONG, 0x514, 0, 0, 0, 0, 0, 0]),
    }
    return in_processes(c, cases, RESET_SECONDS * 2)


def _check_hang(c: ProbeContext, words: list[int]) -> dict[str, Any]:
    """Check that the queue hangs and can be destroyed, and that the GPU works afterwards."""
    queue = c.queue()
    index = FREE_AT
    queue.finish([Nop()], "before")
    queue.raw(words, "bad packet")
    queue.run([queue.release(queue.memory.gpu_va + index, 1), *[Nop()] * 16], "behind it")
    accepted = wait_until(lambda: queue.memory.u32(index) == 1, FROZEN_SECONDS, 0.01)
    evidence = queue.collect_evidence(f"{queue.memory.u32(index):#x}")
    check(
        not accepted,
        "accepted",
        "the illegal packet did not stop the queue: the following fence arrived",
        evidence=evidence,
    )
    return {"rptr": evidence.rptr, **check_destroy(c, queue)}


@probe("P45", "endless wait, endless shader", (T1,), hazard=2, needs=("P26",), seconds=120.0)
@proves(
    "a queue that waits or spins can be released and can be removed from the hardware (CWSR)",
    passes_when=(
        f"held {HELD_SECONDS:g} s, then released; DESTROY while waiting and while spinning in under "
        f"{DESTROY_SECONDS:g} s without a reset"
    ),
)
@fails(
    lambda o: (
        o.symptom in ("not-preempted", "slow-destroy", "deadline", "stuck-in-kernel")
        or match_failed_call("DESTROY_QUEUE", errno.ETIME, errno.EIO)(o)
    ),
    "MES failed to respond to REMOVE_QUEUE: the queue was not saved, it was reset",
    f"{_MES}; gfx11 needs the PRIV workaround in RSRC1 for shaders",
)
@fails(symptom("early"), "see P26, and P33 for the shader", "-k P26,P33")
@fails(
    symptom("not-started", "lost-store"),
    "the wave's system-scope stores do not reach the host while it runs",
    "-k P41: host memory must be uncached for the GPU",
)
def probe_endless_wait(c: ProbeContext) -> Outcome:
    cases: dict[str, Case] = {"released": _release_wait, "destroyed": _destroy_waiting_queue}
    no_shaders = explain_missing_kernels(find_generation_in_child(c))
    if not no_shaders:
        cases |= {"spinning, released": _release_spin, "spinning, destroyed": _destroy_spinning_queue}
    outcome = in_processes(c, cases, HELD_SECONDS + RESET_SECONDS + 5)
    return replace(outcome, notes=(*outcome.notes, f"packets only: {no_shaders}")) if no_shaders else outcome


def _release_wait(c: ProbeContext) -> dict[str, Any]:
    queue = c.queue()
    held = c.scale_timeout(HELD_SECONDS)
    queue.memory.put32(FREE_AT, 0)
    fence = queue.submit([WaitRegMem(queue.memory.gpu_va + FREE_AT, 1)], "endless wait")
    time.sleep(held)
    check(
        not fence.done(),
        "early",
        f"a wait whose condition is false ended within {held:g} s",
        evidence=queue.collect_evidence(),
    )
    queue.memory.put32(FREE_AT, 1)
    fence.wait(c.poll_seconds)
    return {"seconds": held}


def _destroy_waiting_queue(c: ProbeContext) -> dict[str, Any]:
    queue = c.queue()
    queue.memory.put32(FREE_AT, 0)
    queue.submit([WaitRegMem(queue.memory.gpu_va + FREE_AT, 1)], "endless wait")
    time.sleep(0.1)
    return check_preemption(c, queue, "a waiting queue")


def start_spin(c: ProbeContext, queue: ProbeQueue) -> tuple[TimelineFence, MappedBuffer]:
    """Launch a wave that runs until the dword at FREE_AT of the queue's memory is not 0; it reports its
    start in the next dword."""
    bench = ShaderBench(c, queue=queue)
    stop, out = queue.memory.gpu_va + FREE_AT, queue.memory.gpu_va + FREE_AT + 64
    queue.memory.put32(FREE_AT, 0)
    queue.memory.put32(FREE_AT + 64, 0)
    fence = queue.submit(bench.launch(bench.load("spin"), [stop, out]), "endless shader")
    started = wait_until(lambda: queue.memory.u32(FREE_AT + 64) == 1, bench.seconds, 0.005)
    if not started:
        raise queue.make_stuck_error(
            f"the wave did not report its start within {bench.seconds:g} s", symptom="not-started"
        )
    return fence, queue.memory


def _release_spin(c: ProbeContext) -> dict[str, Any]:
    queue = c.queue()
    fence, memory = start_spin(c, queue)
    held = c.scale_timeout(HELD_SECONDS)
    time.sleep(held)
    check(
        not fence.done(),
        "early",
        f"a wave that should spin ended within {held:g} s",
        evidence=queue.collect_evidence(),
    )
    memory.put32(FREE_AT, 1)
    fence.wait(c.poll_seconds)
    check(
        memory.u32(FREE_AT + 64) == 2, "lost-store", f"at its end the wave left {memory.u32(FREE_AT + 64)}, not 2"
    )
    return {"seconds": held}


def _destroy_spinning_queue(c: ProbeContext) -> dict[str, Any]:
    queue = c.queue()
    start_spin(c, queue)
    return check_preemption(c, queue, "a spinning queue")
