"""Module parameters that change what works, as a table. Values that change nothing for compute are left alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from zinc_rt.doctor.finding import Severity
from zinc_rt.doctor.machine import InspectedMachine
from zinc_rt.doctor.reading import integer
from zinc_rt.doctor.rule import BOTH, T1, T2, DoctorRule, Seen, logged


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of amdgpu. `when` takes the value as a number. Meanings: amdgpu_drv.c of Linux 6.8 to 7.0."""

    name: str
    when: Callable[[int], bool]
    severity: Severity
    why: str
    tiers: tuple[str, ...] = BOTH


def _is(*values: int) -> Callable[[int], bool]:
    return lambda value: value in values


PARAMETERS = (
    Parameter("fw_load_type", _is(0, 1), "broken", "chips since Navi load firmware through the PSP only"),
    Parameter("ip_block_mask", lambda v: v & 0xFFF != 0xFFF, "broken", "hardware blocks are switched off by hand"),
    Parameter(
        "discovery", _is(0), "broken", "the chip's own table of its blocks is not read: gfx11 and gfx12 need it"
    ),
    Parameter("emu_mode", _is(1), "broken", "the driver skips what only an emulator lacks"),
    Parameter(
        "dpm",
        _is(0),
        "broken",
        "no power management: the GPU stays at its boot clocks, and its SMU is not started",
    ),
    Parameter(
        "sched_policy",
        _is(2),
        "broken",
        "no hardware scheduler: gfx11 and gfx12 have queues only through MES",
        (T1,),
    ),
    Parameter(
        "halt_if_hws_hang",
        _is(1),
        "warning",
        "a hung scheduler halts the GPU instead of resetting it: for debugging",
        (T1,),
    ),
    Parameter(
        "gpu_recovery", _is(0), "warning", "a hung GPU is not reset: the first hang lasts until the next boot"
    ),
    Parameter("vm_fault_stop", _is(1, 2), "warning", "a page fault stops the GPU instead of ending its process"),
    Parameter("vramlimit", lambda v: v > 0, "warning", "VRAM is cut to this many MiB"),
    Parameter(
        "vis_vramlimit", lambda v: v > 0, "warning", "the VRAM that the CPU reaches is cut to this many MiB"
    ),
    Parameter("gttsize", lambda v: 0 < v < 1024, "warning", "little system memory for the GPU: this many MiB"),
    Parameter("pcie_gen_cap", lambda v: v != 0, "warning", "the speed of the PCIe link is limited by hand"),
    Parameter("pcie_lane_cap", lambda v: v != 0, "warning", "the width of the PCIe link is limited by hand"),
    Parameter("rebar", _is(0), "warning", "resizing of the BAR is switched off: the CPU reaches 256 MiB of VRAM"),
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
    Parameter("uni_mes", _is(0), "note", "the older scheduler pair of MES and KIQ instead of one"),
    Parameter("noretry", _is(0), "note", "page faults are retried: a wrong address may hang instead of faulting"),
    Parameter("debug_mask", lambda v: v != 0, "note", "debugging switches of the driver are on"),
    Parameter("exp_hw_support", _is(1), "note", "hardware the kernel calls experimental is let in"),
    Parameter("mes_log_enable", _is(1), "note", "MES keeps a log, which costs time"),
)
_COMMON_VALUES = {"ip_block_mask": (0xFFFFFFFF, -1)}


def _value(machine: InspectedMachine, name: str) -> tuple[int, str] | None:
    """The value from sysfs; from the command line where that has none."""
    text, where = machine.module.parameters.get(name), f"sys/module/amdgpu/parameters/{name}"
    if text is None:
        text, where = machine.linux.option(f"amdgpu.{name}"), "proc/cmdline"
    number = {"y": 1, "n": 0, "on": 1, "off": 0}.get((text or "").lower(), integer(text))
    return None if number is None else (number, where)


