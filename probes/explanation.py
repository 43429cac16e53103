"""Return the cause and advice for an outcome: those of the probe, of the failed call, or general ones."""

from __future__ import annotations

from dataclasses import replace

from zinc_rt.probes.layout_differences import find_difference
from zinc_rt.probes.outcome import Outcome
from zinc_rt.probes.probe import Probe

MEND_LAYOUT = "compare zinc_rt/kmd/uapi with the kernel's include/uapi; please report it"
NO_EXECUTE = "(no execute)"  # a page fault of an instruction fetch, as KFD's exception events tell it
NOT_EXECUTABLE = "the memory of the code is mapped, but not executable for the GPU"
MAKE_EXECUTABLE = (
    "allocate it with KFD_IOC_ALLOC_MEM_FLAGS_EXECUTABLE (T1), or map it with AMDGPU_VM_PAGE_EXECUTABLE (T2); if "
    "the address is not the code's, PGM_LO and PGM_HI are wrong"
)


EVERYWHERE = {  # symptom → cause, advice, for what any probe can run into
    "deadline": (
        "a system call or a wait of the probe did not return",
        "`dmesg | grep -iE 'amdgpu|kfd|mes'`; a hung GPU needs a reset or a reboot",
    ),
    "stuck-in-kernel": ("the kernel waits for the GPU and cannot be interrupted", "save your work and reboot"),
    "not-released": (
        (
            "the driver does not take the probe's resources back: a queue whose work never ends is wedged, and "
            "Linux 6.19 and later wait for it without limit when a user queue is freed"
        ),
        "`dmesg | grep -iE 'amdgpu|kfd|mes'`; if P20 fails afterwards, the GPU needs a reset or a reboot",
    ),
    "crashed": (
        "the probe's process died: memory was unmapped by the device or driver, or a bug in ZINC_RT",
        "run it again; if it repeats, report it with --bundle",
    ),
    "unexpected": ("a bug in ZINC_RT, not in the device", "please report it, with the --bundle folder"),
    "gpu-gone": (
        "the GPU does not respond: it was reset, disappeared from the bus, or its driver is gone",
        (
            "close every program that uses it; `dmesg | grep -i amdgpu` shows whether a reset succeeded; "
            "otherwise reboot"
        ),
    ),
    "rptr-stuck": (
        "no packet of the ring was fetched: the doorbell did not arrive, or the queue is not mapped to hardware",
        "P17 and P18 test doorbells; `dmesg | grep -iE 'mes|evict'` shows errors of the scheduler",
    ),
    "rptr-stopped": (
        "the command processor stopped at a packet: it is illegal, blocks, or its memory is not mapped",
        "read the packet at rptr in the report (--bundle DIR)",
    ),
    "no-fence": (
        "everything was read, but the end of the pipe did not write the fence",
        "P20 tests only the fence; check `dmesg` for page faults",
    ),
    "not-alive": (
        "the driver did not clean up after a deliberate fault or hang of the probe",
        "update linux-firmware and the kernel; keep --hazard 1 on this machine until then",
    ),
}


def explain_outcome(probe: Probe, outcome: Outcome) -> Outcome:
    """Return the outcome with cause and advice: the matching signature of the probe, the failed call, or a
    general cause."""
    if outcome.status == "pass" or (outcome.status == "skip" and outcome.cause):
        return outcome
    if outcome.call and (slip := find_difference(outcome.call)):
        return replace(outcome, cause=slip, advice=MEND_LAYOUT)
    if NO_EXECUTE in outcome.text:
        return replace(outcome, cause=NOT_EXECUTABLE, advice=MAKE_EXECUTABLE)
    for signature in probe.signatures:
        if signature.matches(outcome):
            return replace(outcome, cause=signature.cause, advice=signature.advice)
    if outcome.cause or outcome.status == "skip":
        return outcome
    cause, advice = EVERYWHERE.get(
        outcome.symptom,
        ("not a known failure of this probe", "--bundle DIR saves all available evidence"),
    )
    return replace(outcome, cause=cause, advice=advice)
