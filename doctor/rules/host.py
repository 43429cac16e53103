"""Rules about containers, virtual machines, memory, and other users of the GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from zinc_rt.doctor.machine import InspectedMachine
from zinc_rt.doctor.read_machine import is_denied
from zinc_rt.doctor.rule import BOTH, T1, DoctorRule, Observation, make_event_rule

LITTLE_BYTES = 2 << 30
FULL = 0.9  # of VRAM


def _check_wsl(machine: InspectedMachine) -> Iterator[Observation]:
    if machine.linux.wsl:
        dxg = machine.log.search(r"\bdxg") if machine.log else None
        logged = (f"kernel.log: {dxg.string}",) if dxg else ()
        yield Observation(evidence=(f"proc/version: {machine.linux.release}", *logged))


def _check_missing_nodes(machine: InspectedMachine) -> Iterator[Observation]:
    """A container shows the host's /sys, but only the device nodes that were passed to it."""
    kind = machine.host.container
    if not kind or not (machine.gpus or machine.drives_unlisted_gpu):
        return
    paths = {node.path for node in machine.nodes or ()}
    wanted = ["/dev/kfd", *(f"/dev/dri/{gpu.render}" for gpu in machine.is_relevant if gpu.render)]
    absent = (
        [p for p in wanted if is_refused_or_missing(machine, p)]
        if machine.nodes is None
        else [p for p in wanted if p not in paths]
    )
    absent = [p for p in absent if not is_denied(machine.capture, p.strip("/"))]
    if absent:
        yield Observation(
            f"this container ({kind}) has no access to {', '.join(absent)}",
            tuple(f"dev.txt: no {p}" for p in absent),
        )


def is_refused_or_missing(machine: InspectedMachine, path: str) -> bool:
    reason = machine.capture.unreadable.get(path.strip("/"), "")
    return "no such" in reason.lower() or "missing" in reason.lower()


def _check_hidden_gpus(machine: InspectedMachine) -> Iterator[Observation]:
    """KFD shows a process only the GPUs that its device cgroup allows."""
    hidden = "cgroup" in machine.kfd_problem or "empty" in machine.kfd_problem
    if hidden and not any(gpu.node for gpu in machine.is_relevant):
        yield Observation(f"KFD hides the GPU from this process: {machine.kfd_problem}", (machine.kfd_problem,))


def _check_virtual_machine(machine: InspectedMachine) -> Iterator[Observation]:
    if machine.host.hypervisor and machine.gpus:
        yield Observation(f"this is a virtual machine ({machine.host.hypervisor}) with GPU passthrough")


def _check_little_memory(machine: InspectedMachine) -> Iterator[Observation]:
    left, swap = machine.host.available_bytes, machine.host.swap_free_bytes or 0
    if left is not None and left < LITTLE_BYTES and machine.gpus:
        yield Observation(
            f"{left >> 20} MiB of memory are free ({swap >> 20} MiB of swap)",
            (f"proc/meminfo: MemAvailable {left >> 10} kB",),
        )


def _check_huge_pages(machine: InspectedMachine) -> Iterator[Observation]:
    pages, total = machine.host.hugepages, machine.host.total_bytes
    if pages and total and pages[1] * (2 << 20) > total // 2 and pages[0] * (2 << 20) > total // 4:
        yield Observation(
            f"{pages[0]} huge pages are reserved but unused: {pages[0] * 2} MiB unavailable to others"
        )


def _check_other_users(machine: InspectedMachine) -> Iterator[Observation]:
    names = sorted({" ".join(line.split()[:2]) for line in machine.users if "/dev/kfd" in line})
    if names:
        yield Observation(
            f"other processes use KFD: {', '.join(names[:5])}", tuple(f"users.txt: {name}" for name in names[:5])
        )


def _check_full_vram(machine: InspectedMachine) -> Iterator[Observation]:
    for gpu in machine.is_relevant:
        used, whole = gpu.vram_used_bytes, gpu.vram_bytes
        if used and whole and used > FULL * whole and not gpu.integrated:
            title = f"{used >> 20} of {whole >> 20} MiB of VRAM of {gpu.title} are in use"
            yield Observation(title, (f"mem_info_vram_used: {used}",), gpu.address)


def _check_displays(machine: InspectedMachine) -> Iterator[Observation]:
    for gpu in machine.is_relevant:
        if gpu.displays:
            yield Observation(f"{gpu.title} lights {', '.join(gpu.displays)}", about=gpu.address)


def _check_reset_reason(machine: InspectedMachine) -> Iterator[Observation]:
    for seen in make_event_rule("reset-reason")(machine):
        reason = re.search(r"reset reason \[\w+\]: (.*)", " ".join(seen.evidence))
        yield replace(seen, title=f"the machine was reset before this boot: {reason[1] if reason else ''}".strip())


# arch/x86/mm/mem_encrypt.c: also active by default, before Linux 5.15 and with AMD_MEM_ENCRYPT_ACTIVE_BY_DEFAULT
_ENCRYPTED = r"AMD (?:Secure )?Memory Encryption .*\bSME\b"
# amdgpu_drv.c refuses Raven; other GPUs get no memory at an address within their DMA mask
_DENIED_MEMORY = r"SME is not compatible with|No suitable DMA available|failed with error -12\b|\(-12\)"


