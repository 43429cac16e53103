"""The table of questions that a capture leaves open: the rules that wait, and the one file that answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from zinc_rt.doctor.finding import Unknown
from zinc_rt.doctor.hung_facts import read_hung_facts
from zinc_rt.doctor.machine import InspectedGpu, InspectedMachine
from zinc_rt.doctor.rules import combinations


@dataclass(frozen=True, slots=True)
class UnknownQuestion:
    what: str
    paths: tuple[str, ...]  # whose reason is quoted
    open: Callable[[InspectedMachine], bool]
    next: str
    waits: tuple[str, ...] = ()
    matters: Callable[[InspectedMachine], bool] = lambda machine: False


def _is_always_unknown(machine: InspectedMachine) -> bool:
    return True


def _list_discrete_gpus(machine: InspectedMachine) -> list[InspectedGpu]:
    """Return the GPUs with a link and a BAR of their own; an APU has neither, and a virtual machine shows
    neither.
    """
    passed = bool(machine.host.hypervisor or machine.host.container)
    return [] if passed else [gpu for gpu in machine.is_relevant if not gpu.integrated and not gpu.gone]


def _start_is_unknown(machine: InspectedMachine) -> bool:
    return any(not gpu.started and not machine.start_logged(gpu) for gpu in machine.is_relevant)


def _kfd_is_unknown(machine: InspectedMachine) -> bool:
    nodes = {node.path for node in machine.nodes or ()}
    logged = machine.log is not None and machine.log.search(r"kfd.*added device 1002:")
    return machine.kfd is None and "/dev/kfd" not in nodes and not logged


def _access_is_unknown(machine: InspectedMachine) -> bool:
    """Return whether access of this user depends on groups, which it does unless the nodes are open to all."""
    compute = [node for node in machine.nodes or () if node.path.endswith("/kfd") or "/renderD" in node.path]
    return not compute or not all(node.mode[7:9] == "rw" or node.acl for node in compute)


QUESTIONS = (
    UnknownQuestion(
        "what the driver's rings wait for (amdgpu_fence_info)",
        ("amdgpu_fence_info", "sys/kernel/debug"),
        lambda m: m.hung and read_hung_facts(m.capture).first.fences is None,
        "as root, while it hangs: zinc-rt doctor --hung; or cat /sys/kernel/debug/dri/*/amdgpu_fence_info, twice",
        ("hung.ring", "hung.mes", "hung.idle"),
        _is_always_unknown,
    ),
    UnknownQuestion(
        "whether the GPU still raises interrupts",
        ("proc/interrupts",),
        lambda m: m.hung and read_hung_facts(m.capture).first.interrupts is None,
        "grep amdgpu /proc/interrupts > cap/proc/interrupts, and again some seconds later in cap/later/proc/",
        ("hung.interrupts", "hung.storm", "hung.idle"),
        _is_always_unknown,
    ),
    UnknownQuestion(
        "which queues are on the hardware, and how far they are (kfd/hqds)",
        ("kfd/hqds",),
        lambda m: m.hung and read_hung_facts(m.capture).first.queues is None,
        "as root, while it hangs: cat /sys/kernel/debug/kfd/hqds and mqds, twice",
        ("hung.queue", "hung.mes", "hung.idle", "hung.gone"),
        _is_always_unknown,
    ),
    UnknownQuestion(
        "whether anything advances: there is only one sample",
        ("later/",),
        lambda m: (
            m.hung
            and read_hung_facts(m.capture).first.fences is not None
            and read_hung_facts(m.capture).later.fences is None
        ),
        "the same files again some seconds later, below later/ or as sysfs-later.txt",
        ("hung.*",),
        _is_always_unknown,
    ),
    UnknownQuestion(
        "which tasks wait in the kernel (tasks.txt)",
        ("tasks.txt",),
        lambda m: m.hung and read_hung_facts(m.capture).tasks is None,
        "ps -eo pid,stat,comm,wchan:40 > tasks.txt",
        ("hung.reset", "hung.memory", "hung.task"),
        _is_always_unknown,
    ),
    UnknownQuestion(
        "whether a GPU is present",
        ("sys/class/drm", "lspci.txt"),
        lambda m: not m.gpus and not m.gpus_known,
        "lspci -nnvvv > lspci.txt",
        ("gpu.*",),
        _is_always_unknown,
    ),
    UnknownQuestion(
        "the kernel log (kernel.log): hangs, resets, missing firmware",
        ("kernel.log",),
        lambda m: m.log is None,
        "sudo dmesg > kernel.log (or journalctl -k -b)",
        ("log.*", "ras.*", "firmware.*", "pci.errors", "pci.lost", "power.resume", "power.thermal"),
        _is_always_unknown,
    ),
    UnknownQuestion(
        "what the errors of the driver mean that no rule matches (log.unrecognised)",
        (),
        lambda m: m.log is not None and bool(m.log.unrecognised),
        "search for the text of the first one, or send it with a bundle: zinc-rt bundle",
        ("log.*",),
        _is_always_unknown,
    ),
    UnknownQuestion(
        "the beginning of the boot: the log has been overwritten since, or is an extract",
        (),
        lambda m: m.log is not None and not m.log.whole and bool(m.log.lines),
        "journalctl -k -b > kernel.log",
        ("firmware.missing", "log.init-failed", "kfd.absent", "pci.bar-unassigned"),
        _start_is_unknown,
    ),
    UnknownQuestion(
        "whether amdgpu is loaded and has started the GPU",
        ("proc/modules",),
        lambda m: bool(m.is_relevant) and m.module.loaded is None and _start_is_unknown(m),
        "capture proc/modules, and lspci -nnk > lspci.txt",
        ("module.not-loaded", "gpu.no-driver"),
        _is_always_unknown,
    ),
    UnknownQuestion(
        "what KFD lists",
        ("sys/class/kfd",),
        lambda m: bool(m.is_relevant) and _kfd_is_unknown(m),
        "ls -ln /dev/kfd /dev/dri/* > dev.txt",
        ("kfd.absent", "gpu.not-in-kfd", "permissions.nodes"),
        _is_always_unknown,
    ),
    UnknownQuestion(
        "the present user and groups (id.txt)",
        ("id.txt",),
        lambda m: m.user is None,
        "id > id.txt",
        ("permissions.group",),
        lambda m: bool(m.gpus) and _access_is_unknown(m),
    ),
    UnknownQuestion(
        "the PCIe link of the GPU: lanes and speed",
        ("lspci.txt",),
        lambda m: any(not any(link.width for link in gpu.links) for gpu in _list_discrete_gpus(m)),
        "sudo lspci -nnvvv > lspci.txt (package pciutils), or sysfs.txt",
        ("pci.link-width", "pci.link-speed"),
        _is_always_unknown,
    ),
    UnknownQuestion(
        "the amount of VRAM that the CPU can access",
        ("mem_info_vis_vram_total",),
        lambda m: any(gpu.bar_bytes is None and gpu.visible_bytes is None for gpu in _list_discrete_gpus(m)),
        "lspci -nnvvv > lspci.txt, or sysfs.txt",
        ("pci.small-bar",),
        _is_always_unknown,
    ),
    UnknownQuestion(
        "which kernel runs",
        ("proc/version",),
        lambda m: m.linux.release is None,
        "capture proc/version",
        ("module.kernel-too-old", "combination.*"),
        lambda m: bool(m.gpus),
    ),
    UnknownQuestion(
        "the kernel's command line",
        ("proc/cmdline",),
        lambda m: m.linux.cmdline is None,
        "capture proc/cmdline",
        ("parameters.*", "module.blacklisted"),
        lambda m: bool(m.gpus) and not m.module.parameters,
    ),
    UnknownQuestion(
        "the module's parameters",
        ("sys/module/amdgpu/parameters",),
        lambda m: bool(m.module.loaded) and not m.module.parameters,
        "capture sys/module/amdgpu/parameters (sysfs.txt)",
        ("parameters.*",),
    ),
    UnknownQuestion(
        "firmware versions",
        ("firmware.txt",),
        lambda m: bool(m.is_relevant) and not any(gpu.firmware for gpu in m.is_relevant),
        "capture sys/class/drm/card*/device/fw_version (sysfs.txt); or, as root, amdgpu_firmware_info of debugfs",
        ("combination.*", "firmware.old-for-t2", "firmware.no-mes"),
        lambda m: any("firmware" in missing for _, missing in combinations.find_pending_rows(m)),
    ),
    UnknownQuestion(
        "installed packages (packages.txt)",
        ("packages.txt",),
        lambda m: m.packages is None,
        "dpkg-query -W, rpm -qa or pacman -Q > packages.txt",
        ("combination.*", "module.dkms-unused", "firmware.package-old"),
        lambda m: any("packages" in missing for _, missing in combinations.find_pending_rows(m)),
    ),
    UnknownQuestion(
        "AER, ACS and the path to the GPU (lspci.txt)",
        ("lspci.txt",),
        lambda m: bool(m.gpus) and "lspci.txt" not in m.capture.files,
        "sudo lspci -nnvvv > lspci.txt (package pciutils)",
        ("pci.error-status", "pci.acs"),
    ),
    UnknownQuestion(
        "whether an error on the PCIe bus is the GPU's: the log names a bridge whose place is not known",
        ("lspci.txt",),
        lambda m: m.log is not None and bool(m.log.elsewhere) and "lspci.txt" not in m.capture.files,
        "lspci -nnvvv > lspci.txt",
        ("pci.errors", "pci.corrected-errors"),
        lambda m: bool(m.gpus),
    ),
    UnknownQuestion(
        "which distribution",
        ("etc/os-release",),
        lambda m: m.host.distribution is None,
        "capture etc/os-release",
        ("permissions.group",),
    ),
    UnknownQuestion(
        "free memory",
        ("proc/meminfo",),
        lambda m: m.host.available_bytes is None,
        "capture proc/meminfo",
        ("host.memory", "host.huge-pages"),
    ),
    UnknownQuestion(
        "temperatures and the power limit",
        ("hwmon",),
        lambda m: bool(m.is_relevant) and not any(gpu.temperatures for gpu in m.is_relevant),
        "capture hwmon of the GPU while it is awake",
        ("power.hot", "power.cap"),
    ),
)


def list_unknowns(machine: InspectedMachine) -> tuple[Unknown, ...]:
    """Return the open questions, the relevant ones first."""
    unreadable = machine.capture.unreadable
    rows = []
    for question in QUESTIONS:
        if question.open(machine):
            reasons = [
                reason for name, reason in unreadable.items() if any(path in name for path in question.paths)
            ]
            reason = reasons[0] if reasons else "not in the capture"
            rows.append(Unknown(question.what, reason, question.next, question.waits, question.matters(machine)))
    if machine.kfd_problem and not any(gpu.node for gpu in machine.is_relevant):
        waits = ("gpu.not-in-kfd",)
        rows.append(Unknown("KFD's topology", machine.kfd_problem, "zinc-rt devices", waits, matters=True))
    return tuple(sorted(rows, key=lambda row: not row.matters))
