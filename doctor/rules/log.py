"""Rules about kernel log messages during initialisation and operation. Patterns: doctor/messages/."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from zinc_rt.doctor.logs import LogEvent
from zinc_rt.doctor.machine import InspectedMachine
from zinc_rt.doctor.rule import BOTH, T1, DoctorRule, Observation, make_event_rule, observe_events

FALLBACKS_MANY, OF_ONE_RING = 5, 3
OVERFLOWS_MANY = 3


def _name_ring(event: LogEvent) -> str:
    match = re.search(r"timer expired on ring (\S+)", event.text)
    return match[1] if match else ""


def _check_interrupts(machine: InspectedMachine) -> Iterator[Observation]:
    events = machine.log.named("interrupts-lost") if machine.log else ()
    floods = [event for event in events if "ih_fifo overflow" in event.text]
    if len(floods) >= OVERFLOWS_MANY:
        yield replace(
            observe_events(machine, floods, floods[0].address),
            title="the GPU sends more interrupts than the driver can take",
            why="a faulting program sends one after the other; those of other programs are lost",
            next="end the program; check that it is built for this GPU (HSA_OVERRIDE_GFX_VERSION)",
        )
        return
    by_ring = Counter(filter(None, map(_name_ring, events)))
    if len(events) >= FALLBACKS_MANY or max(by_ring.values(), default=0) >= OF_ONE_RING:
        yield observe_events(machine, list(events), events[0].address)


def _check_failed_start(machine: InspectedMachine) -> Iterator[Observation]:
    """Report a failed start, unless the driver started this GPU later, for example after a reload."""
    log = machine.log
    failed = log.named("init-failed") if log else ()
    if all("finishing device" in event.text for event in failed):
        return  # the driver also says so where it is removed
    for seen in make_event_rule("init-failed")(machine):
        named = re.escape(seen.about) if seen.about else ""
        started = rf"Initialized amdgpu .*{named}" if named else "Initialized amdgpu"
        if log is None or not any(re.search(started, line) for line in log.lines[seen.at or 0 :]):
            yield seen


def _check_page_faults(machine: InspectedMachine) -> Iterator[Observation]:
    """Report page faults. VMID 0 is the address space of the driver and the firmware, not of a program."""
    faults = machine.log.named("page-fault") if machine.log else ()
    spaces = {match[1] for event in faults if (match := re.search(r"\bvmid:(\d+)", event.text))}
    for seen in make_event_rule("page-fault")(machine):
        if spaces != {"0"}:
            yield seen
            continue
        yield replace(
            seen,
            title="the GPU's firmware or the driver accessed an address that is not mapped (VMID 0)",
            why="no program has this address space: the GPU's state is wrong, often after a reset that failed",
            next=f"power-cycle the machine or the host of a VM; then newer firmware and kernel. {_SEND}",
        )


def _check_successful_resets(machine: InspectedMachine) -> Iterator[Observation]:
    """Report a successful reset as a warning; a failed one is log.reset-failed. What follows the end of the last
    reset is not its consequence."""
    events = machine.log.named("reset") if machine.log else ()
    ends = [event.at for event in events if re.search(r"GPU reset\(\d+\) succeeded", event.text)]
    begins = [event.at for event in events if "GPU reset begin" in event.text]
    ended = max(ends, default=None)
    for seen in make_event_rule("reset")(machine):
        yield replace(seen, until=ended if ended is not None and ended > max(begins, default=-1) else None)


def _check_unrecognised_lines(machine: InspectedMachine) -> Iterator[Observation]:
    if machine.log and machine.log.unrecognised:
        yield observe_events(machine, list(machine.log.unrecognised), machine.log.unrecognised[0].address)


_SEND = "zinc-rt pm4-test --hazard 0 --bundle DIR collects the data for a report"
RULES = (
    DoctorRule(
        "log.discovery",
        "broken",
        "amdgpu does not support a block of this chip",
        "the kernel or firmware is older than the card, or the card returns invalid data",
        (
            "use a newer kernel and linux-firmware; if others use this card with the present versions: "
            "another slot, a power cycle"
        ),
        BOTH,
        make_event_rule("discovery"),
    ),
    DoctorRule(
        "log.vbios",
        "broken",
        "the card's VBIOS cannot be read or executed",
        "amdgpu reads the board description from it and does not initialise without it",
        "in a virtual machine: pass the ROM (romfile=); otherwise disable CSM, power-cycle, reseat the card",
        BOTH,
        make_event_rule("vbios"),
    ),
    DoctorRule(
        "log.psp",
        "broken",
        "the PSP rejected firmware or does not respond",
        "the security processor loads all other firmware: nothing starts without it",
        "power-cycle the machine (a reboot keeps the PSP's state); then use firmware and kernel of the same age",
        BOTH,
        make_event_rule("psp"),
    ),
    DoctorRule(
        "log.smu",
        "broken",
        "the SMU hangs or rejects commands",
        "it controls clocks, power and resets: later errors in the log are consequences",
        (
            "reboot; with amdgpu.runpm=0 if the GPU was idle before; compare linux-firmware and kernel "
            "with `known` rows"
        ),
        BOTH,
        make_event_rule("smu"),
    ),
    DoctorRule(
        "log.ring-test",
        "broken",
        "a ring failed its first test",
        "its engine does not run: the loaded firmware is not active",
        "power-cycle the machine; then use firmware and kernel of the same age",
        BOTH,
        make_event_rule("ring-test"),
    ),
    DoctorRule(
        "log.page-fault",
        "warning",
        "a GPU program accessed an address that is not mapped for it",
        "the fault ends or hangs its queue: the most likely cause is the program, not the driver",
        f"find whose process it was (pid in the line); for ours: zinc-rt pm4-test --device sim finds "
        f"such accesses. {_SEND}",
        BOTH,
        _check_page_faults,
    ),
    DoctorRule(
        "log.illegal-instruction",
        "warning",
        "a command stream contained a packet that the command processor does not support",
        "the ring stops there: the most likely cause is the program that wrote it",
        f"for ours: zinc-rt pm4 decode --lint. {_SEND}",
        BOTH,
        make_event_rule("illegal-instruction"),
    ),
    DoctorRule(
        "log.mes",
        "broken",
        "MES, the scheduler firmware, does not respond",
        "it creates and removes every compute queue: none works until the GPU is reset",
        f"boot again; compare MES firmware, kernel and module with the rows quoted here; "
        f"amdgpu.runpm=0, cwsr_enable=0 to bisect. {_SEND}",
        BOTH,
        make_event_rule("mes"),
    ),
    DoctorRule(
        "log.preemption",
        "broken",
        "a queue could not be removed from the GPU",
        "its waves neither end nor are saved: the driver resets the GPU next",
        f"amdgpu.cwsr_enable=0 tells whether saving waves is at fault. {_SEND}",
        (T1,),
        make_event_rule("queue-preemption"),
    ),
    DoctorRule(
        "log.restore-failed",
        "broken",
        "KFD did not resume the queues of a program after its memory had been moved",
        "the program waits, or continues with mappings that are no longer valid",
        f"end the program; leave more memory free, so that less is moved; use a newer kernel. {_SEND}",
        (T1,),
        make_event_rule("restore-failed"),
    ),
    DoctorRule(
        "log.ring-timeout",
        "broken",
        "a ring made no progress until its timeout",
        "its work did not end: the driver resets the ring or the GPU next",
        f"find whose process it was; see what came before it. {_SEND}",
        BOTH,
        make_event_rule("ring-timeout"),
    ),
    DoctorRule(
        "log.ring-recovered",
        "warning",
        "a ring made no progress and recovered",
        "work was lost, but the GPU was not reset",
        _SEND,
        BOTH,
        make_event_rule("ring-recovered"),
    ),
    DoctorRule(
        "log.interrupts",
        "broken",
        "interrupts of the GPU are lost",
        "fences are detected by a timer instead, half a second late: everything is slow or times out",
        "another slot; BIOS update; check `pci=nomsi` on the command line and amdgpu.msi; with iommu: iommu=pt",
        BOTH,
        _check_interrupts,
    ),
    DoctorRule(
        "log.resume-failed",
        "broken",
        "the GPU did not recover from suspend or reset",
        "one of its blocks failed to restart: the GPU is unusable until a reboot",
        "reboot; if it happened after idle time or suspend: amdgpu.runpm=0, and no suspend while the GPU works",
        BOTH,
        make_event_rule("resume-failed"),
    ),
    DoctorRule(
        "log.reset-failed",
        "broken",
        "the GPU could not be reset",
        "it is unusable until a reboot",
        "power-cycle the machine; the cause precedes this message in the log",
        BOTH,
        make_event_rule("reset-failed"),
    ),
    DoctorRule(
        "log.reset",
        "warning",
        "the GPU was reset",
        "the contents of its memory are lost; programs that used it must be restarted",
        "the cause precedes this message in the log",
        BOTH,
        _check_successful_resets,
    ),
    DoctorRule(
        "log.queue-create",
        "warning",
        "KFD could not create a queue",
        "the GPU has no free queue, or the scheduler rejected it",
        "end other programs that use the GPU",
        (T1,),
        make_event_rule("queue-create"),
    ),
    DoctorRule(
        "log.gpu-memory",
        "warning",
        "the GPU ran out of memory",
        "an allocation failed, or VRAM was evicted to system memory, which is slow",
        "use a smaller model or context; end other programs that use the GPU; ttm.pages_limit for system memory",
        BOTH,
        make_event_rule("gpu-memory"),
    ),
    DoctorRule(
        "log.user-memory",
        "warning",
        "KFD cannot register memory of a program for the GPU",
        "the GPU would write it: -1 is a mapping that is read-only, such as a file, -14 one that is gone",
        "load the model without mmap (--no-mmap), or map it writable; for ours: report it with the log line",
        (T1,),
        make_event_rule("user-memory"),
    ),
    DoctorRule(
        "log.page-tables",
        "warning",
        "the driver could not change the GPU's page tables",
        "the program's buffers are not mapped: its next access faults",
        f"see the number in the line: -12 is memory, -125 a reset before. {_SEND}",
        BOTH,
        make_event_rule("page-tables"),
    ),
    DoctorRule(
        "log.queue-evicted",
        "warning",
        "a program's queue was ended while it had work",
        "the program freed a buffer that the queue needs, or was killed: the lines before say which",
        f"see the program's own output, and what comes before it in the log. {_SEND}",
        BOTH,
        make_event_rule("queue-evicted"),
    ),
    DoctorRule(
        "log.smu-refused",
        "warning",
        "the SMU refused a command",
        "a clock, limit or feature is not as requested; compute continues, at another speed",
        "undo overclocking and power limits; newer firmware and kernel if it fails at every boot",
        BOTH,
        make_event_rule("smu-refused"),
    ),
    DoctorRule(
        "log.sriov",
        "broken",
        "the host's driver does not answer this virtual function",
        "a virtual function starts, resets and stops only with the help of the host's driver",
        "see the host's log; restart the virtual machine, then the host; use drivers of one release on both",
        BOTH,
        make_event_rule("sriov"),
    ),
    DoctorRule(
        "log.xgmi",
        "warning",
        "the links between the GPUs (XGMI) are not set up",
        "the GPUs reach each other over PCIe only, or do not start",
        "power-cycle the machine; reseat the bridge, or start without it to compare",
        BOTH,
        make_event_rule("xgmi"),
    ),
    DoctorRule(
        "log.oops",
        "broken",
        "the kernel crashed in amdgpu",
        "the driver's state is unreliable until the next reboot",
        f"boot again; report the lines. {_SEND}",
        BOTH,
        make_event_rule("oops"),
    ),
    DoctorRule(
        "log.unrecognised",
        "note",
        "the driver reports errors that this version of doctor does not know",
        "they may be harmless, or the cause of what you see",
        f"search for the text of the first line; report it with the capture. {_SEND}",
        BOTH,
        _check_unrecognised_lines,
    ),
    DoctorRule(
        "log.init-failed",
        "broken",
        "amdgpu failed to initialise the GPU",
        "there is no device, node or tier until it initialises",
        "the cause precedes this message in the log",
        BOTH,
        _check_failed_start,
    ),
    DoctorRule(
        "log.display",
        "warning",
        "the display engine did not finish an update of the picture",
        "the picture stands or flickers; compute work goes on",
        "update kernel and linux-firmware; another cable, port or refresh rate; work over ssh before --hazard 2",
        BOTH,
        make_event_rule("display"),
    ),
    DoctorRule(
        "log.task-blocked",
        "broken",
        "a program waits in amdgpu and does not come back",
        "the kernel reports it after two minutes: the GPU or its driver stopped without another message",
        f"zinc-rt doctor --hung, before a reboot. {_SEND}",
        BOTH,
        make_event_rule("task-blocked"),
    ),
)
