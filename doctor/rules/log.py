"""What went wrong while the driver started or ran, as the kernel's log tells it. Patterns: doctor/messages/."""

from __future__ import annotations

from collections.abc import Iterator

from zinc_rt.doctor.machine import InspectedMachine
from zinc_rt.doctor.rule import BOTH, T1, DoctorRule, Seen, from_events, logged

FALLBACKS_MANY = 5


def _interrupts(machine: InspectedMachine) -> Iterator[Seen]:
    events = machine.log.named("interrupts-lost") if machine.log else ()
    if len(events) >= FALLBACKS_MANY:
        yield from_events(machine, list(events), events[0].address)


def _resets_that_helped(machine: InspectedMachine) -> Iterator[Seen]:
    """A reset that came back is a warning of its own; one that did not is log.reset-failed."""
    yield from logged("reset")(machine)


_SEND = "zinc-rt pm4-test --bundle DIR gathers what to send on"
RULES = (
    DoctorRule(
        "log.discovery",
        "broken",
        "amdgpu does not know a block of this chip",
        "kernel or firmware is older than the card, or the card answers nonsense",
        "use a newer kernel and linux-firmware; if others drive this card with them: another slot, a power cycle",
        BOTH,
        logged("discovery"),
    ),
    DoctorRule(
        "log.vbios",
        "broken",
        "the card's VBIOS cannot be read or run",
        "amdgpu learns the board from it and does not start without",
        "in a virtual machine: pass the ROM (romfile=); else disable CSM, power cycle, reseat the card",
        BOTH,
        logged("vbios"),
    ),
    DoctorRule(
        "log.psp",
        "broken",
        "the PSP refused firmware or does not answer",
        "the card's security processor loads all other firmware: nothing starts without it",
        "power the machine off and on (a reboot keeps the PSP's state); then firmware and kernel of the same age",
        BOTH,
        logged("psp"),
    ),
    DoctorRule(
        "log.smu",
        "broken",
        "the SMU hangs or refuses commands",
        "it rules clocks, power and resets: what follows it in the log follows from it",
        "boot again; with amdgpu.runpm=0 if the GPU was idle before; compare linux-firmware and "
        "kernel with `known` rows",
        BOTH,
        logged("smu"),
    ),
    DoctorRule(
        "log.ring-test",
        "broken",
        "a ring failed its first test",
        "the engine behind it does not run: firmware that was loaded is not alive",
        "power the machine off and on; then firmware and kernel of the same age",
        BOTH,
        logged("ring-test"),
    ),
    DoctorRule(
        "log.page-fault",
        "warning",
        "a program on the GPU used an address it was not given",
        "the fault ends or hangs its queue: the first suspect is the program, not the driver",
        f"find whose process it was (pid in the line); for ours: zinc-rt pm4-test --device sim finds "
        f"such accesses. {_SEND}",
        BOTH,
        logged("page-fault"),
    ),
    DoctorRule(
        "log.illegal-instruction",
        "warning",
        "a command stream held what the command processor does not know",
        "the ring stops there: the first suspect is who wrote it",
        f"for ours: zinc-rt pm4 decode --lint. {_SEND}",
        BOTH,
        logged("illegal-instruction"),
    ),
    DoctorRule(
        "log.mes",
        "broken",
        "MES, the scheduler's firmware, does not answer",
        "it makes and removes every compute queue: none works until the GPU is reset",
        f"boot again; compare MES firmware, kernel and module with the rows quoted here; "
        f"amdgpu.runpm=0, cwsr_enable=0 to bisect. {_SEND}",
        BOTH,
        logged("mes"),
    ),
    DoctorRule(
        "log.preemption",
        "broken",
        "a queue could not be taken off the GPU",
        "its waves neither end nor save themselves: the driver resets the GPU next",
        f"amdgpu.cwsr_enable=0 tells whether saving waves is at fault. {_SEND}",
        (T1,),
        logged("queue-preemption"),
    ),
    DoctorRule(
        "log.ring-timeout",
        "broken",
        "a ring stood still until its time-out",
        "what ran there did not end: the driver resets the ring or the GPU next",
        f"find whose process it was; see what came before it. {_SEND}",
        BOTH,
        logged("ring-timeout"),
    ),
    DoctorRule(
        "log.ring-recovered",
        "warning",
        "a ring stood still and recovered",
        "work was lost, the GPU was not",
        _SEND,
        BOTH,
        logged("ring-recovered"),
    ),
    DoctorRule(
        "log.interrupts",
        "broken",
        "interrupts of the GPU get lost",
        "fences are noticed by a timer instead, half a second late: everything crawls or times out",
        "another slot; BIOS update; check `pci=nomsi` on the command line and amdgpu.msi; with iommu: iommu=pt",
        BOTH,
        _interrupts,
    ),
    DoctorRule(
        "log.resume-failed",
        "broken",
        "the GPU did not come back from suspend or reset",
        "a block of it failed to start again: it stays unusable until the machine boots",
        "boot again; where it came after a pause or suspend: amdgpu.runpm=0, and no suspend while the GPU works",
        BOTH,
        logged("resume-failed"),
    ),
    DoctorRule(
        "log.reset-failed",
        "broken",
        "the GPU could not be reset",
        "it stays unusable until the machine boots again",
        "power the machine off and on; the cause stands before it in the log",
        BOTH,
        logged("reset-failed"),
    ),
    DoctorRule(
        "log.reset",
        "warning",
        "the GPU was reset",
        "whatever it held is lost; programs that used it must start again",
        "the cause stands before it in the log",
        BOTH,
        _resets_that_helped,
    ),
    DoctorRule(
        "log.queue-create",
        "warning",
        "KFD could not make a queue",
        "the GPU has no queue left, or the scheduler refused it",
        "end other users of the GPU",
        (T1,),
        logged("queue-create"),
    ),
    DoctorRule(
        "log.gpu-memory",
        "warning",
        "the GPU ran out of memory",
        "an allocation failed; evicting VRAM into system memory takes its time",
        "a smaller model or context; end other users of the GPU; ttm.pages_limit for system memory",
        BOTH,
        logged("gpu-memory"),
    ),
    DoctorRule(
        "log.oops",
        "broken",
        "the kernel crashed in amdgpu",
        "the driver's state is not to be trusted until the next boot",
        f"boot again; report the lines. {_SEND}",
        BOTH,
        logged("oops"),
    ),
    DoctorRule(
        "log.init-failed",
        "broken",
        "amdgpu gave up on the GPU while it started",
        "there is no device, no node and no tier until it starts",
        "the cause stands before it in the log",
        BOTH,
        logged("init-failed"),
    ),
)
