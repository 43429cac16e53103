"""Cause and advice of an outcome: the probe's own, what the failed call says, or what any probe can run into."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from zinc_rt.probes.layout_differences import difference
from zinc_rt.probes.outcome import Outcome
from zinc_rt.probes.probe import Probe

if TYPE_CHECKING:
    pass

MEND_LAYOUT = "hold zinc_rt/kmd/uapi against the kernel's include/uapi; please report it"


EVERYWHERE = {  # symptom → cause, advice, for what any probe can run into
    "deadline": (
        "a system call or a wait of the probe did not come back",
        "`dmesg | grep -iE 'amdgpu|kfd|mes'`; a hung GPU needs a reset or a reboot",
    ),
    "stuck-in-kernel": ("the kernel waits for the GPU and cannot be interrupted", "save your work and boot again"),
    "crashed": (
        "the probe's process died: memory the device or driver took away, or a fault of ZINC_RT",
        "run it again; where it repeats, report it with --bundle",
    ),
    "unexpected": ("a fault of ZINC_RT, not of the device", "please report it, with the --bundle folder"),
    "gpu-gone": (
        "the GPU does not answer any more: reset, fallen off the bus, or its driver is gone",
        "close every program that uses it; `dmesg | grep -i amdgpu` says whether a reset worked; else boot again",
    ),
    "rptr-stuck": (
        "nothing of the ring was fetched: the doorbell did not arrive, or the queue is not on the hardware",
        "P17 and P18 look at doorbells; `dmesg | grep -iE 'mes|evict'` at the scheduler",
    ),
    "rptr-stopped": (
        "the command processor stands at a packet: illegal, blocking, or its memory is not there",
        "read the packet at rptr in the report (--bundle DIR)",
    ),
    "no-fence": (
        "everything was read, but the end of the pipe never wrote the fence",
        "P20 tests the fence alone; look for page faults in `dmesg`",
    ),
    "not-alive": (
        "what the probe did on purpose was not cleaned up by the driver",
        "update linux-firmware and the kernel; keep --hazard 1 on this machine until then",
    ),
}


def explained(probe: Probe, outcome: Outcome) -> Outcome:
    """The outcome with cause and advice: the probe's own signature, what the failed call says, or what any probe
    can meet."""
    if outcome.status == "pass" or (outcome.status == "skip" and outcome.cause):
        return outcome
    if outcome.call and (slip := difference(outcome.call)):
        return replace(outcome, cause=slip, advice=MEND_LAYOUT)
    for each in probe.signatures:
        if each.matches(outcome):
            return replace(outcome, cause=each.cause, advice=each.advice)
    if outcome.cause or outcome.status == "skip":
        return outcome
    cause, advice = EVERYWHERE.get(
        outcome.symptom,
        ("not one of the ways this probe is known to fail", "--bundle DIR keeps all there is to see"),
    )
    return replace(outcome, cause=cause, advice=advice)
