"""Rules about module parameters that affect operation, as a table. Values without effect on compute are
ignored."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from zinc_rt.doctor.finding import Severity
from zinc_rt.doctor.machine import InspectedMachine
from zinc_rt.doctor.reading import integer
from zinc_rt.doctor.rule import BOTH, T1, T2, DoctorRule, Seen, rule_for_events


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of amdgpu. `when` takes the value as a number. Meanings: amdgpu_drv.c of Linux 6.8 to
    7.0."""

    name: str
    when: Callable[[int], bool]
    severity: Severity
    why: str
    tiers: tuple[str, ...] = BOTH


def _is(*values: int) -> Callable[[int], bool]:
    return lambda value: value in values


PARAMETERS = (
    Parameter("fw_load_type", _is(0, 1), "broken", "chips since Navi load firmware only through the PSP"),
    Parameter("ip_block_mask", lambda v: v & 0xFFF != 0xFFF, "broken", "hardware blocks are disabled manually"),
    Parameter("discovery", _is(0), "broken", "the chip's IP discovery table is not read: gfx11 and gfx12 need it"),
    Parameter("emu_mode", _is(1), "broken", "the driver runs in emulator mode and skips hardware initialisation"),
    Parameter(
        "dpm",
        _is(0),
        "broken",
        "no power management: the GPU stays at its boot clocks, and the SMU is not started",
    ),
    Parameter(
        "sched_policy",
        _is(2),
        "broken",
        "no hardware scheduler: gfx11 and gfx12 support queues only through MES",
        (T1,),
    ),
    Parameter(
        "halt_if_hws_hang",
        _is(1),
        "warning",
        "a hung scheduler halts the GPU instead of resetting it; for debugging only",
        (T1,),
    ),
    Parameter(
        "gpu_recovery", _is(0), "warning", "a hung GPU is not reset: the first hang lasts until the next reboot"
    ),
    Parameter("vm_fault_stop", _is(1, 2), "warning", "a page fault stops the GPU instead of ending its process"),
    Parameter("vramlimit", lambda v: v > 0, "warning", "VRAM is limited to this many MiB"),
    Parameter("vis_vramlimit", lambda v: v > 0, "warning", "CPU-visible VRAM is limited to this many MiB"),
    Parameter(
        "gttsize", lambda v: 0 < v < 1024, "warning", "system memory for the GPU is limited to this many MiB"
    ),
    Parameter("pcie_gen_cap", lambda v: v != 0, "warning", "the speed of the PCIe link is limited manually"),
    Parameter("pcie_lane_cap", lambda v: v != 0, "warning", "the width of the PCIe link is limited manually"),
    Parameter("rebar", _is(0), "warning", "BAR resizing is disabled: the CPU can access 256 MiB of VRAM"),
    Parameter(
        "max_num_of_queues_per_device", lambda v: 0 < v < 16, "warning", "few compute queues for each GPU", (T1,)
    ),
    Parameter(
        "cwsr_enable",
        _is(0),
        "note",
        "waves are not saved when a queue is preempted: a long kernel blocks others",
        (T1,),
    ),
    Parameter("uni_mes", _is(0), "note", "uses the older pair of MES and KIQ schedulers instead of one"),
    Parameter(
        "noretry", _is(0), "note", "page faults are retried: an invalid address may hang instead of faulting"
    ),
    Parameter("debug_mask", lambda v: v != 0, "note", "debug switches of the driver are enabled"),
    Parameter("exp_hw_support", _is(1), "note", "hardware that the kernel calls experimental is enabled"),
    Parameter("mes_log_enable", _is(1), "note", "MES writes a log, which costs time"),
)
_COMMON_VALUES = {"ip_block_mask": (0xFFFFFFFF, -1)}


def value(machine: InspectedMachine, name: str) -> tuple[int, str] | None:
    """Return the value from sysfs, or from the command line if sysfs has none."""
    text, where = machine.module.parameters.get(name), f"sys/module/amdgpu/parameters/{name}"
    if text is None:
        text, where = machine.linux.option(f"amdgpu.{name}"), "proc/cmdline"
    number = {"y": 1, "n": 0, "on": 1, "off": 0}.get((text or "").lower(), integer(text))
    return None if number is None else (number, where)