def _check_memory_encryption(machine: InspectedMachine) -> Iterator[Observation]:
    """Report encrypted memory where the driver could not start or map host memory. A bit of each address marks
    encrypted memory; for a GPU whose DMA mask lacks that bit the kernel copies through the bounce buffer.
    """
    log = machine.log
    if log is None:
        return
    active = log.search(_ENCRYPTED)
    failed = [*log.named("init-failed", "gpu-memory", "bounce-buffer"), *log.unrecognised]
    denied = [event for event in failed if event.name == "bounce-buffer" or re.search(_DENIED_MEMORY, event.text)]
    refused = log.search(r"amdgpu.*SME is not compatible with")
    if (active and denied) or refused:
        lines = [match.string for match in (active, refused) if match] + [event.text for event in denied[:1]]
        yield Observation(evidence=tuple(f"kernel.log: {line}" for line in lines))


RULES = (
    DoctorRule(
        "host.memory-encryption",
        "broken",
        "memory encryption (SME) is active, and amdgpu gets no memory that the GPU can address",
        "the bit that marks encrypted memory is beyond the GPU's DMA mask: a transfer needs the IOMMU or a copy",
        "remove mem_encrypt=on from the command line, or add mem_encrypt=off; TSME in the BIOS encrypts memory "
        "without this bit",
        BOTH,
        _check_memory_encryption,
    ),
    DoctorRule(
        "host.bounce-buffer",
        "broken",
        "the bounce buffer (swiotlb) has no space for the GPU's transfers",
        "the kernel copies transfers whose memory the GPU cannot address, in pieces of at most 256 KiB; larger "
        "ones fail with ENOMEM",
        "let the IOMMU translate: remove amd_iommu=off, remove iommu=soft, remove swiotlb=force; under Xen use a "
        "newer Xen; a larger bounce buffer does not help where a single transfer is too large",
        BOTH,
        make_event_rule("bounce-buffer"),
    ),
    DoctorRule(
        "host.reset-reason",
        "warning",
        "the machine was reset before this boot",
        "the processor recorded why: heat, the power supply, a watchdog or an uncorrected error",
        "thermal: check cooling; shutdown pin: the power supply and its cables, one per connector of the GPU; "
        "sync flood: memory and PCIe errors (journalctl -k -b -1); run nothing above --hazard 0 until it is gone",
        BOTH,
        _check_reset_reason,
    ),
    DoctorRule(
        "host.machine-check",
        "warning",
        "the processor reported a hardware error",
        "memory or the processor is faulty: errors of the GPU may be consequences",
        "test memory without overclocking (EXPO, XMP off); decode the lines with rasdaemon",
        BOTH,
        make_event_rule("machine-check"),
    ),
    DoctorRule(
        "host.hot",
        "warning",
        "the processor reached its temperature limit",
        "the machine slows down or turns itself off under load",
        "check the cooler and the airflow of the case",
        BOTH,
        make_event_rule("host-thermal"),
    ),
    DoctorRule(
        "host.wsl",
        "broken",
        "this is WSL: its kernel has no amdgpu",
        "WSL accesses the GPU through Windows (/dev/dxg), which neither t1 nor t2 supports",
        "boot Linux natively; here: zinc-rt pm4-test --device sim, or --tier t_cpu",
        BOTH,
        _check_wsl,
    ),
    DoctorRule(
        "container.nodes",
        "broken",
        "this container has no access to the GPU's device nodes",
        "t1 opens /dev/kfd and the render node, t2 the render node",
        "start it with --device /dev/kfd --device /dev/dri --group-add render (or keep-groups)",
        BOTH,
        _check_missing_nodes,
    ),
    DoctorRule(
        "container.hidden",
        "broken",
        "KFD hides the GPU from this process",
        "KFD shows a process only the GPUs that its device cgroup permits",
        "give the container access to both /dev/kfd and the GPU's /dev/dri/renderD*",
        (T1,),
        _check_hidden_gpus,
    ),
    DoctorRule(
        "host.virtual",
        "note",
        "this is a virtual machine",
        "resets, BARs and PCIe atomics also depend on the host; a hang may require a reboot of the host",
        "",
        BOTH,
        _check_virtual_machine,
    ),
    DoctorRule(
        "host.memory",
        "warning",
        "little memory is free",
        "weights are staged in system memory, and the driver evicts VRAM into it",
        "end processes that use much memory, or add swap",
        BOTH,
        _check_little_memory,
    ),
    DoctorRule(
        "host.huge-pages",
        "warning",
        "memory is reserved as huge pages",
        "neither the driver nor this runtime uses them",
        "sudo sysctl vm.nr_hugepages=0",
        BOTH,
        _check_huge_pages,
    ),
    DoctorRule(
        "host.out-of-memory",
        "warning",
        "the kernel ran out of memory and killed processes",
        "the killed processes may have been using the GPU",
        "use a smaller model or context; add memory or swap",
        BOTH,
        make_event_rule("host-memory"),
    ),
    DoctorRule(
        "host.vram-full",
        "warning",
        "VRAM is nearly full",
        "weights do not fit in the free part, or the driver evicts to system memory",
        "end the processes that use it (`fuser -v /dev/kfd /dev/dri/renderD*`)",
        BOTH,
        _check_full_vram,
    ),
    DoctorRule(
        "host.users",
        "note",
        "other processes use the GPU",
        "measured speeds are shared with them, and a hang ends their work",
        "end them before hazardous probes",
        BOTH,
        _check_other_users,
    ),
    DoctorRule(
        "host.display",
        "note",
        "the GPU drives a display",
        "a hang or reset also affects the display: pm4-test runs deliberate hangs there only on request",
        "work over ssh, or connect the display to another GPU, before --hazard 2",
        BOTH,
        _check_displays,
    ),
)
