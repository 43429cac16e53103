"""Rules about module parameters that affect operation, as a table. Values without effect on compute are
ignored."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from zinc_rt.doctor.finding import Severity
from zinc_rt.doctor.machine import InspectedMachine
from zinc_rt.doctor.reading import parse_integer
from zinc_rt.doctor.rule import BOTH, T1, T2, DoctorRule, Observation, make_event_rule


@dataclass(frozen=True, slots=True)
class ParameterRule:
    """A parameter of amdgpu. `when` takes the value as a number. Meanings: amdgpu_drv.c of Linux 6.8 to
    7.0."""

    name: str
    when: Callable[[int], bool]
    severity: Severity
    why: str
    tiers: tuple[str, ...] = BOTH


def _has_value(*values: int) -> Callable[[int], bool]:
    return lambda value: value in values


PARAMETERS = (
    ParameterRule(
        "fw_load_type", _has_value(0, 1), "broken", "chips since Navi load firmware only through the PSP"
    ),
    ParameterRule(
        "ip_block_mask", lambda v: v & 0xFFF != 0xFFF, "broken", "hardware blocks are disabled manually"
    ),
    ParameterRule(
        "discovery", _has_value(0), "broken", "the chip's IP discovery table is not read: gfx11 and gfx12 need it"
    ),
    ParameterRule(
        "emu_mode", _has_value(1), "broken", "the driver runs in emulator mode and skips hardware initialisation"
    ),
    ParameterRule(
        "dpm",
        _has_value(0),
        "broken",
        "no power management: the GPU stays at its boot clocks, and the SMU is not started",
    ),
    ParameterRule(
        "sched_policy",
        _has_value(2),
        "broken",
        "no hardware scheduler: gfx11 and gfx12 support queues only through MES",
        (T1,),
    ),
    ParameterRule(
        "halt_if_hws_hang",
        _has_value(1),
        "warning",
        "a hung scheduler halts the GPU instead of resetting it; for debugging only",
        (T1,),
    ),
    ParameterRule(
        "gpu_recovery",
        _has_value(0),
        "warning",
        "a hung GPU is not reset: the first hang lasts until the next reboot",
    ),
    ParameterRule(
        "vm_fault_stop", _has_value(1, 2), "warning", "a page fault stops the GPU instead of ending its process"
    ),
    ParameterRule("vramlimit", lambda v: v > 0, "warning", "VRAM is limited to this many MiB"),
    ParameterRule("vis_vramlimit", lambda v: v > 0, "warning", "CPU-visible VRAM is limited to this many MiB"),
    ParameterRule(
        "gttsize", lambda v: 0 < v < 1024, "warning", "system memory for the GPU is limited to this many MiB"
    ),
    ParameterRule("pcie_gen_cap", lambda v: v != 0, "warning", "the speed of the PCIe link is limited manually"),
    ParameterRule("pcie_lane_cap", lambda v: v != 0, "warning", "the width of the PCIe link is limited manually"),
    ParameterRule(
        "rebar", _has_value(0), "warning", "BAR resizing is disabled: the CPU can access 256 MiB of VRAM"
    ),
    ParameterRule(
        "max_num_of_queues_per_device", lambda v: 0 < v < 16, "warning", "few compute queues for each GPU", (T1,)
    ),
    ParameterRule(
        "cwsr_enable",
        _has_value(0),
        "note",
        "waves are not saved when a queue is preempted: a long kernel blocks others",
        (T1,),
    ),
    ParameterRule(
        "uni_mes", _has_value(0), "note", "uses the older pair of MES and KIQ schedulers instead of one"
    ),
    ParameterRule(
        "noretry",
        _has_value(0),
        "note",
        "page faults are retried: an invalid address may hang instead of faulting",
    ),
    ParameterRule("debug_mask", lambda v: v != 0, "note", "debug switches of the driver are enabled"),
    ParameterRule(
        "exp_hw_support", _has_value(1), "note", "hardware that the kernel calls experimental is enabled"
    ),
    ParameterRule("mes_log_enable", _has_value(1), "note", "MES writes a log, which costs time"),
)
_COMMON_VALUES = {"ip_block_mask": (0xFFFFFFFF, -1)}


def read_parameter(machine: InspectedMachine, name: str) -> tuple[int, str] | None:
    """Return the value from sysfs, or from the command line if sysfs has none."""
    text, where = machine.module.parameters.get(name), f"sys/module/amdgpu/parameters/{name}"
    if text is None:
        text, where = machine.linux.option(f"amdgpu.{name}"), "proc/cmdline"
    number = {"y": 1, "n": 0, "on": 1, "off": 0}.get((text or "").lower(), parse_integer(text))
    return None if number is None else (number, where)


def _make_parameter_check(severity: Severity) -> Callable[[InspectedMachine], Iterator[Observation]]:
    def check_machine(machine: InspectedMachine) -> Iterator[Observation]:
        for row in PARAMETERS:
            result = read_parameter(machine, row.name)
            if row.severity != severity or result is None or result[0] in _COMMON_VALUES.get(row.name, ()):
                continue
            number, where = result
            if row.when(number):
                yield Observation(
                    f"amdgpu.{row.name}={number}: {row.why}",
                    (f"{where}: {number}",),
                    why=row.why,
                    next=f"remove amdgpu.{row.name} from the command line and /etc/modprobe.d, and reboot"
                    if severity != "note"
                    else "",
                    tiers=row.tiers,
                )

    return check_machine


OPTIONS = (  # of the kernel's command line: pattern of a word → why
    (r"pci=(?:.*,)?nomsi", "interrupts without MSI: those of amdgpu may be lost"),
    (r"pci=(?:.*,)?(?:off|noacpi|conf1)", "the PCI bus is configured manually"),
    (r"pcie_aspm=force", "link power management is forced on boards that do not support it"),
    (r"mem=\d+[KMG]?", "memory is limited manually"),
    (r"amdgpu\.msi=0", "interrupts without MSI may be lost"),
)


def _check_options(machine: InspectedMachine) -> Iterator[Observation]:
    for word in machine.linux.cmdline or ():
        for pattern, reason in OPTIONS:
            if re.fullmatch(pattern, word):
                yield Observation(f"{word}: {reason}", (f"proc/cmdline: {word}",), why=reason)


def _check_user_queues(machine: InspectedMachine) -> Iterator[Observation]:
    """User queues, which t2 needs, must be enabled explicitly; this is only a note, because t1 does not need
    them.
    """
    if not any(gpu.driver == "amdgpu" for gpu in machine.is_relevant) or not machine.module.parameters:
        return
    result = read_parameter(machine, "user_queue")
    if result is None:
        yield Observation(
            "this kernel's amdgpu has no user queues (added in Linux 6.16)",
            next="use Linux 6.17 or newer for t2",
        )
    elif result[0] <= 0:
        yield Observation(
            f"user queues are off: amdgpu.user_queue={result[0]}, the default", (f"{result[1]}: {result[0]}",)
        )


def _check_unknown_parameters(machine: InspectedMachine) -> Iterator[Observation]:
    for seen in make_event_rule("parameter-unknown", "parameter-invalid")(machine):
        named = re.search(r"unknown parameter '([^']+)'", " ".join(seen.evidence))
        title = f"amdgpu has no parameter {named[1]}: it was ignored" if named else ""
        yield Observation(title, seen.evidence, at=seen.at)


_NEXT = "remove it from the command line and /etc/modprobe.d, and reboot"
RULES = (
    DoctorRule(
        "parameters.broken",
        "broken",
        "a module parameter disables a required function",
        "",
        _NEXT,
        BOTH,
        _make_parameter_check("broken"),
    ),
    DoctorRule(
        "parameters.warning",
        "warning",
        "a module parameter limits the GPU",
        "",
        _NEXT,
        BOTH,
        _make_parameter_check("warning"),
    ),
    DoctorRule(
        "parameters.note",
        "note",
        "a module parameter differs from its default",
        "",
        "",
        BOTH,
        _make_parameter_check("note"),
    ),
    DoctorRule(
        "parameters.kernel", "warning", "a kernel option causes a problem", "", _NEXT, BOTH, _check_options
    ),
    DoctorRule(
        "parameters.unknown",
        "warning",
        "amdgpu ignored or rejected a parameter",
        "the intended change has no effect: the name is misspelt, or this kernel does not have it",
        "`modinfo -p amdgpu` lists the parameters of this kernel",
        BOTH,
        _check_unknown_parameters,
    ),
    DoctorRule(
        "parameters.user-queue",
        "note",
        "user queues are off",
        "t2 needs amdgpu.user_queue=1; t1 does not",
        "boot with amdgpu.user_queue=1 for t2",
        (T2,),
        _check_user_queues,
    ),
)