def _wrong(severity: Severity) -> Callable[[InspectedMachine], Iterator[Seen]]:
    def look(machine: InspectedMachine) -> Iterator[Seen]:
        for row in PARAMETERS:
            result = value(machine, row.name)
            if row.severity != severity or result is None or result[0] in _COMMON_VALUES.get(row.name, ()):
                continue
            number, where = result
            if row.when(number):
                yield Seen(
                    f"amdgpu.{row.name}={number}: {row.why}",
                    (f"{where}: {number}",),
                    why=row.why,
                    next=f"remove amdgpu.{row.name} from the command line and /etc/modprobe.d, and reboot"
                    if severity != "note"
                    else "",
                    tiers=row.tiers,
                )

    return look


OPTIONS = (  # of the kernel's command line: pattern of a word → why
    (r"pci=(?:.*,)?nomsi", "interrupts without MSI: those of amdgpu may be lost"),
    (r"pci=(?:.*,)?(?:off|noacpi|conf1)", "the PCI bus is configured manually"),
    (r"pcie_aspm=force", "link power management is forced on boards that do not support it"),
    (r"mem=\d+[KMG]?", "memory is limited manually"),
    (r"amdgpu\.msi=0", "interrupts without MSI may be lost"),
)


def _options(machine: InspectedMachine) -> Iterator[Seen]:
    for word in machine.linux.cmdline or ():
        for pattern, reason in OPTIONS:
            if re.fullmatch(pattern, word):
                yield Seen(f"{word}: {reason}", (f"proc/cmdline: {word}",), why=reason)


def _user_queue(machine: InspectedMachine) -> Iterator[Seen]:
    """User queues, which t2 needs, must be enabled explicitly; this is only a note, because t1 does not need
    them.
    """
    if not any(gpu.driver == "amdgpu" for gpu in machine.is_relevant) or not machine.module.parameters:
        return
    result = value(machine, "user_queue")
    if result is None:
        yield Seen(
            "this kernel's amdgpu has no user queues (added in Linux 6.16)",
            next="use Linux 6.17 or newer for t2",
        )
    elif result[0] <= 0:
        yield Seen(
            f"user queues are off: amdgpu.user_queue={result[0]}, the default", (f"{result[1]}: {result[0]}",)
        )


def _unknown(machine: InspectedMachine) -> Iterator[Seen]:
    for seen in rule_for_events("parameter-unknown", "parameter-invalid")(machine):
        named = re.search(r"unknown parameter '([^']+)'", " ".join(seen.evidence))
        title = f"amdgpu has no parameter {named[1]}: it was ignored" if named else ""
        yield Seen(title, seen.evidence, at=seen.at)


_NEXT = "remove it from the command line and /etc/modprobe.d, and reboot"
RULES = (
    DoctorRule(
        "parameters.broken",
        "broken",
        "a module parameter disables a required function",
        "",
        _NEXT,
        BOTH,
        _wrong("broken"),
    ),
    DoctorRule(
        "parameters.warning", "warning", "a module parameter limits the GPU", "", _NEXT, BOTH, _wrong("warning")
    ),
    DoctorRule(
        "parameters.note", "note", "a module parameter differs from its default", "", "", BOTH, _wrong("note")
    ),
    DoctorRule("parameters.kernel", "warning", "a kernel option causes a problem", "", _NEXT, BOTH, _options),
    DoctorRule(
        "parameters.unknown",
        "warning",
        "amdgpu ignored or rejected a parameter",
        "the intended change has no effect: the name is misspelt, or this kernel does not have it",
        "`modinfo -p amdgpu` lists the parameters of this kernel",
        BOTH,
        _unknown,
    ),
    DoctorRule(
        "parameters.user-queue",
        "note",
        "user queues are off",
        "t2 needs amdgpu.user_queue=1; t1 does not",
        "boot with amdgpu.user_queue=1 for t2",
        (T2,),
        _user_queue,
    ),
)