def _wrong(severity: Severity) -> Callable[[InspectedMachine], Iterator[Seen]]:
    def look(machine: InspectedMachine) -> Iterator[Seen]:
        for row in PARAMETERS:
            found = _value(machine, row.name)
            if row.severity != severity or found is None or found[0] in _COMMON_VALUES.get(row.name, ()):
                continue
            value, where = found
            if row.when(value):
                yield Seen(
                    f"amdgpu.{row.name}={value}: {row.why}",
                    (f"{where}: {value}",),
                    why=row.why,
                    next=f"take amdgpu.{row.name} out of the command line and /etc/modprobe.d, and boot again"
                    if severity != "note"
                    else "",
                    tiers=row.tiers,
                )

    return look


OPTIONS = (  # of the kernel's command line: pattern of a word → why
    (r"pci=(?:.*,)?nomsi", "interrupts without MSI: amdgpu's may get lost"),
    (r"pci=(?:.*,)?(?:off|noacpi|conf1)", "the PCI bus is set up by hand"),
    (r"pcie_aspm=force", "link power saving is forced where the board does not offer it"),
    (r"mem=\d+[KMG]?", "memory is cut by hand"),
    (r"amdgpu\.msi=0", "interrupts without MSI may get lost"),
)


def _options(machine: InspectedMachine) -> Iterator[Seen]:
    for word in machine.linux.cmdline or ():
        for pattern, why in OPTIONS:
            if re.fullmatch(pattern, word):
                yield Seen(f"{word}: {why}", (f"proc/cmdline: {word}",), why=why)


def _user_queue(machine: InspectedMachine) -> Iterator[Seen]:
    """User queues, which t2 needs, have to be asked for; only a note, for t1 needs none of it."""
    if not any(gpu.driver == "amdgpu" for gpu in machine.wanted) or not machine.module.parameters:
        return
    found = _value(machine, "user_queue")
    if found is None:
        yield Seen(
            "this kernel's amdgpu has no user queues (they came with Linux 6.16)",
            next="use Linux 6.17 or newer for t2",
        )
    elif found[0] <= 0:
        yield Seen(f"user queues are off: amdgpu.user_queue={found[0]}, the default", (f"{found[1]}: {found[0]}",))


def _unknown(machine: InspectedMachine) -> Iterator[Seen]:
    for seen in logged("parameter-unknown", "parameter-invalid")(machine):
        named = re.search(r"unknown parameter '([^']+)'", " ".join(seen.evidence))
        title = f"amdgpu knows no parameter {named[1]}: it was ignored" if named else ""
        yield Seen(title, seen.evidence, at=seen.at)


_NEXT = "take it out of the command line and /etc/modprobe.d, and boot again"
RULES = (
    DoctorRule(
        "parameters.broken",
        "broken",
        "a module parameter switches off what is needed",
        "",
        _NEXT,
        BOTH,
        _wrong("broken"),
    ),
    DoctorRule(
        "parameters.warning", "warning", "a module parameter limits the GPU", "", _NEXT, BOTH, _wrong("warning")
    ),
    DoctorRule(
        "parameters.note", "note", "a module parameter is not at its default", "", "", BOTH, _wrong("note")
    ),
    DoctorRule("parameters.kernel", "warning", "an option of the kernel is in the way", "", _NEXT, BOTH, _options),
    DoctorRule(
        "parameters.unknown",
        "warning",
        "amdgpu ignored or refused a parameter",
        "what was meant to change did not: a misspelt name, or a kernel without it",
        "`modinfo -p amdgpu` lists what this kernel knows",
        BOTH,
        _unknown,
    ),
    DoctorRule(
        "parameters.user-queue",
        "note",
        "user queues are off",
        "t2 needs amdgpu.user_queue=1; t1 needs none of this",
        "boot with amdgpu.user_queue=1 for t2",
        (T2,),
        _user_queue,
    ),
)
