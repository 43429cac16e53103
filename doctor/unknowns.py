"""The table of questions that a capture leaves open, with the way to answer each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from zinc_rt.doctor.finding import Unknown
from zinc_rt.doctor.machine import InspectedMachine


@dataclass(frozen=True, slots=True)
class Question:
    what: str
    paths: tuple[str, ...]  # whose reason is quoted
    open: Callable[[InspectedMachine], bool]
    next: str


QUESTIONS = (
    Question(
        "the kernel log (kernel.log): hangs, resets, missing firmware",
        ("kernel.log",),
        lambda m: m.log is None,
        "sudo zinc-rt doctor, or sudo sysctl kernel.dmesg_restrict=0 until the next boot",
    ),
    Question(
        "the beginning of the boot: the log has been overwritten since",
        (),
        lambda m: m.log is not None and not m.log.whole and bool(m.log.lines),
        "journalctl -k -b > kernel.log",
    ),
    Question("which kernel runs", ("proc/version",), lambda m: m.linux.release is None, "capture proc/version"),
    Question(
        "the kernel's command line", ("proc/cmdline",), lambda m: m.linux.cmdline is None, "capture proc/cmdline"
    ),
    Question(
        "whether amdgpu is loaded",
        ("proc/modules",),
        lambda m: m.module.loaded is None,
        "capture proc/modules and sys/module/amdgpu",
    ),
    Question(
        "the module's parameters",
        ("sys/module/amdgpu/parameters",),
        lambda m: bool(m.module.loaded) and not m.module.parameters,
        "capture sys/module/amdgpu/parameters",
    ),
    Question(
        "whether a GPU is present",
        ("sys/class/drm", "lspci.txt"),
        lambda m: not m.gpus and not m.gpus_known,
        "capture sys/class/drm and lspci.txt",
    ),
    Question(
        "firmware versions",
        ("firmware.txt",),
        lambda m: bool(m.wanted) and not any(gpu.firmware for gpu in m.wanted),
        "sudo zinc-rt doctor reads them from debugfs",
    ),
    Question("the present user and groups (id.txt)", ("id.txt",), lambda m: m.user is None, "id > id.txt"),
    Question(
        "installed packages (packages.txt)",
        ("packages.txt",),
        lambda m: m.packages is None,
        "dpkg-query -W, rpm -qa or pacman -Q > packages.txt",
    ),
    Question(
        "the PCIe path to the GPU, ACS, AER (lspci.txt)",
        ("lspci.txt",),
        lambda m: bool(m.gpus) and "lspci.txt" not in m.capture.files,
        "sudo lspci -nnvvv > lspci.txt (package pciutils)",
    ),
    Question(
        "what KFD lists",
        ("sys/class/kfd",),
        lambda m: m.kfd is None and bool(m.module.loaded) and bool(m.gpus),
        "capture sys/class/kfd/kfd/topology",
    ),
    Question(
        "the amount of VRAM that the CPU can access",
        (),
        lambda m: any(not gpu.vram_bytes and not gpu.integrated for gpu in m.wanted),
        "capture mem_info_vram_total and mem_info_vis_vram_total",
    ),
    Question(
        "which distribution", ("etc/os-release",), lambda m: m.host.distribution is None, "capture etc/os-release"
    ),
    Question("free memory", ("proc/meminfo",), lambda m: m.host.available_bytes is None, "capture proc/meminfo"),
    Question(
        "temperatures and the power limit",
        ("hwmon",),
        lambda m: bool(m.wanted) and not any(gpu.temperatures for gpu in m.wanted),
        "capture hwmon of the GPU while it is awake",
    ),
)


def unknowns(machine: InspectedMachine) -> tuple[Unknown, ...]:
    unreadable = machine.capture.unreadable
    found = []
    for question in QUESTIONS:
        if question.open(machine):
            reasons = [why for name, why in unreadable.items() if any(path in name for path in question.paths)]
            found.append(Unknown(question.what, reasons[0] if reasons else "not in the capture", question.next))
    if machine.kfd_problem and not any(gpu.node for gpu in machine.wanted):
        found.append(Unknown("KFD's topology", machine.kfd_problem, "zinc-rt devices"))
    return tuple(found)
